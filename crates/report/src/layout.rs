//! A table for people: columns of text with a unit in the header.
//!
//! The text and Markdown formats start from here. Cells keep the guides of a
//! tree separate from their text, because the formats draw them differently.

use crate::figures::{self, Unit};
use crate::kernel_name::{LONGEST, short};
use crate::table::{Cell, Column, Keep, Name, Show, Table};
use crate::tree::{Guides, guides};
use crate::visible::{visible, width};

/// A column for people.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) label: Name,
    /// The label with the unit of the cells: `host (ms)`.
    pub(crate) header: String,
    pub(crate) is_numeric: bool,
    pub(crate) keep: Keep,
    pub(crate) cells: Vec<ShownCell>,
}

/// A cell for people: text without control characters, numbers already
/// padded so that decimal points are aligned.
#[derive(Debug, Default)]
pub(crate) struct ShownCell {
    pub(crate) guides: Guides,
    pub(crate) depth: usize,
    /// Whether it is a name, which is shortened in the middle.
    pub(crate) is_name: bool,
    pub(crate) text: String,
}

impl Shown {
    /// Returns the natural width of the column in terminal columns.
    pub(crate) fn natural_width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.guides.width() + width(&cell.text));
        cells.chain([width(&self.header)]).max().unwrap_or(0)
    }
}

/// Returns the columns that have something to show to people.
///
/// A table without rows shows all of them, because the headers describe what
/// was searched for.
pub(crate) fn columns(table: &Table) -> Vec<Shown> {
    let of_column = |at: usize| shown(&table.columns[at], &scale(table, &table.columns[at]), table.cells(at));
    shown_columns(table).into_iter().map(of_column).collect()
}

/// The places of these columns in the table.
pub(crate) fn shown_columns(table: &Table) -> Vec<usize> {
    let columns = table.columns.iter().enumerate();
    columns
        .filter(|(_, column)| column.show != Show::MachineOnly)
        .filter(|&(at, _)| table.rows.is_empty() || !table.cells(at).all(Cell::is_empty))
        .map(|(at, _)| at)
        .collect()
}

/// Chooses the scale of a column from the cells of all columns that share its unit.
fn scale(table: &Table, column: &Column) -> Scale {
    let shares = |other: &Column| other.unit_key() == column.unit_key();
    let sharing: Vec<usize> = (0..table.columns.len()).filter(|&at| shares(&table.columns[at])).collect();
    Scale::of(sharing.iter().flat_map(|&at| table.cells(at)))
}

/// Writes one value on its own, unit included: `84.12 ms`.
pub fn single(cell: &Cell) -> String {
    OneUnit::of([cell].into_iter()).write(cell)
}

/// A count with its noun: `counted(1234, "launch", "launches")` is `1,234 launches`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", figures::count(count), if count == 1 { one } else { many })
}

/// Writes values in a common unit, so that they can be compared: `18.40 GiB`, `5.900 GiB`.
pub(crate) fn in_one_unit<const N: usize>(cells: [Cell; N]) -> [String; N] {
    let unit = OneUnit::of(cells.iter());
    cells.each_ref().map(|cell| unit.write(cell))
}

/// The common unit of the values in a sentence.
pub(crate) struct OneUnit {
    scale: Scale,
}

impl OneUnit {
    /// Chooses the unit.
    pub(crate) fn of<'a>(cells: impl Iterator<Item = &'a Cell> + Clone) -> Self {
        Self { scale: Scale::of(cells) }
    }

    /// Writes a value in this unit.
    pub(crate) fn write(&self, cell: &Cell) -> String {
        let unit = self.scale.unit_name(cell).map_or_else(String::new, |unit| format!(" {unit}"));
        self.scale.write(cell) + &unit
    }
}

fn shown<'a>(column: &Column, scale: &Scale, cells: impl Iterator<Item = &'a Cell> + Clone) -> Shown {
    let mut texts: Vec<String> = cells.clone().map(|cell| scale.write(cell)).collect();
    let is_numeric = cells.clone().all(is_number);
    if is_numeric && !cells.clone().any(|cell| matches!(cell, Cell::Range(_))) {
        figures::align_points(&mut texts);
    }
    Shown {
        label: column.label.clone(),
        header: header(&visible(&column.label), common_unit(scale, cells.clone())),
        is_numeric,
        keep: column.keep,
        cells: with_guides(cells, texts),
    }
}

fn with_guides<'a>(cells: impl Iterator<Item = &'a Cell> + Clone, texts: Vec<String>) -> Vec<ShownCell> {
    let depths: Vec<_> = cells.clone().map(depth).collect();
    let parts = guides(&depths).into_iter().zip(depths).zip(cells.map(is_name)).zip(texts);
    let shown = |(((guides, depth), is_name), text): (((_, Option<usize>), _), _)| {
        let depth = depth.unwrap_or(0);
        ShownCell { guides, depth, is_name, text }
    };
    parts.map(shown).collect()
}

fn depth(cell: &Cell) -> Option<usize> {
    match cell {
        Cell::Tree { depth, .. } => Some(*depth),
        _ => None,
    }
}

fn is_name(cell: &Cell) -> bool {
    matches!(cell, Cell::Name(_) | Cell::Tree { .. })
}

fn is_number(cell: &Cell) -> bool {
    !matches!(cell, Cell::Text(_) | Cell::Name(_) | Cell::Tree { .. } | Cell::Bool(_) | Cell::Json(_))
}

fn header(label: &str, unit: Option<&str>) -> String {
    match unit {
        Some(unit) if label.is_empty() => unit.to_owned(),
        Some(unit) => format!("{label} ({unit})"),
        None => label.to_owned(),
    }
}

/// Returns the unit that all cells of a column have in common.
fn common_unit<'a>(scale: &Scale, cells: impl Iterator<Item = &'a Cell>) -> Option<&'static str> {
    let mut units = cells.filter(|cell| !cell.is_empty()).map(|cell| scale.unit_name(cell));
    let first = units.next()?;
    units.all(|unit| unit == first).then_some(first)?
}

/// How the numbers of one column are written.
struct Scale {
    time: Unit,
    size: Unit,
    is_whole: bool,
}

impl Scale {
    fn of<'a>(cells: impl Iterator<Item = &'a Cell> + Clone) -> Self {
        let cells = cells.flat_map(|cell| match cell {
            Cell::Range(ends) => ends.iter(),
            cell => std::slice::from_ref(cell).iter(),
        });
        let times = cells.clone().filter_map(|cell| match cell {
            Cell::Nanos(nanos) => Some(*nanos),
            Cell::Shift(nanos) => Some(nanos.unsigned_abs()),
            _ => None,
        });
        let sizes = cells.clone().filter_map(|cell| match cell {
            Cell::Bytes(bytes) => Some(*bytes),
            _ => None,
        });
        let is_whole = cells.clone().all(|cell| match cell {
            Cell::Number(number) => !number.is_finite() || number.fract() == 0.0,
            _ => true,
        });
        Self { time: figures::time_unit(times), size: figures::size_unit(sizes), is_whole }
    }

    fn unit_name(&self, cell: &Cell) -> Option<&'static str> {
        match cell {
            Cell::Nanos(_) | Cell::Shift(_) => Some(self.time.name),
            Cell::Bytes(_) => Some(self.size.name),
            Cell::Share(_) | Cell::Change(_) => Some("%"),
            Cell::Range(ends) => self.unit_name(&ends[0]),
            _ => None,
        }
    }

    fn write(&self, cell: &Cell) -> String {
        match cell {
            cell if cell.is_empty() => String::new(),
            Cell::Empty => String::new(),
            Cell::Text(text) => visible(text).into_owned(),
            Cell::Name(text) | Cell::Tree { label: text, .. } => short(&visible(text), LONGEST).into_owned(),
            Cell::Count(number) => figures::count(*number),
            Cell::Whole(number) => number.to_string(),
            Cell::Number(number) => figures::plain(*number, self.is_whole),
            Cell::Nanos(nanos) => figures::amount(*nanos, self.time),
            Cell::Shift(nanos) => figures::signed_amount(*nanos, self.time),
            Cell::Share(share) => figures::per_cent(*share),
            Cell::Change(change) => figures::signed_per_cent(*change),
            Cell::Bytes(bytes) => figures::amount(*bytes, self.size),
            Cell::Range(ends) => {
                let [low, high] = ends.each_ref().map(|end| self.write(end));
                let is_signed = [&low, &high].iter().any(|end| end.starts_with(['+', '-', '>']));
                format!("{low} {} {high}", if is_signed { "to" } else { "-" })
            }
            Cell::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
            Cell::Json(value) => value.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(cells: impl IntoIterator<Item = Cell>) -> Table {
        let mut table = Table::new("laps", [Column::new("x_ms", "x")]);
        table.rows = cells.into_iter().map(|cell| vec![cell]).collect();
        table
    }

    fn texts(shown: &Shown) -> Vec<&str> {
        shown.cells.iter().map(|cell| cell.text.as_str()).collect()
    }

    #[test]
    fn the_header_names_the_unit_of_the_column() {
        let shown = columns(&table([Cell::Nanos(84_123_456), Cell::Empty, Cell::Nanos(5_000_000)]));
        assert_eq!(shown[0].header, "x (ms)");
        assert_eq!(texts(&shown[0]), ["84.12 ", "", "5.000"]);
    }

    #[test]
    fn a_column_without_values_is_not_shown() {
        assert!(columns(&table([Cell::Empty, Cell::Number(f64::NAN)])).is_empty());
    }

    #[test]
    fn a_table_without_rows_shows_its_headers() {
        assert_eq!(columns(&table([])).len(), 1);
    }

    #[test]
    fn a_column_of_words_and_numbers_is_aligned_as_words() {
        let shown = columns(&table([Cell::Bool(true), Cell::Count(1200)]));
        assert!(!shown[0].is_numeric);
        assert_eq!(texts(&shown[0]), ["yes", "1,200"]);
    }

    #[test]
    fn compared_values_share_a_unit() {
        assert_eq!(in_one_unit([Cell::Nanos(84_000_000), Cell::Nanos(3_000_000)]), ["84.00 ms", "3.000 ms"]);
    }

    #[test]
    fn a_shift_has_a_sign_and_a_unit_of_time() {
        assert_eq!(in_one_unit([Cell::Nanos(84_000_000), Cell::Shift(3_000_000)]), ["84.00 ms", "+3.000 ms"]);
        assert_eq!([Cell::Shift(-5_300), Cell::Shift(0)].each_ref().map(single), ["-5,300 ns", "0 ns"]);
    }

    #[test]
    fn a_single_value_includes_its_unit() {
        let cells = [Cell::Nanos(84_123_456), Cell::Share(0.5), Cell::Count(1200), Cell::Empty];
        assert_eq!(cells.each_ref().map(single), ["84.12 ms", "50.0 %", "1,200", ""]);
        assert_eq!(single(&Cell::Whole(65_536)), "65536");
    }
}
