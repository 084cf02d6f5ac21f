//! Launches of the kernels in this crate: checks, arguments and sizes in one chain.
//!
//! An operation lists its kernel's arguments in the order of the parameters, with the number of elements that the kernel
//! accesses in each buffer. Shorter buffers and grids that the driver does not allow are refused before anything is
//! launched; an empty grid does nothing. These checks make operations safe to call. They are only as good as the lists,
//! so no list comes from outside this crate.
#![allow(unsafe_code)]

use bytemuck::Pod;

use crate::kernel::TensorMap;
/// The prelude of operations.
pub(crate) use crate::{
    blas::Element,
    cache::Cache,
    device::Device,
    error::{CudaError, Done},
    kernel::{Argument, Kernel, Pair, Shape, kernels},
    memory::Buffer,
    nvrtc::{self, Request, Source},
    slice::{Slice, SliceMut},
    stream::Stream,
};

const MAX_ARGUMENTS: usize = 24;
/// The maximum number of blocks along y and z; along x it is 2^31 - 1.
pub(crate) const MAX_BLOCKS_Y: u32 = 65_535;
const TOO_SMALL: &str = "a buffer is too small";

/// Returns an error unless a condition holds.
pub(crate) fn expect(doing: &str, holds: bool, otherwise: &str) -> Done {
    if holds { Ok(()) } else { Err(CudaError::refused(doing, 0, otherwise)) }
}

pub(crate) fn area(rows: u32, columns: u32) -> u64 {
    u64::from(rows) * u64::from(columns)
}

/// A count as blocks of a grid. It saturates, and no grid has that many blocks, so the launch is refused.
pub(crate) fn blocks(count: impl TryInto<u32>) -> u32 {
    count.try_into().unwrap_or(u32::MAX)
}

/// 16-byte vectors in this number of elements.
pub(crate) fn vectors<T>(width: u32) -> u32 {
    width / (16 / size_of::<T>() as u32)
}

/// Device memory that a kernel may read: slices and buffers. Cannot be implemented outside this crate, because launches
/// rely on the extent.
pub trait Read<T> {
    /// The address and the number of elements. An absent buffer is null and long enough for anything.
    fn extent(&self) -> (u64, u64);
}

/// Device memory that a kernel may also write.
pub trait Write<T>: Read<T> {}

macro_rules! readable {
    ($($type:ty),*) => {
        $(impl<T: Pod> Read<T> for $type {
            fn extent(&self) -> (u64, u64) {
                (self.pointer(), self.length() as u64)
            }
        })*
    };
}

readable!(Slice<'_, T>, SliceMut<'_, T>, &SliceMut<'_, T>, &Buffer<T>, &mut Buffer<T>);

impl<T, M: Read<T>> Read<T> for Option<M> {
    fn extent(&self) -> (u64, u64) {
        self.as_ref().map_or((0, u64::MAX), Read::extent)
    }
}

impl<T: Pod> Write<T> for SliceMut<'_, T> {}
impl<T: Pod> Write<T> for &SliceMut<'_, T> {}
impl<T: Pod> Write<T> for &mut Buffer<T> {}
impl<T, M: Write<T>> Write<T> for Option<M> {}

#[derive(Debug, Clone)]
#[must_use]
pub(crate) struct Launch<'a> {
    stream: &'a Stream,
    doing: &'static str,
    refusal: Option<&'static str>,
    is_empty: bool,
    /// The bitwise OR of the addresses of all rows.
    rows: u64,
    count: usize,
    arguments: [Argument; MAX_ARGUMENTS],
}

impl<'a> Launch<'a> {
    /// Begins a launch; `doing` names the operation in errors.
    pub fn new(stream: &'a Stream, doing: &'static str) -> Self {
        let arguments = [Argument::NULL; MAX_ARGUMENTS];
        Self { stream, doing, refusal: None, is_empty: false, rows: 0, count: 0, arguments }
    }

    /// Refuses the launch unless the condition holds. The first refusal is reported.
    pub fn require(mut self, holds: bool, otherwise: &'static str) -> Self {
        self.refusal = self.refusal.or((!holds).then_some(otherwise));
        self
    }

    /// Checks a buffer that is not among the arguments.
    pub fn fits<T>(self, memory: impl Read<T>, elements: impl Into<u64>) -> Self {
        self.require(memory.extent().1 >= elements.into(), TOO_SMALL)
    }

    pub fn skip_if(mut self, is_empty: bool) -> Self {
        self.is_empty |= is_empty;
        self
    }

    /// Adds a buffer that the kernel reads up to this number of elements.
    pub fn read<T>(self, memory: impl Read<T>, elements: impl Into<u64>) -> Self {
        let (pointer, length) = memory.extent();
        self.require(length >= elements.into(), TOO_SMALL).with(pointer)
    }

    /// Adds a buffer that the kernel writes up to this number of elements.
    pub fn write<T>(self, memory: impl Write<T>, elements: impl Into<u64>) -> Self {
        self.read(memory, elements)
    }

    /// [`Launch::read`] of rows that count for [`Launch::is_aligned`].
    pub fn read_rows<T>(mut self, memory: impl Read<T>, elements: impl Into<u64>) -> Self {
        self.rows |= memory.extent().0;
        self.read(memory, elements)
    }

    /// [`Launch::write`] of rows that count for [`Launch::is_aligned`].
    pub fn write_rows<T>(self, memory: impl Write<T>, elements: impl Into<u64>) -> Self {
        self.read_rows(memory, elements)
    }

    /// Adds the addresses of further rows that count for [`Launch::is_aligned`].
    pub fn rows_at(mut self, addresses: &[u64]) -> Self {
        self.rows = addresses.iter().fold(self.rows, |all, address| all | address);
        self
    }

    pub fn with(mut self, value: impl Into<Argument>) -> Self {
        self.arguments[self.count] = value.into();
        self.count += 1;
        self
    }

    pub fn with_all<V: Into<Argument>>(self, values: impl IntoIterator<Item = V>) -> Self {
        values.into_iter().fold(self, Self::with)
    }

    /// Adds [`Launch::is_aligned`] as an argument.
    pub fn with_alignment<T>(self, width: u32) -> Self {
        let is_aligned = self.is_aligned::<T>(width);
        self.with(is_aligned)
    }

    /// Whether rows of this width, at the addresses added so far, consist of aligned 16-byte vectors.
    pub fn is_aligned<T>(&self, width: u32) -> bool {
        are_aligned::<T>(width, self.rows)
    }

    /// Reports a refusal before the launch, for operations whose grid only makes sense for valid sizes.
    pub fn check(&self) -> Done {
        self.refusal.map_or(Ok(()), |reason| expect(self.doing, false, reason))
    }

    /// Adds the address where the kernel writes the time once all previous work is done: null unless a stage of a stamped
    /// graph begins or ends here.
    pub fn with_timestamp(self) -> Self {
        let address = self.stream.boundary().take();
        self.with(address)
    }

    pub fn run(self, kernel: &Kernel, shape: Shape) -> Done {
        self.run_with(kernel, shape, &[], false)
    }

    /// Launches a kernel whose first parameters are tensor maps.
    pub fn run_with_maps(self, kernel: &Kernel, shape: Shape, maps: &[TensorMap]) -> Done {
        self.run_with(kernel, shape, maps, false)
    }

    /// Launches a kernel that waits for the previous one itself (`griddepcontrol.wait`); with `is_early` the two overlap.
    /// Not supported before compute capability 9.0.
    pub fn run_early(self, kernel: &Kernel, shape: Shape, is_early: bool) -> Done {
        self.run_with(kernel, shape, &[], is_early)
    }

    /// Launches one kernel of a pair over columns and rows; `is_early` as for [`Launch::run_early`].
    pub fn run_pair<T>(self, pair: &Pair, [rows, width]: [u32; 2], is_early: bool) -> Done {
        let (kernel, columns) = pair.chosen::<T>(width, self.is_aligned::<T>(width));
        let threads = columns.next_multiple_of(32).clamp(32, 128);
        let grid = [columns.div_ceil(threads).max(1), rows.min(MAX_BLOCKS_Y), 1];
        self.run_early(kernel, Shape::new(grid, [threads, 1, 1]), is_early)
    }

    fn run_with(self, kernel: &Kernel, shape: Shape, maps: &[TensorMap], is_early: bool) -> Done {
        self.check()?;
        self.stream.stamp_boundary()?;
        if self.is_empty || shape.grid.contains(&0) {
            // The driver refuses an empty grid.
            return Ok(());
        }
        let [x, y, z] = shape.grid;
        expect(self.doing, x < 1 << 31 && y.max(z) <= MAX_BLOCKS_Y, "too many rows")?;
        // SAFETY: the arguments match the kernel's parameters, and it stays within the buffers, whose lengths were checked
        // (see the module). Buffers are freed in stream order, after the kernel is done. A kernel that is launched early
        // waits for the previous one itself.
        unsafe { kernel.launch(self.stream, shape, (maps, &self.arguments[..self.count]), is_early) }
    }
}

/// Whether rows of this width consist of aligned 16-byte vectors; `addresses` is the bitwise OR of all rows' addresses.
fn are_aligned<T>(width: u32, addresses: u64) -> bool {
    width.is_multiple_of((16 / size_of::<T>()) as u32) && addresses.is_multiple_of(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_aligned_if_width_and_addresses_are() {
        assert!(are_aligned::<f32>(4, 16 | 32) && !are_aligned::<f32>(4, 16 | 20));
        assert!(are_aligned::<u16>(8, 0) && !are_aligned::<u16>(12, 0));
    }

    #[test]
    fn an_absent_buffer_is_null_and_long_enough() {
        assert_eq!(None::<Slice<'_, f32>>.extent(), (0, u64::MAX));
    }

    #[test]
    fn a_count_beyond_32_bits_saturates() {
        assert_eq!((blocks(7_u64), blocks(1_u64 << 40), blocks(usize::MAX)), (7, u32::MAX, u32::MAX));
    }
}
