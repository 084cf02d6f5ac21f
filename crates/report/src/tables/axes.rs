//! The columns that identify the case of a row.
//!
//! Machines get the workload, every axis and the device. People get those that vary; the others are shown once.

use std::collections::HashSet;

use laptime_analyze::{CaseId, distinct, first_few};
use laptime_trace::run::AxisValue;

use crate::{Cell, Column, Table};

/// The keys that a table already uses.
pub(super) struct UsedKeys(HashSet<String>);

impl UsedKeys {
    /// Starts with the keys of a table's own columns.
    pub(super) fn by(columns: &[Column]) -> Self {
        Self(columns.iter().map(|column| column.key.clone().into_owned()).collect())
    }

    /// Reserves a key for an axis or metric of a workload; a key that is in use gets the prefix `own_`.
    pub(super) fn reserve(&mut self, name: &str) -> String {
        let mut key = name.to_owned();
        while !self.0.insert(key.clone()) {
            key.insert_str(0, "own_");
        }
        key
    }
}

/// The axes of the cases of a table.
pub(super) struct Axes {
    marks: Vec<Axis>,
}

struct Axis {
    source: Source,
    /// Its value in the first case.
    first: Cell,
    varies: bool,
    /// Whether the name of another axis includes its value.
    is_implied: bool,
}

enum Source {
    Workload,
    Axis(String),
    Device,
}

impl Source {
    fn cell(&self, id: &CaseId) -> Cell {
        match self {
            Self::Workload => Cell::text(&id.workload),
            Self::Axis(axis) => Cell::from(id.case.get(axis).map(value)),
            Self::Device => Cell::text(&id.device),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Workload => "workload",
            Self::Axis(axis) => axis,
            Self::Device => "device",
        }
    }
}

pub(super) fn value(value: &AxisValue) -> Cell {
    match value {
        AxisValue::Int(whole) => Cell::Whole(*whole),
        AxisValue::Float(number) => Cell::Number(*number),
        AxisValue::Bool(yes) => Cell::Bool(*yes),
        AxisValue::Text(name) => Cell::text(name),
    }
}

impl Axes {
    /// Collects the axes of cases, in the order of the workloads. Only machines see an axis that another one implies.
    pub(super) fn of<'a>(ids: impl Iterator<Item = &'a CaseId> + Clone) -> Self {
        let names = distinct(ids.clone().flat_map(|id| id.case.values()).map(|(axis, _)| axis));
        let axes = names.into_iter().map(|axis| Source::Axis(axis.to_owned()));
        let sources = std::iter::once(Source::Workload).chain(axes).chain([Source::Device]);
        let axis = |source: Source| {
            let mut cells = ids.clone().map(|id| source.cell(id));
            let first = cells.next();
            let varies = cells.any(|cell| Some(&cell) != first.as_ref());
            let is_implied = ids.clone().all(|id| id.case.is_implied(source.name()));
            Axis { source, first: first.into(), varies, is_implied }
        };
        Self { marks: sources.map(axis).collect() }
    }

    /// The same without some axes of the workload.
    pub(super) fn without(mut self, names: &[&str]) -> Self {
        self.marks.retain(|axis| !matches!(&axis.source, Source::Axis(name) if names.contains(&name.as_str())));
        self
    }

    /// The columns: for people those that vary.
    pub(super) fn columns(&self, used: &mut UsedKeys) -> Vec<Column> {
        let device = used.reserve("device");
        let workload = used.reserve("workload");
        let mut column = |axis: &Axis| {
            let key = match &axis.source {
                Source::Workload => workload.clone(),
                Source::Device => device.clone(),
                Source::Axis(name) => used.reserve(name),
            };
            let column = Column::new(key, axis.source.name().to_owned());
            if axis.varies && !axis.is_implied { column } else { column.machine_only() }
        };
        self.marks.iter().map(&mut column).collect()
    }

    /// A table with these columns and those of the axes before them.
    pub(super) fn table(&self, name: &'static str, own: Vec<Column>) -> Table {
        let columns = self.columns(&mut UsedKeys::by(&own));
        Table::new(name, [columns, own].concat())
    }

    /// The same with rows: the case of each, and what its own cells are made of.
    pub(super) fn rows<'r, T>(
        &self,
        name: &'static str,
        (own, cells): (Vec<Column>, impl Fn(T) -> Vec<Cell>),
        rows: impl Iterator<Item = (&'r CaseId, T)>,
    ) -> Table {
        let mut table = self.table(name, own);
        rows.for_each(|(id, row)| table.push([self.cells(id), cells(row)].concat()));
        table
    }

    pub(super) fn cells(&self, id: &CaseId) -> Vec<Cell> {
        self.marks.iter().map(|axis| axis.source.cell(id)).collect()
    }

    /// Shows people the values that all cases share.
    pub(super) fn add_common(&self, table: &mut Table) {
        for axis in self.marks.iter().filter(|axis| !axis.varies && !axis.is_implied) {
            table.human_fact(axis.source.name().to_owned(), axis.first.clone());
        }
    }

    /// The name of a case by its varying axes; none if nothing varies.
    pub(super) fn name(&self, id: &CaseId) -> Option<String> {
        let varying = self.marks.iter().filter(|axis| axis.varies && !axis.is_implied);
        let parts = varying.filter_map(|axis| match &axis.source {
            Source::Workload => Some(id.workload.clone()),
            Source::Axis(axis) => Some(format!("{axis}={}", id.case.get(axis)?)),
            Source::Device => Some(format!("device={}", id.device)),
        });
        let parts: Vec<String> = parts.collect();
        (!parts.is_empty()).then(|| parts.join(" "))
    }

    /// The name of a case before a sentence about it.
    pub(super) fn before(&self, id: &CaseId) -> String {
        self.name(id).map_or_else(String::new, |name| format!("`{name}`: "))
    }

    /// The names of several cases: the first few, and how many more.
    pub(super) fn names<'a>(&self, ids: impl Iterator<Item = &'a CaseId>) -> String {
        let names = first_few(ids.filter_map(|id| self.name(id)).map(|name| format!("`{name}`")), 3);
        if names.is_empty() { "the case".to_owned() } else { names }
    }
}
