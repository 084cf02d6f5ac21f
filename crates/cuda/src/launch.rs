//! Launches of the kernels in this crate: checks, arguments and sizes in one chain.
//!
//! An operation lists its kernel's arguments in the order of the parameters and states for each buffer how many
//! elements the kernel touches. A launch refuses shorter buffers and grids that the driver does not allow, before
//! anything is launched, and does nothing if the grid is empty. These checks are what makes operations safe to call;
//! they are only as good as the lists, so no list comes from outside this crate.
#![allow(unsafe_code)]

use bytemuck::Pod;

use crate::kernel::TensorMap;
/// What operations are written with; they import all of it from here.
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

const MOST_ARGUMENTS: usize = 24;
/// The most blocks along the second and third side of a grid; along the first side there may be 2^31 - 1.
pub(crate) const MOST_BLOCKS_Y: u32 = 65_535;
const TOO_SMALL: &str = "a buffer is too small";

/// Refuses to do something unless a condition holds.
pub(crate) fn expect(doing: &str, holds: bool, otherwise: &str) -> Done {
    if holds { Ok(()) } else { Err(CudaError::refused(doing, 0, otherwise)) }
}

pub(crate) fn area(rows: u32, columns: u32) -> u64 {
    u64::from(rows) * u64::from(columns)
}

/// A count as blocks of a grid: what does not fit is more than any grid has, and is refused at the launch.
pub(crate) fn blocks(count: impl TryInto<u32>) -> u32 {
    count.try_into().unwrap_or(u32::MAX)
}

/// Groups of 16 bytes in this number of elements.
pub(crate) fn groups<T>(width: u32) -> u32 {
    width / (16 / size_of::<T>() as u32)
}

/// Memory of the device as a kernel's argument. An absent buffer has the address 0 and is long enough for anything.
pub(crate) trait Memory {
    fn extent(&self) -> (u64, u64);
}

pub(crate) trait MemoryMut: Memory {}

macro_rules! memory {
    ($($generics:ident: $bound:path, $type:ty, |$self:ident| $extent:expr;)*) => {
        $(impl<$generics: $bound> Memory for $type {
            fn extent(&$self) -> (u64, u64) {
                $extent
            }
        })*
    };
}

memory! {
    T: Pod, Slice<'_, T>, |self| (self.pointer(), self.length() as u64);
    T: Pod, SliceMut<'_, T>, |self| (self.pointer(), self.length() as u64);
    T: Pod, Buffer<T>, |self| (self.pointer(), self.length() as u64);
    M: Memory, &M, |self| (**self).extent();
    M: Memory, &mut M, |self| (**self).extent();
}

impl<M: Memory> Memory for Option<M> {
    fn extent(&self) -> (u64, u64) {
        self.as_ref().map_or((0, u64::MAX), Memory::extent)
    }
}

impl<T: Pod> MemoryMut for SliceMut<'_, T> {}
impl<T: Pod> MemoryMut for &SliceMut<'_, T> {}
impl<T: Pod> MemoryMut for &mut Buffer<T> {}
impl<M: MemoryMut> MemoryMut for Option<M> {}

#[derive(Debug, Clone)]
#[must_use]
pub(crate) struct Launch<'a> {
    stream: &'a Stream,
    doing: &'static str,
    refusal: Option<&'static str>,
    is_empty: bool,
    /// The addresses of all rows, combined by OR.
    rows: u64,
    count: usize,
    arguments: [Argument; MOST_ARGUMENTS],
}

impl<'a> Launch<'a> {
    /// Begins a launch; `doing` names the operation in errors.
    pub fn new(stream: &'a Stream, doing: &'static str) -> Self {
        let arguments = [Argument::NULL; MOST_ARGUMENTS];
        Self { stream, doing, refusal: None, is_empty: false, rows: 0, count: 0, arguments }
    }

    /// Refuses the launch unless the condition holds. The first refusal counts.
    pub fn require(mut self, holds: bool, otherwise: &'static str) -> Self {
        self.refusal = self.refusal.or((!holds).then_some(otherwise));
        self
    }

    /// Refuses the launch for a short buffer that is not among the arguments.
    pub fn fits(self, memory: impl Memory, numbers: impl Into<u64>) -> Self {
        self.require(memory.extent().1 >= numbers.into(), TOO_SMALL)
    }

    pub fn skip_if(mut self, is_empty: bool) -> Self {
        self.is_empty |= is_empty;
        self
    }

    /// Adds a buffer of which the kernel reads this number of elements.
    pub fn read(self, memory: impl Memory, numbers: impl Into<u64>) -> Self {
        let (pointer, length) = memory.extent();
        self.require(length >= numbers.into(), TOO_SMALL).with(pointer)
    }

    /// Adds a buffer of which the kernel writes this number of elements.
    pub fn write(self, memory: impl MemoryMut, numbers: impl Into<u64>) -> Self {
        self.read(memory, numbers)
    }

    /// [`Launch::read`] of rows that the kernel can read 16 bytes at a time: see [`Launch::is_aligned`].
    pub fn read_rows(mut self, memory: impl Memory, numbers: impl Into<u64>) -> Self {
        self.rows |= memory.extent().0;
        self.read(memory, numbers)
    }

    /// [`Launch::write`] of rows that the kernel can write 16 bytes at a time.
    pub fn write_rows(self, memory: impl MemoryMut, numbers: impl Into<u64>) -> Self {
        self.read_rows(memory, numbers)
    }

    /// Counts rows at further addresses as those of [`Launch::read_rows`].
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

    /// Adds whether rows of this width can be moved 16 bytes at a time.
    pub fn with_alignment<T>(self, width: u32) -> Self {
        let is_aligned = self.is_aligned::<T>(width);
        self.with(is_aligned)
    }

    /// Whether rows of this width, at the addresses added so far, can be moved 16 bytes at a time.
    pub fn is_aligned<T>(&self, width: u32) -> bool {
        is_by_16_bytes::<T>(width, self.rows)
    }

    /// Reports a refusal before the launch, for operations whose launch size only makes sense for valid sizes.
    pub fn check(&self) -> Done {
        self.refusal.map_or(Ok(()), |reason| expect(self.doing, false, reason))
    }

    /// Adds where the kernel writes the time at which everything before it is done; null unless a stage of a stamped graph
    /// begins or ends here.
    pub fn with_border(self) -> Self {
        let border = self.stream.border().take();
        self.with(border)
    }

    pub fn run(self, kernel: &Kernel, shape: Shape) -> Done {
        self.run_with(kernel, shape, &[], false)
    }

    /// Launches a kernel whose first parameters are tensor maps.
    pub fn run_with_maps(self, kernel: &Kernel, shape: Shape, maps: &[TensorMap]) -> Done {
        self.run_with(kernel, shape, maps, false)
    }

    /// Launches a kernel that waits for the previous one itself (`griddepcontrol.wait`), so that the two overlap if
    /// `is_early`. Not supported before compute capability 9.0.
    pub fn run_early(self, kernel: &Kernel, shape: Shape, is_early: bool) -> Done {
        self.run_with(kernel, shape, &[], is_early)
    }

    /// Launches one kernel of a pair over columns and rows.
    pub fn run_pair<T>(self, pair: &Pair, shape: [u32; 2]) -> Done {
        self.run_pair_early::<T>(pair, shape, false)
    }

    /// The same for kernels that wait for the previous one themselves: see [`Launch::run_early`].
    pub fn run_pair_early<T>(self, pair: &Pair, [rows, width]: [u32; 2], is_early: bool) -> Done {
        let (kernel, columns) = pair.chosen::<T>(width, self.is_aligned::<T>(width));
        let threads = columns.next_multiple_of(32).clamp(32, 128);
        let grid = [columns.div_ceil(threads).max(1), rows.min(MOST_BLOCKS_Y), 1];
        self.run_early(kernel, Shape { grid, block: [threads, 1, 1], shared_bytes: 0 }, is_early)
    }

    fn run_with(self, kernel: &Kernel, shape: Shape, maps: &[TensorMap], is_early: bool) -> Done {
        self.check()?;
        self.stream.stamp_border()?;
        if self.is_empty || shape.grid.contains(&0) {
            // The driver refuses an empty grid.
            return Ok(());
        }
        let [x, y, z] = shape.grid;
        expect(self.doing, x < 1 << 31 && y.max(z) <= MOST_BLOCKS_Y, "too many rows")?;
        // SAFETY: the arguments are those of the kernel, and it stays within the buffers among them, whose lengths were
        // checked (see the module). The buffers are freed in the order of their streams, after the kernel is done. A
        // kernel that is launched early waits for the previous one itself.
        unsafe { kernel.launch(self.stream, shape, (maps, &self.arguments[..self.count]), is_early) }
    }
}

/// Whether rows of this width can be moved 16 bytes at a time; `addresses` are those of all rows, combined by OR.
pub(crate) fn is_by_16_bytes<T>(width: u32, addresses: u64) -> bool {
    width.is_multiple_of((16 / size_of::<T>()) as u32) && addresses.is_multiple_of(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bytes_are_taken_where_width_and_addresses_allow() {
        assert!(is_by_16_bytes::<f32>(4, 16 | 32) && !is_by_16_bytes::<f32>(4, 16 | 20));
        assert!(is_by_16_bytes::<u16>(8, 0) && !is_by_16_bytes::<u16>(12, 0));
    }

    #[test]
    fn an_absent_buffer_is_null_and_long_enough() {
        assert_eq!(None::<Slice<'_, f32>>.extent(), (0, u64::MAX));
    }

    #[test]
    fn a_count_beyond_32_bits_is_more_than_a_grid_has() {
        assert_eq!((blocks(7_u64), blocks(1_u64 << 40), blocks(usize::MAX)), (7, u32::MAX, u32::MAX));
    }
}
