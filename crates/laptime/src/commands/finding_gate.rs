//! `--deny` and `--budget`: findings that make `laptime diagnose` fail.

use laptime_analyze::{Bottleneck, TOPICS, current_id, explain};

use crate::{failure::refusal, near::did_you_mean};

/// Findings that fail the command
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Gate")]
pub struct GateArgs {
    /// Exit with status 1 if one of these findings is reported
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    deny: Vec<String>,
    /// Exit with status 1 if a finding costs more than this, in milliseconds or in percent of the time
    #[arg(long, value_name = "ID=MS|%", value_delimiter = ',')]
    budget: Vec<String>,
}

pub struct Gate {
    denied: Vec<&'static str>,
    budgets: Vec<(&'static str, Budget)>,
}

enum Budget {
    Nanos(f64),
    Share(f64),
}

impl GateArgs {
    /// Parses the flags.
    pub fn gate(&self) -> anyhow::Result<Gate> {
        let denied = self.deny.iter().map(|id| known(id)).collect::<anyhow::Result<_>>()?;
        let budgets = self.budget.iter().map(|word| budget(word)).collect::<anyhow::Result<_>>()?;
        Ok(Gate { denied, budgets })
    }
}

/// Splits `ID=VALUE`.
pub fn assignment<'w>(flag: &str, word: &'w str, example: &str) -> anyhow::Result<(&'w str, &'w str)> {
    let split = word.split_once('=').map(|(id, value)| (id.trim(), value.trim()));
    split.ok_or_else(|| refusal(format!("`{flag} {word}` has no value"), format!("for example `{flag} {example}`")))
}

pub fn unknown_finding(id: &str, known: impl Iterator<Item = &'static str>) -> anyhow::Error {
    let near = did_you_mean(id, known);
    refusal(format!("no finding has the id `{id}`"), format!("{near}`laptime explain` lists all ids"))
}

fn known(id: &str) -> anyhow::Result<&'static str> {
    let topic = explain(current_id(id.trim_matches(['[', ']'])));
    topic.map(|topic| topic.id).ok_or_else(|| unknown_finding(id, TOPICS.iter().map(|topic| topic.id)))
}

fn budget(word: &str) -> anyhow::Result<(&'static str, Budget)> {
    let (id, value) = assignment("--budget", word, "sync-in-loop=5%")?;
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    let budget = match value.strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| Budget::Share(percent / 100.0)),
        None => number(value.strip_suffix("ms").unwrap_or(value)).map(|millis| Budget::Nanos(1e6 * millis)),
    };
    let budget = budget.ok_or_else(|| {
        let reason = format!("`{value}` is neither milliseconds nor a percentage");
        refusal(reason, format!("for example `--budget {id}=2.5` or `--budget {id}=5%`"))
    })?;
    Ok((known(id)?, budget))
}

impl Gate {
    /// A message per violation. `whole` is the time that shares refer to.
    pub fn broken(&self, findings: &[Bottleneck], whole: Option<f64>) -> Vec<String> {
        let mut broken = Vec::new();
        for found in findings {
            let id = found.finding.rule;
            let gain = found.gain_ns.unwrap_or(0.0);
            if self.denied.contains(&id) {
                broken.push(format!("`{id}` is denied: {}", found.finding.evidence));
            }
            for (_, budget) in self.budgets.iter().filter(|(known, _)| *known == id) {
                let share = found.share(whole).unwrap_or(0.0);
                let over = match budget {
                    Budget::Nanos(most) if gain > *most => format!("{:.3} ms, budget {:.3} ms", gain / 1e6, most / 1e6),
                    Budget::Share(most) if share > *most => {
                        format!("{:.1} % of the time, budget {:.1} %", 100.0 * share, 100.0 * most)
                    }
                    _ => continue,
                };
                broken.push(format!("`{id}` is over budget: {over}"));
            }
        }
        broken
    }
}
