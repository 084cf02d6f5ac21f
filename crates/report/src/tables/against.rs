//! Cache-to-cache fusion compared with passing text between two models, as a table.

use laptime_analyze::{PromptAgainst, Ratio, TextAgainst, capital};

use super::axes::Axes;
use crate::{Cell, Table, table::fields};

/// Lays out times to the first token, one row per text length, with the answers as notes. None if there is nothing to
/// compare.
pub fn against_text(answer: &[PromptAgainst]) -> Option<Table> {
    if answer.is_empty() {
        return None;
    }
    let axes = Axes::of(answer.iter().map(|prompt| &prompt.id));
    let low = |ratio: &Ratio| Cell::from(ratio.interval.map(|ends| Cell::Number(ends.low)));
    let high = |ratio: &Ratio| Cell::from(ratio.interval.map(|ends| Cell::Number(ends.high)));
    let fields = fields!(text: &TextAgainst => [
        ("text_tokens", "text tokens") => Cell::Whole(i64::try_from(text.tokens).unwrap_or(i64::MAX)),
        ("c2c_ttft_ms", "C2C (ms)") => Cell::Number(text.caches_ms),
        ("text_ttft_ms", "text (ms)") => Cell::Number(text.text_ms),
        ("alone_ttft_ms", "alone (ms)") => Cell::Number(text.alone_ms),
        ("text_over_c2c", "text/C2C") => Cell::Number(text.text.ratio),
        ("text_over_c2c_lo", "").machine_only() => low(&text.text),
        ("text_over_c2c_hi", "").machine_only() => high(&text.text),
        ("text_over_c2c_ci", "95 % CI").human_only().drop(1) => Cell::range(low(&text.text), high(&text.text)),
        ("alone_over_c2c", "alone/C2C") => Cell::Number(text.alone.ratio),
        ("alone_over_c2c_lo", "").machine_only() => low(&text.alone),
        ("alone_over_c2c_hi", "").machine_only() => high(&text.alone),
        ("alone_over_c2c_ci", "95 % CI").human_only().drop(2) => Cell::range(low(&text.alone), high(&text.alone)),
    ]);
    let texts = answer.iter().flat_map(|prompt| prompt.texts.iter().map(|text| (&prompt.id, text)));
    let mut table = axes.rows("against", fields, texts);
    for prompt in answer {
        let of = axes.before(&prompt.id);
        if let Some(sentence) = prompt.sentence() {
            table.note(format!("{of}{}.", capital(&sentence)));
        }
    }
    table.legend("Times are until the first token of the base model. Ratios above 1 mean that C2C is faster.");
    Some(table)
}
