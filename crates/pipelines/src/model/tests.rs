//! The workload on a scripted decoder: cases of a request, calls of an iteration, and checks.

mod scripted;
mod scripted_trainer;
mod training;

use std::sync::{Arc, atomic::Ordering::Relaxed};

use laptime_bench::{AxisValue, Case, Iteration, Nanos, PlanError, Prepared, Simulated, Workload};

use self::scripted::{Calls, Fault, ScriptedMaker};
use super::Model;

pub fn model(fault: Fault) -> (Model, Arc<Calls>) {
    let calls = Arc::<Calls>::default();
    (Model { maker: Box::new(ScriptedMaker { fault, calls: Arc::clone(&calls) }) }, calls)
}

/// The cases of a command line.
pub fn settled(line: &str) -> Result<Vec<Case>, PlanError> {
    let mut given: Vec<(String, Vec<String>)> = Vec::new();
    for word in line.split_whitespace() {
        match (word.strip_prefix("--"), given.last_mut()) {
            (Some(flag), _) => given.push((flag.replace('-', "_"), Vec::new())),
            (None, Some((_, words))) => words.push(word.to_owned()),
            (None, None) => panic!("{line} begins with a flag"),
        }
    }
    for (_, words) in given.iter_mut().filter(|(_, words)| words.is_empty()) {
        words.push("true".to_owned());
    }
    Ok(model(Fault::None).0.plan(&given)?.cases())
}

/// The values of some axes of each case.
pub fn cases(line: &str, axes: &str) -> Vec<String> {
    let shown = |case: &Case| {
        let values = axes.split(' ').map(|axis| case.get(axis).map_or_else(String::new, AxisValue::to_string));
        values.collect::<Vec<_>>().join(" ")
    };
    settled(line).unwrap_or_else(|error| panic!("{line}: {error}")).iter().map(shown).collect()
}

const SHAPE: &str = "model test batch_size dtype attention";

#[test]
fn the_default_model_is_tiny_within_its_context() {
    assert_eq!(cases("", SHAPE), ["tiny pp512 1 f32 dense", "tiny tg128 1 f32 dense"]);
}

#[test]
fn a_model_size_has_the_defaults_of_cs336() {
    assert_eq!(cases("--model-size small", SHAPE), ["small forward_backward512 4 f32 naive"]);
    let line = "--model-sizes small medium large --context-length 512 --batch-size 4 --pass-type forward";
    assert_eq!(cases(line, "model seq_len batch_size"), ["small 512 4", "medium 512 4", "large 512 4"]);
    let any = cases("--model-sizes QWEN3-0.6b", SHAPE);
    assert_eq!(any, ["Qwen3-0.6B forward_backward512 4 f32 naive"], "the flag decides, not the model");
}

#[test]
fn a_preset_has_its_dtype_and_attention_and_runs_prefill_and_decode() {
    let expected = ["Qwen3-0.6B pp512 1 bf16 dense", "Qwen3-0.6B tg128 1 bf16 dense"];
    assert_eq!(cases("--preset qwen3-0.6b", SHAPE), expected);
    assert_eq!(cases("--model Qwen3-0.6B", SHAPE), expected);
    assert_eq!(cases("--preset Small", SHAPE), ["small pp512 1 f32 naive", "small tg128 1 f32 naive"]);
}

#[test]
fn presets_with_lengths_run_forward_passes() {
    let line = "--presets decoder_tiny decoder_small --seq_lens 512 1024 --batch_size 1 --no_training";
    let expected = ["decoder_tiny forward512 1", "decoder_tiny forward1024 1"];
    let of_small = ["decoder_small forward512 1", "decoder_small forward1024 1"];
    assert_eq!(cases(line, "model test batch_size"), [expected, of_small].concat());
}

#[test]
fn cases_run_from_short_to_long_grouped_by_dtype() {
    let line = "--seq-lens 256 64 128 --batch-size 2,1 --dtype bfloat16,float32";
    let each = ["1 64", "2 64", "1 128", "2 128", "1 256", "2 256"];
    let mut expected: Vec<String> =
        ["bf16", "f32"].iter().flat_map(|dtype| each.iter().map(move |shape| format!("{dtype} {shape}"))).collect();
    // 2 x 64 and 1 x 128 have the same number of tokens.
    assert_eq!(cases(line, "dtype batch_size seq_len").len(), expected.len());
    let tokens: Vec<i64> = settled(line)
        .unwrap()
        .iter()
        .filter(|case| case.text("dtype").unwrap() == "bf16")
        .map(|case| case.int("batch_size").unwrap() * case.int("seq_len").unwrap())
        .collect();
    assert!(tokens.is_sorted(), "{tokens:?}");
    let mut found = cases(line, "dtype batch_size seq_len");
    assert!(found[..6].iter().all(|case| case.starts_with("bf16")));
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn lengths_have_names() {
    assert_eq!(cases("--seq-lens small", "seq_len"), ["256", "512"]);
    assert_eq!(cases("--model-size small --context-length large", "seq_len"), ["4096", "8192"]);
}

#[test]
fn tests_have_short_names() {
    let line = "--preset tiny --test tg16@d100,pp8 --batch-size 2";
    let expected = ["prefill 8 0 2 pp8", "decode 16 100 2 tg16@d100"];
    assert_eq!(cases(line, "pass_type seq_len cache_tokens batch_size test"), expected);
}

#[test]
fn a_pass_has_a_default_length() {
    let line = "--preset tiny --pass-type prefill,decode --cache-tokens 100";
    assert_eq!(cases(line, "test"), ["pp412@d100", "tg128@d100"], "100 of 512 positions are in use");
}

#[test]
fn only_the_two_largest_sizes_are_reduced() {
    let line = "--model-sizes large xl 2.7B --reduced";
    let expected = ["large 512 4 false", "xl 256 2 true", "2.7B 128 1 true"];
    assert_eq!(cases(line, "model seq_len batch_size reduced"), expected);
    assert_eq!(cases("--model-size xl", "seq_len batch_size reduced"), ["512 4 false"]);
}

#[test]
fn invalid_requests_are_refused_with_a_hint() {
    for (line, error, hint) in [
        ("--preset qwen3-0.7b", "there is no model `qwen3-0.7b`", ""),
        ("--test pp512 --seq-len 5", "`test` and `seq_len` both select the pass", "leave out the other flag"),
        ("--test 512", "`512` is not a test", "ppN"),
        ("--preset tiny --model-dir here", "`model_dir` and `preset` both select a model", "leave out the other flag"),
    ] {
        match settled(line).unwrap_err() {
            PlanError::Refused { reason, hint: shown } => {
                assert!(reason.contains(error) && shown.contains(hint), "{line}: {reason}; {shown}");
            }
            other => panic!("{line}: {other}"),
        }
    }
    for (line, error) in [
        ("--batch-size 0", "axis `batch_size` takes whole numbers from 1 to 4294967295, not `0`"),
        (
            "--pass-type sideways",
            "axis `pass_type` takes one of forward, prefill, decode, backward, forward_backward, step, not `sideways`",
        ),
        ("--dtype f8", "axis `dtype` takes one of f32, bf16, f16, fp8, not `f8`"),
        ("--layers 3", "workload `model` has no axis `layers`"),
        ("--seq-len 1-100000+1 --batch-size 1,2", "the plan has 200000 cases; the maximum is 100000"),
    ] {
        assert_eq!(settled(line).unwrap_err().to_string(), error);
    }
}

pub fn with_iteration(line: &str, fault: Fault, act: impl FnOnce(&mut dyn Iteration, &Calls)) {
    let (model, calls) = model(fault);
    let case = settled(line).unwrap().remove(0);
    let device = Simulated::new();
    match model.prepare(&case, &device).unwrap() {
        Prepared::Ready(mut iteration) => act(&mut *iteration, &calls),
        _ => panic!("memory is unlimited"),
    }
}

#[test]
fn a_decode_iteration_starts_from_the_same_cache_and_reads_once() {
    with_iteration("--test tg16@d5 --batch-size 3", Fault::None, |iteration, calls| {
        iteration.check().unwrap();
        let before = (calls.step.load(Relaxed), calls.read.load(Relaxed));
        iteration.ready().unwrap();
        iteration.run().unwrap();
        assert_eq!((calls.step.load(Relaxed) - before.0, calls.read.load(Relaxed) - before.1), (16, 1));
        let readings = iteration.readings(Nanos(1_000_000));
        assert_eq!(readings, [Some(48_000.0), None, Some(1.0 / 16.0), None]);
    });
}

#[test]
fn a_prefill_iteration_runs_one_pass_after_the_cached_tokens() {
    with_iteration("--test pp16@d5", Fault::None, |iteration, calls| {
        iteration.check().unwrap();
        for _ in 0..3 {
            iteration.ready().unwrap();
            iteration.run().unwrap();
        }
        assert_eq!((calls.prefill.load(Relaxed), calls.step.load(Relaxed)), (1 + 1 + 3, 0));
        assert_eq!(iteration.readings(Nanos(2_000_000)), [Some(8_000.0), Some(2.0), None, None]);
    });
}

#[test]
fn a_forward_iteration_runs_without_a_cache() {
    with_iteration("--model-size tiny --context-length 8 --pass-type forward", Fault::None, |iteration, calls| {
        iteration.check().unwrap();
        assert_eq!((calls.forward.load(Relaxed), calls.prefill.load(Relaxed)), (1, 0));
        assert_eq!(iteration.readings(Nanos(1_000_000)), [Some(32_000.0), None, None, None]);
    });
}

#[test]
fn a_wrong_cache_fails_the_case() {
    with_iteration("--test tg16", Fault::Cache, |iteration, _| {
        let error = iteration.check().unwrap_err().to_string();
        assert!(error.starts_with("the cache is wrong: logit "), "{error}");
    });
}

#[test]
fn logits_that_are_not_finite_fail_every_pass() {
    for line in ["--test tg4", "--test pp4", "--test forward4"] {
        with_iteration(line, Fault::Nan, |iteration, _| {
            let error = iteration.check().unwrap_err().to_string();
            assert_eq!(error, "logit 0 is NaN: the weights may contain NaN or infinity", "{line}");
        });
    }
}

#[test]
fn a_case_beyond_the_context_does_not_apply() {
    for (line, reason) in [
        ("--test pp513", "513 tokens exceed the context of `tiny` (512)"),
        ("--test tg12@d501", "501 cached tokens plus 12 tokens exceed the context of `tiny` (512)"),
        ("--test tg512", "1 cached token plus 512 tokens exceed the context of `tiny` (512)"),
        (
            "--pass-type forward --cache-tokens 3 --seq-len 4",
            "`forward` runs without a cache; `prefill` can follow cached tokens",
        ),
    ] {
        let case = settled(line).unwrap().remove(0);
        match model(Fault::None).0.prepare(&case, &Simulated::new()).unwrap() {
            Prepared::DoesNotApply(shown) => assert_eq!(shown, reason),
            _ => panic!("{line} applies"),
        }
    }
}

#[test]
fn a_case_that_does_not_fit_is_reported_before_anything_is_allocated() {
    let (model, calls) = model(Fault::None);
    let case = settled("--preset Qwen3-8B").unwrap().remove(0);
    let device = Simulated::with_memory(1 << 30);
    let prepared = model.prepare(&case, &device).unwrap();
    assert!(matches!(prepared, Prepared::DoesNotFit { needed, available } if needed > available));
    assert_eq!(calls.loaded.load(Relaxed), 0);
}

#[test]
fn unreadable_weights_fail_the_case() {
    let case = settled("").unwrap().remove(0);
    let error = model(Fault::Weights).0.prepare(&case, &Simulated::new()).err().unwrap();
    assert_eq!(error.to_string(), "tensor `model.norm.weight` is missing");
}

#[test]
fn facts_about_the_model_are_reported() {
    with_iteration("--model-size small", Fault::None, |iteration, _| {
        let facts = iteration.facts();
        let fact = |name: &str| facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.clone());
        assert_eq!(fact("parameters"), Some(128_625_408.into()));
        assert_eq!((fact("hidden"), fact("weights")), (Some(768.into()), Some("synthetic".into())));
    });
}

#[test]
fn the_work_of_an_iteration_is_that_of_its_passes() {
    let config = laptime_models::Config::from_preset("small").unwrap();
    let (tokens, layers, width, ffn) = (4 * 512_u64, 12, 768, 3072);
    let products = 2 * tokens * (layers * (4 * width * width + 3 * width * ffn) + width * 10_000);
    let attention = 4 * 4 * layers * 512 * 512 * width;
    with_iteration("--model-size small --pass-type forward", Fault::None, |iteration, _| {
        assert_eq!(iteration.work().unwrap().flops, products + attention, "the formula of CS336");
    });
    with_iteration("--preset small --test tg3@d10 --batch-size 2", Fault::None, |iteration, _| {
        let steps = [10, 11, 12].map(|position| config.step_work(2, position, laptime_models::Dtype::F32).work());
        let work = iteration.work().unwrap();
        assert_eq!(work.flops, steps.iter().map(|step| step.flops).sum::<u64>());
        assert_eq!(work.bytes, steps.iter().map(|step| step.bytes).sum::<u64>());
    });
}

#[test]
fn the_default_pattern_is_the_models_and_is_only_in_sparse_cases() {
    let axes = "attention pattern window global random";
    let line = "--preset decoder_tiny --seq-lens 64 --attention dense,sparse";
    assert_eq!(cases(line, axes), ["dense tiny 256 32 16", "sparse tiny 256 32 16"]);
    let named = "--preset decoder_tiny --seq-lens 64 --attention sparse --pattern small,medium";
    assert_eq!(cases(named, axes), ["sparse small 512 64 32", "sparse medium 1024 128 64"]);
    let numbered = "--seq-lens 64 --attention sliding-window --window 9";
    assert_eq!(cases(numbered, axes), ["sliding-window custom 9 64 32"]);
    let dense = settled("--preset decoder_tiny --seq-lens 64").unwrap();
    assert!(dense[0].get("window").is_none() && dense[0].get("pattern").is_none());
    let error = settled("--seq-lens 64 --window 9").unwrap_err().to_string();
    assert_eq!(error, "`window` applies to no requested attention");
}

#[test]
fn sparse_attention_needs_a_pass_over_many_tokens_and_an_empty_cache() {
    let outcome = |test: &str| {
        let case = settled(&format!("--test {test} --attention sparse")).unwrap().remove(0);
        match model(Fault::None).0.prepare(&case, &Simulated::new()).unwrap() {
            Prepared::DoesNotApply(reason) => reason,
            Prepared::Ready(_) => "ready".to_owned(),
            Prepared::DoesNotFit { .. } => panic!("memory is unlimited"),
        }
    };
    assert_eq!([outcome("forward8"), outcome("pp8")], ["ready", "ready"]);
    assert!(outcome("tg8").starts_with("sparse attention works with `forward` and `prefill`"));
    assert!(outcome("pp8@d4").contains("needs an empty cache"));
    assert!(outcome("step8").contains("no gradients"));
}

#[test]
fn work_and_facts_of_sparse_attention_count_the_kept_pairs() {
    let of = |attention: &str| {
        let line = format!("--preset decoder_tiny --test forward600 --attention {attention}");
        let case = settled(&line).unwrap().remove(0);
        let (model, _) = model(Fault::None);
        let device = Simulated::new();
        let Prepared::Ready(iteration) = model.prepare(&case, &device).unwrap() else { panic!("it is ready") };
        let sparsity = iteration.facts().into_iter().find(|fact| fact.name == "sparsity").map(|fact| fact.value);
        (iteration.work().unwrap().flops, sparsity)
    };
    let ((dense, none), (sparse, some)) = (of("dense"), of("sparse"));
    assert!(sparse < dense && none.is_none());
    assert!(matches!(some, Some(AxisValue::Float(sparsity)) if (0.4..0.6).contains(&sparsity)), "{some:?}");
}
