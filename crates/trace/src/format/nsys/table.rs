//! Access to tables with missing columns, values of any type and damaged pages.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, types::ValueRef};

/// The tables of an export with their columns.
#[derive(Default)]
pub struct Tables {
    columns: BTreeMap<String, BTreeSet<String>>,
    read: BTreeSet<String>,
    /// Warnings about what could not be read.
    pub warnings: Vec<String>,
}

/// The values of one row, in the order of the requested columns.
pub struct Row<'r>(&'r [Option<Cell>]);

/// A value of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Int(i64),
    Text(String),
}

impl Row<'_> {
    /// The values from a column on.
    pub fn after(&self, column: usize) -> Self {
        Self(&self.0[column..])
    }

    /// The value of a column, if it is a whole number.
    pub fn int(&self, column: usize) -> Option<i64> {
        match self.0.get(column)? {
            Some(Cell::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// The value of a column, if it is text.
    pub fn text(&self, column: usize) -> Option<&str> {
        match self.0.get(column)? {
            Some(Cell::Text(text)) => Some(text),
            _ => None,
        }
    }
}

impl Tables {
    /// Lists the tables. Views are left out: a file can define views that never end.
    pub fn of(connection: &Connection) -> rusqlite::Result<Self> {
        let mut names = connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table'")?;
        let names: Vec<String> = names.query_map([], |row| row.get(0))?.filter_map(Result::ok).collect();
        let mut columns = BTreeMap::new();
        for name in names {
            let mut listed = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
            let listed = listed.query_map([&name], |row| row.get(0))?.filter_map(Result::ok).collect();
            columns.insert(name, listed);
        }
        Ok(Self { columns, ..Self::default() })
    }

    pub fn has(&self, table: &str) -> bool {
        self.columns.contains_key(table)
    }

    fn has_column(&self, table: &str, column: &str) -> bool {
        self.columns.get(table).is_some_and(|columns| columns.contains(column))
    }

    /// Reads the rows of a table, if it exists. If one of the first `needed` columns is missing, the table is skipped;
    /// any other missing column causes a warning unless its name starts with `?`.
    pub fn rows(
        &mut self,
        connection: &Connection,
        table: &str,
        columns: &[&str],
        needed: usize,
        mut accept: impl FnMut(Row<'_>),
    ) {
        if !self.has(table) {
            return;
        }
        self.read.insert(table.to_owned());
        let name = |column: &&str| column.trim_start_matches('?').to_owned();
        let missing = |column: &&&str| !column.starts_with('?') && !self.has_column(table, column);
        let absent: Vec<String> = columns.iter().filter(missing).map(|column| format!("`{column}`")).collect();
        if !absent.is_empty() {
            self.warnings.push(format!("table `{table}` has no column {}", absent.join(", ")));
        }
        if !columns[..needed].iter().all(|column| self.has_column(table, column)) {
            return;
        }
        let selected: Vec<String> = columns
            .iter()
            .map(name)
            .map(|column| if self.has_column(table, &column) { quoted(&column) } else { "NULL".to_owned() })
            .collect();
        let query = format!("SELECT {} FROM {}", selected.join(", "), quoted(table));
        let mut count = 0_u64;
        let read = each_row(connection, &query, columns.len(), &mut |row| {
            count += 1;
            accept(row);
        });
        if let Err(error) = read {
            self.warnings.push(format!("table `{table}` is damaged after {count} rows, which were read ({error})"));
        }
    }

    /// Warnings about tables with events that are not read.
    pub fn passed_over(&self, connection: &Connection) -> Vec<String> {
        let holds_events = |columns: &BTreeSet<String>| {
            ["start", "timestamp", "rawTimestamp"].iter().any(|column| columns.contains(*column))
        };
        let unread = self.columns.iter().filter(|(name, columns)| !self.read.contains(*name) && holds_events(columns));
        unread
            .filter_map(|(name, _)| {
                let query = format!("SELECT count(*) FROM {}", quoted(name));
                let count: i64 = connection.query_row(&query, [], |row| row.get(0)).ok()?;
                (count > 0).then(|| format!("{count} rows of table `{name}` were skipped"))
            })
            .collect()
    }
}

fn each_row(
    connection: &Connection,
    query: &str,
    width: usize,
    accept: &mut dyn FnMut(Row<'_>),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(query)?;
    let mut rows = statement.query([])?;
    let mut cells = vec![None; width];
    while let Some(row) = rows.next()? {
        for (at, cell) in cells.iter_mut().enumerate() {
            *cell = match row.get_ref(at)? {
                ValueRef::Integer(value) => Some(Cell::Int(value)),
                ValueRef::Real(value) if value.fract() == 0.0 && value.abs() < 9e15 => Some(Cell::Int(value as i64)),
                ValueRef::Text(text) => Some(Cell::Text(String::from_utf8_lossy(text).into_owned())),
                _ => None,
            };
        }
        accept(Row(&cells));
    }
    Ok(())
}

/// A quoted SQL name.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
