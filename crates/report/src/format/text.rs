//! Aligned columns for a terminal, fitted to its width.
//!
//! The first column of text gives way first, then columns are left out in
//! the order the table asks for. No line is wider than the terminal, unless
//! a column is to stay whole.

use std::io;

use super::{TextStyle, note_lines};
use crate::kernel_name::short;
use crate::layout::{self, Shown, ShownCell};
use crate::table::{Keep, Table};
use crate::visible::{shorten, visible, width};
use crate::wrap::wrap;

const GAP: usize = 2;
/// Columns that names get at least before another column is left out.
const NAME_FLOOR: usize = 24;
/// The same for further columns of text.
const TEXT_FLOOR: usize = 16;
/// The same for all columns of text before one goes that is to be kept.
const TIGHT_FLOOR: usize = 8;

pub(super) fn write(table: &Table, style: TextStyle, out: &mut dyn io::Write) -> io::Result<()> {
    let (columns, left_out) = fit(layout::columns(table), style.width);
    let pen = Pen { style };
    let left_out = if table.rows.is_empty() { Vec::new() } else { left_out };
    let below = remarks(table, &left_out, style);
    // A header without rows says nothing that the remarks do not.
    let has_rows = !columns.is_empty() && (!table.rows.is_empty() || below.is_empty());
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

/// A column and the width it was given.
struct Fitted {
    shown: Shown,
    /// Where the column stood before any was left out.
    place: usize,
    /// Whether this is the column that gives way first and never goes.
    is_name: bool,
    natural: usize,
    width: usize,
}

impl Fitted {
    /// Gives a column the least width it can do with.
    fn at_least(shown: Shown, place: usize, is_name: bool) -> Self {
        let natural = shown.natural_width();
        let floor = match shown.is_numeric {
            _ if shown.keep == Keep::Whole => natural,
            _ if is_name => NAME_FLOOR,
            true => natural,
            false => TEXT_FLOOR,
        };
        Self { shown, place, is_name, natural, width: natural.min(floor) }
    }
}

/// Gives columns their widths; returns the labels of those left out as well.
fn fit(columns: Vec<Shown>, room: usize) -> (Vec<Fitted>, Vec<String>) {
    let name = columns.iter().position(|column| !column.is_numeric).unwrap_or(0);
    let places = columns.into_iter().enumerate();
    let mut kept: Vec<_> = places.map(|(place, shown)| Fitted::at_least(shown, place, place == name)).collect();
    let mut gone = Vec::new();
    while total_width(&kept) > room
        && let Some(at) = next_to_go(&kept)
    {
        gone.push(kept.remove(at));
    }
    let is_whole = kept.iter().any(|column| column.shown.keep == Keep::Whole);
    if total_width(&kept) > room && !is_whole {
        tighten(&mut kept);
    }
    while total_width(&kept) > room
        && !is_whole
        && let Some(at) = kept.iter().rposition(|column| !column.is_name)
    {
        gone.push(kept.remove(at));
    }
    widen(&mut kept, room);
    gone.sort_by_key(|column| column.place);
    (kept, gone.iter().map(|column| visible(&column.shown.label).into_owned()).collect())
}

fn total_width(columns: &[Fitted]) -> usize {
    let gaps = GAP * columns.len().saturating_sub(1);
    columns.iter().map(|column| column.width).sum::<usize>() + gaps
}

/// Returns the column to leave out next: of those that may go, the last one
/// with the highest order.
fn next_to_go(columns: &[Fitted]) -> Option<usize> {
    let order = |column: &Fitted| match column.shown.keep {
        Keep::Drop(order) if !column.is_name => Some(order),
        _ => None,
    };
    let orders = columns.iter().enumerate().filter_map(|(at, column)| Some((order(column)?, at)));
    orders.max().map(|(_, at)| at)
}

/// Narrows columns of text, for only columns that are to be kept are left.
fn tighten(columns: &mut [Fitted]) {
    for column in columns.iter_mut().filter(|column| !column.shown.is_numeric) {
        column.width = column.width.min(TIGHT_FLOOR);
    }
}

/// Hands out the room that is left, the name first; takes away what a name
/// that stands alone has too much.
fn widen(columns: &mut [Fitted], room: usize) {
    let mut spare = room.saturating_sub(total_width(columns));
    columns.sort_by_key(|column| !column.is_name);
    for column in &mut *columns {
        let more = spare.min(column.natural - column.width);
        let most = if column.shown.keep == Keep::Whole { column.natural } else { room };
        column.width = (column.width + more).min(most);
        spare -= more;
    }
    columns.sort_by_key(|column| column.place);
}

/// Returns what is said below the rows: facts, notes, and what was left out.
fn remarks(table: &Table, left_out: &[String], style: TextStyle) -> Vec<String> {
    let facts = table.facts.iter().filter(|fact| !fact.value.is_empty());
    let facts: Vec<_> = facts
        .filter_map(|fact| Some(format!("{} {}", visible(fact.label.as_ref()?), layout::single(&fact.value))))
        .collect();
    let mut remarks = Vec::new();
    if !facts.is_empty() {
        remarks.push(facts.join(" · "));
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
            let row = line(columns, |column| self.draw(&column.shown.cells[row], column.width));
            writeln!(out, "{row}")?;
        }
        Ok(())
    }

    /// Draws a cell in at most `limit` columns; returns how many it took too.
    ///
    /// Of a name deep in a tree at least half the column shows the name.
    fn draw(&self, cell: &ShownCell, limit: usize) -> (usize, String) {
        let label = width(&cell.text).min(limit.div_ceil(2));
        let guides = cell.guides.draw(limit - label);
        let used = width(&guides);
        let room = limit - used;
        let text = if cell.is_name { short(&cell.text, room) } else { shorten(&cell.text, room) };
        (used + width(&text), self.paint(DIM, &guides) + &text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.style.colour && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

const BOLD: &str = "1";
const DIM: &str = "2";

/// Joins the cells of a row, words to the left and numbers to the right.
///
/// `cell` returns how many columns a cell takes, and what to write.
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
        write(table, style, &mut out).expect("a vector takes everything");
        String::from_utf8(out).expect("the format is text")
    }

    #[test]
    fn a_name_deep_in_a_tree_keeps_half_of_its_column() {
        let mut table = Table::new("stages", [Column::new("path", "stage")]);
        table.push([Cell::tree(9, "attention_scores", "")]);
        assert_eq!(written(&table, 20).lines().nth(2), Some("…     └── attention…"));
    }

    #[test]
    fn names_give_way_before_a_column_that_is_to_be_kept() {
        let columns = [Column::new("name", "name"), Column::new("count", "count")];
        let mut table = Table::new("spans", columns);
        table.push([Cell::text("a_name_of_28_columns_in_full"), Cell::Count(1_000_000_000_000)]);
        assert_eq!(written(&table, 30).lines().nth(2), Some("a_name_of_…  1,000,000,000,000"));
    }

    #[test]
    fn a_column_that_is_to_stay_whole_makes_lines_wider_if_it_must() {
        let columns = [Column::new("site", "site").whole(), Column::new("call", "call"), Column::new("x", "x").drop(1)];
        let mut table = Table::new("sites", columns);
        table.push([Cell::text("a/path/of/31/columns/file.rs:12"), Cell::text("to_vec1"), Cell::text("function")]);
        assert_eq!(written(&table, 30).lines().nth(2), Some("a/path/of/31/columns/file.rs:12  to_vec1"));
    }

    #[test]
    fn a_table_without_rows_has_its_notes_and_no_header() {
        let mut table = Table::new("gaps", [Column::new("track", "track")]);
        table.note("No gap was found.");
        assert_eq!(written(&table, 80), "No gap was found.\n");
        let silent = Table::new("gaps", [Column::new("track", "track")]);
        assert_eq!(written(&silent, 80), "track\n─────\n", "something is printed all the same");
    }
}
