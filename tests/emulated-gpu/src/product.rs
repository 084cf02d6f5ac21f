//! GEMMs like those of cuBLAS: column-major, accumulated in f32, for any dtype.
#![allow(unsafe_code, reason = "matrices are at addresses that the caller of cuBLAS gave")]

use crate::machine::Region;
use crate::numbers::{from_bf16, from_f16, to_bf16, to_f16};

/// A matrix: its address and strides, in elements.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Matrix {
    /// The address of the first element.
    pub address: u64,
    /// The stride of the columns (leading dimension).
    pub column: i64,
    /// The stride of the matrices of a batch.
    pub stride: i64,
    /// Whether it is transposed before the product.
    pub is_transposed: i32,
}

/// A batch of `c = scale a b + kept c`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Product {
    /// The left matrix.
    pub a: Matrix,
    /// The right matrix.
    pub b: Matrix,
    /// The result.
    pub c: Matrix,
    /// The rows of the result.
    pub m: i64,
    /// The columns of the result.
    pub n: i64,
    /// The inner dimension.
    pub k: i64,
    /// The number of matrices.
    pub count: i64,
    /// The dtype as a `cudaDataType`: 0 is f32, 2 is f16, 14 is bf16.
    pub number: i32,
    /// The factor of the product (alpha).
    pub scale: f32,
    /// The factor of the old result (beta); with 0 it is not read.
    pub kept: f32,
}

/// The tile size of a result.
const TILE: [usize; 2] = [4, 16];

impl Product {
    /// Computes it. Matrices that are not within one region are an error.
    ///
    /// # Safety
    ///
    /// Nothing else accesses the memory of the regions meanwhile.
    pub unsafe fn run(&self, regions: &[Region]) -> Result<(), String> {
        let sizes = [(self.a, self.m, self.k), (self.b, self.k, self.n), (self.c, self.m, self.n)];
        for (matrix, rows, columns) in sizes {
            self.check(matrix, if matrix.is_transposed != 0 { (columns, rows) } else { (rows, columns) }, regions)?;
        }
        (0..self.count).for_each(|number| self.one(number));
        Ok(())
    }

    fn bytes(&self) -> i64 {
        if self.number == 0 { 4 } else { 2 }
    }

    fn check(&self, matrix: Matrix, (rows, columns): (i64, i64), regions: &[Region]) -> Result<(), String> {
        let numbers = (self.count - 1) * matrix.stride + (columns - 1) * matrix.column + rows;
        let end = matrix.address + (numbers * self.bytes()) as u64;
        let is_inside = regions.iter().any(|region| region.from <= matrix.address && end <= region.end);
        let sizes = format!("{} x {} x {}", self.m, self.n, self.k);
        let wrong = format!("a product of {sizes}: {:#x} to {end:#x} is not allocated", matrix.address);
        if is_inside || numbers <= 0 { Ok(()) } else { Err(wrong) }
    }

    fn load(&self, address: u64) -> f32 {
        // SAFETY: the address is within a matrix that was checked.
        unsafe {
            match self.number {
                0 => *(address as *const f32),
                2 => from_f16(u32::from(*(address as *const u16))),
                _ => from_bf16(u32::from(*(address as *const u16))),
            }
        }
    }

    fn store(&self, address: u64, value: f32) {
        // SAFETY: as above.
        unsafe {
            match self.number {
                0 => *(address as *mut f32) = value,
                2 => *(address as *mut u16) = to_f16(value) as u16,
                _ => *(address as *mut u16) = to_bf16(value) as u16,
            }
        }
    }

    fn place(&self, matrix: Matrix, number: i64, [row, column]: [usize; 2]) -> u64 {
        let (row, column) = if matrix.is_transposed != 0 { (column, row) } else { (row, column) };
        let at = number * matrix.stride + column as i64 * matrix.column + row as i64;
        matrix.address + (at * self.bytes()) as u64
    }

    /// Both factors are copied as f32, in strips that are as wide as a tile, with zeros at the end.
    fn one(&self, number: i64) {
        let [m, n, k] = [self.m, self.n, self.k].map(|size| size as usize);
        let strips = |width: usize, count: usize, at: &dyn Fn(usize, usize) -> u64| {
            let mut strips = vec![0.0; count.next_multiple_of(width) * k];
            for (strip, to) in strips.chunks_mut(width * k).enumerate() {
                for inside in 0..width.min(count - strip * width) {
                    for step in 0..k {
                        to[step * width + inside] = self.load(at(strip * width + inside, step));
                    }
                }
            }
            strips
        };
        if m == 0 || n == 0 {
            return;
        }
        let a = strips(TILE[1], m, &|row, step| self.place(self.a, number, [row, step]));
        let b = strips(TILE[0], n, &|column, step| self.place(self.b, number, [step, column]));
        for column in (0..n).step_by(TILE[0]) {
            for row in (0..m).step_by(TILE[1]) {
                let (a, b) = (&a[row * k..], &b[column * k..]);
                let sums = tile(&a[..TILE[1] * k], &b[..TILE[0] * k]);
                self.finish(&sums, number, [row, column]);
            }
        }
    }

    fn finish(&self, sums: &[[f32; TILE[1]]; TILE[0]], number: i64, [row, column]: [usize; 2]) {
        for (inside, sums) in sums.iter().enumerate().take(self.n as usize - column) {
            for (further, sum) in sums.iter().enumerate().take(self.m as usize - row) {
                let place = self.place(self.c, number, [row + further, column + inside]);
                let kept = if self.kept == 0.0 { 0.0 } else { self.kept * self.load(place) };
                self.store(place, self.scale * sum + kept);
            }
        }
    }
}

fn tile(a: &[f32], b: &[f32]) -> [[f32; TILE[1]]; TILE[0]] {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the processor has the features.
        return unsafe { tile_with_features(a, b) };
    }
    plain_tile(a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn tile_with_features(a: &[f32], b: &[f32]) -> [[f32; TILE[1]]; TILE[0]] {
    plain_tile(a, b)
}

#[inline(always)]
fn plain_tile(a: &[f32], b: &[f32]) -> [[f32; TILE[1]]; TILE[0]] {
    let mut sums = [[0.0; TILE[1]]; TILE[0]];
    for (a, b) in a.chunks_exact(TILE[1]).zip(b.chunks_exact(TILE[0])) {
        for (sums, b) in sums.iter_mut().zip(b) {
            for (sum, a) in sums.iter_mut().zip(a) {
                *sum = a.mul_add(*b, *sum);
            }
        }
    }
    sums
}
