//! A column in which most rows have one value: it takes memory from the first row on that differs.

use std::{collections::TryReserveError, ops::Index};

/// A column of a table; the value of its first row is the usual one. A trace of thirty million tiny spans has no fields, no flags and one category: columns of
/// these take nothing there.
#[derive(Debug, Clone)]
pub(crate) struct Column<T> {
    usual: T,
    /// How many rows there are.
    rows: usize,
    /// All rows; empty while they all have the usual value.
    values: Vec<T>,
}

impl<T: Default> Default for Column<T> {
    fn default() -> Self {
        Self { usual: T::default(), rows: 0, values: Vec::new() }
    }
}

impl<T: Copy + PartialEq> Column<T> {
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.values.len() * size_of::<T>()
    }

    /// Makes room for more rows, or says that there is none.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), TryReserveError> {
        if self.values.is_empty() { Ok(()) } else { self.values.try_reserve(more) }
    }

    pub fn push(&mut self, value: T) {
        if self.rows == 0 {
            self.usual = value;
        }
        if self.values.is_empty() && value != self.usual {
            self.fill();
        }
        if !self.values.is_empty() {
            self.values.push(value);
        }
        self.rows += 1;
    }

    /// Changes a row.
    pub fn set(&mut self, row: usize, value: T) {
        if self[row] == value {
            return;
        }
        self.fill();
        self.values[row] = value;
    }

    /// The rows in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        (0..self.rows).map(|row| self[row])
    }

    /// Puts other rows in place of all: the rows of these numbers, or the same ones without what is to spare.
    pub fn permute(&mut self, order: &Option<Vec<u32>>) {
        match order {
            _ if self.values.is_empty() => self.rows = order.as_ref().map_or(self.rows, Vec::len),
            Some(order) => {
                self.values = order.iter().map(|&row| self.values[row as usize]).collect();
                self.rows = order.len();
            }
            None => self.values.shrink_to_fit(),
        }
    }

    /// Gives every row its place.
    fn fill(&mut self) {
        if self.values.is_empty() {
            self.values.resize(self.rows, self.usual);
        }
    }
}

impl<T> Index<usize> for Column<T> {
    type Output = T;

    fn index(&self, row: usize) -> &T {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        if self.values.is_empty() { &self.usual } else { &self.values[row] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_column_is_a_list_whatever_its_usual_value(
            values in prop::collection::vec(0_u8..3, 0..20),
            changes in prop::collection::vec((0_usize..20, 0_u8..3), 0..10),
        ) {
            let (mut column, mut expected) = (Column::default(), values.clone());
            values.iter().for_each(|&value| column.push(value));
            for (row, value) in changes.into_iter().filter(|&(row, _)| row < values.len()) {
                column.set(row, value);
                expected[row] = value;
            }
            prop_assert_eq!(column.iter().collect::<Vec<_>>(), expected.clone());
            let order: Vec<u32> = (0..values.len() as u32).rev().skip(1).collect();
            column.permute(&Some(order));
            expected.reverse();
            prop_assert_eq!(column.iter().collect::<Vec<_>>(), expected.get(1..).unwrap_or(&[]));
        }
    }

    #[test]
    fn a_column_of_one_value_takes_no_memory() {
        let mut column = Column::default();
        (0..1000).for_each(|_| column.push(7_u64));
        assert_eq!((column.len(), column.values.capacity()), (1000, 0));
    }
}
