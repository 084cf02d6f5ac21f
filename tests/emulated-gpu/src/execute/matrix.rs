//! Tensor core instructions, and their register layouts.

use super::{Machine, Step};
use crate::machine::{Fault, Warp};
use crate::numbers::{from_bf16, from_f16};
use crate::program::{SHARED_BEGINS, Space};
use crate::rows::LANES;

/// Both halves of a word.
#[inline(always)]
fn halves(is_bf16: bool, word: u32) -> [f32; 2] {
    let [low, high] = [word & 0xffff, word >> 16];
    if is_bf16 { [from_bf16(low), from_bf16(high)] } else { [from_f16(low), from_f16(high)] }
}

/// The row of a lane, and the first of its two columns.
const fn place(lane: usize) -> (usize, usize) {
    (lane / 4, lane % 4 * 2)
}

/// The row and column of a lane's sum; it has four for every eight columns.
const fn sum_place(word: usize, lane: usize) -> (usize, usize) {
    let (row, column) = place(lane);
    (row + word / 2 % 2 * 8, column + word / 4 * 8 + word % 2)
}

impl Step<'_> {
    /// The left matrix, 16 by 16: four words per lane.
    #[inline(always)]
    fn left(&self, from: usize, is_bf16: bool) -> [[f32; 16]; 16] {
        let mut a = [[0.0; 16]; 16];
        for word in 0..4 {
            let words = self.row_of(from + word);
            for (lane, value) in words.iter().enumerate() {
                let (row, column) = place(lane);
                let (row, column) = (row + word % 2 * 8, column + word / 2 * 8);
                [a[row][column], a[row][column + 1]] = halves(is_bf16, *value);
            }
        }
        a
    }

    /// Adds a product to sums that lie in the registers from `old` on, if they count, and writes them.
    #[inline(always)]
    fn add_product<const N: usize>(&self, a: &[[f32; 16]; 16], b: &[[f32; N]; 16], old: Option<usize>) {
        let mut sums = [[0.0; N]; 16];
        for (word, old) in old.into_iter().flat_map(|old| (old..old + N / 2).enumerate()) {
            for (lane, value) in self.row_of(old).iter().enumerate() {
                let (row, column) = sum_place(word, lane);
                sums[row][column] = f32::from_bits(*value);
            }
        }
        for (sums, a) in sums.iter_mut().zip(a) {
            for (a, b) in a.iter().zip(b) {
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum = a.mul_add(*b, *sum);
                }
            }
        }
        for word in 0..N / 2 {
            let mut values = [0; LANES];
            for (lane, value) in values.iter_mut().enumerate() {
                let (row, column) = sum_place(word, lane);
                *value = sums[row][column].to_bits();
            }
            self.write(word, &values);
        }
    }

    /// 16 by 16 times 16 by 8.
    #[inline(always)]
    pub(super) fn multiply(&self, is_bf16: bool) {
        let a = self.left(4, is_bf16);
        let mut b = [[0.0; 8]; 16];
        for word in 0..2 {
            for (lane, value) in self.row_of(8 + word).iter().enumerate() {
                let (column, row) = place(lane);
                [b[row + word * 8][column], b[row + word * 8 + 1][column]] = halves(is_bf16, *value);
            }
        }
        self.add_product(&a, &b, Some(10));
    }

    /// 64 by 16 times 16 by 64, of which a warp has 16 rows. The right matrix is in shared memory, where a descriptor says.
    #[inline(always)]
    pub(super) fn multiply_group(
        &self,
        is_bf16: bool,
        is_transposed: bool,
        warp: &Warp,
        machine: &Machine<'_>,
    ) -> Result<(), Fault> {
        let a = self.left(32, is_bf16);
        let b = self.right(self.long(36, 0), is_bf16, is_transposed, warp, machine)?;
        let is_added = warp.predicates[self.operands[37] as usize] & 1 != 0;
        self.add_product(&a, &b, is_added.then_some(38));
        Ok(())
    }

    /// The right matrix, 16 by 64, in rows of 128 swizzled bytes: of its columns, or of its own rows if it is transposed.
    #[inline(always)]
    fn right(
        &self,
        descriptor: u64,
        is_bf16: bool,
        is_transposed: bool,
        warp: &Warp,
        machine: &Machine<'_>,
    ) -> Result<[[f32; 64]; 16], Fault> {
        let (from, stride) = ((descriptor & 0x3fff) << 4, (descriptor >> 32 & 0x3fff) << 4);
        let (rows, columns) = if is_transposed { (16, 64) } else { (64, 16) };
        // A matrix may begin within the first row.
        let end = from - from % 128 + (rows / 8 - 1) * stride + 1024;
        if descriptor >> 62 != 1 || from < SHARED_BEGINS || end > machine.launch.shared_end {
            return Err(self.fault(format!("a product with the descriptor {descriptor:#x}"), self.mask));
        }
        let shared = machine.blocks[warp.block].shared.as_ptr().cast::<u16>();
        let mut b = [[0.0; 64]; 16];
        for row in 0..rows {
            for column in 0..columns {
                let linear = from + row / 8 * stride + row % 8 * 128 + column * 2;
                let swizzled = linear ^ (linear >> 7 & 7) << 4;
                // SAFETY: the address is within shared memory, by the check above.
                let bits = u32::from(unsafe { *shared.add(swizzled as usize / 2) });
                let value = if is_bf16 { from_bf16(bits) } else { from_f16(bits) };
                let (k, n) = if is_transposed { (row, column) } else { (column, row) };
                b[k as usize][n as usize] = value;
            }
        }
        Ok(b)
    }

    /// Matrices of 8 by 8, whose rows are where eight lanes each say.
    #[inline(always)]
    pub(super) fn load_matrices(
        &self,
        is_transposed: bool,
        warp: &mut Warp,
        machine: &Machine<'_>,
    ) -> Result<(), Fault> {
        let count = self.operands.len() - 1;
        let used = Step { mask: u32::MAX.unbounded_shr((LANES - 8 * count) as u32), ..*self };
        let places = used.places((Space::Shared, count), 16, warp, machine)?;
        for number in 0..count {
            let mut values = [0; LANES];
            for (lane, value) in values.iter_mut().enumerate() {
                let (row, column) = place(lane);
                let at = |row: usize, column: usize| {
                    // SAFETY: the place was checked for the 16 bytes of a row.
                    u32::from(unsafe { *places[number * 8 + row].cast::<u16>().add(column) })
                };
                *value = match is_transposed {
                    false => at(row, column) | at(row, column + 1) << 16,
                    true => at(column, row) | at(column + 1, row) << 16,
                };
            }
            self.write(number, &values);
        }
        Ok(())
    }

    pub(super) fn transpose_matrix(&self) {
        let words = *self.row_of(1);
        let at = |row: usize, column: usize| words[row * 4 + column / 2] >> (column % 2 * 16) & 0xffff;
        let values = std::array::from_fn(|lane| {
            let (row, column) = place(lane);
            at(column, row) | at(column + 1, row) << 16
        });
        self.write(0, &values);
    }
}
