//! A table as HTML that needs no script: a table, its facts and its notes.
//!
//! A cell with a number carries it unrounded (`data-v`), so that a script can sort. A row with a place in a trace carries
//! the place (`data-from`, `data-to`) or a name to look for (`data-find`).

use super::{escape_around_code, note_lines};
use crate::layout::{self, Shown, ShownCell};
use crate::table::{Cell, Table};
use crate::visible::visible;

/// Where a row is in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// From this time to that one, in nanoseconds since the start of the trace.
    Range(u64, u64),
    /// Every span of this name; `*` stands for a number.
    Name(String),
}

/// Escapes text, also within quotes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in visible(text).chars() {
        match char {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            char => escaped.push(char),
        }
    }
    escaped
}

/// Escapes a sentence; text in backticks becomes code.
pub fn prose(sentence: &str) -> String {
    escape_around_code(sentence, escape, |code| format!("<code>{}</code>", escape(code)))
}

/// Writes a table with its notes. `place` gives the place of a row; without one, the start and length of a row or its
/// name are its place.
pub fn html(table: &Table, place: impl Fn(usize) -> Option<Place>) -> String {
    let mut out = String::new();
    for sentence in &table.answer {
        out += &format!("<p>{}</p>\n", prose(sentence));
    }
    let shown = layout::columns(table);
    if !table.rows.is_empty() && !shown.is_empty() {
        let sources = layout::shown_columns(table);
        out += &format!("<div class=\"table\"><table data-name=\"{}\">\n<thead><tr>", escape(table.name));
        for column in &shown {
            let class = if column.is_numeric { " class=\"n\"" } else { "" };
            out += &format!("<th{class}>{}</th>", escape(&column.header));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for row in 0..table.rows.len() {
            let place = place(row).or_else(|| own_place(table, row));
            push_row(&mut out, table, row, (&shown, &sources), place);
        }
        out.push_str("</tbody></table></div>\n");
    }
    push_facts(&mut out, table);
    for sentence in table.notes.iter().cloned().chain(note_lines(table, true)) {
        out += &format!("<p class=\"note\">{}</p>\n", prose(&sentence));
    }
    out
}

fn push_facts(out: &mut String, table: &Table) {
    let facts = table.shown_facts().map(|(label, value)| format!("{}: <b>{}</b>", escape(label), escape(&value)));
    let facts: Vec<String> = facts.collect();
    if !facts.is_empty() {
        *out += &format!("<p class=\"facts\">{}</p>\n", facts.join(" · "));
    }
}

fn push_row(out: &mut String, table: &Table, row: usize, (shown, sources): (&[Shown], &[usize]), place: Option<Place>) {
    match place {
        Some(Place::Range(from, to)) => {
            *out += &format!("<tr data-from=\"{from}\" data-to=\"{to}\">");
        }
        Some(Place::Name(name)) => *out += &format!("<tr data-find=\"{}\">", escape(&name)),
        None => out.push_str("<tr>"),
    }
    for (column, &source) in shown.iter().zip(sources) {
        let cell = table.rows[row].get(source).unwrap_or(&Cell::Empty);
        push_cell(out, column, &column.cells[row], cell);
    }
    out.push_str("</tr>\n");
}

fn push_cell(out: &mut String, column: &Shown, shown: &ShownCell, cell: &Cell) {
    let class = if column.is_numeric { " class=\"n\"" } else { "" };
    let number = number(cell).map_or_else(String::new, |number| format!(" data-v=\"{number}\""));
    let whole = match cell {
        Cell::Name(name) | Cell::Tree { label: name, .. } if *name != shown.text => {
            format!(" title=\"{}\"", escape(name))
        }
        _ => String::new(),
    };
    let indent = "&emsp;".repeat(shown.depth);
    *out += &format!("<td{class}{number}{whole}>{indent}{}</td>", escape(shown.text.trim_end()));
}

fn number(cell: &Cell) -> Option<f64> {
    Some(match cell {
        cell if cell.is_empty() => return None,
        Cell::Count(number) | Cell::Nanos(number) | Cell::Bytes(number) => *number as f64,
        Cell::Whole(number) | Cell::Shift(number) => *number as f64,
        Cell::Number(number) | Cell::Share(number) | Cell::Change(number) => *number,
        Cell::Range(ends) => return number(&ends[0]),
        _ => return None,
    })
}

/// The place that the cells of a row state.
fn own_place(table: &Table, row: usize) -> Option<Place> {
    let cells = &table.rows[row];
    let nanos = |key: &str| match cells.get(table.columns.iter().position(|column| column.key == key)?)? {
        Cell::Nanos(nanos) => Some(*nanos),
        _ => None,
    };
    if let Some(start) = nanos("start_ms") {
        return Some(Place::Range(start, start + nanos("length_ms").unwrap_or(0)));
    }
    cells.iter().find_map(|cell| match cell {
        Cell::Name(name) | Cell::Tree { label: name, .. } => Some(Place::Name(name.clone())),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Column;

    #[test]
    fn names_are_text_and_numbers_stay_exact() {
        let mut table = Table::new("top", [Column::new("name", "name"), Column::new("own_ms", "own")]);
        table.push([Cell::name("<script>alert(\"x\")</script>"), Cell::Nanos(1_234_567)]);
        table.note("Run `a < b`.");
        let html = html(&table, |_| None);
        assert!(!html.contains("<script"), "{html}");
        assert!(html.contains("data-find=\"&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;\""), "{html}");
        assert!(html.contains("<td class=\"n\" data-v=\"1234567\">1,235</td>"), "{html}");
        assert!(html.contains("<code>a &lt; b</code>"), "{html}");
    }

    #[test]
    fn a_row_with_start_and_length_has_a_link_unless_the_caller_sets_one() {
        let columns = [Column::new("start_ms", "at"), Column::new("length_ms", "gap")];
        let mut table = Table::new("gaps", columns);
        table.push([Cell::Nanos(5), Cell::Nanos(7)]);
        assert!(html(&table, |_| None).contains("data-from=\"5\" data-to=\"12\""));
        assert!(html(&table, |_| Some(Place::Name("x".into()))).contains("data-find=\"x\""));
    }
}
