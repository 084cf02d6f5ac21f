//! The cases of a request: a text is built in, given or in a file, and decides the number of frames.

use std::path::Path;

use laptime_bench::{AxisSpec, AxisValue, Case, Given, Plan, PlanError, axis_of, resolve};
use laptime_models::{Config, ModelError, tts::TtsConfig};

use super::{
    axes::{ALIASES, AUTO, FOLDER_FLAG, FRAMES, OF_TEXT, axes},
    spec::Spec,
    speech::{Speech, find, looks_like_a_folder},
};
use crate::model::with_causes;

const NAME: &str = "tts";

/// The label of a given text.
const OWN: &str = "text";

/// Resolves the cases. Refuses cases that cannot run, before anything is measured.
pub fn settle(given: &[Given]) -> Result<Plan, PlanError> {
    let (texts, rest): (Vec<Given>, Vec<Given>) = given.iter().cloned().partition(|(name, _)| is_text(name));
    let rest = without_sizes(rest.into_iter().map(named_folder).collect())?;
    let resolved = resolve(ALIASES, &rest)?;
    let text = own_text(&texts, &resolved)?;
    let is_given = |axis: &str| resolved.iter().any(|(name, _)| name == axis);
    let is_left_out = |axis: &AxisSpec| {
        OF_TEXT.contains(&axis.name)
            || axis.name == FRAMES && !is_given(FRAMES)
            || axis.name == "label" && text.is_some()
    };
    // Unknown axes are refused with the list of all axes.
    if let Some((unknown, _)) = resolved.iter().find(|(name, _)| axes().iter().all(|axis| axis.name != name)) {
        let known = axes().iter().map(|axis| axis.name).collect();
        return Err(PlanError::NoSuchAxis { workload: NAME.to_owned(), axis: unknown.clone(), known });
    }
    let left = axes().into_iter().filter(|axis| !is_left_out(axis)).collect();
    let plain = Plan::settle(NAME, left, &resolved)?;
    let cases = plain.cases().into_iter().map(|case| with_text(&case, text.as_ref()));
    Plan::of_cases(axes(), checked(cases.collect())?)
}

/// Flags whose value is a text or a path, not a list.
fn is_text(name: &str) -> bool {
    OF_TEXT.contains(&axis_of(ALIASES, name))
}

/// This flag always names a folder.
fn named_folder((name, words): Given) -> Given {
    let as_path = |word: String| if looks_like_a_folder(&word) { word } else { format!("./{word}") };
    let words = if name == FOLDER_FLAG { words.into_iter().map(as_path).collect() } else { words };
    (name, words)
}

/// Flags that name a size.
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

/// The size of a model, in words.
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
    let of = |axis: &str| {
        let of_axis = texts.iter().filter(|(name, _)| axis_of(ALIASES, name) == axis);
        let words: Vec<&str> = of_axis.flat_map(|(_, words)| words).map(String::as_str).collect();
        (!words.is_empty()).then(|| words.join(" "))
    };
    let (text, file) = (of("text"), of("text_file"));
    let has_label = given.iter().any(|(name, _)| name == "label");
    if [text.is_some(), file.is_some(), has_label].into_iter().filter(|is_given| *is_given).count() > 1 {
        let reason = "give only one of `text`, `text_file` and `label`".to_owned();
        return Err(refused(reason, "leave out all but one of them"));
    }
    let stem = |file: &str| Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Ok(match (text, file) {
        (Some(value), _) => Some(Own { label: OWN.to_owned(), axis: "text", value }),
        (None, Some(value)) => {
            Some(Own { label: stem(&value).unwrap_or_else(|| OWN.to_owned()), axis: "text_file", value })
        }
        (None, None) => None,
    })
}

/// The case with its text after the model.
fn with_text(case: &Case, own: Option<&Own>) -> Case {
    let mut values: Vec<(String, AxisValue)> =
        case.values().map(|(axis, value)| (axis.to_owned(), value.clone())).collect();
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
    if spec.frames.is_some() {
        return Ok(case);
    }
    let frames = AxisValue::Int(i64::try_from(speech.frames).unwrap_or(i64::MAX));
    let mut values: Vec<(String, AxisValue)> =
        case.values().map(|(axis, value)| (axis.to_owned(), value.clone())).collect();
    let behind = values.iter().position(|(axis, _)| axis == "language").map_or(values.len(), |at| at + 1);
    values.insert(behind, (FRAMES.to_owned(), frames));
    Ok(Case::new(values))
}

const HELP: &str = "see `laptime bench tts --help`";

fn refusal(error: &anyhow::Error) -> PlanError {
    let model = error.chain().find_map(|cause| cause.downcast_ref::<ModelError>());
    match model {
        Some(model) => {
            let hint = model.hint().unwrap_or_else(|| "see docs/tts.md".to_owned());
            PlanError::Refused { reason: with_causes(model), hint }
        }
        None => refused(format!("{error:#}"), "name a text file; `--text` takes the text itself"),
    }
}

fn refused(reason: String, hint: &str) -> PlanError {
    PlanError::Refused { reason, hint: hint.to_owned() }
}
