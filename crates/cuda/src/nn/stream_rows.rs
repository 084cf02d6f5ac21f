//! Rows between convolutions that go on from what came before.

use super::STREAM_ROWS;
use crate::launch::*;

/// Threads of a block where several rows share one.
const THREADS: u32 = 128;
/// The most threads that share a row.
const MOST_SHARING: u32 = 256;

/// What is added to rows: those of `y` with a bias, times a scale a column.
#[derive(Debug)]
pub struct Addition<'a, T> {
    /// As many rows.
    pub y: Slice<'a, T>,
    /// A number a column.
    pub bias: Slice<'a, T>,
    /// A number a column.
    pub scale: Slice<'a, T>,
}

/// What each channel by itself makes of the rows that it sees.
#[derive(Debug)]
pub struct Mixer<'a, T> {
    /// The rows, those of the run before first: `taps - 1` more than are made.
    pub seen: Slice<'a, T>,
    /// `[taps, channels]`: see [`StreamRows::turn_taps`].
    pub weight: Slice<'a, T>,
    /// A number a channel.
    pub bias: Slice<'a, T>,
    /// What is multiplied with what is added, a number a channel.
    pub scale: Slice<'a, T>,
    /// Rows that one sees, itself among them.
    pub taps: u32,
}

/// The lists of rows that convolutions see, in one buffer, each with rows of the run before at its beginning.
#[derive(Debug)]
pub struct Kept<T> {
    /// All lists.
    pub rows: Buffer<T>,
    lists: Buffer<[u32; 4]>,
    tokens: u32,
}

kernels! {
    /// Operations on rows that go on, on numbers of one type, on one device.
    StreamRows
    STREAM_ROWS {
        add_norm: Pair = pair("add_norm"),
        mix_norm: Pair = pair("mix_norm"),
        turn_taps: Kernel = kernel("turn_taps"),
        keep_rows: Kernel = kernel("keep_rows"),
        put_samples: Kernel = kernel("put_samples"),
    }
}

impl<T: Element> Kept<T> {
    /// Lists `[begin, width, kept rows, rows per token]` for this number of tokens, initialised with silence. They must
    /// not overlap.
    pub fn new(device: &Device, lists: &[[u32; 4]], tokens: u32) -> Result<Self, CudaError> {
        let end = |[begin, width, kept, each]: &[u32; 4]| {
            let rows = u64::from(*kept) + u64::from(*each) * u64::from(tokens);
            u64::from(*begin).saturating_add(rows.saturating_mul((*width).into()))
        };
        let numbers = lists.iter().map(end).max().unwrap_or(0);
        expect("storing rows", numbers < 1 << 32, "there are too many rows")?;
        let mut rows = device.allocate(numbers as usize)?;
        rows.zero()?;
        Ok(Self { rows, lists: device.upload(lists)?, tokens })
    }

    /// Lets silence be before all lists, in the order of the stream.
    pub fn forget(&mut self, stream: &Stream) -> Done {
        self.rows.all_mut().zero_on(stream)
    }
}

impl<T: Element> StreamRows<T> {
    /// Adds to each row of `x` (rows by `width`), and puts the sum, normed by the root of its mean square plus `epsilon`
    /// and times the norm's weight, into `out`; as it is where there is no norm.
    pub fn add_norm<'a>(
        &self,
        stream: &Stream,
        x: impl Into<SliceMut<'a, T>>,
        addition: Option<&Addition<'_, T>>,
        norm: (Option<Slice<'_, T>>, f32),
        out: impl Into<SliceMut<'a, T>>,
        [rows, width]: [u32; 2],
    ) -> Done {
        let (norm, epsilon) = norm;
        let launch = Launch::new(stream, "adding and normalising rows")
            .write_rows(x.into(), area(rows, width))
            .read_rows(addition.map(|more| more.y), area(rows, width))
            .read_rows(addition.map(|more| more.bias), width)
            .read_rows(addition.map(|more| more.scale), width)
            .read_rows(norm, width)
            .write_rows(out.into(), area(rows, width))
            .with_all([rows, width])
            .with(epsilon);
        run_sharing::<T>(launch, &self.add_norm, [rows, width])
    }

    /// Adds to each row of `x` (rows by `width`) what a mixer makes of what it sees, and puts the sum, normed as
    /// [`StreamRows::add_norm`] does, into `out`.
    pub fn mix_norm<'a>(
        &self,
        stream: &Stream,
        mixer: &Mixer<'_, T>,
        x: impl Into<SliceMut<'a, T>>,
        (norm, epsilon): (Slice<'_, T>, f32),
        out: impl Into<SliceMut<'a, T>>,
        [rows, width]: [u32; 2],
    ) -> Done {
        let Mixer { seen, weight, bias, scale, taps } = *mixer;
        let looked = u64::from(rows) + u64::from(taps.max(1)) - 1;
        let launch = Launch::new(stream, "mixing rows")
            .read_rows(seen, looked.saturating_mul(width.into()))
            .read_rows(weight, area(taps, width))
            .read_rows(bias, width)
            .read_rows(scale, width)
            .write_rows(x.into(), area(rows, width))
            .read_rows(norm, width)
            .write_rows(out.into(), area(rows, width))
            .with_all([rows, width, taps])
            .with(epsilon);
        run_sharing::<T>(launch, &self.mix_norm, [rows, width])
    }

    /// Lays weights `[channels, taps]` out as `[taps, channels]`.
    pub fn turn_taps<'a>(
        &self,
        stream: &Stream,
        from: impl Into<Slice<'a, T>>,
        to: impl Into<SliceMut<'a, T>>,
        [channels, taps]: [u32; 2],
    ) -> Done {
        let numbers = area(channels, taps);
        let launch = Launch::new(stream, "transposing taps")
            .require(numbers < 1 << 31, "there are too many taps")
            .read(from.into(), numbers)
            .write(to.into(), numbers)
            .with_all([channels, taps]);
        launch.run(&self.turn_taps, Shape::line(blocks(numbers.div_ceil(THREADS.into())), THREADS))
    }

    /// Moves the last rows of every list to its beginning, after this number of tokens passed through it. The lists are
    /// within the rows for as many tokens as were allocated.
    pub fn keep(&self, stream: &Stream, kept: &mut Kept<T>, tokens: u32) -> Done {
        let launch = Launch::new(stream, "storing rows")
            .require(tokens <= kept.tokens, "too many tokens for the capacity")
            .write(&mut kept.rows, 0_u32)
            .read(&kept.lists, 0_u32)
            .with(tokens);
        let grid = [8, blocks(kept.lists.length()), 1];
        launch.run(&self.keep_rows, Shape { grid, block: [256, 1, 1], shared_bytes: 0 })
    }

    /// Puts the samples of a token, rounded to numbers of this type, to their place among `all`, and into `out`. The
    /// token's number is read on the device; its owner sees to it that it fits.
    pub fn put_samples(
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
        launch.run(&self.put_samples, Shape::line(samples.div_ceil(THREADS), THREADS))
    }
}

/// Launches one kernel of a pair over rows, of which narrow ones share a block.
fn run_sharing<T: Element>(launch: Launch<'_>, pair: &Pair, [rows, width]: [u32; 2]) -> Done {
    let (kernel, columns) = pair.chosen::<T>(width, launch.is_aligned::<T>(width));
    let sharing = columns.next_power_of_two().clamp(1, MOST_SHARING);
    let together = if sharing <= 32 { THREADS / sharing } else { 1 };
    let launch = launch.require(rows < 1 << 31, "too many rows");
    launch.run(kernel, Shape { grid: [rows.div_ceil(together), 1, 1], block: [sharing, together, 1], shared_bytes: 0 })
}
