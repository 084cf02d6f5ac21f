//! The cases of a request: a pair of models, and a message, a line of a file or random tokens as the prompt.

use std::path::Path;

use laptime_bench::{AxisSpec, AxisValue, Case, Given, Plan, PlanError, resolve};

use super::axes::{OF_AGAINST, OF_PLAN, OF_PROMPT, PAIRS, PROMPT_AXIS, PROMPT_TOKENS, TEXT, aliases, axes, usual_pair};
use super::pair::{Pair, Spec, find, prompt_count};
use crate::axis::{AUTO, NONE};
use crate::request::{is_given, refused, text, whole, words};

const NAME: &str = "c2c";

/// Resolves the cases. Refuses those that cannot run, before anything is measured.
pub fn settle(given: &[Given]) -> Result<Plan, PlanError> {
    let mut resolved = resolve(&aliases(), given)?;
    // Unknown axes are refused first.
    Plan::settle(NAME, axes(), &resolved)?;
    name_pair(&mut resolved)?;
    choose_samples(&mut resolved)?;
    let has_length = OF_PROMPT.iter().any(|axis| is_given(&resolved, axis));
    let is_against = is_against(&resolved)?;
    let left_out = if is_against { OF_PLAN.to_vec() } else { [OF_PLAN, OF_AGAINST].concat() };
    resolved.retain(|(axis, _)| !left_out.contains(&axis.as_str()));
    let plain = Plan::settle(NAME, until_first_token(without(axes(), &left_out), is_against), &resolved)?;
    let with_length = |case: Case| if has_length { case } else { case.with(PROMPT_AXIS, AUTO) };
    let cases = plain.cases().iter().map(|case| with_names(case).map(with_length)).collect::<Result<_, _>>()?;
    Plan::of_cases(without(axes(), OF_PLAN), checked(cases)?)
}

/// The case with its models and the length of its prompt, if they depend on the device.
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

/// Checks that there is one source of prompts, and replaces the number of samples by the lines of the file.
fn choose_samples(given: &mut Vec<Given>) -> Result<(), PlanError> {
    if OF_PROMPT.iter().filter(|axis| is_given(given, axis)).count() > 1 {
        let reason = "give only one of `prompt`, `prompt_file` and `prompt_tokens`";
        return Err(refused(reason, "leave out all but one of them"));
    }
    let has_samples = ["samples", "sample"].iter().any(|axis| is_given(given, axis));
    let Some((_, file)) = given.iter().find(|(axis, _)| axis == "prompt_file") else {
        let hint = "`--prompt-file FILE` needs one JSON record per line, with a `prompt` or a `question`";
        return if has_samples { Err(refused("`samples` needs a file of prompts", hint)) } else { Ok(()) };
    };
    let file = file.join(" ");
    let hint = "each line must be a JSON record with a `prompt` or a `question`";
    let count = prompt_count(Path::new(&file)).map_err(|error| refused(format!("{error:#}"), hint))?;
    let last = ["sample", "samples"].iter().find_map(|axis| largest(given, axis)).unwrap_or(1);
    if last > count {
        return Err(refused(
            format!("`{file}` has {count} prompts, and {last} were requested"),
            "use fewer `--samples`",
        ));
    }
    if !is_given(given, "sample") {
        given.push(("sample".to_owned(), vec![format!("1-{last}+1")]));
    }
    Ok(())
}

fn largest(given: &[Given], axis: &str) -> Option<usize> {
    words(given, axis).iter().filter_map(|word| word.parse().ok()).max()
}

fn with_names(case: &Case) -> Result<Case, PlanError> {
    ["base_model", "teacher_model"].iter().try_fold(case.clone(), |case, axis| {
        let name = text(&case, axis);
        Ok(if name == AUTO { case } else { case.with(axis, find(&name)?.name) })
    })
}

/// Refuses invalid pairs, fusers and prompts; prompts that are too long only if no case can run. A case that depends on
/// the device is refused if it can run on none.
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
