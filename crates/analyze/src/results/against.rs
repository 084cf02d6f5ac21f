//! Cache-to-cache (C2C) fusion compared with passing text between two models, and with the base model alone.

use laptime_stats::Group;
use laptime_trace::run::{AxisValue, CaseResult};

use crate::by_case::{CaseId, Processes, by_case, grouped};
use crate::cases::known_values;
use crate::crossover::{Answer, Logs, Ratio, answer, words::Words};
use crate::series::draws;

/// The axis of the text length.
const TEXT: &str = "text_tokens";

/// One prompt, over all text lengths.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptAgainst {
    /// What its cases have in common.
    pub id: CaseId,
    /// One entry per text length, shortest first.
    pub texts: Vec<TextAgainst>,
    /// At which text lengths C2C is faster.
    pub answer: Option<Answer>,
}

/// The figures at one text length. Times are typical times to the first token, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TextAgainst {
    /// Tokens of the text.
    pub tokens: u64,
    /// With C2C.
    pub caches_ms: f64,
    /// With text.
    pub text_ms: f64,
    /// The base model alone.
    pub alone_ms: f64,
    /// Time with text / time with C2C, from pairs of iterations: 2 means that C2C takes half the time.
    pub text: Ratio,
    /// Time of the base model alone / time with C2C.
    pub alone: Ratio,
}

/// Finds the text length from which on C2C is faster: one entry per prompt, in order of first appearance.
pub fn against_text(results: &[CaseResult]) -> Vec<PromptAgainst> {
    let point = |processes: Processes<'_>| {
        let id = processes.id.without(&[TEXT]);
        Some((id.key(), (id, Point::of(&processes)?)))
    };
    let prompt = |(_, members): (_, Vec<(CaseId, Point)>)| {
        PromptAgainst::of(members[0].0.clone(), members.into_iter().map(|(_, point)| point).collect())
    };
    grouped(by_case(results).into_iter().filter_map(point)).into_iter().map(prompt).collect()
}

impl PromptAgainst {
    fn of(id: CaseId, mut points: Vec<Point>) -> Self {
        points.sort_by_key(|point| point.text.length);
        points.dedup_by_key(|point| point.text.length);
        let texts = points.iter().map(Point::figures).collect();
        let logs: Vec<Logs> = points.into_iter().map(|point| point.text).collect();
        Self { id, texts, answer: answer(&logs, false) }
    }

    /// At which text lengths C2C is faster, in a sentence.
    pub fn sentence(&self) -> Option<String> {
        let lengths: Vec<u64> = self.texts.iter().map(|text| text.tokens).collect();
        let words = Words { kind: "C2C", base: "text", less: "faster", more: "slower", lengths: &lengths, rounded };
        self.answer.as_ref().map(|answer| words.sentence(answer))
    }
}

/// An interpolated length: `2.4`, `31`.
fn rounded(length: f64) -> String {
    if length < 10.0 { format!("{length:.1}") } else { format!("{length:.0}") }
}

/// The cases of one text.
struct Point {
    text: Logs,
    alone: Logs,
    /// With C2C, with text, alone.
    typical_ms: [f64; 3],
}

impl Point {
    fn of(processes: &Processes<'_>) -> Option<Self> {
        let Some(AxisValue::Int(tokens)) = processes.id.case.get(TEXT) else { return None };
        let tokens = u64::try_from(*tokens).ok().filter(|tokens| *tokens > 0)?;
        let group = |metric: &str| {
            let iterations: Vec<Vec<f64>> =
                processes.measured().map(|(_, measured)| known_values(measured, metric)).collect();
            Group::new(&iterations).ok()
        };
        let typical = |metric: &str| Some(group(metric)?.typical());
        Some(Self {
            text: logs(tokens, &group("text_over_c2c")?, 1),
            alone: logs(tokens, &group("alone_over_c2c")?, 2),
            typical_ms: [typical("ttft_ms")?, typical("text_ttft_ms")?, typical("alone_ttft_ms")?],
        })
    }

    fn figures(&self) -> TextAgainst {
        let [caches_ms, text_ms, alone_ms] = self.typical_ms;
        let (text, alone) = (self.text.ratio(), self.alone.ratio());
        TextAgainst { tokens: text.length, caches_ms, text_ms, alone_ms, text, alone }
    }
}

/// Ratios of interleaved iterations: the observed value, and resampled values.
fn logs(tokens: u64, ratios: &Group, salt: u64) -> Logs {
    let drawn = draws(&[ratios], (salt << 24) ^ tokens).and_then(|mut drawn| drawn.pop());
    Logs::new(tokens, ratios.typical().ln(), drawn.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use laptime_trace::run::{Better, Case, Measured, Metric, Outcome};

    use super::*;

    /// A prompt with a text of this many tokens, whose time ratios to C2C scatter around a value.
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
        against_text(results)[0].sentence().unwrap()
    }

    #[test]
    fn the_crossover_with_text_is_between_two_measured_lengths() {
        // On a logarithmic axis of lengths, half way between 1 and 4 is 2.
        let results = [result(512, 4, 1.25), result(512, 1, 0.8), result(512, 16, 3.0)];
        let answer = against_text(&results);
        assert_eq!(answer.len(), 1);
        let prompt = &answer[0];
        assert_eq!(prompt.texts.iter().map(|text| text.tokens).collect::<Vec<_>>(), [1, 4, 16]);
        assert!((prompt.texts[2].text.ratio - 3.0).abs() < 1e-9 && (prompt.texts[2].alone.ratio - 0.2).abs() < 1e-9);
        assert!((prompt.texts[0].text_ms - 8.0).abs() < 1e-9 && (prompt.texts[0].caches_ms - 10.0).abs() < 1e-9);
        let Some(Answer::From(crossing)) = &prompt.answer else { panic!("{:?}", prompt.answer) };
        assert!((crossing.length - 2.0).abs() < 1e-6, "{crossing:?}");
        assert_eq!(sentence(&results), "C2C is faster than text from 2.0 [2.0, 2.0] tokens on");
    }

    #[test]
    fn sentences_cover_every_length_no_length_and_unclear() {
        let of = |ratios: [f64; 2]| sentence(&[result(8, 1, ratios[0]), result(8, 32, ratios[1])]);
        assert_eq!(of([1.5, 9.0]), "C2C is faster than text at every measured length (1 to 32 tokens)");
        assert_eq!(of([0.5, 0.9]), "C2C is not faster than text at any measured length (1 to 32 tokens)");
        assert_eq!(
            of([1.0, 1.0]),
            "the difference in time between C2C and text is unclear at every measured length (1 to 32 tokens)"
        );
    }

    #[test]
    fn prompts_are_separate_and_other_results_are_ignored() {
        let case = Case::new(vec![("prompt_tokens".to_owned(), 8.into())]);
        let plain = CaseResult::new("c2c", "cpu", case, 0, "", Outcome::Measured(Measured::default()));
        let skipped = CaseResult { outcome: Outcome::Skipped { reason: String::new() }, ..result(8, 2, 1.0) };
        assert_eq!(against_text(&[plain.clone(), skipped]), []);
        assert_eq!(against_text(&[result(8, 1, 2.0), plain, result(16, 1, 2.0)]).len(), 2);
    }
}
