//! A column that uses as few bytes per row as its values need, and none while all rows are equal.

use std::{collections::TryReserveError, marker::PhantomData};

/// A value that fits into a number.
pub trait Cell: Copy {
    /// The number that is stored.
    fn number(self) -> u64;
    /// The value of a stored number.
    fn of(number: u64) -> Self;
}

macro_rules! whole_numbers {
    ($($type:ty),*) => {$(
        impl Cell for $type {
            fn number(self) -> u64 {
                self as u64
            }

            fn of(number: u64) -> Self {
                number as Self
            }
        }
    )*};
}

whole_numbers!(u8, u32, u64, usize);

/// A column of a table: one, two, four or eight bytes per row, as the largest value needs. Thirty million tiny
/// spans of one thread need neither tracks nor flags, and one byte each for a few names.
#[derive(Debug, Clone)]
pub struct Column<T> {
    /// The value of all rows while `cells` is empty.
    usual: u64,
    rows: usize,
    cells: Cells,
    value: PhantomData<T>,
}

#[derive(Debug, Clone)]
enum Cells {
    /// All rows are equal.
    None,
    One(Vec<u8>),
    Two(Vec<u16>),
    Four(Vec<u32>),
    Eight(Vec<u64>),
}

/// Evaluates an expression with the cells of any width.
macro_rules! with {
    ($cells:expr, $name:ident => $found:expr, $none:expr) => {
        match $cells {
            Cells::None => $none,
            Cells::One($name) => $found,
            Cells::Two($name) => $found,
            Cells::Four($name) => $found,
            Cells::Eight($name) => $found,
        }
    };
}

impl Cells {
    /// The largest number that a row can store; zero without cells.
    fn most(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::One(_) => u64::from(u8::MAX),
            Self::Two(_) => u64::from(u16::MAX),
            Self::Four(_) => u64::from(u32::MAX),
            Self::Eight(_) => u64::MAX,
        }
    }
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self { usual: 0, rows: 0, cells: Cells::None, value: PhantomData }
    }
}

impl<T: Cell> FromIterator<T> for Column<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut column = Self::default();
        values.into_iter().for_each(|value| column.push(value));
        column
    }
}

impl<T: Cell> Column<T> {
    /// A column of equal rows.
    pub fn filled(value: T, rows: usize) -> Self {
        Self { usual: value.number(), rows, ..Self::default() }
    }

    /// The number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The size in bytes, without spare capacity.
    pub fn bytes(&self) -> usize {
        with!(&self.cells, cells => size_of_val(cells.as_slice()), 0)
    }

    /// The value of a row.
    #[inline]
    pub fn get(&self, row: usize) -> T {
        debug_assert!(row < self.rows, "row {row} of {}", self.rows);
        T::of(match &self.cells {
            Cells::None => self.usual,
            Cells::One(cells) => cells[row].into(),
            Cells::Two(cells) => cells[row].into(),
            Cells::Four(cells) => cells[row].into(),
            Cells::Eight(cells) => cells[row],
        })
    }

    /// Adds a row.
    #[inline]
    pub fn push(&mut self, value: T) {
        let number = value.number();
        if self.rows == 0 {
            self.usual = number;
        }
        self.widen_for(number);
        with!(&mut self.cells, cells => cells.push(number as _), ());
        self.rows += 1;
    }

    /// Changes a row.
    #[inline]
    pub fn set(&mut self, row: usize, value: T) {
        let number = value.number();
        self.widen_for(number);
        with!(&mut self.cells, cells => cells[row] = number as _, ());
    }

    /// The rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + '_ {
        (0..self.rows).map(|row| self.get(row))
    }

    /// The first row from `from` on, before `to`, that `is_before` does not hold for; it holds for a prefix of them.
    pub fn partition_point(&self, from: usize, to: usize, is_before: impl Fn(T) -> bool) -> usize {
        let (mut low, mut high) = (from, to);
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(self.get(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Reserves memory for more rows, or returns an error.
    pub(crate) fn try_reserve(&mut self, more: usize) -> Result<(), TryReserveError> {
        with!(&mut self.cells, cells => cells.try_reserve(more), Ok(()))
    }

    /// Replaces the rows by those with the given numbers, or by the same rows without spare capacity.
    pub(crate) fn permute(&mut self, order: Option<&[u32]>) {
        match order {
            Some(order) => {
                with!(&mut self.cells, cells => *cells = order.iter().map(|&row| cells[row as usize]).collect(), ());
                self.rows = order.len();
            }
            None => with!(&mut self.cells, cells => cells.shrink_to_fit(), ()),
        }
    }

    /// The values in ascending order, sorted in place.
    pub fn into_sorted(mut self) -> Self {
        with!(&mut self.cells, cells => cells.sort_unstable(), ());
        self
    }

    /// Ensures that the cells can store a number.
    #[inline]
    fn widen_for(&mut self, number: u64) {
        let fits = match self.cells {
            Cells::None => number == self.usual,
            _ => number <= self.cells.most(),
        };
        if !fits {
            self.widen(number);
        }
    }

    #[cold]
    fn widen(&mut self, number: u64) {
        let most = number.max(self.usual).max(self.cells.most());
        self.cells = if most <= u64::from(u8::MAX) {
            Cells::One(self.stored())
        } else if most <= u64::from(u16::MAX) {
            Cells::Two(self.stored())
        } else if most <= u64::from(u32::MAX) {
            Cells::Four(self.stored())
        } else {
            Cells::Eight(self.stored())
        };
    }

    /// The rows as numbers that can store all of them.
    fn stored<N: TryFrom<u64, Error: std::fmt::Debug>>(&self) -> Vec<N> {
        let number = |row| N::try_from(self.get(row).number()).expect("the width was chosen for the largest value");
        (0..self.rows).map(number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Numbers of every width.
    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..3_u64,
            254..258_u64,
            65_534..65_538_u64,
            Just(u64::from(u32::MAX)),
            Just(1 << 32),
            Just(u64::MAX)
        ]
    }

    proptest! {
        #[test]
        fn a_column_is_a_list_of_any_values(
            values in prop::collection::vec(number(), 0..20),
            changes in prop::collection::vec((0_usize..20, number()), 0..10),
        ) {
            let mut expected = values.clone();
            let mut column: Column<u64> = values.iter().copied().collect();
            for (row, value) in changes.into_iter().filter(|&(row, _)| row < values.len()) {
                column.set(row, value);
                expected[row] = value;
            }
            prop_assert_eq!(column.iter().collect::<Vec<_>>(), expected.clone());
            let sorted = column.clone().into_sorted();
            let order: Vec<u32> = (0..values.len() as u32).rev().skip(1).collect();
            column.permute(Some(&order));
            prop_assert_eq!(column.iter().collect::<Vec<_>>(), expected.iter().rev().skip(1).copied().collect::<Vec<_>>());
            expected.sort_unstable();
            prop_assert_eq!(sorted.iter().collect::<Vec<_>>(), expected.clone());
            for value in expected.iter().copied() {
                let place = sorted.partition_point(0, sorted.len(), |known| known < value);
                prop_assert_eq!(place, expected.partition_point(|&known| known < value));
            }
        }
    }

    #[test]
    fn a_column_of_one_value_takes_no_memory() {
        let column: Column<u64> = (0..1000).map(|_| 7).collect();
        assert_eq!((column.len(), column.get(999), column.bytes()), (1000, 7, 0));
    }

    #[test]
    fn a_row_takes_as_many_bytes_as_the_largest_value() {
        let bytes = |most: u64| [0, most].into_iter().collect::<Column<u64>>().bytes() / 2;
        assert_eq!([0, 255, 256, 65_535, 65_536, 1 << 32].map(bytes), [0, 1, 2, 2, 4, 8]);
    }
}
