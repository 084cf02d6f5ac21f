//! The columns of a table: their types, and how their rows are encoded.

use std::{borrow::Cow, fs::File, ops::Range, sync::Arc};

use hashbrown::HashMap;
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::writer::{SerializedColumnWriter, SerializedRowGroupWriter};
use parquet::{errors::ParquetError, schema::types::Type};

/// The number of rows that are handed to the encoder at once.
const BATCH: usize = 1 << 14;

/// The largest number of texts that are kept for reuse.
const KEPT_TEXTS: usize = 1 << 16;

/// Texts by their address: a text that occurs often is copied once, and one that follows itself is not even searched.
#[derive(Default)]
pub(super) struct Texts {
    known: HashMap<(usize, usize), ByteArray>,
    last: Option<((usize, usize), ByteArray)>,
}

/// Whole numbers by row; none is null.
type Whole<'a> = Box<dyn Fn(usize) -> Option<i64> + 'a>;

/// Entries of a map by row.
type Entries<'a, V> = Box<dyn Fn(usize) -> Vec<(&'a str, V)> + 'a>;

/// The cells of a column, by row.
pub enum Cells<'a> {
    /// Whole numbers that are close to their neighbours: stored as differences.
    Delta(Whole<'a>),
    /// Whole numbers with few different values: stored as a dictionary.
    Whole(Whole<'a>),
    /// Floating-point numbers.
    Number(Box<dyn Fn(usize) -> Option<f64> + 'a>),
    /// Booleans.
    Flag(Box<dyn Fn(usize) -> Option<bool> + 'a>),
    /// Texts: stored as a dictionary.
    Text(Box<dyn Fn(usize) -> Option<&'a str> + 'a>),
    /// Texts by key.
    TextMap(Entries<'a, String>),
    /// Numbers by key; none is null.
    NumberMap(Entries<'a, Option<f64>>),
}

/// A column of a table.
pub struct Column<'a> {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Its cells.
    pub cells: Cells<'a>,
    /// Whether every row has a value.
    is_required: bool,
}

impl<'a> Column<'a> {
    /// A column of times, durations or ids that every row has.
    pub fn delta(name: impl Into<Cow<'static, str>>, cell: impl Fn(usize) -> u64 + 'a) -> Self {
        let cells = Cells::Delta(Box::new(move |row| Some(signed(cell(row)))));
        Self { name: name.into(), cells, is_required: true }
    }

    /// The same where some rows have none.
    pub fn optional_delta(name: impl Into<Cow<'static, str>>, cell: impl Fn(usize) -> Option<u64> + 'a) -> Self {
        Self { name: name.into(), cells: Cells::Delta(Box::new(move |row| cell(row).map(signed))), is_required: false }
    }

    /// A column of whole numbers.
    pub fn whole(name: impl Into<Cow<'static, str>>, cell: impl Fn(usize) -> Option<i64> + 'a) -> Self {
        Self { name: name.into(), cells: Cells::Whole(Box::new(cell)), is_required: false }
    }

    /// A column of counts or sizes.
    pub fn count(name: impl Into<Cow<'static, str>>, cell: impl Fn(usize) -> Option<u64> + 'a) -> Self {
        Self::whole(name, move |row| cell(row).map(signed))
    }

    /// A column of numbers.
    pub fn number(name: impl Into<Cow<'static, str>>, cell: impl Fn(usize) -> Option<f64> + 'a) -> Self {
        Self { name: name.into(), cells: Cells::Number(Box::new(cell)), is_required: false }
    }

    /// A column of booleans.
    pub fn flag(name: impl Into<Cow<'static, str>>, cell: impl Fn(usize) -> bool + 'a) -> Self {
        Self { name: name.into(), cells: Cells::Flag(Box::new(move |row| Some(cell(row)))), is_required: true }
    }

    /// A column of texts that every row has.
    pub fn text(name: impl Into<Cow<'static, str>>, cell: impl Fn(usize) -> &'a str + 'a) -> Self {
        Self { name: name.into(), cells: Cells::Text(Box::new(move |row| Some(cell(row)))), is_required: true }
    }

    /// The same where some rows have none.
    pub fn optional_text(name: impl Into<Cow<'static, str>>, cell: impl Fn(usize) -> Option<&'a str> + 'a) -> Self {
        Self { name: name.into(), cells: Cells::Text(Box::new(cell)), is_required: false }
    }

    /// A column of texts by key.
    pub fn text_map(name: impl Into<Cow<'static, str>>, cell: impl Fn(usize) -> Vec<(&'a str, String)> + 'a) -> Self {
        Self { name: name.into(), cells: Cells::TextMap(Box::new(cell)), is_required: true }
    }

    /// A column of numbers by key.
    pub fn number_map(
        name: impl Into<Cow<'static, str>>,
        cell: impl Fn(usize) -> Vec<(&'a str, Option<f64>)> + 'a,
    ) -> Self {
        Self { name: name.into(), cells: Cells::NumberMap(Box::new(cell)), is_required: true }
    }

    pub(super) fn schema(&self) -> Result<Type, ParquetError> {
        let repetition = if self.is_required { Repetition::REQUIRED } else { Repetition::OPTIONAL };
        match &self.cells {
            Cells::Delta(_) | Cells::Whole(_) => leaf(&self.name, Physical::INT64, repetition),
            Cells::Number(_) => leaf(&self.name, Physical::DOUBLE, repetition),
            Cells::Flag(_) => leaf(&self.name, Physical::BOOLEAN, repetition),
            Cells::Text(_) => leaf(&self.name, Physical::BYTE_ARRAY, repetition),
            Cells::TextMap(_) => map(&self.name, Physical::BYTE_ARRAY),
            Cells::NumberMap(_) => map(&self.name, Physical::DOUBLE),
        }
    }

    /// Writes rows as the next column of a row group; a map takes two columns.
    pub(super) fn write(
        &self,
        rows: Range<usize>,
        group: &mut SerializedRowGroupWriter<'_, File>,
        texts: &mut Texts,
    ) -> Result<(), ParquetError> {
        match &self.cells {
            Cells::Delta(cell) | Cells::Whole(cell) => self.write_leaf::<Int64Type>(rows, group, cell),
            Cells::Number(cell) => self.write_leaf::<DoubleType>(rows, group, cell),
            Cells::Flag(cell) => self.write_leaf::<BoolType>(rows, group, cell),
            Cells::Text(cell) => {
                self.write_leaf::<ByteArrayType>(rows, group, |row| cell(row).map(|text| texts.kept(text)))
            }
            Cells::TextMap(cell) => {
                let rows: Vec<_> = rows.map(cell).collect();
                write_keys(&rows, group)?;
                write_values::<ByteArrayType, _>(&rows, group, |value: &String| Some(value.as_str().into()))
            }
            Cells::NumberMap(cell) => {
                let rows: Vec<_> = rows.map(cell).collect();
                write_keys(&rows, group)?;
                write_values::<DoubleType, _>(&rows, group, |value: &Option<f64>| *value)
            }
        }
    }

    fn write_leaf<T: DataType>(
        &self,
        mut rows: Range<usize>,
        group: &mut SerializedRowGroupWriter<'_, File>,
        mut cell: impl FnMut(usize) -> Option<T::T>,
    ) -> Result<(), ParquetError> {
        let mut column = next_column(group)?;
        let (mut values, mut levels) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        while !rows.is_empty() {
            values.clear();
            levels.clear();
            for row in rows.by_ref().take(BATCH) {
                let value = cell(row);
                levels.push(i16::from(value.is_some()));
                values.extend(value);
            }
            let levels = (!self.is_required).then_some(levels.as_slice());
            column.typed::<T>().write_batch(&values, levels, None)?;
        }
        column.close()
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn next_column<'a>(
    group: &'a mut SerializedRowGroupWriter<'_, File>,
) -> Result<SerializedColumnWriter<'a>, ParquetError> {
    group.next_column()?.ok_or_else(|| ParquetError::General("more columns than the schema has".to_owned()))
}

impl Texts {
    /// A text for the encoder.
    fn kept(&mut self, text: &str) -> ByteArray {
        let place = (text.as_ptr() as usize, text.len());
        if let Some((last, kept)) = &self.last
            && *last == place
        {
            return kept.clone();
        }
        if self.known.len() > KEPT_TEXTS {
            self.known.clear();
        }
        let kept = self.known.entry(place).or_insert_with(|| text.into()).clone();
        self.last = Some((place, kept.clone()));
        kept
    }
}

fn leaf(name: &str, kind: Physical, repetition: Repetition) -> Result<Type, ParquetError> {
    let builder = Type::primitive_type_builder(name, kind).with_repetition(repetition);
    match kind {
        Physical::BYTE_ARRAY => builder.with_logical_type(Some(LogicalType::String)).build(),
        _ => builder.build(),
    }
}

fn map(name: &str, kind: Physical) -> Result<Type, ParquetError> {
    let fields = vec![
        Arc::new(leaf("key", Physical::BYTE_ARRAY, Repetition::REQUIRED)?),
        Arc::new(leaf("value", kind, Repetition::OPTIONAL)?),
    ];
    let entries =
        Type::group_type_builder("key_value").with_repetition(Repetition::REPEATED).with_fields(fields).build()?;
    Type::group_type_builder(name)
        .with_repetition(Repetition::REQUIRED)
        .with_converted_type(ConvertedType::MAP)
        .with_logical_type(Some(LogicalType::Map))
        .with_fields(vec![Arc::new(entries)])
        .build()
}

fn write_keys<V>(rows: &[Vec<(&str, V)>], group: &mut SerializedRowGroupWriter<'_, File>) -> Result<(), ParquetError> {
    let values: Vec<ByteArray> = rows.iter().flatten().map(|(key, _)| ByteArray::from(*key)).collect();
    let (defined, repeated) = levels(rows, |_| 1);
    let mut column = next_column(group)?;
    column.typed::<ByteArrayType>().write_batch(&values, Some(&defined), Some(&repeated))?;
    column.close()
}

fn write_values<T: DataType, V>(
    rows: &[Vec<(&str, V)>],
    group: &mut SerializedRowGroupWriter<'_, File>,
    value: impl Fn(&V) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let values: Vec<T::T> = rows.iter().flatten().filter_map(|(_, found)| value(found)).collect();
    let (defined, repeated) = levels(rows, |found| 1 + i16::from(value(found).is_some()));
    let mut column = next_column(group)?;
    column.typed::<T>().write_batch(&values, Some(&defined), Some(&repeated))?;
    column.close()
}

/// The definition and repetition levels of a map: a row without entries has one pair of zeros.
fn levels<V>(rows: &[Vec<(&str, V)>], defined: impl Fn(&V) -> i16) -> (Vec<i16>, Vec<i16>) {
    let (mut definition, mut repetition) = (Vec::new(), Vec::new());
    for row in rows {
        if row.is_empty() {
            definition.push(0);
            repetition.push(0);
        }
        for (at, (_, value)) in row.iter().enumerate() {
            definition.push(defined(value));
            repetition.push(i16::from(at > 0));
        }
    }
    (definition, repetition)
}
