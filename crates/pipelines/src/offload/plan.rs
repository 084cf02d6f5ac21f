//! The cases of a request: several flags set the number of resident layers, a preset is a model or a number of layers,
//! and files are read before anything is measured.

use laptime_bench::{AxisValue, Case, Given, Plan, PlanError, refuse_unknown, resolve};
use laptime_models::{Dtype, ModelError};

use super::{
    axes::{ALL, FOLDER_FLAG, LAYER_FLAGS, LAYERS, MAX_TOKENS, OF_RUN, PRESET_FLAG, USUAL, aliases, axes},
    layers::{Residency, preset},
    subject::{Spec, Subject, looks_like_a_folder},
};
use crate::axis::AUTO;
use crate::request::{is_given, named_folder, refused, whole, with_after, words};

const NAME: &str = "offload";

/// Resolves the cases. Refuses cases that cannot run, before anything is measured.
pub fn settle(given: &[Given]) -> Result<Plan, PlanError> {
    let folder = |given: Given| named_folder(given, FOLDER_FLAG, looks_like_a_folder);
    let given: Vec<Given> = given.iter().cloned().flat_map(parted).map(folder).collect();
    refuse_two_ways(&given)?;
    refuse_small_floats(&given)?;
    let mut resolved = resolve(&aliases(), &given)?;
    // A budget applies to `auto` layers.
    if is_given(&resolved, "memory_budget") && !is_given(&resolved, LAYERS) {
        resolved.push((LAYERS.to_owned(), vec![AUTO.to_owned()]));
    }
    refuse_unknown(NAME, &axes(), &resolved)?;
    let of_cases: Vec<Given> = resolved.iter().filter(|(name, _)| !OF_RUN.contains(&&**name)).cloned().collect();
    let axes_of_cases = axes().into_iter().filter(|axis| !OF_RUN.contains(&axis.name)).collect();
    let cases = Plan::settle(NAME, axes_of_cases, &of_cases)?.cases();
    let cases = cases.iter().map(settled).collect::<Result<Vec<_>, _>>()?;
    Plan::of_cases(axes(), if is_on(&resolved, "benchmark") { with_plain_case(cases) } else { cases })
}

fn is_on(resolved: &[Given], switch: &str) -> bool {
    let words = resolved.iter().filter(|(name, _)| name == switch).flat_map(|(_, words)| words);
    words.last().is_some_and(|word| word == "true")
}

/// A flag `--preset` as two: the offload presets among its words, and the models.
fn parted((name, words): Given) -> Vec<Given> {
    if name != PRESET_FLAG {
        return vec![(name, words)];
    }
    let all = words.iter().flat_map(|word| word.split(',')).map(str::to_owned);
    let (layers, models): (Vec<String>, Vec<String>) = all.partition(|word| preset(word).is_some());
    let parts = [("offload_preset", layers), ("model", models)].into_iter();
    parts.filter(|(_, words)| !words.is_empty()).map(|(name, words)| (name.to_owned(), words)).collect()
}

/// Refuses two flags that both set the number of resident layers, or the model.
fn refuse_two_ways(given: &[Given]) -> Result<(), PlanError> {
    let of = |flags: &[&str]| {
        let mut named: Vec<&str> =
            given.iter().map(|(name, _)| name.as_str()).filter(|name| flags.contains(name)).collect();
        named.dedup();
        named.iter().map(|name| format!("`--{}`", name.replace('_', "-"))).collect::<Vec<_>>()
    };
    for (flags, what) in [(LAYER_FLAGS, "the number of layers on the device"), (&["model", FOLDER_FLAG], "the model")] {
        let named = of(flags);
        if named.len() > 1 {
            let word = if named.len() == 2 { "both" } else { "all" };
            let reason = format!("{} {word} set {what}", named.join(" and "));
            return Err(refused(reason, "leave out all but one of them"));
        }
    }
    Ok(())
}

/// Refuses one-byte floats, which users try in order to copy less, except e4m3 in a language model.
fn refuse_small_floats(given: &[Given]) -> Result<(), PlanError> {
    let given_words = given.iter().filter(|(name, _)| name == "dtype").flat_map(|(_, words)| words);
    let mut names = given_words.flat_map(|word| word.split(','));
    let is_small = |name: &&str| {
        let plain = name.trim().to_ascii_lowercase();
        ["float8", "fp8", "f8", "e4m3", "e5m2"].iter().any(|small| plain.starts_with(small))
    };
    let is_read = |name: &&str| name.trim().parse().is_ok_and(|dtype: Dtype| dtype == Dtype::Fp8);
    let pipelines = words(given, "pipeline");
    let is_lm = !pipelines.is_empty() && pipelines.iter().all(|pipeline| pipeline == "lm");
    match names.find(|name| is_small(name) && !(is_lm && is_read(name))) {
        None => Ok(()),
        Some(name) if is_lm => {
            Err(refused(format!("weights in `{}` are not supported", name.trim()), "use `--dtype fp8`, which is e4m3"))
        }
        Some(name) => Err(refused(
            format!("weights in `{}` are not supported in text to speech", name.trim()),
            "use `--dtype bf16` and, to copy less, `--mode batched`; `--pipeline lm` has `--dtype fp8`",
        )),
    }
}

/// The case with the model's name, its layers and its tokens. Refuses cases that cannot run.
fn settled(case: &Case) -> Result<Case, PlanError> {
    let spec = Spec::of(case).map_err(|error| refused(format!("{error:#}"), HELP))?;
    if spec.is_lm && (spec.script.is_some() || !spec.voices.is_empty()) {
        let reason = "`--pipeline lm` uses random tokens, so a script and voices do not apply";
        return Err(refused(reason, "leave out `--txt-path` and `--voice-files`, or use `--pipeline speech`"));
    }
    check_files(&spec)?;
    // The default model depends on the device.
    let is_open = spec.model == AUTO;
    let known = if is_open { Spec { residency: USUAL.to_owned(), ..spec.clone() } } else { spec.clone() };
    let subject = Subject::of(&known).map_err(|error| refusal(&error, case))?;
    subject.guidance(&spec).check().map_err(|error| refusal(&error.into(), case))?;
    if let Some(reason) = subject.refusal() {
        return Err(refused(reason, "split the script, or use fewer `--max-tokens`"));
    }
    super::runner::check_weights(&subject, spec.seed).map_err(|error| refusal(&error.into(), case))?;
    let case = match (is_open, subject.residency) {
        (true, _) => case.clone(),
        (false, Residency::Layers(layers)) => with_layers(&case.with("model", subject.name.clone()), layers),
        (false, Residency::Auto) => case.with("model", subject.name.clone()).with(LAYERS, AUTO),
    };
    Ok(if spec.max_tokens.is_some() { case } else { with_after(&case, "steps", MAX_TOKENS, whole(subject.tokens)) })
}

pub fn with_layers(case: &Case, layers: usize) -> Case {
    case.with(LAYERS, whole(layers))
}

/// Named files must exist.
fn check_files(spec: &Spec) -> Result<(), PlanError> {
    let named = spec
        .script
        .iter()
        .map(|file| (file, "--txt-path"))
        .chain(spec.voices.iter().map(|file| (file, "--voice-files")));
    for (file, flag) in named {
        if let Err(error) = std::fs::metadata(file) {
            let reason = format!("cannot read `{}`: {error}", file.display());
            return Err(refused(
                reason,
                &format!("check the name after `{flag}`; without the flag a built-in one is used"),
            ));
        }
    }
    Ok(())
}

/// Each case, after the same cases without offloading, each once.
fn with_plain_case(cases: Vec<Case>) -> Vec<Case> {
    let mut all: Vec<Case> = Vec::new();
    for case in cases.iter().map(without_offloading) {
        if !all.contains(&case) {
            all.push(case);
        }
    }
    let offloaded: Vec<Case> = cases.into_iter().filter(|case| !all.contains(case)).collect();
    all.extend(offloaded);
    all
}

/// The same case with all layers on the device, where mode, link and budget do not matter.
pub fn without_offloading(case: &Case) -> Case {
    let plain = [("mode", "wrap".into()), ("memory_budget", "free".into()), ("link_gbps", AxisValue::Float(0.0))];
    let case = plain.into_iter().fold(case.clone(), |case, (axis, value)| case.with(axis, value));
    let layers = Spec::of(&case).ok().filter(|spec| spec.model != AUTO);
    let layers = layers.and_then(|spec| Subject::of(&spec).ok()).map(|subject| subject.kind.decoder().layers);
    layers.map_or_else(|| case.with(LAYERS, ALL), |layers| with_layers(&case, layers))
}

const HELP: &str = "see `laptime bench offload --help`";

fn refusal(error: &anyhow::Error, case: &Case) -> PlanError {
    let model = error.chain().find_map(|cause| cause.downcast_ref::<ModelError>());
    let of_model = model.map_or(HELP, |model| hint_of(model, case));
    let refused = error.downcast_ref::<PlanError>().cloned();
    refused.unwrap_or_else(|| crate::request::refusal(error, of_model, HELP))
}

fn hint_of(error: &ModelError, case: &Case) -> &'static str {
    let text = error.to_string();
    if text.contains("no speech model") && case.text("pipeline") == Ok("speech") {
        "`--pipeline lm` accepts other language models"
    } else if text.contains("voices") {
        "name one WAV file per speaker after `--voice-files`, or leave it out"
    } else {
        "see docs/offload.md"
    }
}
