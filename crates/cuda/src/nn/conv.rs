//! Convolutions over time, each as one product with the columns that it looks at.
//!
//! Signals lie with channels last, `[length, channels]`: a row is a moment, so that the rows of products, norms and
//! attention are those of convolutions too, and a transposed convolution is a plain one whose longer rows are several
//! moments one behind the other. What a moment looks at is gathered into a row of columns, with the activation before the
//! convolution on the way, and one product makes all outputs, so that they are rounded once. (A product for each tap
//! needs no gathered copy, but rounds and writes the output as often as there are taps, and launches as often.)
#![allow(unsafe_code)]

mod shape;

use std::marker::PhantomData;

pub use self::shape::Convolution;
use self::shape::{CHUNK, SHARED_BYTES};
use super::{
    CONV,
    operations::{Pair, area, launch},
    sizes::{has_room, holds, is_by_16_bytes},
};
use crate::{
    blas::{Blas, Element, Sizes},
    cache::Cache,
    device::Device,
    error::CudaError,
    kernel::{Argument, Kernel, Shape},
    kernels::expect,
    memory::Buffer,
    nvrtc,
    slice::{Slice, SliceMut},
    stream::Stream,
};

const THREADS: u32 = 256;
/// Outputs of a block that makes one channel; the kernel has the same number.
const OUTPUTS_OF_ONE: u32 = 64;
/// The most blocks along the second side of a grid.
const MOST_BLOCKS_Y: u32 = 65_535;

/// The parameters of a snake, `x + reach sin(rate x)²`, two for each channel, on the device.
#[derive(Debug)]
pub struct Snake {
    parameters: Buffer<f32>,
}

/// A signal on its way through a convolution.
#[derive(Debug)]
pub struct Signal<'a, T> {
    /// `[length, inputs]`.
    pub x: Slice<'a, T>,
    /// Its moments.
    pub length: u32,
    /// What is computed from every number first.
    pub snake: Option<&'a Snake>,
}

/// The kernels of convolutions on numbers of one type, on one device.
#[derive(Debug)]
pub struct Convolutions<T> {
    columns: Pair,
    pack_taps: Kernel,
    depthwise: Pair,
    to_one: Kernel,
    snake_parameters: Kernel,
    of: PhantomData<T>,
}

impl<T: Element> Convolutions<T> {
    /// Loads them all, from the cache where they are there.
    pub fn load(device: &Device, cache: &Cache) -> Result<Self, CudaError> {
        let module = nvrtc::load(device, cache, CONV, &[T::OPTION.to_owned()])?.0;
        let pair = |name: &str| -> Result<Pair, CudaError> {
            Ok(Pair { by_16_bytes: module.kernel(name)?, any: module.kernel(&format!("{name}_any"))? })
        };
        Ok(Self {
            columns: pair("columns")?,
            pack_taps: module.kernel("pack_taps")?,
            depthwise: pair("depthwise")?,
            to_one: module.kernel("to_one")?,
            snake_parameters: module.kernel("snake_parameters")?,
            of: PhantomData,
        })
    }

    /// The parameters of a snake from the logarithms that are stored: `exp(alpha)` is the rate, and one over
    /// `exp(beta)` the reach.
    pub fn snake(
        &self,
        device: &Device,
        stream: &Stream,
        [alpha, beta]: [Slice<'_, T>; 2],
    ) -> Result<Snake, CudaError> {
        let channels = u32::try_from(alpha.length()).unwrap_or(u32::MAX);
        expect("preparing a snake", alpha.length() == beta.length(), "alpha and beta differ in length")?;
        let mut parameters = device.allocate::<f32>(2 * alpha.length())?;
        let arguments: [Argument; 4] = [alpha.into(), beta.into(), (&mut parameters).into(), channels.into()];
        let blocks = channels.div_ceil(THREADS);
        // SAFETY: the kernel writes two numbers a channel.
        launch(blocks, || unsafe { self.snake_parameters.launch(stream, Shape::line(blocks, THREADS), &arguments) })?;
        Ok(Snake { parameters })
    }

    /// Lays weights out as products take them, `[outputs_per_row, width]`, from `[outputs, inputs, kernel]` or, transposed, from
    /// `[inputs, outputs, kernel]`. The bias goes behind the taps.
    pub fn pack<'a>(
        &self,
        stream: &Stream,
        of: &Convolution,
        stored: impl Into<Slice<'a, T>>,
        bias: Option<Slice<'_, T>>,
        packed: impl Into<SliceMut<'a, T>>,
    ) -> Result<(), CudaError> {
        const DOING: &str = "packing a convolution";
        let (stored, packed) = (stored.into(), packed.into());
        of.check(DOING)?;
        let fits = holds(stored, of.stored_numbers()) && has_room(&packed, of.packed_numbers());
        let biased = bias.is_none_or(|bias| holds(bias, of.outputs.into()));
        expect(DOING, fits && biased, "a buffer is too small")?;
        let phases = if of.is_transposed { of.stride } else { 0 };
        let sizes = [of.outputs, of.inputs, of.kernel, phases, of.taps()].map(Argument::from);
        let mut arguments = vec![stored.into(), bias.into(), (&packed).into()];
        arguments.extend(sizes);
        // SAFETY: the kernel writes every number of the packed weights, from places within those stored.
        unsafe { self.pack_taps.launch(stream, Shape::line(of.outputs_per_row(), THREADS), &arguments) }
    }

    /// Puts the convolution of a signal into `out`, `[length, outputs]`, or adds it to what is there.
    ///
    /// `room` is for columns: at least [`Convolution::width`] numbers. What does not fit at once is done in parts.
    #[allow(clippy::too_many_arguments)]
    pub fn convolve<'a>(
        &self,
        blas: &Blas,
        stream: &Stream,
        of: &Convolution,
        signal: &Signal<'_, T>,
        packed: impl Into<Slice<'a, T>>,
        out: impl Into<SliceMut<'a, T>>,
        (is_added, room): (bool, &mut Buffer<T>),
    ) -> Result<(), CudaError> {
        const DOING: &str = "convolving";
        let (packed, mut out) = (packed.into(), out.into());
        let (rows, outputs_per_row, width) = (of.rows(signal.length), of.outputs_per_row(), of.width());
        self.check(DOING, of, signal)?;
        expect(
            DOING,
            has_room(&out, area(rows, outputs_per_row)) && holds(packed, of.packed_numbers()),
            "a buffer is too small",
        )?;
        let at_once = u32::try_from(room.length() as u64 / u64::from(width)).unwrap_or(u32::MAX);
        expect(DOING, at_once > 0, "there is no room for a row of columns")?;
        for first in (0..rows).step_by(at_once as usize) {
            let count = at_once.min(rows - first);
            self.gather(stream, of, signal, room, [first, count])?;
            let columns = room.slice(0..count as usize * width as usize)?;
            let begin = first as usize * outputs_per_row as usize;
            let part = out.borrowed().slice(begin..begin + count as usize * outputs_per_row as usize)?;
            let sizes = Sizes { m: count, n: outputs_per_row, k: width, b_is_transposed: true };
            let packed = packed.slice(0..of.packed_numbers() as usize)?;
            match is_added {
                true => blas.multiply_add([columns, packed], part, sizes)?,
                false => blas.multiply_slices([columns, packed], part, sizes)?,
            }
        }
        Ok(())
    }

    fn check(&self, doing: &str, of: &Convolution, signal: &Signal<'_, T>) -> Result<(), CudaError> {
        of.check(doing)?;
        let reach = u64::from(signal.length) * u64::from(of.stride) + u64::from(of.kernel) * u64::from(of.dilation);
        expect(doing, reach < 1 << 31, "the signal is too long")?;
        let snakes = signal.snake.is_none_or(|snake| snake.parameters.length() as u64 >= 2 * u64::from(of.inputs));
        expect(doing, snakes && holds(signal.x, area(signal.length, of.inputs)), "a buffer is too small")
    }

    /// Gathers some rows of columns.
    fn gather(
        &self,
        stream: &Stream,
        of: &Convolution,
        signal: &Signal<'_, T>,
        room: &mut Buffer<T>,
        [first, count]: [u32; 2],
    ) -> Result<(), CudaError> {
        let mut arguments = vec![signal.x.into(), snake_argument(signal.snake), (&mut *room).into()];
        arguments.extend(of.arguments(signal.length));
        arguments.push(first.into());
        let each = of.gathered::<T>();
        let aligned = is_by_16_bytes::<T>(of.inputs, &[signal.x.pointer(), room.pointer()]);
        if !aligned || each == 0 {
            // SAFETY: the kernel writes a row for each output, and there is room for as many.
            return unsafe { self.columns.any.launch(stream, Shape::line(count, THREADS), &arguments) };
        }
        // A few rows are shared by more blocks, so that all multiprocessors have some.
        let each = each.min(count.div_ceil(64).max(8)).min(of.gathered::<T>());
        arguments.extend([count, each].map(Argument::from));
        let grid = [count.div_ceil(each), of.inputs.div_ceil(CHUNK), 1];
        let shape = Shape { grid, block: [THREADS, 1, 1], shared_bytes: of.gathered_bytes::<T>(each) };
        // SAFETY: as above; what a block looks at fits its shared memory.
        unsafe { self.columns.by_16_bytes.launch(stream, shape, &arguments) }
    }

    /// Puts the convolution of each channel by itself into `out`, `[length, channels]`: weights are
    /// `[channels, kernel]`, and inputs and outputs are as many.
    pub fn depthwise<'a>(
        &self,
        stream: &Stream,
        of: &Convolution,
        signal: &Signal<'_, T>,
        (weight, bias): (Slice<'_, T>, Option<Slice<'_, T>>),
        out: impl Into<SliceMut<'a, T>>,
    ) -> Result<(), CudaError> {
        const DOING: &str = "convolving channels";
        let out = out.into();
        self.check(DOING, of, signal)?;
        let is_right = of.inputs == of.outputs && !of.is_transposed && signal.snake.is_none();
        expect(DOING, is_right, "channels by themselves are as many before and after, and without a snake")?;
        let rows = of.length(signal.length);
        let fits = holds(weight, area(of.inputs, of.kernel)) && has_room(&out, area(rows, of.inputs));
        expect(DOING, fits && bias.is_none_or(|bias| holds(bias, of.inputs.into())), "a buffer is too small")?;
        let aligned = is_by_16_bytes::<T>(of.inputs, &[signal.x.pointer(), out.pointer()]);
        let (kernel, columns) = self.depthwise.chosen::<T>(of.inputs, aligned);
        let mut arguments = vec![signal.x.into(), weight.into(), bias.into(), (&out).into()];
        arguments.extend(of.arguments(signal.length));
        arguments.push(rows.into());
        let threads = columns.next_multiple_of(32).clamp(32, 128);
        let grid = [columns.div_ceil(threads), rows.min(MOST_BLOCKS_Y), 1];
        let shape = Shape { grid, block: [threads, 1, 1], shared_bytes: 0 };
        // SAFETY: the kernel stays within the sizes, and the buffers are at least as large.
        launch(rows, || unsafe { kernel.launch(stream, shape, &arguments) })
    }

    /// Puts a convolution with one output into `out`, in f32 and between `-limit` and `limit`. The weights are as they
    /// are stored, `[1, inputs, kernel]`.
    pub fn to_one<'a>(
        &self,
        stream: &Stream,
        of: &Convolution,
        signal: &Signal<'_, T>,
        (weight, bias): (Slice<'_, T>, Option<Slice<'_, T>>),
        out: impl Into<SliceMut<'a, f32>>,
        limit: f32,
    ) -> Result<(), CudaError> {
        const DOING: &str = "convolving to one channel";
        let out = out.into();
        self.check(DOING, of, signal)?;
        expect(DOING, of.outputs == 1 && !of.is_transposed, "there is more than one channel")?;
        let rows = of.length(signal.length);
        let fits = holds(weight, area(of.inputs, of.kernel)) && has_room(&out, rows.into());
        expect(DOING, fits && bias.is_none_or(|bias| holds(bias, 1)), "a buffer is too small")?;
        let looked = u64::from((OUTPUTS_OF_ONE - 1) * of.stride + of.reach() + 1);
        let bytes = 4 * (looked * u64::from(CHUNK + 1) + area(of.kernel, CHUNK));
        expect(DOING, bytes <= SHARED_BYTES.into(), "the convolution reaches too far")?;
        let mut arguments =
            vec![signal.x.into(), snake_argument(signal.snake), weight.into(), bias.into(), (&out).into()];
        arguments.extend(of.arguments(signal.length));
        arguments.extend([Argument::from(rows), Argument::from(limit)]);
        let blocks = rows.div_ceil(OUTPUTS_OF_ONE);
        let shape = Shape { shared_bytes: bytes as u32, ..Shape::line(blocks, OUTPUTS_OF_ONE * 4) };
        // SAFETY: the kernel stays within the sizes, and the buffers are at least as large.
        launch(blocks, || unsafe { self.to_one.launch(stream, shape, &arguments) })
    }
}

fn snake_argument(snake: Option<&Snake>) -> Argument {
    snake.map_or(Argument::from(0_u64), |snake| (&snake.parameters).into())
}
