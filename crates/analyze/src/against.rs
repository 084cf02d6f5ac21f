//! Two models joined through their caches, held against a text between them and against one of them alone.

use std::collections::HashMap;

use laptime_stats::Group;
use laptime_trace::run::{AxisValue, CaseResult};

use crate::{
    by_case::{CaseId, Processes, by_case},
    cases::known_values,
    crossover::{Answer, Crossing, Logs, Ratio, answer, words},
    series::{draws, without},
};

/// The axis of how long the text is.
const TEXT: &str = "text_tokens";

/// The comparisons that results hold, one for each prompt.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgainstText {
    /// The prompts, in the order in which they come first.
    pub prompts: Vec<PromptAgainst>,
}

/// One prompt, over the lengths of the text.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptAgainst {
    /// What its cases have in common.
    pub id: CaseId,
    /// One entry a length of the text, shortest first.
    pub texts: Vec<TextAgainst>,
    /// Of which texts on caches are faster.
    pub answer: Option<Answer>,
}

/// What is known at one length of the text. Times are typical ones until the first token, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TextAgainst {
    /// Tokens of the text.
    pub tokens: u64,
    /// Over caches.
    pub caches_ms: f64,
    /// Behind the text.
    pub text_ms: f64,
    /// The base model alone.
    pub alone_ms: f64,
    /// Time behind the text by time over caches, take by take: 2 says that caches take half.
    pub text: Ratio,
    /// Time alone by time over caches, likewise.
    pub alone: Ratio,
}

/// Finds out from which length of a text on caches are faster.
pub fn against_text(results: &[CaseResult]) -> AgainstText {
    let mut places = HashMap::new();
    let mut found: Vec<(CaseId, Vec<Point>)> = Vec::new();
    for processes in by_case(results) {
        let Some(point) = Point::of(&processes) else { continue };
        let id = without(&processes.id, |axis| axis == TEXT);
        let key = (id.workload.clone(), id.device.clone(), id.case.to_string());
        let place = *places.entry(key).or_insert(found.len());
        if place == found.len() {
            found.push((id, Vec::new()));
        }
        found[place].1.push(point);
    }
    AgainstText { prompts: found.into_iter().map(|(id, points)| PromptAgainst::of(id, points)).collect() }
}

impl PromptAgainst {
    fn of(id: CaseId, mut points: Vec<Point>) -> Self {
        points.sort_by_key(|point| point.text.length);
        points.dedup_by_key(|point| point.text.length);
        let texts = points.iter().map(Point::told).collect();
        let logs: Vec<Logs> = points.into_iter().map(|point| point.text).collect();
        Self { id, texts, answer: answer(&logs, false) }
    }

    /// Of which texts on caches are faster, in a sentence.
    pub fn sentence(&self) -> Option<String> {
        let tried = match self.texts.as_slice() {
            [] => return None,
            [only] => format!("{} tokens", only.tokens),
            [first, .., last] => format!("{} to {} tokens", first.tokens, last.tokens),
        };
        let list = |lengths: &[f64]| lengths.iter().map(|length| told(*length)).collect::<Vec<_>>().join(", ");
        Some(match self.answer.as_ref()? {
            Answer::Always => format!("caches are faster than a text at every length tried ({tried})"),
            Answer::Never { .. } => format!("caches are faster than a text at no length tried ({tried})"),
            Answer::AtSome { less, more } => {
                let said = match (less.as_slice(), more.as_slice()) {
                    ([], more) => format!("slower than a text of {}", words::list(more)),
                    (less, []) => format!("faster than a text of {}", words::list(less)),
                    (less, more) => {
                        format!(
                            "faster than a text of {}, and slower than one of {}",
                            words::list(less),
                            words::list(more)
                        )
                    }
                };
                format!("caches are {said} tokens; at the other lengths the difference is not distinguishable")
            }
            Answer::From(crossing) => format!("caches are faster than a text from {} tokens on", self.place(crossing)),
            Answer::Until(crossing) => format!("caches are faster than a text up to {} tokens", self.place(crossing)),
            Answer::Several(lengths) => {
                format!("caches and a text change places more than once, at about {} tokens", list(lengths))
            }
            Answer::Unclear => {
                format!("the difference between caches and a text is not distinguishable at any length tried ({tried})")
            }
        })
    }

    fn place(&self, crossing: &Crossing) -> String {
        let Some(ends) = crossing.ends else { return told(crossing.length) };
        let of = |text: Option<&TextAgainst>| text.map_or(0, |text| text.tokens);
        let low = ends.low.map_or_else(|| format!("below {}", of(self.texts.first())), told);
        let high = ends.high.map_or_else(|| format!("beyond {}", of(self.texts.last())), told);
        format!("{} [{low}, {high}]", told(crossing.length))
    }
}

/// A length between two that were tried: `2.4`, `31`.
fn told(length: f64) -> String {
    if length < 10.0 { format!("{length:.1}") } else { format!("{length:.0}") }
}

/// The cases of one text.
struct Point {
    text: Logs,
    alone: Logs,
    /// Over caches, behind the text, alone.
    typical_ms: [f64; 3],
}

impl Point {
    fn of(processes: &Processes<'_>) -> Option<Self> {
        let Some(AxisValue::Int(tokens)) = processes.id.case.get(TEXT) else { return None };
        let tokens = u64::try_from(*tokens).ok().filter(|tokens| *tokens > 0)?;
        let group = |metric: &str| {
            let takes: Vec<Vec<f64>> =
                processes.measured().map(|(_, measured)| known_values(measured, metric)).collect();
            Group::new(&takes).ok()
        };
        let typical = |metric: &str| Some(group(metric)?.typical());
        Some(Self {
            text: logs(tokens, &group("text_over_c2c")?, 1),
            alone: logs(tokens, &group("alone_over_c2c")?, 2),
            typical_ms: [typical("ttft_ms")?, typical("text_ttft_ms")?, typical("alone_ttft_ms")?],
        })
    }

    fn told(&self) -> TextAgainst {
        let [caches_ms, text_ms, alone_ms] = self.typical_ms;
        let (text, alone) = (self.text.ratio(), self.alone.ratio());
        TextAgainst { tokens: text.length, caches_ms, text_ms, alone_ms, text, alone }
    }
}

/// Ratios of takes that were taken in turns, as they are told and as they would be if taken again.
fn logs(tokens: u64, ratios: &Group, salt: u64) -> Logs {
    let drawn = draws(&[ratios], (salt << 24) ^ tokens).and_then(|mut drawn| drawn.pop());
    Logs::new(tokens, ratios.typical().ln(), drawn.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use laptime_trace::run::{Better, Case, Measured, Metric, Outcome};

    use super::*;

    /// A prompt against a text of so many tokens, whose times over that of caches are around a ratio.
    fn result(prompt: i64, tokens: i64, ratio: f64) -> CaseResult {
        let values = [("prompt_tokens", prompt.into()), ("against", "text".into()), (TEXT, tokens.into())];
        let case = Case::new(values.map(|(axis, value)| (axis.to_owned(), value)).to_vec());
        let around = |middle: f64| (0..15).map(|at| Some(middle * (1.0 + 0.001 * f64::from(at % 5 - 2)))).collect();
        let metric =
            |name: &str, middle: f64| Metric { name: name.to_owned(), better: Better::Lower, values: around(middle) };
        let metrics = vec![
            metric("ttft_ms", 10.0),
            metric("text_ttft_ms", 10.0 * ratio),
            metric("alone_ttft_ms", 2.0),
            metric("text_over_c2c", ratio),
            metric("alone_over_c2c", 0.2),
        ];
        let measured = Measured { wall_ns: vec![1; 15], metrics, ..Measured::default() };
        CaseResult::new("c2c", "cpu", case, 0, "", Outcome::Measured(measured))
    }

    fn sentence(results: &[CaseResult]) -> String {
        against_text(results).prompts[0].sentence().unwrap()
    }

    #[test]
    fn the_length_from_which_on_caches_are_faster_lies_between_two_that_were_tried() {
        // On a logarithmic axis of lengths, half way between 1 and 4 is 2.
        let results = [result(512, 4, 1.25), result(512, 1, 0.8), result(512, 16, 3.0)];
        let answer = against_text(&results);
        assert_eq!(answer.prompts.len(), 1);
        let prompt = &answer.prompts[0];
        assert_eq!(prompt.texts.iter().map(|text| text.tokens).collect::<Vec<_>>(), [1, 4, 16]);
        assert!((prompt.texts[2].text.ratio - 3.0).abs() < 1e-9 && (prompt.texts[2].alone.ratio - 0.2).abs() < 1e-9);
        assert!((prompt.texts[0].text_ms - 8.0).abs() < 1e-9 && (prompt.texts[0].caches_ms - 10.0).abs() < 1e-9);
        let Some(Answer::From(crossing)) = &prompt.answer else { panic!("{:?}", prompt.answer) };
        assert!((crossing.length - 2.0).abs() < 1e-6, "{crossing:?}");
        assert_eq!(sentence(&results), "caches are faster than a text from 2.0 [2.0, 2.0] tokens on");
    }

    #[test]
    fn at_every_length_at_none_and_what_cannot_be_told_are_said() {
        let of = |ratios: [f64; 2]| sentence(&[result(8, 1, ratios[0]), result(8, 32, ratios[1])]);
        assert_eq!(of([1.5, 9.0]), "caches are faster than a text at every length tried (1 to 32 tokens)");
        assert_eq!(of([0.5, 0.9]), "caches are faster than a text at no length tried (1 to 32 tokens)");
        assert_eq!(
            of([1.0, 1.0]),
            "the difference between caches and a text is not distinguishable at any length tried (1 to 32 tokens)"
        );
    }

    #[test]
    fn prompts_are_apart_and_other_results_are_not_looked_at() {
        let case = Case::new(vec![("prompt_tokens".to_owned(), 8.into())]);
        let plain = CaseResult::new("c2c", "cpu", case, 0, "", Outcome::Measured(Measured::default()));
        let skipped = CaseResult { outcome: Outcome::Skipped { reason: String::new() }, ..result(8, 2, 1.0) };
        assert_eq!(against_text(&[plain.clone(), skipped]), AgainstText::default());
        assert_eq!(against_text(&[result(8, 1, 2.0), plain, result(16, 1, 2.0)]).prompts.len(), 2);
    }
}
