//! The workload on the CPU: cases of a request, refusals, and results of an iteration.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use laptime_bench::{Case, Outcome, Prepared, Settings, Sink, Stop, WarmUp, measure};
use laptime_models::LayerVisit;
use laptime_trace::run::{CaseResult, Measured};

use super::*;
use crate::CpuDevice;
use crate::difference::largest_difference;

fn given(line: &str) -> Vec<Given> {
    let mut given: Vec<Given> = Vec::new();
    for word in line.split_whitespace() {
        match (word.strip_prefix("--"), given.last_mut()) {
            (Some(flag), _) => given.push((flag.replace('-', "_"), Vec::new())),
            (None, Some((_, words))) => words.push(word.to_owned()),
            (None, None) => panic!("{line}"),
        }
    }
    for (name, words) in &mut given {
        if words.is_empty() && ["auto", "no_offload", "benchmark", "profile"].contains(&name.as_str()) {
            words.push("true".to_owned());
        }
    }
    given
}

fn cases(line: &str) -> Vec<Case> {
    settle(&given(line)).unwrap_or_else(|error| panic!("{line}: {error}")).cases()
}

fn refused(line: &str) -> String {
    settle(&given(line)).map(|plan| plan.cases().len()).unwrap_err().to_string()
}

fn values_of(line: &str, axis: &str) -> Vec<String> {
    cases(line).iter().map(|case| case.get(axis).map(ToString::to_string).unwrap_or_default()).collect()
}

#[test]
fn every_form_of_resident_layers_is_a_number() {
    let of = |line: &str| values_of(&format!("--model tiny {line}"), "gpu_layers");
    assert_eq!(of(""), ["2"]);
    assert_eq!(of("--num-gpu-layers 3"), ["3"]);
    assert_eq!(of("--no-offload"), ["4"]);
    assert_eq!(of("--auto"), ["auto"]);
    assert_eq!(of("--offload-preset extreme,high_end"), ["1", "4"]);
    assert_eq!(of("--memory-budget 1GB"), ["auto"]);
    assert_eq!(values_of("--preset 7b --preset budget", "gpu_layers"), ["8"]);
    assert_eq!(values_of("--preset mid_range 1.5b", "gpu_layers"), ["20"]);
    assert_eq!(values_of("--pipeline lm --model tiny --num-gpu-layers 0,1,2", "gpu_layers"), ["0", "1", "2"]);
    // The device decides the default model.
    assert_eq!(values_of("--num-gpu-layers 20", "gpu_layers"), ["20"]);
}

#[test]
fn a_preset_names_a_model_or_layers() {
    assert_eq!(values_of("--preset 7b light", "model"), ["VibeVoice-7B"]);
    assert_eq!(values_of("--preset light", "model"), ["auto"]);
    assert_eq!(values_of("--preset qwen2.5-7b --pipeline lm", "model"), ["Qwen2.5-7B"]);
}

#[test]
fn flags_that_set_the_same_exclude_each_other() {
    let both = "`--num-gpu-layers` and `--no-offload` both set the number of layers on the device";
    assert_eq!(refused("--num-gpu-layers 3 --no-offload"), both);
    assert!(refused("--auto --preset budget").contains("both set the number of layers on the device"));
    assert!(refused("--preset tiny --model-dir here").contains("both set the model"));
}

#[test]
fn invalid_cases_are_refused_before_anything_is_measured() {
    assert_eq!(refused("--model tiny --num-gpu-layers 5"), "cannot keep 5 layers on the device: the model has 4");
    assert!(
        refused("--dtype float8_e4m3fn").starts_with("weights in `float8_e4m3fn` are not supported in text to speech")
    );
    assert_eq!(refused("--pipeline lm --dtype e5m2"), "weights in `e5m2` are not supported");
    assert!(refused("--txt_path nowhere.txt").starts_with("cannot read `nowhere.txt`: "));
    assert!(refused("--voice_files a.wav b.wav").starts_with("cannot read `a.wav`: "));
    assert!(refused("--memory-budget much").contains("`much` is not a memory size"));
    assert!(refused("--link-gbps -1").contains("is not valid"));
    assert!(refused("--model tiny --max-tokens 5000").contains("do not fit"));
    assert!(refused("--pipeline lm --txt_path here.txt").starts_with("`--pipeline lm` uses random tokens"));
    assert!(refused("--model 0.5b").contains("no speech model `0.5b`"));
    assert!(refused("--layers 3").contains("has no axis `layers`"));
}

#[test]
fn dtypes_have_the_names_of_the_original_tool_too() {
    assert_eq!(values_of("--dtype bfloat16,float16,float32", "dtype"), ["bf16", "f16", "f32"]);
    assert_eq!(values_of("--pipeline lm --dtype float8_e4m3fn", "dtype"), ["fp8"]);
}

#[test]
fn a_benchmark_first_runs_the_same_case_without_offloading() {
    let layers = values_of("--model tiny --benchmark --mode sync,wrap --link-gbps 1", "gpu_layers");
    assert_eq!(layers, ["4", "2", "2"]);
    assert_eq!(values_of("--model tiny --benchmark --mode sync,wrap --link-gbps 1", "link_gbps"), ["0", "1", "1"]);
    assert_eq!(values_of("--model tiny --benchmark --no-offload", "gpu_layers"), ["4"]);
    assert!(cases("--benchmark --profile --model tiny").iter().all(|case| case.get("benchmark").is_none()));
}

struct Unseen;

impl Sink for Unseen {
    fn begin(&mut self, _: &Case, _: u32) {}

    fn iteration(&mut self, _: u64, _: bool) {}

    fn result(&mut self, _: CaseResult) -> anyhow::Result<()> {
        Ok(())
    }
}

fn settings() -> Settings {
    let given = GivenSettings { iterations: Some(1), warmup: Some(WarmUp::Iterations(0)), ..GivenSettings::default() };
    let settings = given.settle().unwrap();
    assert_eq!(settings.stop, Stop::Iterations(1));
    settings
}

const SMALL: &str = "--model tiny --max-tokens 3 --threads 1 --steps 2";

fn measured(line: &str) -> Measured {
    let device = CpuDevice::new();
    let workload = OffloadedLayers::new();
    let case = workload.on_device(&cases(line)[0], &device);
    match measure(&workload, &case, &device, &settings(), &mut Unseen) {
        Outcome::Measured(measured) => measured,
        other => panic!("{line}: {other:?}"),
    }
}

fn fact(measured: &Measured, name: &str) -> String {
    measured.fact(name).map(ToString::to_string).unwrap_or_default()
}

#[test]
fn a_run_has_the_facts_for_its_diagnosis() {
    let values_of = measured(&format!("{SMALL} --link-gbps 1"));
    let facts =
        ["mode", "layers", "gpu_layers", "dtype", "link_kind", "slow_tier", "streams", "diffusion_steps", "cfg"];
    let values = facts.map(|name| fact(&values_of, name));
    assert_eq!(values, ["wrap", "4", "2", "f32", "emulated", "file", "2", "2", "1.3"]);
    for name in ["layer_bytes", "layer_flops", "diffusion_bytes", "other_bytes", "predicted_bytes"] {
        assert!(fact(&values_of, name).parse::<u64>().unwrap() > 0, "{name}");
    }
    assert!(fact(&values_of, "audio_ms").starts_with("133.3"), "{}", fact(&values_of, "audio_ms"));
    let plain = measured(SMALL);
    assert_eq!((fact(&plain, "link_kind"), fact(&plain, "link_gbps")), ("file".to_owned(), String::new()));
    let batched = measured(&format!("{SMALL} --mode batched"));
    assert_eq!(fact(&batched, "streams"), "1");
}

#[test]
fn metrics_of_copies_are_reported_if_layers_are_offloaded() {
    let of = |values_of: &Measured, name: &str| values_of.metric(name).unwrap().values[0];
    let values_of = measured(&format!("{SMALL} --mode pinned"));
    assert_eq!(of(&values_of, "async_share"), Some(0.0));
    assert!(of(&values_of, "copy_ms").unwrap() > 0.0 && of(&values_of, "link_gb_s").unwrap() > 0.0);
    let values_of = measured(&format!("{SMALL} --no-offload"));
    for name in ["async_share", "copy_ms", "exposed_ms", "hidden", "link_gb_s"] {
        assert_eq!(of(&values_of, name), None, "{name}");
    }
    assert!(of(&values_of, "token_p50_ms").unwrap() > 0.0 && of(&values_of, "rtf").unwrap() > 0.0);
}

#[test]
fn every_mode_generates_the_same_audio() {
    let device = CpuDevice::new();
    let spoken = |line: &str| OffloadedLayers::speak(&cases(line)[0], &device).unwrap().unwrap();
    let resident = spoken(&format!("{SMALL} --no-offload"));
    assert_eq!((resident.samples.len(), resident.layers), (3 * 3200, [4, 4]));
    assert!(resident.samples.iter().any(|sample| *sample != 0.0), "silence is alike whatever is computed");
    for mode in ["sync", "pinned", "prefetch", "wrap", "batched"] {
        let streamed = spoken(&format!("{SMALL} --mode {mode} --num-gpu-layers 1"));
        assert_eq!(streamed.layers, [4, 1]);
        // Three layers in both passes of a token, or in one batched pass. The first token's positive pass is the prompt.
        let passes = if mode == "batched" { 3 } else { 5 };
        assert_eq!(streamed.visits.count, 3 * passes, "{mode}");
        let apart = largest_difference(&streamed.samples, &resident.samples);
        assert!(apart < 1e-4, "{mode}: {apart}");
    }
}

#[test]
fn a_language_model_generates_tokens_and_no_audio() {
    let values_of = measured("--pipeline lm --model tiny --max-tokens 5 --threads 1 --mode prefetch");
    assert_eq!(
        (fact(&values_of, "gpu_layers"), fact(&values_of, "streams"), fact(&values_of, "audio_s")),
        ("1".into(), "1".into(), String::new())
    );
    assert_eq!(values_of.metric("rtf").unwrap().values, [None]);
    assert!(values_of.metric("copy_ms").unwrap().values[0].is_some());
}

#[test]
fn as_many_layers_are_resident_as_the_budget_allows() {
    let device = CpuDevice::new();
    let plan = |line: &str| OffloadedLayers::plan_of(&cases(line)[0], &device).map(|(plan, _)| plan);
    let all = plan(&format!("{SMALL} --auto")).unwrap();
    assert_eq!((all.gpu_layers, all.layers), (4, 4));
    let with = |layers: usize| plan(&format!("{SMALL} --num-gpu-layers {layers}")).unwrap().predicted.unwrap();
    // Two streamed layers need two buffers, as much memory as all layers.
    for (layers, resident) in [(0, 0), (1, 1), (2, 4)] {
        let planned = plan(&format!("{SMALL} --memory-budget {}", with(layers))).unwrap();
        assert_eq!(planned.gpu_layers, resident);
    }
    let error = plan(&format!("{SMALL} --memory-budget 1MiB")).unwrap_err().to_string();
    let least = with(0).min(with(4)).div_ceil(1 << 20);
    assert!(error.starts_with("a memory budget of 1MiB is too small: the model needs "), "{error}");
    assert!(error.ends_with(&format!("`--memory-budget {least}MiB` is the smallest that works")), "{error}");
    plan(&format!("{SMALL} --memory-budget {least}MiB")).unwrap();
    let error = plan(&format!("{SMALL} --memory-budget 1MiB --num-gpu-layers 3")).unwrap_err().to_string();
    assert!(error.contains("with 3 layers on the device it needs"), "{error}");
}

/// Runs a function after a token, or stops there, and keeps the generation.
struct ScriptedObserver {
    after: usize,
    act: Box<dyn Fn() + Send + Sync>,
    is_stopping: bool,
    generated: Mutex<Option<Generated>>,
    seen: Mutex<usize>,
}

impl ScriptedObserver {
    fn new(after: usize, is_stopping: bool, act: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        let (generated, seen) = (Mutex::default(), Mutex::default());
        Arc::new(Self { after, act: Box::new(act), is_stopping, generated, seen })
    }
}

impl Observer for ScriptedObserver {
    fn token(&self, number: usize, _: u64, _: &[LayerVisit]) {
        *self.seen.lock().unwrap() = number;
        if number == self.after {
            (self.act)();
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopping && *self.seen.lock().unwrap() >= self.after
    }

    fn end(&self, generated: Generated) {
        *self.generated.lock().unwrap() = Some(generated);
    }
}

fn run_case(workload: &OffloadedLayers, line: &str) -> anyhow::Result<()> {
    let device = CpuDevice::new();
    match workload.prepare(&cases(line)[0], &device)? {
        Prepared::Ready(mut iteration) => {
            iteration.check()?;
            iteration.readings(laptime_bench::Nanos(1));
            Ok(())
        }
        _ => panic!("{line} is not prepared"),
    }
}

#[test]
fn an_observer_can_end_a_generation_and_gets_its_audio() {
    let observer = ScriptedObserver::new(2, true, || ());
    run_case(&OffloadedLayers::observed(observer.clone()), "--model tiny --max-tokens 9 --threads 1 --steps 2")
        .unwrap();
    let generated = observer.generated.lock().unwrap().take().unwrap();
    assert_eq!((generated.tokens_ns.len(), generated.samples.len()), (2, 2 * 3200));
}

#[test]
fn a_truncated_layer_file_is_reported_and_the_audio_so_far_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let home: PathBuf = folder.path().to_owned();
    let cut = move || {
        // The file is unlinked, but the process has it open.
        let open = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
        let is_layers = |link: &PathBuf| std::fs::read_link(link).is_ok_and(|file| file.starts_with(&home));
        let file = open.into_iter().find(is_layers).unwrap();
        std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(1000).unwrap();
    };
    let observer = ScriptedObserver::new(2, false, cut);
    let workload = OffloadedLayers::observed(observer.clone()).with_home(folder.path());
    let error = run_case(&workload, "--model tiny --max-tokens 9 --threads 1 --steps 2").unwrap_err();
    assert!(format!("{error:#}").contains("truncated: 1000 of "), "{error:#}");
    let generated = observer.generated.lock().unwrap().take().unwrap();
    let samples = generated.samples.len();
    assert!((2..9).contains(&generated.tokens_ns.len()) && samples >= 2 * 3200, "{samples}");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "nothing is left behind");
}

#[test]
fn a_missing_folder_for_layers_is_reported() {
    let workload = OffloadedLayers::new().with_home("/nowhere/at/all");
    let error = run_case(&workload, SMALL).unwrap_err();
    assert!(format!("{error:#}").contains("/nowhere/at/all"), "{error:#}");
}
