//! Strided rows: a matrix, a part of one, or a head among all heads.

// Disjoint parts of a matrix that threads write are not slices; each block has its reason.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use half::bf16;

use super::number::Number;

#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, T> {
    numbers: &'a [T],
    pub count: usize,
    pub width: usize,
    /// The distance between the starts of two rows.
    pub stride: usize,
}

impl<'a, T> Rows<'a, T> {
    /// Rows that start with the first element. Panics if they do not fit.
    pub fn new(numbers: &'a [T], count: usize, width: usize, stride: usize) -> Self {
        assert!(reach(count, width, stride) <= numbers.len(), "{count} rows of {width} reach beyond the numbers");
        Self { numbers, count, width, stride }
    }

    pub fn dense(numbers: &'a [T], count: usize, width: usize) -> Self {
        Self::new(numbers, count, width, width)
    }

    #[inline(always)]
    pub fn row(&self, at: usize) -> &'a [T] {
        &self.numbers[at * self.stride..][..self.width]
    }

    pub fn part(&self, from: usize, count: usize, column: usize, width: usize) -> Self {
        assert!(from + count <= self.count && column + width <= self.width, "a part is inside its rows");
        let numbers = if count == 0 { &[] } else { &self.numbers[from * self.stride + column..] };
        Self::new(numbers, count, width, self.stride)
    }

    pub fn pointer(&self) -> *const T {
        self.numbers.as_ptr()
    }
}

impl<'a, T: Number> Rows<'a, T> {
    fn cast<U: Number>(&self) -> Rows<'a, U> {
        let Self { numbers, count, width, stride } = *self;
        Rows { numbers: bytemuck::cast_slice(numbers), count, width, stride }
    }

    pub fn as_f32(&self) -> Option<Rows<'a, f32>> {
        T::IS_F32.then(|| self.cast())
    }

    pub fn as_bf16(&self) -> Option<Rows<'a, bf16>> {
        T::IS_BF16.then(|| self.cast())
    }
}

/// A slice whose rows are written by several threads.
pub struct Shared<'a, T> {
    first: *mut T,
    length: usize,
    borrowed: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a mutable borrow of a slice, which threads may receive and, by the contract of `rows`, write.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub fn new(numbers: &'a mut [T]) -> Self {
        Self { first: numbers.as_mut_ptr(), length: numbers.len(), borrowed: PhantomData }
    }

    /// Rows to write. Panics if they do not fit.
    ///
    /// # Safety
    /// Rows that live at the same time are disjoint.
    pub unsafe fn rows(&self, offset: usize, count: usize, width: usize, stride: usize) -> RowsMut<'_, T> {
        assert!(
            offset + reach(count, width, stride) <= self.length,
            "{count} rows of {width} reach beyond the numbers"
        );
        // SAFETY: the offset is within the slice.
        let first = unsafe { self.first.add(offset.min(self.length)) };
        RowsMut { first, count, width, stride, borrowed: PhantomData }
    }
}

/// Strided rows to write. The gaps may belong to others.
pub struct RowsMut<'a, T> {
    first: *mut T,
    pub count: usize,
    pub width: usize,
    /// The distance between the starts of two rows.
    pub stride: usize,
    borrowed: PhantomData<&'a mut [T]>,
}

impl<'a, T> RowsMut<'a, T> {
    pub fn dense(numbers: &'a mut [T], count: usize, width: usize) -> Self {
        assert!(reach(count, width, width) <= numbers.len(), "{count} rows of {width} reach beyond the numbers");
        Self { first: numbers.as_mut_ptr(), count, width, stride: width, borrowed: PhantomData }
    }

    #[inline(always)]
    pub fn row(&mut self, at: usize) -> &mut [T] {
        assert!(at < self.count, "there are {} rows", self.count);
        // SAFETY: rows are within the slice, as was checked on creation, and not shared.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(at * self.stride), self.width) }
    }

    pub fn pointer(&mut self) -> *mut T {
        self.first
    }
}

impl<T: Number> RowsMut<'_, T> {
    pub fn as_f32(&mut self) -> Option<RowsMut<'_, f32>> {
        let Self { first, count, width, stride, .. } = *self;
        // The type is the same, so the cast changes nothing.
        T::IS_F32.then(|| RowsMut { first: first.cast(), count, width, stride, borrowed: PhantomData })
    }
}

/// The elements up to the end of the last row.
fn reach(count: usize, width: usize, stride: usize) -> usize {
    match count {
        0 => 0,
        _ => (count - 1).saturating_mul(stride).saturating_add(width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_strided_and_parts_are_within_them() {
        let numbers: Vec<u32> = (0..20).collect();
        let rows = Rows::new(&numbers[1..], 3, 4, 6);
        assert_eq!(rows.row(2), [13, 14, 15, 16]);
        let part = rows.part(1, 2, 2, 2);
        assert_eq!((part.row(0), part.row(1)), (&numbers[9..11], &numbers[15..17]));
    }

    #[test]
    #[should_panic = "reach beyond the numbers"]
    fn rows_that_do_not_fit_panic() {
        Rows::new(&[0.0; 15], 3, 4, 6);
    }

    #[test]
    fn shared_rows_write_only_their_elements() {
        let mut numbers = vec![0; 12];
        let shared = Shared::new(&mut numbers);
        // SAFETY: the first has the columns 0 and 1, the second 2 and 3.
        let (mut left, mut right) = unsafe { (shared.rows(0, 3, 2, 4), shared.rows(2, 3, 2, 4)) };
        left.row(1).fill(1);
        right.row(2).fill(2);
        assert_eq!(numbers, [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 2, 2]);
    }
}
