//! Prompts in a file: JSON Lines with a `prompt` or a `question` each.

use std::path::Path;

use anyhow::{Context, bail};
use laptime_trace::small_file;

/// The message of a line, counted from 1; lines that are blank are not counted.
pub fn line(file: &Path, line: usize) -> anyhow::Result<String> {
    let all = read(file)?;
    let (has, name) = (all.len(), file.display());
    all.into_iter()
        .nth(line.saturating_sub(1))
        .with_context(|| format!("`{name}` has {has} prompts and no line {line}."))
}

/// How many messages there are.
pub fn count(file: &Path) -> anyhow::Result<usize> {
    Ok(read(file)?.len())
}

fn read(file: &Path) -> anyhow::Result<Vec<String>> {
    let name = file.display();
    let text = small_file::read_text(file, small_file::LARGEST_SMALL_FILE)
        .with_context(|| format!("cannot read the prompts of `{name}`"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(at, line)| message(line).with_context(|| format!("line {} of `{name}`", at + 1))).collect()
}

fn message(line: &str) -> anyhow::Result<String> {
    let record: serde_json::Value = serde_json::from_str(line).context("it is not JSON")?;
    let found = ["prompt", "question"].iter().find_map(|key| record.get(key)?.as_str());
    match found {
        Some(message) if message.trim().is_empty() => bail!("the prompt is empty"),
        Some(message) => Ok(message.to_owned()),
        None => bail!("it has neither a `prompt` nor a `question`"),
    }
}
