//! Rows of numbers that lie a stride apart in something larger: a matrix, a part of one, a head of all heads.

// Parts of one matrix that threads write side by side are no slices; each block has its reason.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use half::bf16;

use super::number::Number;

#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, T> {
    numbers: &'a [T],
    pub count: usize,
    pub width: usize,
    /// Numbers from the beginning of one to that of the next.
    pub stride: usize,
}

impl<'a, T> Rows<'a, T> {
    /// Rows that begin with the first number. Panics where a row would reach beyond the numbers.
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
    pub fn as_f32(&self) -> Option<Rows<'a, f32>> {
        let Self { numbers, count, width, stride } = *self;
        T::as_f32(numbers).map(|numbers| Rows { numbers, count, width, stride })
    }

    pub fn as_bf16(&self) -> Option<Rows<'a, bf16>> {
        let Self { numbers, count, width, stride } = *self;
        T::IS_BF16.then(|| Rows { numbers: bytemuck::cast_slice(numbers), count, width, stride })
    }
}

/// Numbers of which several threads write different rows at the same time.
pub struct Shared<'a, T> {
    first: *mut T,
    length: usize,
    borrowed: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for a slice borrowed for writing, which may be sent to and, as `rows` asks, written by threads.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub fn new(numbers: &'a mut [T]) -> Self {
        Self { first: numbers.as_mut_ptr(), length: numbers.len(), borrowed: PhantomData }
    }

    /// Rows of them, to write. Panics where a row would reach beyond the numbers.
    ///
    /// # Safety
    /// No two that live at the same time have a number in common.
    pub unsafe fn rows(&self, offset: usize, count: usize, width: usize, stride: usize) -> RowsMut<'_, T> {
        assert!(
            offset + reach(count, width, stride) <= self.length,
            "{count} rows of {width} reach beyond the numbers"
        );
        // SAFETY: the first row begins inside the numbers, or there is none.
        let first = unsafe { self.first.add(offset.min(self.length)) };
        RowsMut { first, count, width, stride, borrowed: PhantomData }
    }
}

/// Rows of numbers to write, a stride apart; what lies between them belongs to others.
pub struct RowsMut<'a, T> {
    first: *mut T,
    pub count: usize,
    pub width: usize,
    /// Numbers from the beginning of one to that of the next.
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
        // SAFETY: every row lies inside the numbers, as was checked when these were made, and is nobody else's.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(at * self.stride), self.width) }
    }

    pub fn pointer(&mut self) -> *mut T {
        self.first
    }
}

impl<T: Number> RowsMut<'_, T> {
    pub fn as_f32(&mut self) -> Option<RowsMut<'_, f32>> {
        let Self { first, count, width, stride, .. } = *self;
        // The type is the same, so nothing is made of these pointers that they were not.
        T::IS_F32.then(|| RowsMut { first: first.cast(), count, width, stride, borrowed: PhantomData })
    }
}

/// Numbers up to the end of the last row.
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
    fn rows_are_a_stride_apart_and_parts_are_inside_them() {
        let numbers: Vec<u32> = (0..20).collect();
        let rows = Rows::new(&numbers[1..], 3, 4, 6);
        assert_eq!(rows.row(2), [13, 14, 15, 16]);
        let part = rows.part(1, 2, 2, 2);
        assert_eq!((part.row(0), part.row(1)), (&numbers[9..11], &numbers[15..17]));
    }

    #[test]
    #[should_panic = "reach beyond the numbers"]
    fn rows_beyond_the_numbers_are_never_made() {
        Rows::new(&[0.0; 15], 3, 4, 6);
    }

    #[test]
    fn shared_rows_write_what_is_theirs() {
        let mut numbers = vec![0; 12];
        let shared = Shared::new(&mut numbers);
        // SAFETY: the first has the columns 0 and 1, the second 2 and 3.
        let (mut left, mut right) = unsafe { (shared.rows(0, 3, 2, 4), shared.rows(2, 3, 2, 4)) };
        left.row(1).fill(1);
        right.row(2).fill(2);
        assert_eq!(numbers, [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 2, 2]);
    }
}
