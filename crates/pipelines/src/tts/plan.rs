//! The cases of a request: the text is built in, given or in a file, and determines the number of frames.

use std::path::Path;

use laptime_bench::{AxisValue, Case, Given, Plan, PlanError, resolve};
use laptime_models::{Config, tts::TtsConfig};

use super::axes::{FOLDER_FLAG, FRAMES, aliases, axes};
use super::speech::{LABELS, Spec, Speech, find, looks_like_a_folder};
use crate::axis::AUTO;
use crate::request::{is_given, named_folder, refused, whole, with_after};

const NAME: &str = "tts";

/// The label of a text that has no file.
const OWN: &str = "text";

/// Resolves the cases. Refuses cases that cannot run, before anything is measured.
pub fn settle(given: &[Given]) -> Result<Plan, PlanError> {
    let folder = |given: &Given| named_folder(given.clone(), FOLDER_FLAG, looks_like_a_folder);
    let mut resolved = resolve(&aliases(), &without_sizes(given.iter().map(folder).collect())?)?;
    let own_label = own_label(&resolved)?;
    if own_label.is_some() {
        resolved.push(("label".to_owned(), vec![LABELS[0].to_owned()]));
    }
    let cases = Plan::settle(NAME, axes(), &resolved)?.cases().into_iter();
    let cases = cases.map(|case| match &own_label {
        Some(label) => case.with("label", AxisValue::Text(label.clone())),
        None => case,
    });
    Plan::of_cases(axes(), checked(cases.collect())?)
}

/// The label of a text that was given: that of its file.
fn own_label(given: &[Given]) -> Result<Option<String>, PlanError> {
    let is_several = ["text", "text_file", "label"].iter().filter(|axis| is_given(given, axis)).count() > 1;
    if is_several {
        return Err(refused("give only one of `text`, `text_file` and `label`", "leave out all but one of them"));
    }
    let file = given.iter().find(|(axis, _)| axis == "text_file").map(|(_, words)| words.join(" "));
    let stem = file.as_deref().map(Path::new).and_then(Path::file_stem).map(|stem| stem.to_string_lossy().into_owned());
    Ok(stem.or_else(|| (file.is_some() || is_given(given, "text")).then(|| OWN.to_owned())))
}

const SIZE_FLAGS: [&str; 2] = ["preset", "presets"];

/// A size that is given with a folder must be that of the folder; it is not another model.
fn without_sizes(given: Vec<Given>) -> Result<Vec<Given>, PlanError> {
    let words = |flags: &[&str]| -> Vec<String> {
        given.iter().filter(|(name, _)| flags.contains(&name.as_str())).flat_map(|(_, words)| words.clone()).collect()
    };
    let (sizes, folders) = (words(&SIZE_FLAGS), words(&[FOLDER_FLAG]));
    if sizes.is_empty() || folders.is_empty() {
        return Ok(given);
    }
    for folder in &folders {
        let (is, _) = find(folder).map_err(|error| refusal(&error.into()))?;
        for size in &sizes {
            let (spec, _) = find(size).map_err(|error| refusal(&error.into()))?;
            if size_of(&is) != size_of(&spec) {
                let reason =
                    format!("`{folder}` is not `{size}`: it has {}, and `{size}` has {}", size_of(&is), size_of(&spec));
                return Err(refused(reason, "leave out `--preset`; the folder's config.json defines the model"));
            }
        }
    }
    Ok(given.into_iter().filter(|(name, _)| !SIZE_FLAGS.contains(&name.as_str())).collect())
}

fn size_of(config: &TtsConfig) -> String {
    let of = |decoder: &Config| format!("{} layers of width {}", decoder.layers, decoder.hidden);
    format!("a talker of {} and a predictor of {}", of(&config.talker), of(&config.predictor))
}

/// Fills in the values derived from model and text, and refuses invalid texts; lengths only if no case can run.
fn checked(cases: Vec<Case>) -> Result<Vec<Case>, PlanError> {
    let (mut settled_cases, mut first, mut can_run) = (Vec::with_capacity(cases.len()), None, false);
    for case in cases {
        let spec = Spec::of(&case).map_err(|error| refused(format!("{error:#}"), HELP))?;
        let speech = Speech::of(&spec).map_err(|error| refusal(&error))?;
        match speech.refusal() {
            Some(reason) => first = first.or(Some(reason)),
            None => can_run = true,
        }
        // Names and shapes of a folder's weights are checked before anything is measured.
        speech.weights(spec.seed).map_err(|error| refusal(&error.into()))?;
        settled_cases.push(settled(&case, &spec, &speech)?);
    }
    match first {
        Some(reason) if !can_run => Err(refused(reason, "split the text, or use fewer `--frames`")),
        _ => Ok(settled_cases),
    }
}

/// The case with the model in its own spelling and its frames.
fn settled(case: &Case, spec: &Spec, speech: &Speech) -> Result<Case, PlanError> {
    let name = match &spec.model {
        auto if auto == AUTO => AUTO.to_owned(),
        folder if looks_like_a_folder(folder) => folder.clone(),
        preset => find(preset).map_err(|error| refusal(&error.into()))?.0.name,
    };
    let case = case.with("model", name);
    Ok(if spec.frames.is_some() { case } else { with_after(&case, "language", FRAMES, whole(speech.frames)) })
}

const HELP: &str = "see `laptime bench tts --help`";

fn refusal(error: &anyhow::Error) -> PlanError {
    crate::request::refusal(error, "see docs/tts.md", "name a text file; `--text` takes the text itself")
}
