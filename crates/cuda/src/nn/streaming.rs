//! Operations of streaming convolution blocks.

use super::STREAMING;
use crate::launch::*;

/// Threads of a block with several rows.
const THREADS: u32 = 128;
/// The maximum number of threads per row.
const MAX_SHARING: u32 = 256;

/// An addition to rows: `scale * (y + bias)`.
#[derive(Debug)]
pub struct Residual<'a, T> {
    /// One row per row.
    pub y: Slice<'a, T>,
    /// One bias per column.
    pub bias: Slice<'a, T>,
    /// One scale per column.
    pub scale: Slice<'a, T>,
}

/// A depthwise convolution.
#[derive(Debug)]
pub struct Mixer<'a, T> {
    /// The input rows, those of the previous call first: `taps - 1` more than output rows.
    pub history: Slice<'a, T>,
    /// `[taps, channels]`: see [`StreamingOperations::transpose_taps`].
    pub weight: Slice<'a, T>,
    /// One bias per channel.
    pub bias: Slice<'a, T>,
    /// The scale of the result, one per channel.
    pub scale: Slice<'a, T>,
    /// Input rows per output row.
    pub taps: u32,
}

/// The input rows of all streaming convolutions, as lists in one buffer, each with rows of the previous call at its beginning.
#[derive(Debug)]
pub struct History<T> {
    /// All lists.
    pub rows: Buffer<T>,
    lists: Buffer<[u32; 4]>,
    tokens: u32,
}

kernels! {
    /// The operations of streaming convolution blocks for one dtype on one device.
    StreamingOperations
    STREAMING {
        add_norm: Pair = pair("add_norm"),
        mix_norm: Pair = pair("mix_norm"),
        transpose_taps: Kernel = kernel("transpose_taps"),
        keep_rows: Kernel = kernel("keep_rows"),
        write_samples: Kernel = kernel("write_samples"),
    }
}

impl<T: Element> History<T> {
    /// Allocates zeroed lists `[begin, width, kept rows, rows per token]` for this number of tokens. They must not overlap.
    pub fn new(device: &Device, lists: &[[u32; 4]], tokens: u32) -> Result<Self, CudaError> {
        let end = |[begin, width, kept, rows_per_token]: &[u32; 4]| {
            let rows = u64::from(*kept) + u64::from(*rows_per_token) * u64::from(tokens);
            u64::from(*begin).saturating_add(rows.saturating_mul((*width).into()))
        };
        let elements = lists.iter().map(end).max().unwrap_or(0);
        expect("allocating rows", elements < 1 << 32, "there are too many rows")?;
        let mut rows = device.allocate(elements as usize)?;
        rows.zero()?;
        Ok(Self { rows, lists: device.upload(lists)?, tokens })
    }

    /// Zeroes all lists in stream order.
    pub fn clear(&mut self, stream: &Stream) -> Done {
        self.rows.all_mut().zero_on(stream)
    }
}

impl<T: Element> StreamingOperations<T> {
    /// Adds a residual to each row of `x` `[rows, width]`, and writes the RMS norm of the sum, or the sum itself without a
    /// norm, to `out`.
    pub fn add_norm(
        &self,
        stream: &Stream,
        x: impl Write<T>,
        residual: Option<&Residual<'_, T>>,
        (norm, epsilon): (Option<Slice<'_, T>>, f32),
        out: impl Write<T>,
        [rows, width]: [u32; 2],
    ) -> Done {
        let launch = Launch::new(stream, "adding and normalising rows")
            .write_rows(x, area(rows, width))
            .read_rows(residual.map(|residual| residual.y), area(rows, width))
            .read_rows(residual.map(|residual| residual.bias), width)
            .read_rows(residual.map(|residual| residual.scale), width)
            .read_rows(norm, width)
            .write_rows(out, area(rows, width))
            .with_all([rows, width])
            .with(epsilon);
        run_sharing::<T>(launch, &self.add_norm, [rows, width])
    }

    /// Adds the scaled result of a depthwise convolution to each row of `x` `[rows, width]`, and writes the RMS norm of the
    /// sum to `out`.
    pub fn mix_norm(
        &self,
        stream: &Stream,
        mixer: &Mixer<'_, T>,
        x: impl Write<T>,
        (norm, epsilon): (Slice<'_, T>, f32),
        out: impl Write<T>,
        [rows, width]: [u32; 2],
    ) -> Done {
        let Mixer { history, weight, bias, scale, taps } = *mixer;
        let input_rows = u64::from(rows) + u64::from(taps.max(1)) - 1;
        let launch = Launch::new(stream, "mixing rows")
            .read_rows(history, input_rows.saturating_mul(width.into()))
            .read_rows(weight, area(taps, width))
            .read_rows(bias, width)
            .read_rows(scale, width)
            .write_rows(x, area(rows, width))
            .read_rows(norm, width)
            .write_rows(out, area(rows, width))
            .with_all([rows, width, taps])
            .with(epsilon);
        run_sharing::<T>(launch, &self.mix_norm, [rows, width])
    }

    /// Transposes weights from `[channels, taps]` to `[taps, channels]`.
    pub fn transpose_taps(&self, stream: &Stream, from: impl Read<T>, to: impl Write<T>, shape: [u32; 2]) -> Done {
        let elements = area(shape[0], shape[1]);
        let launch = Launch::new(stream, "transposing taps")
            .require(elements < 1 << 31, "there are too many taps")
            .read(from, elements)
            .write(to, elements)
            .with_all(shape);
        launch.run(&self.transpose_taps, Shape::line(blocks(elements.div_ceil(THREADS.into())), THREADS))
    }

    /// Moves the last rows of every list to its beginning, after this number of tokens.
    pub fn keep(&self, stream: &Stream, history: &mut History<T>, tokens: u32) -> Done {
        // The lists were checked when they were allocated.
        let launch = Launch::new(stream, "storing rows")
            .require(tokens <= history.tokens, "too many tokens for the capacity")
            .write(&mut history.rows, 0_u32)
            .read(&history.lists, 0_u32)
            .with(tokens);
        launch.run(&self.keep_rows, Shape::new([8, blocks(history.lists.length()), 1], [256, 1, 1]))
    }

    /// Writes the samples of a token, rounded to the dtype, to their range of `all` and to `out`. The index of the token is
    /// on the device; the caller ensures that it is within `all`.
    pub fn write_samples(
        &self,
        stream: &Stream,
        (from, token): (&Buffer<f32>, &Buffer<u32>),
        all: &mut Buffer<f32>,
        out: SliceMut<'_, T>,
        samples: u32,
    ) -> Done {
        let launch = Launch::new(stream, "writing samples")
            .read(from, samples)
            .read(token, 1_u32)
            .write(all, samples)
            .write(out, samples)
            .with(samples);
        launch.run(&self.write_samples, Shape::line(samples.div_ceil(THREADS), THREADS))
    }
}

/// Launches one kernel of a pair over rows. Narrow rows share a block.
fn run_sharing<T: Element>(launch: Launch<'_>, pair: &Pair, [rows, width]: [u32; 2]) -> Done {
    let (kernel, columns) = pair.chosen::<T>(width, launch.is_aligned::<T>(width));
    let sharing = columns.next_power_of_two().clamp(1, MAX_SHARING);
    let rows_per_block = if sharing <= 32 { THREADS / sharing } else { 1 };
    let shape = Shape::new([rows.div_ceil(rows_per_block), 1, 1], [sharing, rows_per_block, 1]);
    launch.require(rows < 1 << 31, "too many rows").run(kernel, shape)
}
