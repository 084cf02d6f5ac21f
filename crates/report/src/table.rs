//! The table between answers and formats.
//!
//! Every answer becomes a `Table`, and every format writes any `Table`, so a
//! new answer or a new format is one new file. Cells hold unrounded values:
//! formats choose rounding and units.

use std::borrow::Cow;

use laptime_analyze::Note;

use crate::layout::single;

/// The name of a column or fact: a constant, or an axis or metric of a workload.
pub type Name = Cow<'static, str>;

/// Rows under typed columns, with facts and notes about the whole table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The name of the rows, such as `stages`: their key in JSON.
    pub name: &'static str,
    /// The answer in whole sentences, which people read before the rows.
    pub answer: Vec<String>,
    /// The columns from left to right.
    pub columns: Vec<Column>,
    /// The rows from top to bottom; a cell missing at the end is empty.
    pub rows: Vec<Vec<Cell>>,
    /// Values of the whole table, such as the number of dropped events.
    pub facts: Vec<Fact>,
    /// Whole sentences for people that belong to the answer; names and flags in backticks.
    pub notes: Vec<String>,
    /// Reasons to distrust the figures, the most important first; people see the first few.
    pub warnings: Vec<Note>,
    /// How to read the columns: whole sentences that people see with `--verbose`.
    pub legend: Vec<String>,
}

impl Table {
    /// Creates a table without rows.
    pub fn new(name: &'static str, columns: impl Into<Vec<Column>>) -> Self {
        let columns = columns.into();
        Self {
            name,
            answer: vec![],
            columns,
            rows: vec![],
            facts: vec![],
            notes: vec![],
            warnings: vec![],
            legend: vec![],
        }
    }

    /// Lays out rows by columns and the cells that a row has in them, as `fields!` pairs them.
    pub fn of<R>(
        name: &'static str,
        rows: impl IntoIterator<Item = R>,
        (columns, cells): (Vec<Column>, impl Fn(R) -> Vec<Cell>),
    ) -> Self {
        let mut table = Self::new(name, columns);
        rows.into_iter().for_each(|row| table.push(cells(row)));
        table
    }

    /// Adds a row, with one cell per column.
    pub fn push(&mut self, row: impl Into<Vec<Cell>>) {
        let row = row.into();
        debug_assert_eq!(row.len(), self.columns.len(), "a row has one cell per column");
        debug_assert!(
            std::iter::zip(&self.columns, &row).all(|(column, cell)| column.key_fits(cell)),
            "the key of a time ends in `_ms`, that of bytes in `_bytes`"
        );
        self.rows.push(row);
    }

    /// Adds a fact that people and machines see.
    pub fn fact(&mut self, key: impl Into<Name>, label: impl Into<Name>, value: impl Into<Cell>) {
        self.facts.push(Fact { key: Some(key.into()), label: Some(label.into()), value: value.into() });
    }

    /// Adds a fact for machines only, which people read in a note.
    pub fn machine_fact(&mut self, key: impl Into<Name>, value: impl Into<Cell>) {
        self.facts.push(Fact { key: Some(key.into()), label: None, value: value.into() });
    }

    /// Adds a fact for people only, which machines read in a column.
    pub fn human_fact(&mut self, label: impl Into<Name>, value: impl Into<Cell>) {
        self.facts.push(Fact { key: None, label: Some(label.into()), value: value.into() });
    }

    /// Adds a sentence for people.
    pub fn note(&mut self, sentence: impl Into<String>) {
        self.notes.push(sentence.into());
    }

    /// Adds a reason to distrust the figures.
    pub fn warn(&mut self, note: Note) {
        self.warnings.push(note);
    }

    /// Adds a sentence on how to read the table, which people see with `--verbose`.
    pub fn legend(&mut self, sentence: impl Into<String>) {
        self.legend.push(sentence.into());
    }

    /// The facts that people see: label and value.
    pub(crate) fn shown_facts(&self) -> impl Iterator<Item = (&str, String)> {
        let facts = self.facts.iter().filter(|fact| !fact.value.is_empty());
        facts.filter_map(|fact| Some((fact.label.as_deref()?, single(&fact.value))))
    }

    /// Returns the cells of a column from top to bottom.
    pub(crate) fn cells(&self, column: usize) -> impl Iterator<Item = &Cell> + Clone {
        self.rows.iter().map(move |row| row.get(column).unwrap_or(&Cell::Empty))
    }
}

/// The name of a column, and where it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The name for machines, such as `host_ms`.
    pub key: Name,
    /// The header for people, without a unit: formats add it.
    pub label: Name,
    /// Whether the column may be dropped when the table is too wide.
    pub keep: Keep,
    /// Who sees the column.
    pub show: Show,
    /// The key of the column whose unit this one uses; its own if none.
    pub in_unit_of: Option<Name>,
}

impl Column {
    /// Creates a column that everyone sees and that is never dropped.
    pub fn new(key: impl Into<Name>, label: impl Into<Name>) -> Self {
        Self { key: key.into(), label: label.into(), keep: Keep::Always, show: Show::Everywhere, in_unit_of: None }
    }

    /// Allows dropping the column when space is short, highest `order` first.
    pub fn drop(self, order: u8) -> Self {
        Self { keep: Keep::Drop(order), ..self }
    }

    /// Never shortens the column, for text that people click or copy.
    pub fn whole(self) -> Self {
        Self { keep: Keep::Whole, ..self }
    }

    /// Uses the unit of another column, so that the two can be compared along a row.
    pub fn in_unit_of(self, key: impl Into<Name>) -> Self {
        Self { in_unit_of: Some(key.into()), ..self }
    }

    /// The key of the column that names the unit.
    pub(crate) fn unit_key(&self) -> &str {
        self.in_unit_of.as_ref().unwrap_or(&self.key)
    }

    /// Shows the column in csv, tsv, json and jsonl only.
    pub fn machine_only(self) -> Self {
        Self { show: Show::MachineOnly, ..self }
    }

    /// Shows the column to people only if this holds.
    pub fn shown_if(self, is_shown: bool) -> Self {
        if is_shown { self } else { self.machine_only() }
    }

    /// Shows the column in text and Markdown only.
    pub fn human_only(self) -> Self {
        Self { show: Show::HumanOnly, ..self }
    }

    fn key_fits(&self, cell: &Cell) -> bool {
        match cell {
            Cell::Nanos(_) | Cell::Shift(_) => self.show == Show::HumanOnly || self.key.ends_with("_ms"),
            Cell::Bytes(_) => self.show == Show::HumanOnly || self.key.ends_with("_bytes"),
            Cell::Range(_) => self.show == Show::HumanOnly,
            _ => true,
        }
    }
}

/// Columns, each with the cell that a row has in it: `fields!(row: &Row => { let … } [("key", "label") => cell, …])`.
/// A key without a label is its own label.
#[doc(hidden)]
#[macro_export]
macro_rules! fields {
    (@label $key:expr) => { $key };
    (@label $key:expr, $label:expr) => { $label };
    ($row:tt: $type:ty => $({ $($let:tt)* })? [
        $(($key:expr $(, $label:expr)?) $(.$how:ident($($value:expr),*))* => $cell:expr,)*
    ]) => {
        (
            vec![$($crate::Column::new($key, $crate::fields!(@label $key $(, $label)?))$(.$how($($value),*))*),*],
            |$row: $type| -> Vec<$crate::Cell> { $($($let)*)? vec![$($cell),*] },
        )
    };
}
pub use fields;

/// A table of rows: `table!("name", rows, row: &Row => [("key", "label") => cell, …])`, with columns as in [`fields!`].
#[doc(hidden)]
#[macro_export]
macro_rules! table {
    ($name:expr, $rows:expr, $($fields:tt)+) => {
        $crate::Table::of($name, $rows, $crate::fields!($($fields)+))
    };
}
pub use table;

/// Whether a column may be left out of a text table that is too wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Kept if the column fits next to the first one.
    Always,
    /// Left out before columns with a lower number.
    Drop(u8),
    /// Kept and never shortened, even if lines become wider than the terminal.
    Whole,
}

/// Who sees a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// People and machines.
    Everywhere,
    /// Readers of csv, tsv, json and jsonl.
    MachineOnly,
    /// Readers of text and Markdown.
    HumanOnly,
}

/// A value of the whole table.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// The name for machines, such as `dropped_events`; without it the fact is
    /// for people only.
    pub key: Option<Name>,
    /// The label for people, such as `dropped events`; without it the fact is
    /// for machines only.
    pub label: Option<Name>,
    /// The value.
    pub value: Cell,
}

/// One value or name.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Not known or not applicable: an empty field, or `null`. Never 0.
    Empty,
    /// Text of any content; formats make it harmless.
    Text(String),
    /// The name of a kernel, a function or an operation: people see it shortened where it is long.
    Name(String),
    /// Lists and objects for machines; people do not see them.
    Json(serde_json::Value),
    /// A node of a tree whose rows follow in depth-first order.
    Tree {
        /// How many ancestors the node has.
        depth: usize,
        /// What people see, after the guides of the tree; shortened like a name.
        label: String,
        /// What machines see.
        path: String,
    },
    /// A count.
    Count(u64),
    /// A whole number that names something, such as a size: no commas.
    Whole(i64),
    /// A plain number; one that is not finite counts as missing.
    Number(f64),
    /// A duration in nanoseconds; machines see milliseconds.
    Nanos(u64),
    /// A difference between two durations in nanoseconds; people see its sign, machines milliseconds.
    Shift(i64),
    /// A part of a whole from 0 to 1; people see per cent.
    Share(f64),
    /// A difference relative to a reference; people see per cent with a sign.
    Change(f64),
    /// An amount of memory; machines see bytes.
    Bytes(u64),
    /// Yes or no.
    Bool(bool),
    /// The ends of an interval, for people; machines read them in columns of their own.
    Range(Box<[Cell; 2]>),
}

impl Cell {
    /// Creates a text cell.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Creates a cell that names a kernel, a function or an operation.
    pub fn name(name: impl Into<String>) -> Self {
        Self::Name(name.into())
    }

    /// Creates a node of a tree with `depth` ancestors.
    pub fn tree(depth: usize, label: impl Into<String>, path: impl Into<String>) -> Self {
        Self::Tree { depth, label: label.into(), path: path.into() }
    }

    /// Creates an interval; it is empty if an end is unknown.
    pub fn range(low: Self, high: Self) -> Self {
        if low.is_empty() || high.is_empty() { Self::Empty } else { Self::Range(Box::new([low, high])) }
    }

    /// Creates a duration from fractional nanoseconds; it is empty if the time is unknown.
    pub fn nanos(time: impl Into<Option<f64>>) -> Self {
        time.into().filter(|time| time.is_finite()).map(|time| Self::Nanos(time.round() as u64)).into()
    }

    /// Creates a plain number; it is empty if the number is unknown.
    pub fn number(number: impl Into<Option<f64>>) -> Self {
        number.into().map(Self::Number).into()
    }

    /// Creates a share; it is empty if the share is unknown.
    pub fn share(share: impl Into<Option<f64>>) -> Self {
        share.into().map(Self::Share).into()
    }

    /// Creates a count; it is empty if the count is unknown.
    pub fn count(count: impl Into<Option<usize>>) -> Self {
        count.into().map(|count| Self::Count(count as u64)).into()
    }

    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Number(number) | Self::Share(number) | Self::Change(number) => !number.is_finite(),
            _ => false,
        }
    }
}

/// Turns a missing value into an empty cell: `median.map(Cell::Nanos).into()`.
impl From<Option<Cell>> for Cell {
    fn from(cell: Option<Cell>) -> Self {
        cell.unwrap_or(Self::Empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_value_is_an_empty_cell() {
        assert_eq!(Cell::from(None::<u64>.map(Cell::Nanos)), Cell::Empty);
        assert_eq!(Cell::from(Some(Cell::Nanos(3))), Cell::Nanos(3));
    }

    #[test]
    fn a_number_that_is_not_finite_is_missing() {
        assert!(Cell::Number(f64::NAN).is_empty() && Cell::Share(f64::INFINITY).is_empty());
        assert!(!Cell::Number(0.0).is_empty());
    }

    #[test]
    #[should_panic(expected = "ends in `_ms`")]
    fn a_time_under_a_key_without_a_unit_is_rejected() {
        Table::new("stages", [Column::new("host", "host")]).push([Cell::Nanos(1)]);
    }
}
