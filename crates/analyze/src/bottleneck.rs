//! A bottleneck: a finding with its severity, the spans that show it, and the estimated gain.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::{diagnose::rule, explain::explain, finding::Finding};

laptime_trace::words! {
    /// The severity of a finding.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Severity: word {
        /// It slows the run down.
        Bad = "bad",
        /// It is neither good nor bad.
        Notable = "notable",
        /// It is normal in this mode.
        Normal = "normal",
    }
}

/// A bottleneck, with its estimated gain.
#[derive(Debug, Clone, PartialEq)]
pub struct Bottleneck {
    /// Its severity.
    pub severity: Severity,
    /// The finding.
    pub finding: Finding,
    /// The most that fixing it would gain, in nanoseconds; none if unknown.
    pub gain_ns: Option<f64>,
    /// The spans that show it, the longest first.
    pub evidence: Vec<Evidence>,
}

/// A span that shows a finding. Times are since the first event of the trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The thread or stream.
    pub track: String,
    /// The name of the span.
    pub name: String,
    /// When it began, in nanoseconds.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// The source line, `train.py:88 in step`, if Python stacks, samples or marks contain it.
    pub line: Option<String>,
}

/// A finding as programs read it: in the JSON of `laptime diagnose` and on the page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reported {
    /// The id that `laptime explain` takes.
    pub id: String,
    /// Its severity.
    pub severity: Severity,
    /// What it is, in a few words.
    pub title: String,
    /// What was seen, with figures.
    pub summary: String,
    /// The spans that show it, the longest first.
    pub evidence: Vec<Evidence>,
    /// The estimated gain; none if unknown.
    pub gain: Option<Gain>,
    /// The threshold of the rule; empty if it has none.
    pub threshold: String,
    /// What it means.
    pub meaning: String,
    /// What to do, per framework where they differ.
    pub fixes: Vec<Fix>,
}

/// What fixing a finding would gain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The time, in nanoseconds.
    pub ns: f64,
    /// As a share of the whole: the time of the devices, or a token.
    pub share: Option<f64>,
    /// How it was estimated.
    pub reasoning: String,
}

/// What to do about a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fix {
    /// `any`, `PyTorch`, `JAX` or `candle`.
    pub framework: String,
    /// What to do.
    pub text: String,
}

impl Finding {
    /// The finding as a bottleneck that no span shows.
    pub(crate) fn bottleneck(self, severity: Severity, gain_ns: Option<f64>) -> Bottleneck {
        Bottleneck { severity, finding: self, gain_ns, evidence: Vec::new() }
    }
}

impl Bottleneck {
    /// Bad ones first, then by gain.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let gain = |one: &Self| one.gain_ns.unwrap_or(0.0);
        self.severity.cmp(&other.severity).then(gain(other).total_cmp(&gain(self)))
    }

    /// The gain as a share of a time in nanoseconds, to which one-off initialisation does not belong.
    pub fn share(&self, whole: Option<f64>) -> Option<f64> {
        let (gain, whole) = (self.gain_ns?, whole.filter(|&whole| whole > 0.0)?);
        let whole = if self.finding.rule == "cold-start" { whole + gain } else { whole };
        Some((gain / whole).min(1.0))
    }

    /// The finding as programs read it; `whole` is the time that the gain is a share of, in nanoseconds.
    pub fn reported(&self, whole: Option<f64>) -> Reported {
        let Finding { rule: id, evidence: summary, limit, meaning, next } = &self.finding;
        let rule = rule(id);
        let reasoning = rule.map_or("an upper bound: the time in which the finding was seen", |rule| rule.gain);
        let fix = |framework: &str, text: &str| Fix { framework: framework.to_owned(), text: text.to_owned() };
        let mut fixes = vec![fix("any", next)];
        fixes.extend(rule.into_iter().flat_map(|rule| &rule.fixes).map(|(framework, text)| fix(framework, text)));
        Reported {
            id: (*id).to_owned(),
            severity: self.severity,
            title: explain(id).map_or(*id, |topic| topic.title).to_owned(),
            summary: summary.clone(),
            evidence: self.evidence.clone(),
            gain: self.gain_ns.map(|ns| Gain { ns, share: self.share(whole), reasoning: reasoning.to_owned() }),
            threshold: limit.clone(),
            meaning: meaning.clone(),
            fixes,
        }
    }
}
