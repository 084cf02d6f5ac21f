//! Aligned columns for a terminal, fitted to its width.
//!
//! The first text column is shortened first, then columns are dropped in
//! the order that the table defines. No line is wider than the terminal,
//! unless a column must not be shortened.

use std::io;

use super::{TextStyle, note_lines};
use crate::kernel_name::short;
use crate::layout::{self, Shown, ShownCell};
use crate::table::{Keep, Table};
use crate::tree;
use crate::visible::{shorten, visible, width};
use crate::wrap::{NO_BREAK, wrap};

const GAP: usize = 2;
/// The widest line of an answer in sentences.
pub(crate) const PROSE: usize = 120;
/// The smallest width of names before another column is dropped.
const NAME_FLOOR: usize = 24;
/// The same for further text columns.
const TEXT_FLOOR: usize = 16;
/// The same for all text columns before a column is dropped that should be kept.
const TIGHT_FLOOR: usize = 8;

pub(super) fn write(table: &Table, style: TextStyle, out: &mut dyn io::Write) -> io::Result<()> {
    let (columns, left_out) = fit(layout::columns(table), style.width);
    let pen = Pen { style };
    let left_out = if table.rows.is_empty() { Vec::new() } else { left_out };
    let below = remarks(table, &left_out, style);
    // A header without rows adds nothing to the remarks.
    let has_rows = !columns.is_empty() && (!table.rows.is_empty() || below.is_empty());
    for sentence in &table.answer {
        for line in wrap(&visible(sentence), style.width.min(PROSE)) {
            writeln!(out, "{line}")?;
        }
    }
    if !table.answer.is_empty() && (has_rows || !below.is_empty()) {
        writeln!(out)?;
    }
    if has_rows {
        pen.write_rows(table.rows.len(), &columns, out)?;
    }
    if has_rows && !below.is_empty() {
        writeln!(out)?;
    }
    for remark in below {
        for line in wrap(&remark, style.width) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// A column and its width.
struct Fitted {
    shown: Shown,
    /// The index of the column before any was dropped.
    place: usize,
    /// Whether this is the column that is shortened first and never dropped.
    is_name: bool,
    natural: usize,
    width: usize,
    /// Columns per level of a tree.
    step: usize,
}

impl Fitted {
    /// Gives a column its smallest width.
    fn at_least(shown: Shown, place: usize, is_name: bool) -> Self {
        let natural = shown.natural_width();
        let floor = match shown.is_numeric {
            _ if shown.keep == Keep::Whole => natural,
            _ if is_name => NAME_FLOOR,
            true => natural,
            false => TEXT_FLOOR,
        };
        Self { shown, place, is_name, natural, width: natural.min(floor), step: tree::STEP }
    }
}

/// Gives columns their widths; also returns the labels of dropped columns.
fn fit(columns: Vec<Shown>, space: usize) -> (Vec<Fitted>, Vec<String>) {
    let name = columns.iter().position(|column| !column.is_numeric).unwrap_or(0);
    let places = columns.into_iter().enumerate();
    let mut kept: Vec<_> = places.map(|(place, shown)| Fitted::at_least(shown, place, place == name)).collect();
    let mut gone = Vec::new();
    while total_width(&kept) > space
        && let Some(at) = next_to_go(&kept)
    {
        gone.push(kept.remove(at));
    }
    let is_whole = kept.iter().any(|column| column.shown.keep == Keep::Whole);
    if total_width(&kept) > space && !is_whole {
        tighten(&mut kept);
    }
    while total_width(&kept) > space
        && !is_whole
        && let Some(at) = kept.iter().rposition(|column| !column.is_name)
    {
        gone.push(kept.remove(at));
    }
    widen(&mut kept, space);
    gone.sort_by_key(|column| column.place);
    (kept, gone.iter().map(|column| visible(&column.shown.label).into_owned()).collect())
}

fn total_width(columns: &[Fitted]) -> usize {
    let gaps = GAP * columns.len().saturating_sub(1);
    columns.iter().map(|column| column.width).sum::<usize>() + gaps
}

/// Returns the column to drop next: the last one with the highest
/// order.
fn next_to_go(columns: &[Fitted]) -> Option<usize> {
    let order = |column: &Fitted| match column.shown.keep {
        Keep::Drop(order) if !column.is_name => Some(order),
        _ => None,
    };
    let orders = columns.iter().enumerate().filter_map(|(at, column)| Some((order(column)?, at)));
    orders.max().map(|(_, at)| at)
}

/// Narrows text columns when only columns are left that should be kept.
fn tighten(columns: &mut [Fitted]) {
    for column in columns.iter_mut().filter(|column| !column.shown.is_numeric) {
        column.width = column.width.min(TIGHT_FLOOR);
    }
}

/// Distributes the remaining width, the name first; shortens a name that is
/// too wide on its own.
fn widen(columns: &mut [Fitted], space: usize) {
    let mut spare = space.saturating_sub(total_width(columns));
    columns.sort_by_key(|column| !column.is_name);
    for column in &mut *columns {
        let more = spare.min(column.natural - column.width);
        let most = if column.shown.keep == Keep::Whole { column.natural } else { space };
        column.width = (column.width + more).min(most);
        spare -= more;
        if column.natural > column.width {
            column.step = tree::step_for(column.shown.cells.iter().map(|cell| &cell.guides), column.width);
        }
    }
    columns.sort_by_key(|column| column.place);
}

/// Returns the lines below the rows: facts, notes, and dropped columns.
fn remarks(table: &Table, left_out: &[String], style: TextStyle) -> Vec<String> {
    let facts = table.shown_facts().map(|(label, value)| format!("{} {value}", visible(label)).trim_end().to_owned());
    // A fact and the dot after it stay on one line if they fit.
    let whole = |fact: String| if width(&fact) + 2 <= style.width { fact.replace(' ', NO_BREAK) } else { fact };
    let facts: Vec<String> = facts.map(whole).collect();
    let mut remarks = Vec::new();
    if !facts.is_empty() {
        remarks.push(facts.join(&format!("{NO_BREAK}· ")));
    }
    remarks.extend(table.notes.iter().map(|note| visible(note).into_owned()));
    remarks.extend(note_lines(table, style.verbose).iter().map(|line| visible(line).into_owned()));
    if !left_out.is_empty() && style.verbose {
        remarks.push(format!("Columns that do not fit: {}. `--wide` shows them.", left_out.join(", ")));
    }
    remarks
}

/// Writes the parts of a text table, in colour or without.
struct Pen {
    style: TextStyle,
}

impl Pen {
    fn write_rows(&self, rows: usize, columns: &[Fitted], out: &mut dyn io::Write) -> io::Result<()> {
        let header = line(columns, |column| {
            let text = shorten(&column.shown.header, column.width).into_owned();
            (width(&text), text)
        });
        writeln!(out, "{}", self.paint(BOLD, &header))?;
        writeln!(out, "{}", self.paint(DIM, &"─".repeat(total_width(columns))))?;
        for row in 0..rows {
            let row = line(columns, |column| self.draw(&column.shown.cells[row], column));
            writeln!(out, "{row}")?;
        }
        Ok(())
    }

    /// Draws a cell in the width of its column; also returns its width.
    ///
    /// For a node deep in a tree, at least half the column shows the name.
    fn draw(&self, cell: &ShownCell, column: &Fitted) -> (usize, String) {
        let limit = column.width;
        let label = width(&cell.text).min(limit.div_ceil(2));
        let guides = cell.guides.draw(limit - label, column.step);
        let used = width(&guides);
        let space = limit - used;
        let text = if cell.is_name { short(&cell.text, space) } else { shorten(&cell.text, space) };
        (used + width(&text), self.paint(DIM, &guides) + &text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.style.colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

const BOLD: &str = "1";
const DIM: &str = "2";

/// Joins the cells of a row: text left-aligned, numbers right-aligned.
///
/// `cell` returns the width of a cell, and its text.
fn line(columns: &[Fitted], cell: impl Fn(&Fitted) -> (usize, String)) -> String {
    let mut line = String::new();
    for (at, column) in columns.iter().enumerate() {
        let (taken, text) = cell(column);
        let blanks = " ".repeat(column.width - taken);
        let gap = if at == 0 { "" } else { "  " };
        line.push_str(gap);
        if column.shown.is_numeric {
            line.extend([blanks, text]);
        } else {
            line.extend([text, blanks]);
        }
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Cell, Column};

    fn written(table: &Table, width: usize) -> String {
        let mut out = Vec::new();
        let style = TextStyle::plain(width);
        write(table, style, &mut out).expect("writing to a vector cannot fail");
        String::from_utf8(out).expect("the format is text")
    }

    #[test]
    fn a_deeply_nested_name_keeps_half_of_its_column() {
        let mut table = Table::new("stages", [Column::new("path", "stage")]);
        table.push([Cell::tree(9, "attention_scores", "")]);
        assert_eq!(written(&table, 20).lines().nth(2), Some("        └attention_…"));
        table.push([Cell::tree(14, "attention_scores", "")]);
        assert_eq!(written(&table, 20).lines().nth(3), Some("…        └attention…"));
    }

    #[test]
    fn names_are_shortened_to_keep_other_columns() {
        let columns = [Column::new("name", "name"), Column::new("count", "count")];
        let mut table = Table::new("spans", columns);
        table.push([Cell::text("a_name_of_28_columns_in_full"), Cell::Count(1_000_000_000_000)]);
        assert_eq!(written(&table, 30).lines().nth(2), Some("a_name_of_…  1,000,000,000,000"));
    }

    #[test]
    fn a_whole_column_may_exceed_the_line_width() {
        let columns = [Column::new("site", "site").whole(), Column::new("call", "call"), Column::new("x", "x").drop(1)];
        let mut table = Table::new("sites", columns);
        table.push([Cell::text("a/path/of/31/columns/file.rs:12"), Cell::text("to_vec1"), Cell::text("function")]);
        assert_eq!(written(&table, 30).lines().nth(2), Some("a/path/of/31/columns/file.rs:12  to_vec1"));
    }

    #[test]
    fn an_empty_table_has_notes_but_no_header() {
        let mut table = Table::new("gaps", [Column::new("track", "track")]);
        table.note("No gap was found.");
        assert_eq!(written(&table, 80), "No gap was found.\n");
        let silent = Table::new("gaps", [Column::new("track", "track")]);
        assert_eq!(written(&silent, 80), "track\n─────\n", "something is printed all the same");
    }
}
