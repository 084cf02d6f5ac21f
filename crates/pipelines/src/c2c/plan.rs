//! The cases of a request: a pair of models, and a prompt that is a message, a line of a file or random tokens.

use std::path::Path;

use laptime_bench::{AxisSpec, AxisValue, Case, Given, MOST_CASES, Plan, PlanError, refuse_too_many, resolve};

use super::axes::{ALIASES, OF_AGAINST, OF_PLAN, OF_PROMPT, PAIRS, PROMPT_TOKENS, TEXT, axes, usual_pair};
use super::pair::{Pair, Spec, find, prompt_count};
use crate::axis::{AUTO, NONE};
use crate::request::{is_given, joined_words, refused, split_texts, text, values_of, whole};

const NAME: &str = "c2c";

/// Resolves the cases. Refuses those that cannot run, before anything is measured.
pub fn settle(given: &[Given]) -> Result<Plan, PlanError> {
    let (texts, rest) = split_texts(given.to_vec(), ALIASES, &["prompt", "prompt_file"]);
    let mut resolved = resolve(ALIASES, &rest)?;
    // Unknown axes are refused first.
    Plan::settle(NAME, axes(), &resolved)?;
    name_pair(&mut resolved)?;
    let lines = lines(&texts, &resolved)?;
    let has_length = is_given(&resolved, PROMPT_AXIS) || lines.iter().any(|line| !line.is_empty());
    let is_against = is_against(&resolved)?;
    let mut left_out = [OF_PLAN, OF_PROMPT].concat();
    if !is_against {
        left_out.extend(OF_AGAINST);
    }
    resolved.retain(|(axis, _)| !left_out.contains(&axis.as_str()));
    let plain = Plan::settle(NAME, until_first_token(without(axes(), &left_out), is_against), &resolved)?;
    let mut cases = Vec::new();
    for case in plain.cases() {
        let case = with_names(&case)?;
        let case = if has_length { case } else { case.with(PROMPT_AXIS, AUTO) };
        cases.extend(lines.iter().map(|line| with_prompt(&case, line)));
        refuse_too_many(cases.len() as u128)?;
    }
    let cases = checked(cases)?;
    Plan::of_cases(without(axes(), OF_PLAN), cases)
}

const PROMPT_AXIS: &str = "prompt_tokens";

/// The case with `auto` models resolved for a device, and with the length of its prompt.
pub fn on_device(case: &Case, is_gpu: bool) -> Case {
    let names = ["base_model", "teacher_model"].into_iter().zip(usual_pair(is_gpu));
    let is_open = |(axis, _): &(&str, &str)| case.text(axis) == Ok(AUTO);
    let case = names.filter(is_open).fold(case.clone(), |case, (axis, usual)| case.with(axis, usual));
    if case.text(PROMPT_AXIS).ok() != Some(AUTO) {
        return case;
    }
    let contexts = ["base_model", "teacher_model"].map(|axis| case.text(axis).ok().and_then(|name| find(name).ok()));
    let shortest = contexts.iter().flatten().map(|found| found.config.context).min().unwrap_or(usize::MAX);
    let tokens = PROMPT_TOKENS.min((shortest / 2).max(1));
    case.with(PROMPT_AXIS, whole(tokens))
}

fn without(axes: Vec<AxisSpec>, names: &[&str]) -> Vec<AxisSpec> {
    axes.into_iter().filter(|axis| !names.contains(&axis.name)).collect()
}

/// Whether cases are compared with a text; refuses flags that do not apply.
fn is_against(given: &[Given]) -> Result<bool, PlanError> {
    let of = |axis: &str| given.iter().find(|(name, _)| name == axis).map(|(_, words)| words.join(","));
    let is_against = match of("against").as_deref() {
        None | Some(NONE) => false,
        Some(TEXT) => true,
        Some(_) => return Err(refused("`against` takes one value", "`--against text`")),
    };
    if !is_against && of("text_tokens").is_some() {
        let reason = "`text_tokens` needs `--against text`";
        return Err(refused(reason, "`--against text` compares a pair with a text written by the teacher"));
    }
    if is_against && of("max_new_tokens").is_some() {
        let reason = "`against` compares times to the first token, so `max_new_tokens` does not apply";
        return Err(refused(reason, "leave it out; `--text-tokens` sets the length of the text"));
    }
    Ok(is_against)
}

/// The axes; a comparison generates only the first token.
fn until_first_token(axes: Vec<AxisSpec>, is_against: bool) -> Vec<AxisSpec> {
    let one = |axis: AxisSpec| match axis.name {
        "max_new_tokens" if is_against => AxisSpec { default: vec![AxisValue::Int(1)], ..axis },
        _ => axis,
    };
    axes.into_iter().map(one).collect()
}

fn first_word<'a>(given: &'a [Given], axis: &str) -> Option<&'a str> {
    given.iter().find(|(name, _)| name == axis)?.1.first().map(String::as_str)
}

fn name_pair(given: &mut Vec<Given>) -> Result<(), PlanError> {
    let Some(name) = first_word(given, "preset").filter(|name| *name != AUTO) else { return Ok(()) };
    let Some((_, base, teacher)) = PAIRS.iter().find(|(pair, ..)| *pair == name) else {
        let known: Vec<&str> = PAIRS.iter().map(|(pair, ..)| *pair).collect();
        return Err(refused(format!("there is no pair `{name}`"), &format!("pairs: {}", known.join(", "))));
    };
    for (axis, model) in [("base_model", base), ("teacher_model", teacher)] {
        if !is_given(given, axis) {
            given.push((axis.to_owned(), vec![(*model).to_owned()]));
        }
    }
    Ok(())
}

/// The values of a case's prompt, except for the number of random tokens.
type OfPrompt = Vec<(String, AxisValue)>;

fn lines(texts: &[Given], given: &[Given]) -> Result<Vec<OfPrompt>, PlanError> {
    let number = |axis: &str| first_word(given, axis)?.parse::<usize>().ok();
    let has_length = is_given(given, PROMPT_AXIS);
    let [message, file] = ["prompt", "prompt_file"].map(|axis| joined_words(texts, ALIASES, axis, " "));
    if (message.is_some() || file.is_some()) && has_length || message.is_some() && file.is_some() {
        let reason = "give only one of `prompt`, `prompt_file` and `prompt_tokens`";
        return Err(refused(reason, "leave out all but one of them"));
    }
    if file.is_none() && (number("samples").is_some() || number("sample").is_some()) {
        let hint = "`--prompt-file FILE` needs one JSON record per line, with a `prompt` or a `question`";
        return Err(refused("`samples` needs a file of prompts", hint));
    }
    if let Some(message) = message {
        return Ok(vec![vec![("prompt".to_owned(), AxisValue::Text(message))]]);
    }
    match file {
        None => Ok(vec![Vec::new()]),
        Some(file) => of_file(&file, number("sample"), number("samples").unwrap_or(1)),
    }
}

fn of_file(file: &str, sample: Option<usize>, samples: usize) -> Result<Vec<OfPrompt>, PlanError> {
    let hint = "each line must be a JSON record with a `prompt` or a `question`";
    let count = prompt_count(Path::new(file)).map_err(|error| refused(format!("{error:#}"), hint))?;
    let spec = sample.map_or(1..=samples, |sample| sample..=sample);
    if *spec.end() > count {
        let reason = format!("`{file}` has {count} prompts, and {} were requested", spec.end());
        return Err(refused(reason, "use fewer `--samples`"));
    }
    let one = |sample: usize| vec![("prompt_file".to_owned(), file.into()), ("sample".to_owned(), whole(sample))];
    Ok(spec.take(MOST_CASES.saturating_add(1)).map(one).collect())
}

fn with_names(case: &Case) -> Result<Case, PlanError> {
    ["base_model", "teacher_model"].iter().try_fold(case.clone(), |case, axis| {
        let name = text(&case, axis);
        Ok(if name == AUTO { case } else { case.with(axis, find(&name)?.name) })
    })
}

fn with_prompt(case: &Case, prompt: &OfPrompt) -> Case {
    Case::new([values_of(case), prompt.clone()].concat())
}

/// Refuses pairs, fusers and prompts that cannot be run; lengths only if no case has one that can. A case that depends
/// on the device is refused if it can run on none.
fn checked(cases: Vec<Case>) -> Result<Vec<Case>, PlanError> {
    let (mut settled, mut first, mut can_run) = (Vec::with_capacity(cases.len()), None, false);
    for case in cases {
        let [on_gpu, on_cpu] = [true, false].map(|is_gpu| on_device(&case, is_gpu));
        let is_open = on_gpu != on_cpu;
        let (mut tokens, mut errors) = (None, Vec::new());
        let settlements: Vec<Case> = [Some(on_gpu), is_open.then_some(on_cpu)].into_iter().flatten().collect();
        for case in &settlements {
            let spec =
                Spec::of(case).map_err(|error| refused(format!("{error:#}"), "see `laptime bench c2c --help`"))?;
            match Pair::runnable(&spec) {
                Err(error) => errors.push(refusal(&error)),
                Ok(Err(reason)) => first = first.or(Some(reason)),
                Ok(Ok(pair)) => (can_run, tokens) = (true, Some(pair.tokens())),
            }
        }
        if errors.len() == settlements.len() {
            return Err(errors.swap_remove(0));
        }
        let tokens = tokens.filter(|_| !is_open).and_then(|tokens| i64::try_from(tokens).ok());
        settled.push(tokens.map_or_else(|| case.clone(), |tokens| case.with(PROMPT_AXIS, tokens)));
    }
    match first {
        Some(reason) if !can_run => Err(refused(reason, "use a shorter prompt, fewer new tokens or other models")),
        _ => Ok(settled),
    }
}

fn refusal(error: &anyhow::Error) -> PlanError {
    crate::request::refusal(error, "see docs/c2c.md", "see docs/c2c.md")
}
