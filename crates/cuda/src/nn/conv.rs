//! Convolutions over time, each as one product with the columns that it looks at.
//!
//! Signals lie with channels last, `[length, channels]`: a row is a moment, so that the rows of products, norms and
//! attention are those of convolutions too, and a transposed convolution is a plain one whose longer rows are several
//! moments one behind the other. What a moment looks at is gathered into a row of columns, with the activation before the
//! convolution on the way, and one product makes all outputs, so that they are rounded once. (A product for each tap
//! needs no gathered copy, but rounds and writes the output as often as there are taps, and launches as often.)

mod shape;

pub use self::shape::Convolution;
use self::shape::{CHUNK, SHARED_BYTES};
use super::CONV;
use crate::blas::{Blas, Sizes};
use crate::launch::*;

const THREADS: u32 = 256;
/// Outputs of a block that makes one channel; the kernel has the same number.
const OUTPUTS_OF_ONE: u32 = 64;

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

kernels! {
    /// The kernels of convolutions on numbers of one type, on one device.
    Convolutions
    CONV {
        columns: Pair = pair("columns"),
        pack_taps: Kernel = kernel("pack_taps"),
        depthwise: Pair = pair("depthwise"),
        to_one: Kernel = kernel("to_one"),
        snake_parameters: Kernel = kernel("snake_parameters"),
    }
}

impl<T: Element> Convolutions<T> {
    /// The parameters of a snake from the logarithms that are stored: `exp(alpha)` is the rate, and one over
    /// `exp(beta)` the reach.
    pub fn snake(
        &self,
        device: &Device,
        stream: &Stream,
        [alpha, beta]: [Slice<'_, T>; 2],
    ) -> Result<Snake, CudaError> {
        expect("preparing a snake", alpha.length() == beta.length(), "alpha and beta differ in length")?;
        let (channels, mut parameters) = (blocks(alpha.length()), device.allocate::<f32>(2 * alpha.length())?);
        let launch = Launch::new(stream, "preparing a snake")
            .read(alpha, channels)
            .read(beta, channels)
            .write(&mut parameters, area(2, channels))
            .with(channels);
        launch.run(&self.snake_parameters, Shape::line(channels.div_ceil(THREADS), THREADS))?;
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
    ) -> Done {
        const DOING: &str = "packing a convolution";
        of.check(DOING)?;
        let phases = if of.is_transposed { of.stride } else { 0 };
        let launch = Launch::new(stream, DOING)
            .read(stored.into(), of.stored_numbers())
            .read(bias, of.outputs)
            .write(packed.into(), of.packed_numbers())
            .with_all([of.outputs, of.inputs, of.kernel, phases, of.taps()]);
        launch.run(&self.pack_taps, Shape::line(of.outputs_per_row(), THREADS))
    }

    /// Puts the convolution of a signal into `out`, `[length, outputs]`, or adds it to what is there.
    ///
    /// The buffer is for columns: at least [`Convolution::width`] numbers. What does not fit at once is done in parts.
    #[allow(clippy::too_many_arguments)]
    pub fn convolve<'a>(
        &self,
        blas: &Blas,
        stream: &Stream,
        of: &Convolution,
        signal: &Signal<'_, T>,
        packed: impl Into<Slice<'a, T>>,
        out: impl Into<SliceMut<'a, T>>,
        (is_added, capacity): (bool, &mut Buffer<T>),
    ) -> Done {
        const DOING: &str = "convolving";
        let (packed, mut out) = (packed.into(), out.into());
        let (rows, outputs_per_row, width) = (of.rows(signal.length), of.outputs_per_row(), of.width());
        check(DOING, of, signal)?;
        let launch = Launch::new(stream, DOING).fits(packed, of.packed_numbers());
        launch.fits(&out, area(rows, outputs_per_row)).check()?;
        let at_once = u32::try_from(capacity.length() as u64 / u64::from(width)).unwrap_or(u32::MAX);
        expect(DOING, at_once > 0, "a row of columns does not fit")?;
        for first in (0..rows).step_by(at_once as usize) {
            let count = at_once.min(rows - first);
            self.gather(stream, of, signal, capacity, [first, count])?;
            let columns = capacity.slice(0..count as usize * width as usize)?;
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

    fn gather(
        &self,
        stream: &Stream,
        of: &Convolution,
        signal: &Signal<'_, T>,
        capacity: &mut Buffer<T>,
        [first, count]: [u32; 2],
    ) -> Done {
        let launch = Launch::new(stream, "convolving")
            .read_rows(signal.x, area(signal.length, of.inputs))
            .read(signal.snake.map(|snake| &snake.parameters), area(2, of.inputs))
            .write_rows(&mut *capacity, area(count, of.width()))
            .with_all(of.arguments(signal.length))
            .with(first);
        let each = of.gathered::<T>();
        if !launch.is_aligned::<T>(of.inputs) || each == 0 {
            return launch.run(&self.columns.any, Shape::line(count, THREADS));
        }
        // A few rows are shared by more blocks, so that all multiprocessors have some.
        let each = each.min(count.div_ceil(64).max(8));
        let grid = [count.div_ceil(each), of.inputs.div_ceil(CHUNK), 1];
        let shape = Shape { grid, block: [THREADS, 1, 1], shared_bytes: of.gathered_bytes::<T>(each) };
        launch.with_all([count, each]).run(&self.columns.by_16_bytes, shape)
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
    ) -> Done {
        const DOING: &str = "convolving channels";
        check(DOING, of, signal)?;
        let is_right = of.inputs == of.outputs && !of.is_transposed && signal.snake.is_none();
        let rows = of.length(signal.length);
        let launch = Launch::new(stream, DOING)
            .require(is_right, "channels by themselves are as many before and after, and without a snake")
            .read_rows(signal.x, area(signal.length, of.inputs))
            .read(weight, area(of.inputs, of.kernel))
            .read(bias, of.inputs)
            .write_rows(out.into(), area(rows, of.inputs))
            .with_all(of.arguments(signal.length))
            .with(rows);
        let (kernel, columns) = self.depthwise.chosen::<T>(of.inputs, launch.is_aligned::<T>(of.inputs));
        let threads = columns.next_multiple_of(32).clamp(32, 128);
        let grid = [columns.div_ceil(threads), rows.min(MOST_BLOCKS_Y), 1];
        launch.run(kernel, Shape { grid, block: [threads, 1, 1], shared_bytes: 0 })
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
    ) -> Done {
        const DOING: &str = "convolving to one channel";
        check(DOING, of, signal)?;
        expect(DOING, of.outputs == 1 && !of.is_transposed, "there is more than one channel")?;
        let rows = of.length(signal.length);
        let looked = u64::from((OUTPUTS_OF_ONE - 1) * of.stride + of.reach() + 1);
        let bytes = 4 * (looked * u64::from(CHUNK + 1) + area(of.kernel, CHUNK));
        let launch = Launch::new(stream, DOING)
            .require(bytes <= SHARED_BYTES.into(), "the convolution reaches too far")
            .read(signal.x, area(signal.length, of.inputs))
            .read(signal.snake.map(|snake| &snake.parameters), area(2, of.inputs))
            .read(weight, area(of.inputs, of.kernel))
            .read(bias, 1_u32)
            .write(out.into(), rows)
            .with_all(of.arguments(signal.length))
            .with(rows)
            .with(limit);
        let shape = Shape::line(rows.div_ceil(OUTPUTS_OF_ONE), OUTPUTS_OF_ONE * 4);
        launch.run(&self.to_one, Shape { shared_bytes: bytes as u32, ..shape })
    }
}

fn check<T: Element>(doing: &str, of: &Convolution, signal: &Signal<'_, T>) -> Done {
    of.check(doing)?;
    let reach = u64::from(signal.length) * u64::from(of.stride) + u64::from(of.kernel) * u64::from(of.dilation);
    expect(doing, reach < 1 << 31, "the signal is too long")?;
    let is_whole = signal.x.length() as u64 >= area(signal.length, of.inputs);
    let snakes = signal.snake.is_none_or(|snake| snake.parameters.length() as u64 >= area(2, of.inputs));
    expect(doing, is_whole && snakes, "a buffer is too small")
}
