//! `laptime explain`: the long version of a note or finding.

use std::io::Write;

use laptime_analyze::{TOPICS, Topic, explain, rule as finding_rule};

use crate::output::{OutputArgs, wrapped};
use crate::{cli::Status, failure::refusal, near::did_you_mean};

/// Explain a note or finding: its rule, threshold, meaning and remedy
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  laptime explain unsteady\n  laptime explain")]
pub struct Args {
    /// The id in brackets after the note; without one all are listed
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Explain all of them
    #[arg(long, conflicts_with = "id")]
    all: bool,
    /// List the findings of `laptime diagnose` on any trace, with their thresholds
    #[arg(long, conflicts_with_all = ["id", "all"])]
    findings: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    if args.all {
        let texts: Vec<String> = TOPICS.iter().map(text).collect();
        args.output.write_text(&texts.join("\n\n"), out)?;
        return Ok(Status::Done);
    }
    if args.findings {
        return args.output.write(&laptime_report::tables::finding_rules(), out);
    }
    let Some(id) = &args.id else {
        return args.output.write(&laptime_report::tables::topics(), out);
    };
    // It may be copied with its brackets.
    let id = id.trim_matches(['[', ']']);
    let topic = explain(id).ok_or_else(|| unknown(id))?;
    args.output.write_text(&text(topic), out)?;
    Ok(Status::Done)
}

fn unknown(id: &str) -> anyhow::Error {
    let near = did_you_mean(id, TOPICS.iter().map(|topic| topic.id));
    refusal(format!("no note has the id `{id}`"), format!("{near}`laptime explain` lists all ids"))
}

fn text(topic: &Topic) -> String {
    let Topic { id, title, rule, meaning, remedy } = topic;
    let parts = [("Rule", rule), ("Meaning", meaning), ("What to do", remedy)];
    let parts = parts.map(|(name, text)| format!("\n{}\n", wrapped(&format!("{name}: {text}"))));
    let mut text = format!("{id}: {title}\n{}", parts.concat());
    if let Some(finding) = finding_rule(id) {
        for (framework, fix) in &finding.fixes {
            text += &format!("\n{}\n", wrapped(&format!("{framework}: {fix}")));
        }
        text += &format!("\n{}\n", wrapped(&format!("Gain: {}.", finding.gain)));
        if finding.limit > 0.0 {
            let threshold = format!("Threshold: {} %, set with `--threshold {id}=PERCENT`.", 100.0 * finding.limit);
            text += &format!("\n{}\n", wrapped(&threshold));
        }
    }
    text
}
