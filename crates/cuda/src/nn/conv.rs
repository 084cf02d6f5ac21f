//! 1D convolutions by im2col and one GEMM.
//!
//! Signals are `[length, channels]`, like the rows of GEMMs, norms and attention. A transposed convolution is a plain one
//! whose longer output rows are several consecutive outputs. im2col also applies the activation before the convolution.
//! With one GEMM, outputs are rounded once. (A GEMM per tap needs no im2col buffer, but rounds and writes the output once
//! per tap.)

mod shape;

pub use self::shape::Convolution;
use self::shape::{CHUNK, SHARED_BYTES};
use super::CONV;
use crate::blas::{Blas, Sizes};
use crate::launch::*;

const THREADS: u32 = 256;
/// Outputs per block of `to_one`; the kernel has the same constant.
const OUTPUTS_OF_ONE: u32 = 64;

/// The parameters of a snake activation, `x + amplitude sin(rate x)²`, two per channel.
#[derive(Debug)]
pub struct Snake {
    parameters: Buffer<f32>,
}

/// The input of a convolution.
#[derive(Debug)]
pub struct Signal<'a, T> {
    /// `[length, inputs]`.
    pub x: Slice<'a, T>,
    /// Its length.
    pub length: u32,
    /// The activation before the convolution.
    pub snake: Option<&'a Snake>,
}

kernels! {
    /// The convolution kernels for one dtype on one device.
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
    /// The parameters of a snake activation from their stored logarithms: the rate is `exp(alpha)`, the amplitude
    /// `1 / exp(beta)`.
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

    /// Packs weights for the GEMM: from `[outputs, inputs, kernel]`, or `[inputs, outputs, kernel]` if transposed, to
    /// `[outputs_per_row, width]`, with the bias after the taps.
    pub fn pack(
        &self,
        stream: &Stream,
        of: &Convolution,
        stored: impl Read<T>,
        bias: Option<Slice<'_, T>>,
        packed: impl Write<T>,
    ) -> Done {
        const DOING: &str = "packing a convolution";
        of.check(DOING)?;
        let phases = if of.is_transposed { of.stride } else { 0 };
        let launch = Launch::new(stream, DOING)
            .read(stored, of.stored_elements())
            .read(bias, of.outputs)
            .write(packed, of.packed_elements())
            .with_all([of.outputs, of.inputs, of.kernel, phases, of.taps()]);
        launch.run(&self.pack_taps, Shape::line(of.outputs_per_row(), THREADS))
    }

    /// The convolution of a signal into `out` `[length, outputs]`, or added to it.
    ///
    /// The buffer is for im2col: at least [`Convolution::width`] elements. Rows that do not fit are computed in parts.
    #[allow(clippy::too_many_arguments)]
    pub fn convolve<'a>(
        &self,
        blas: &Blas,
        stream: &Stream,
        of: &Convolution,
        signal: &Signal<'_, T>,
        packed: impl Into<Slice<'a, T>>,
        out: impl Into<SliceMut<'a, T>>,
        (is_added, columns): (bool, &mut Buffer<T>),
    ) -> Done {
        const DOING: &str = "convolving";
        let (packed, mut out) = (packed.into(), out.into());
        let (rows, outputs_per_row, width) = (of.rows(signal.length), of.outputs_per_row(), of.width());
        check(DOING, of, signal)?;
        let launch = Launch::new(stream, DOING).fits(packed, of.packed_elements());
        launch.fits(&out, area(rows, outputs_per_row)).check()?;
        let at_once = u32::try_from(columns.length() as u64 / u64::from(width)).unwrap_or(u32::MAX);
        expect(DOING, at_once > 0, "the im2col buffer is smaller than a row")?;
        for first in (0..rows).step_by(at_once as usize) {
            let count = at_once.min(rows - first);
            self.im2col(stream, of, signal, columns, [first, count])?;
            let columns = columns.slice(0..count as usize * width as usize)?;
            let begin = first as usize * outputs_per_row as usize;
            let part = out.borrowed().slice(begin..begin + count as usize * outputs_per_row as usize)?;
            let sizes = Sizes { m: count, n: outputs_per_row, k: width, b_is_transposed: true };
            let packed = packed.slice(0..of.packed_elements() as usize)?;
            match is_added {
                true => blas.multiply_add([columns, packed], part, sizes)?,
                false => blas.multiply_slices([columns, packed], part, sizes)?,
            }
        }
        Ok(())
    }

    fn im2col(
        &self,
        stream: &Stream,
        of: &Convolution,
        signal: &Signal<'_, T>,
        columns: &mut Buffer<T>,
        [first, count]: [u32; 2],
    ) -> Done {
        let launch = Launch::new(stream, "convolving")
            .read_rows(signal.x, area(signal.length, of.inputs))
            .read(signal.snake.map(|snake| &snake.parameters), area(2, of.inputs))
            .write_rows(&mut *columns, area(count, of.width()))
            .with_all(of.arguments(signal.length))
            .with(first);
        let each = of.outputs_per_block::<T>();
        if !launch.is_aligned::<T>(of.inputs) || each == 0 {
            return launch.run(&self.columns.any, Shape::line(count, THREADS));
        }
        // Few rows are split over more blocks, so that all multiprocessors are busy.
        let each = each.min(count.div_ceil(64).max(8));
        let grid = [count.div_ceil(each), of.inputs.div_ceil(CHUNK), 1];
        let shape = Shape::new(grid, [THREADS, 1, 1]).with_shared(of.shared_bytes::<T>(each));
        launch.with_all([count, each]).run(&self.columns.vectorised, shape)
    }

    /// Depthwise convolution into `out` `[length, channels]`, with weights `[channels, kernel]`.
    pub fn depthwise(
        &self,
        stream: &Stream,
        of: &Convolution,
        signal: &Signal<'_, T>,
        (weight, bias): (Slice<'_, T>, Option<Slice<'_, T>>),
        out: impl Write<T>,
    ) -> Done {
        const DOING: &str = "convolving channels";
        check(DOING, of, signal)?;
        let is_right = of.inputs == of.outputs && !of.is_transposed && signal.snake.is_none();
        let rows = of.length(signal.length);
        let launch = Launch::new(stream, DOING)
            .require(is_right, "expected as many outputs as inputs, and no snake")
            .read_rows(signal.x, area(signal.length, of.inputs))
            .read(weight, area(of.inputs, of.kernel))
            .read(bias, of.inputs)
            .write_rows(out, area(rows, of.inputs))
            .with_all(of.arguments(signal.length))
            .with(rows);
        launch.run_pair::<T>(&self.depthwise, [rows, of.inputs], false)
    }

    /// A convolution with one output channel into `out`, in f32, clamped to `[-limit, limit]`. The weights are not packed:
    /// `[1, inputs, kernel]`.
    pub fn to_one(
        &self,
        stream: &Stream,
        of: &Convolution,
        signal: &Signal<'_, T>,
        (weight, bias): (Slice<'_, T>, Option<Slice<'_, T>>),
        out: impl Write<f32>,
        limit: f32,
    ) -> Done {
        const DOING: &str = "convolving to one channel";
        check(DOING, of, signal)?;
        expect(DOING, of.outputs == 1 && !of.is_transposed, "there is more than one output channel")?;
        let rows = of.length(signal.length);
        let inputs = u64::from((OUTPUTS_OF_ONE - 1) * of.stride + of.lookback() + 1);
        let bytes = 4 * (inputs * u64::from(CHUNK + 1) + area(of.kernel, CHUNK));
        let launch = Launch::new(stream, DOING)
            .require(bytes <= SHARED_BYTES.into(), "the kernel is too large")
            .read(signal.x, area(signal.length, of.inputs))
            .read(signal.snake.map(|snake| &snake.parameters), area(2, of.inputs))
            .read(weight, area(of.inputs, of.kernel))
            .read(bias, 1_u32)
            .write(out, rows)
            .with_all(of.arguments(signal.length))
            .with(rows)
            .with(limit);
        let shape = Shape::line(rows.div_ceil(OUTPUTS_OF_ONE), OUTPUTS_OF_ONE * 4);
        launch.run(&self.to_one, shape.with_shared(bytes as u32))
    }
}

fn check<T: Element>(doing: &str, of: &Convolution, signal: &Signal<'_, T>) -> Done {
    of.check(doing)?;
    let end = u64::from(signal.length) * u64::from(of.stride) + u64::from(of.kernel) * u64::from(of.dilation);
    expect(doing, end < 1 << 31, "the signal is too long")?;
    let is_whole = signal.x.length() as u64 >= area(signal.length, of.inputs);
    let snakes = signal.snake.is_none_or(|snake| snake.parameters.length() as u64 >= area(2, of.inputs));
    expect(doing, is_whole && snakes, "a buffer is too small")
}
