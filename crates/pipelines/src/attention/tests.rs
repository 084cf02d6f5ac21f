//! The workload on the CPU: cases of a request, results of an iteration, and checks.

use laptime_bench::{AxisValue, Case, Iteration, Nanos, PlanError, Prepared, Simulated, Traffic, Workload};
use laptime_models::attention::{Kept, Sampled};

use super::{
    Attention,
    engine::{Built, Engine, make},
    iteration::AttentionIteration,
    plan::Spec,
};

/// The cases of a command line.
fn settled(line: &str) -> Result<Vec<Case>, PlanError> {
    let mut given: Vec<(String, Vec<String>)> = Vec::new();
    for word in line.split_whitespace() {
        match (word.strip_prefix("--"), given.last_mut()) {
            (Some(flag), _) => given.push((flag.replace('-', "_"), Vec::new())),
            (None, Some((_, words))) => words.push(word.to_owned()),
            (None, None) => panic!("{line} begins with a flag"),
        }
    }
    Ok(Attention.plan(&given)?.cases())
}

/// The values of some axes of each case.
fn cases(line: &str, axes: &str) -> Vec<String> {
    let shown = |case: &Case| {
        let values = axes.split(' ').map(|axis| case.get(axis).map_or_else(String::new, AxisValue::to_string));
        values.collect::<Vec<_>>().join(" ")
    };
    settled(line).unwrap_or_else(|error| panic!("{line}: {error}")).iter().map(shown).collect()
}

#[test]
fn kinds_alternate_within_a_length() {
    let line = "--seq_lens 1024 512 --attention_types dense sparse --batch_size 1 4";
    let expected = [
        "1024 1 dense",
        "1024 1 sparse",
        "1024 4 dense",
        "1024 4 sparse",
        "512 1 dense",
        "512 1 sparse",
        "512 4 dense",
        "512 4 sparse",
    ];
    assert_eq!(cases(line, "seq_len batch_size attention"), expected);
    assert_eq!(cases("", "attention seq_len").len(), 6);
}

#[test]
fn patterns_have_names_and_sizes_for_each_other() {
    let numbers = "pattern window global random";
    let line = "--attention sparse --seq-lens 64";
    assert_eq!(cases(line, numbers), ["small 512 64 32"]);
    let named = format!("{line} --pattern tiny,medium");
    assert_eq!(cases(&named, numbers), ["tiny 256 32 16", "medium 1024 128 64"]);
    assert_eq!(cases(&format!("{line} --pattern tiny --window 100"), numbers), ["custom 100 32 16"]);
    let all = format!("{line} --window 1024 --global 128 --random 64");
    assert_eq!(cases(&all, numbers), ["medium 1024 128 64"]);
    let twice = format!("{line} --pattern tiny,small --window 1 --global 2 --random 3");
    assert_eq!(cases(&twice, numbers), ["custom 1 2 3"], "the same numbers are one case");
}

#[test]
fn aliases_mean_the_same() {
    let line = "--attention sliding_window dca --seq-lens small --random-per per-row --no-causal --dtype float32";
    let axes = "attention seq_len random_per causal dtype";
    let expected = ["sliding-window 256 row false f32", "sparse 256 row false f32"];
    assert_eq!(cases(line, axes)[..2], expected);
    assert_eq!(cases("--attention dense --seq-lens 8 --heads 4", "heads kv_heads"), ["4 4"]);
    assert_eq!(cases("--attention dense --seq-lens 8 --heads 4 --kv-heads 2", "heads kv_heads"), ["4 2"]);
}

#[test]
fn an_unreadable_or_unused_mask_is_refused() {
    let refused = |line: &str| settled(line).unwrap_err().to_string();
    assert_eq!(refused("--block-mask m.txt"), "the mask `m.txt` applies to no requested attention");
    let missing = refused("--attention block-sparse --block-mask nowhere.txt");
    assert!(missing.starts_with("cannot read the mask `nowhere.txt`: "), "{missing}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "10\n1").unwrap();
    let wrong = refused(&format!("--attention block-sparse --block-mask {}", file.path().display()));
    assert!(wrong.ends_with("is not a mask: row 2 has 1 blocks, expected 2"), "{wrong}");
}

/// The only case of a command line, small by default.
fn case(line: &str) -> Case {
    let length = if line.contains("--seq-lens") { "" } else { "--seq-lens 200" };
    let cases = settled(&format!("--heads 4 --head-dim 16 --threads 2 {length} {line}")).unwrap();
    Attention.on_device(&cases[0], &Simulated::new())
}

fn ready(line: &str, act: impl FnOnce(&mut dyn Iteration)) {
    match Attention.prepare(&case(line), &Simulated::new()).unwrap() {
        Prepared::Ready(mut iteration) => act(&mut *iteration),
        Prepared::DoesNotApply(reason) => panic!("{reason}"),
        Prepared::DoesNotFit { .. } => panic!("memory is unlimited"),
    }
}

#[test]
fn the_default_dtype_depends_on_the_device() {
    let plain = &settled("--attention dense --seq-lens 8").unwrap()[0];
    assert_eq!(plain.text("dtype").unwrap(), "auto");
    let on_cpu = Attention.on_device(plain, &Simulated::new());
    assert_eq!(on_cpu.text("dtype").unwrap(), "f32");
    let asked = plain.with("dtype", "bf16");
    assert_eq!(Attention.on_device(&asked, &Simulated::new()), asked);
}

#[test]
fn every_kind_is_correct_and_reports_its_sparsity() {
    for kind in ["naive", "dense", "sparse", "sliding-window", "block-sparse"] {
        for rest in ["", "--no-causal", "--kv-heads 2 --dtype bf16", "--random-per row --batch-size 2"] {
            let line = format!("--attention {kind} --seq-lens 600 --window 20 --global 4 --random 5 {rest}");
            ready(&line, |iteration| {
                iteration.check().unwrap_or_else(|error| panic!("{kind} {rest}: {error}"));
                iteration.ready().unwrap();
                iteration.run().unwrap();
                let readings = iteration.readings(Nanos(1_000_000));
                let [sparsity, mass, error, rate, build] = readings[..] else { panic!("{readings:?}") };
                let keeps_all = ["naive", "dense"].contains(&kind);
                assert_eq!(build.is_none(), kind == "naive", "{kind}");
                assert!(rate.unwrap() > 0.0);
                assert_eq!(sparsity == Some(0.0), keeps_all, "{kind} {rest}: {sparsity:?}");
                assert_eq!(mass.unwrap() > 0.999, keeps_all, "{kind} {rest}: {mass:?}");
                assert_eq!(error.unwrap() < 0.01, keeps_all, "{kind} {rest}: {error:?}");
            });
        }
    }
}

#[test]
fn work_and_facts_count_the_kept_pairs() {
    ready("--attention dense", |iteration| {
        let work = iteration.work().unwrap();
        assert_eq!((work.flops, work.bytes), (4 * 4 * 16 * 200 * 201 / 2, 4 * 4 * 200 * 4 * 16));
        assert_eq!((work.dtype.as_str(), work.traffic), ("f32", Traffic::Read));
        let fact = |name: &str| iteration.facts().into_iter().find(|fact| fact.name == name).unwrap().value;
        assert_eq!(fact("connections"), AxisValue::Int(200 * 201 / 2));
        assert_eq!(fact("dense_flops"), AxisValue::Int(work.flops as i64));
        // Whole tiles up to the diagonal, and the end of the last eight rows.
        let executed = 64 * 64 * 6 + 8 * 200;
        assert_eq!(fact("executed_pairs"), AxisValue::Int(executed));
        assert_eq!(fact("flops"), AxisValue::Int(4 * 4 * 16 * executed));
        assert_eq!(fact("kernel"), "tiles of 64 x 64".into());
    });
    ready("--attention sliding-window --window 2", |iteration| {
        assert_eq!(iteration.work().unwrap().flops, 4 * 4 * 16 * (2 * 200 - 1));
    });
}

#[test]
fn invalid_cases_do_not_apply() {
    let refusal = |line: &str| match Attention.prepare(&case(line), &Simulated::new()).unwrap() {
        Prepared::DoesNotApply(reason) => reason,
        _ => panic!("{line} applies"),
    };
    assert_eq!(refusal("--kv-heads 3"), "4 query heads are not a multiple of 3 key heads");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[[1,0,0],[1,1,0],[0,1,1]]").unwrap();
    let line = format!("--attention block-sparse --block-mask {}", file.path().display());
    assert_eq!(refusal(&line), "a mask of 3 x 3 blocks needs a length divisible by 3, not 200");
    let device = Simulated::new();
    let fitting = Attention.prepare(&case(&line).with("seq_len", 192), &device).unwrap();
    let Prepared::Ready(mut iteration) = fitting else { panic!("three divides it") };
    iteration.check().unwrap();
}

#[test]
fn scores_that_do_not_fit_are_reported_before_anything_is_allocated() {
    let device = Simulated::with_memory(1 << 30);
    let prepare = |line: &str| Attention.prepare(&case(line), &device).unwrap();
    let length = "--seq-lens 32768";
    match prepare(&format!("--attention naive {length}")) {
        Prepared::DoesNotFit { needed, .. } => assert!(needed > 4 * 4 * (1 << 30)),
        _ => panic!("it does not fit"),
    }
    let predicted = |kind: &str, length: &str| {
        let case = case(&format!("--attention {kind} {length}"));
        Attention.parse(&case, &device).unwrap().predicted_bytes().unwrap()
    };
    assert!(predicted("dense", length) < 1 << 28);
    let (half, whole) = (predicted("sparse", "--seq-lens 100000"), predicted("sparse", "--seq-lens 200000"));
    assert!(whole < 2 * half, "memory grows with the length: {half}, {whole}");
    assert!(matches!(prepare("--attention block-sparse --seq-lens 2097151"), Prepared::DoesNotFit { .. }));
}

/// Changes one number.
struct Wrong<'a>(Box<dyn Engine + 'a>);

impl Engine for Wrong<'_> {
    fn build(&mut self, kept: &Kept) -> anyhow::Result<Built> {
        self.0.build(kept)
    }

    fn attend(&mut self) -> anyhow::Result<()> {
        self.0.attend()
    }

    fn result(&mut self) -> anyhow::Result<Box<dyn Fn(Sampled) -> Vec<f32> + Sync + '_>> {
        let right = self.0.result()?;
        let wrong = Sampled { batch: 0, head: 3, row: 199 };
        Ok(Box::new(move |at| {
            let factor = if at == wrong { 0.99 } else { 1.0 };
            right(at).into_iter().map(|number| number * factor).collect()
        }))
    }

    fn kernel(&self) -> String {
        String::new()
    }
}

#[test]
fn a_wrong_result_is_refused_with_its_position() {
    let device = Simulated::new();
    let spec = Spec::of(&case("--attention sparse")).unwrap();
    let engine = Wrong(make(&spec, &device).unwrap());
    let mut iteration = AttentionIteration::with(spec, Box::new(engine), &device).unwrap();
    let error = iteration.check().unwrap_err().to_string();
    let expected =
        "the result is wrong: sequence 0, head 3, token 199 is off by 1.00 % of it, at most 0.05 % is rounding";
    assert_eq!(error, expected);
}
