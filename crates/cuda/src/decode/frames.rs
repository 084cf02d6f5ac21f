//! Frames of codes, and their embeddings as the input of a step.

use super::FRAME;
use crate::launch::*;

/// The codes of all frames and the current frame, on the device, so that steps need no host.
#[derive(Debug)]
pub struct Frames {
    /// `[capacity, groups]`. Frames beyond the capacity are not stored.
    pub codes: Buffer<u32>,
    /// The current frame.
    pub frame: Buffer<u32>,
    /// For the host: the frame's first code, and 1 if it is the end token.
    pub word: Buffer<u32>,
    pub(super) capacity: u32,
    pub(super) groups: u32,
}

impl Frames {
    /// Allocates `capacity` frames of `groups` codes. The first frame is the current one.
    pub fn new(device: &Device, capacity: u32, groups: u32) -> Result<Self, CudaError> {
        expect("allocating frames", capacity > 0 && groups > 0, "a size is zero")?;
        Ok(Self {
            codes: device.upload(&vec![0; capacity as usize * groups as usize])?,
            frame: device.upload(&[0])?,
            word: device.upload(&[0, 0])?,
            capacity,
            groups,
        })
    }

    /// The capacity in frames.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Restarts with the first frame, in stream order.
    pub fn begin(&mut self, stream: &Stream) -> Done {
        self.frame.set_all(stream, 0)
    }

    fn arguments<'l>(&self, launch: Launch<'l>) -> Launch<'l> {
        let codes = area(self.capacity, self.groups);
        launch.read(&self.codes, codes).read(&self.frame, 1_u32).with_all([self.capacity, self.groups])
    }

    /// The codes of some frames. Waits for the device.
    pub fn read(&self, frames: std::ops::Range<usize>) -> Result<Vec<u32>, CudaError> {
        let groups = self.groups as usize;
        self.codes.slice(frames.start.saturating_mul(groups)..frames.end.saturating_mul(groups))?.read()
    }
}

/// The embedding tables of a frame's codes, and the text's embeddings.
#[derive(Debug)]
pub struct FrameTables<'a, T> {
    /// The table of the first code, `[first_size, width]`.
    pub first: &'a Buffer<T>,
    /// Rows of the first table.
    pub first_size: u32,
    /// The tables of the other codes, `[groups - 1, size, width]`.
    pub others: &'a Buffer<T>,
    /// Rows of each of the other tables.
    pub size: u32,
    /// One row per frame; the last row is used for all later frames.
    pub text: &'a Buffer<T>,
    /// The number of text rows, on the device; with zero, nothing is added.
    pub text_rows: &'a Buffer<u32>,
}

kernels! {
    /// The kernels of frames, on one device.
    FrameStep
    FRAME {
        sum_frame: Kernel = step_kernel("sum_frame_step"),
        embed_code: Kernel = step_kernel("embed_code_step"),
    }
    |device| {
        overlaps: bool = device.is_hopper_or_later(),
    }
}

const THREADS: u32 = 128;
pub(super) const NO_CODE: &str = "the frame has fewer codes";

impl<T: Element> FrameStep<T> {
    /// Sums the embeddings of all codes of the frame and of the text into `x` `[width]`. A code outside its table gives NaN.
    pub fn sum(
        &self,
        stream: &Stream,
        frames: &Frames,
        tables: &FrameTables<'_, T>,
        x: &mut Buffer<T>,
        width: u32,
    ) -> Done {
        let others = u64::from(frames.groups - 1) * area(tables.size, width);
        let launch = Launch::new(stream, "embedding a frame")
            .require(tables.text.length() as u64 >= width.into(), "the text has no rows");
        let launch = frames
            .arguments(launch)
            .read(tables.first, area(tables.first_size, width))
            .with(tables.first_size)
            .read(tables.others, others)
            .with(tables.size)
            .read(tables.text, width)
            .read(tables.text_rows, 1_u32)
            .write(x, width)
            .with(width);
        launch.run_early(&self.sum_frame, shape(width), self.overlaps)
    }

    /// Looks up the embedding of one code of the frame in its table `[size, width]`.
    pub fn embed_code(
        &self,
        stream: &Stream,
        (frames, group): (&Frames, u32),
        (table, size): (Slice<'_, T>, u32),
        x: &mut Buffer<T>,
        width: u32,
    ) -> Done {
        let launch = Launch::new(stream, "embedding a code").require(group < frames.groups, NO_CODE);
        let launch =
            frames.arguments(launch).with(group).read(table, area(size, width)).with(size).write(x, width).with(width);
        launch.run_early(&self.embed_code, shape(width), self.overlaps)
    }
}

fn shape(width: u32) -> Shape {
    Shape::line(width.div_ceil(THREADS).max(1), THREADS)
}
