//! The cases of a request: a text is built in, given or in a file, and decides the number of frames.

use std::path::Path;

use laptime_bench::{AxisSpec, AxisValue, Case, Given, Plan, PlanError, refuse_unknown, resolve};
use laptime_models::{Config, tts::TtsConfig};

use super::axes::{ALIASES, FOLDER_FLAG, FRAMES, OF_TEXT, axes};
use super::speech::{Spec, Speech, find, looks_like_a_folder};
use crate::axis::AUTO;
use crate::request::{is_given, joined_words, named_folder, refused, split_texts, values_of, whole, with_behind};

const NAME: &str = "tts";
const OWN: &str = "text";

/// Resolves the cases. Refuses cases that cannot run, before anything is measured.
pub fn settle(given: &[Given]) -> Result<Plan, PlanError> {
    let (texts, rest) = split_texts(given.to_vec(), ALIASES, OF_TEXT);
    let folder = |given: Given| named_folder(given, FOLDER_FLAG, looks_like_a_folder);
    let rest = without_sizes(rest.into_iter().map(folder).collect())?;
    let resolved = resolve(ALIASES, &rest)?;
    let text = own_text(&texts, &resolved)?;
    refuse_unknown(NAME, &axes(), &resolved)?;
    let is_left_out = |axis: &AxisSpec| {
        OF_TEXT.contains(&axis.name)
            || axis.name == FRAMES && !is_given(&resolved, FRAMES)
            || axis.name == "label" && text.is_some()
    };
    let left = axes().into_iter().filter(|axis| !is_left_out(axis)).collect();
    let plain = Plan::settle(NAME, left, &resolved)?;
    let cases = plain.cases().into_iter().map(|case| with_text(&case, text.as_ref()));
    Plan::of_cases(axes(), checked(cases.collect())?)
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

/// The values of a given text in a case: its label, and the text or its file.
struct Own {
    label: String,
    axis: &'static str,
    value: String,
}

fn own_text(texts: &[Given], given: &[Given]) -> Result<Option<Own>, PlanError> {
    let [text, file] = ["text", "text_file"].map(|axis| joined_words(texts, ALIASES, axis, " "));
    let several = [text.is_some(), file.is_some(), is_given(given, "label")];
    if several.into_iter().filter(|is_given| *is_given).count() > 1 {
        return Err(refused("give only one of `text`, `text_file` and `label`", "leave out all but one of them"));
    }
    let stem = |file: &str| Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let of_text = text.map(|value| Own { label: OWN.to_owned(), axis: "text", value });
    let label = |file: &str| stem(file).unwrap_or_else(|| OWN.to_owned());
    Ok(of_text.or_else(|| file.map(|value| Own { label: label(&value), axis: "text_file", value })))
}

/// The case with its text after the model.
fn with_text(case: &Case, own: Option<&Own>) -> Case {
    let mut values = values_of(case);
    if let Some(own) = own {
        let behind = values.len().min(1);
        let text = [("label", &own.label), (own.axis, &own.value)];
        values.splice(behind..behind, text.map(|(axis, value)| (axis.to_owned(), AxisValue::Text(value.clone()))));
    }
    Case::new(values)
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
        // Names and shapes of a folder's weights are looked at before anything is measured.
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
    Ok(if spec.frames.is_some() { case } else { with_behind(&case, "language", FRAMES, whole(speech.frames)) })
}

const HELP: &str = "see `laptime bench tts --help`";

fn refusal(error: &anyhow::Error) -> PlanError {
    crate::request::refusal(error, "see docs/tts.md", "name a text file; `--text` takes the text itself")
}
