//! Frames of codes: converts the codes of a frame to the input vector of a step.
#![allow(unsafe_code)]

use super::FRAME;
use crate::{
    blas::Element,
    cache::Cache,
    device::Device,
    error::CudaError,
    kernel::{Argument, Kernel, Shape},
    kernels::expect,
    memory::Buffer,
    nvrtc,
    slice::Slice,
    stream::Stream,
};

/// The codes of all frames and the current frame, on the device, so that steps follow each other without the host.
#[derive(Debug)]
pub struct Frames {
    /// `[room, groups]`. Frames beyond the capacity are not stored.
    pub codes: Buffer<u32>,
    /// The current frame.
    pub frame: Buffer<u32>,
    /// What the host reads for a frame: its first code, and one if that is the end.
    pub word: Buffer<u32>,
    pub(super) room: u32,
    pub(super) groups: u32,
}

impl Frames {
    /// Allocates `room` frames of `groups` codes. The first frame is the current one.
    pub fn new(device: &Device, room: u32, groups: u32) -> Result<Self, CudaError> {
        expect("allocating frames", room > 0 && groups > 0, "a size is zero")?;
        Ok(Self {
            codes: device.upload(&vec![0; room as usize * groups as usize])?,
            frame: device.upload(&[0])?,
            word: device.upload(&[0, 0])?,
            room,
            groups,
        })
    }

    /// The capacity in frames.
    pub fn room(&self) -> u32 {
        self.room
    }

    /// Restarts with the first frame, in stream order.
    pub fn begin(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.frame.set_all(stream, 0)
    }

    /// The codes of some frames. Waits for the device.
    pub fn read(&self, frames: std::ops::Range<usize>) -> Result<Vec<u32>, CudaError> {
        let groups = self.groups as usize;
        self.codes.slice(frames.start.saturating_mul(groups)..frames.end.saturating_mul(groups))?.read()
    }
}

/// The embedding tables of the codes of a frame, and the rows of the text that is read along.
#[derive(Debug)]
pub struct FrameTables<'a, T> {
    /// The rows of first codes, `[first_size, width]`.
    pub first: &'a Buffer<T>,
    /// The number of rows.
    pub first_size: u32,
    /// The rows of the other codes, group by group: `[groups - 1, size, width]`.
    pub others: &'a Buffer<T>,
    /// The number of rows per group.
    pub size: u32,
    /// One row per frame; the last row serves all later frames.
    pub text: &'a Buffer<T>,
    /// The number of text rows, on the device; with zero, nothing is added.
    pub text_rows: &'a Buffer<u32>,
}

/// The kernels of frames, on one device.
#[derive(Debug)]
pub struct FrameStep<T> {
    sum_frame: Kernel,
    code_row: Kernel,
    overlaps: bool,
    of: std::marker::PhantomData<T>,
}

const THREADS: u32 = 128;

impl<T: Element> FrameStep<T> {
    /// Compiles the kernels, or loads them from the cache.
    pub fn load(device: &Device, cache: &Cache) -> Result<Self, CudaError> {
        let (module, _) = nvrtc::load(device, cache, FRAME, &[T::OPTION.to_owned()])?;
        let kernel = |name| {
            let kernel = module.kernel(name)?;
            kernel.prefer_shared_memory().map(|()| kernel)
        };
        Ok(Self {
            sum_frame: kernel("sum_frame_step")?,
            code_row: kernel("code_row_step")?,
            overlaps: device.facts().capability.0 >= 9,
            of: std::marker::PhantomData,
        })
    }

    /// Puts the sum of the rows of all codes of the frame and of the text's row into `x` `[width]`. A code beyond its
    /// table gives NaN.
    pub fn sum(
        &self,
        stream: &Stream,
        frames: &Frames,
        tables: &FrameTables<'_, T>,
        x: &mut Buffer<T>,
        width: u32,
    ) -> Result<(), CudaError> {
        const DOING: &str = "adding up a frame";
        let holds = |buffer: &Buffer<T>, rows: u64| buffer.length() as u64 >= rows.saturating_mul(width.into());
        let others = u64::from(frames.groups - 1) * u64::from(tables.size);
        let fits = holds(tables.first, tables.first_size.into()) && holds(tables.others, others) && holds(x, 1);
        expect(DOING, fits && tables.text_rows.length() >= 1, "a buffer is too small")?;
        expect(DOING, holds(tables.text, 1), "there is no row of the text")?;
        let arguments: [Argument; 12] = [
            (&frames.codes).into(),
            (&frames.frame).into(),
            frames.room.into(),
            frames.groups.into(),
            tables.first.into(),
            tables.first_size.into(),
            tables.others.into(),
            tables.size.into(),
            tables.text.into(),
            tables.text_rows.into(),
            x.into(),
            width.into(),
        ];
        // SAFETY: the kernel stays within the tables, and within as many rows of the text as its owner wrote.
        unsafe { self.launch(&self.sum_frame, stream, width, &arguments) }
    }

    /// Puts the row of one code of the frame, from its table `[size, width]`, into `x` `[width]`.
    pub fn row(
        &self,
        stream: &Stream,
        (frames, group): (&Frames, u32),
        (table, size): (Slice<'_, T>, u32),
        x: &mut Buffer<T>,
        width: u32,
    ) -> Result<(), CudaError> {
        const DOING: &str = "taking the row of a code";
        let fits = table.length() as u64 >= u64::from(size) * u64::from(width) && x.length() as u64 >= width.into();
        expect(DOING, fits && group < frames.groups, "a buffer is too small, or there is no such code")?;
        let arguments: [Argument; 9] = [
            (&frames.codes).into(),
            (&frames.frame).into(),
            frames.room.into(),
            frames.groups.into(),
            group.into(),
            table.into(),
            size.into(),
            x.into(),
            width.into(),
        ];
        // SAFETY: the kernel stays within the sizes, and the buffers are at least as large.
        unsafe { self.launch(&self.code_row, stream, width, &arguments) }
    }

    /// # Safety
    ///
    /// As for [`Kernel::launch`]; these kernels wait for the one before them.
    unsafe fn launch(
        &self,
        kernel: &Kernel,
        stream: &Stream,
        width: u32,
        arguments: &[Argument],
    ) -> Result<(), CudaError> {
        let shape = Shape::line(width.div_ceil(THREADS).max(1), THREADS);
        // SAFETY: as the caller says.
        unsafe {
            match self.overlaps {
                true => kernel.launch_early(stream, shape, arguments),
                false => kernel.launch(stream, shape, arguments),
            }
        }
    }
}
