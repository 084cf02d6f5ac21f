//! Cache-to-cache fusion compared with passing text between two models, as a table.

use laptime_analyze::{AgainstText, Ratio, TextAgainst};
use laptime_stats::Interval;

use super::{
    axes::{Axes, Taken},
    troubles::capital,
};
use crate::{Cell, Column, Table};

/// Lays out times to the first token, one row per text length, with the answers as notes. None if there is nothing to
/// compare.
pub fn against_text(answer: &AgainstText) -> Option<Table> {
    if answer.prompts.is_empty() {
        return None;
    }
    let axes = Axes::of(answer.prompts.iter().map(|prompt| &prompt.id));
    let own = columns();
    let mut columns = axes.columns(&mut Taken::by(&own));
    columns.extend(own);
    let mut table = Table::new("against", columns);
    for prompt in &answer.prompts {
        for text in &prompt.texts {
            table.push([axes.cells(&prompt.id), row(text)].concat());
        }
    }
    for prompt in &answer.prompts {
        let of = axes.name(&prompt.id).map_or_else(String::new, |name| format!("`{name}`: "));
        if let Some(sentence) = prompt.sentence() {
            table.note(format!("{of}{}.", capital(&sentence)));
        }
    }
    table.legend("Times are until the first token of the base model. Ratios above 1 mean that C2C is faster.");
    Some(table)
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("text_tokens", "text tokens"),
        Column::new("c2c_ttft_ms", "C2C (ms)"),
        Column::new("text_ttft_ms", "text (ms)"),
        Column::new("alone_ttft_ms", "alone (ms)"),
        Column::new("text_over_c2c", "text/C2C"),
        Column::new("text_over_c2c_lo", "").machine_only(),
        Column::new("text_over_c2c_hi", "").machine_only(),
        Column::new("text_over_c2c_ci", "95 % CI").human_only().drop(1),
        Column::new("alone_over_c2c", "alone/C2C"),
        Column::new("alone_over_c2c_lo", "").machine_only(),
        Column::new("alone_over_c2c_hi", "").machine_only(),
        Column::new("alone_over_c2c_ci", "95 % CI").human_only().drop(2),
    ]
}

fn row(text: &TextAgainst) -> Vec<Cell> {
    let end = |ratio: &Ratio, of: fn(Interval) -> f64| Cell::from(ratio.interval.map(|ends| Cell::Number(of(ends))));
    let mut cells = vec![
        Cell::Whole(i64::try_from(text.tokens).unwrap_or(i64::MAX)),
        Cell::Number(text.caches_ms),
        Cell::Number(text.text_ms),
        Cell::Number(text.alone_ms),
    ];
    for ratio in [&text.text, &text.alone] {
        let [low, high] = [end(ratio, |ends| ends.low), end(ratio, |ends| ends.high)];
        cells.extend([Cell::Number(ratio.ratio), low.clone(), high.clone(), Cell::range(low, high)]);
    }
    cells
}
