//! `laptime explain`: what a note means.

use std::io::Write;

use laptime_analyze::{TOPICS, Topic, explain};

use crate::{
    cli::Status,
    failure::Hinted,
    near::nearest,
    output::{OutputArgs, wrapped},
};

/// Explains a note or finding by its id: the rule, its threshold, what it means and what to do
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  laptime explain unsteady\n  laptime explain")]
pub struct Args {
    /// The id in brackets after the note; without one all are listed
    #[arg(value_name = "ID")]
    id: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let Some(id) = &args.id else {
        args.output.write(&laptime_report::tables::topics(), out)?;
        return Ok(Status::Done);
    };
    // As printed, or copied with its brackets.
    let id = id.trim_matches(['[', ']']);
    let topic = explain(id).ok_or_else(|| unknown(id))?;
    args.output.write_text(&text(topic), out)?;
    Ok(Status::Done)
}

fn unknown(id: &str) -> anyhow::Error {
    let near = nearest(id, TOPICS.iter().map(|topic| topic.id));
    let near = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
    Hinted::wrap(anyhow::anyhow!("no note has the id `{id}`"), format!("{near}`laptime explain` lists all ids"))
}

fn text(topic: &Topic) -> String {
    let Topic { id, title, rule, meaning, remedy } = topic;
    let parts = [("Rule", rule), ("Meaning", meaning), ("What to do", remedy)];
    let parts = parts.map(|(name, text)| format!("\n{}\n", wrapped(&format!("{name}: {text}"))));
    format!("{id}: {title}\n{}", parts.concat())
}
