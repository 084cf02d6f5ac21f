//! Rows between convolutions that go on from what came before.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::{
    STREAM_ROWS,
    operations::{Pair, area, count_rows, launch},
    sizes::{has_room, holds, is_by_16_bytes},
};
use crate::{
    blas::Element,
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
    /// Tokens that there is room for.
    tokens: u32,
}

/// Operations on rows that go on, on numbers of one type, on one device.
#[derive(Debug)]
pub struct StreamRows<T> {
    add_norm: Pair,
    mix_norm: Pair,
    turn_taps: Kernel,
    keep_rows: Kernel,
    put_samples: Kernel,
    of: PhantomData<T>,
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
    pub fn forget(&mut self, stream: &Stream) -> Result<(), CudaError> {
        self.rows.all_mut().zero_on(stream)
    }
}

impl<T: Element> StreamRows<T> {
    /// Loads them all, from the cache where they are there.
    pub fn load(device: &Device, cache: &Cache) -> Result<Self, CudaError> {
        let module = nvrtc::load(device, cache, STREAM_ROWS, &[T::OPTION.to_owned()])?.0;
        let pair = |name: &str| -> Result<Pair, CudaError> {
            Ok(Pair { by_16_bytes: module.kernel(name)?, any: module.kernel(&format!("{name}_any"))? })
        };
        Ok(Self {
            add_norm: pair("add_norm")?,
            mix_norm: pair("mix_norm")?,
            turn_taps: module.kernel("turn_taps")?,
            keep_rows: module.kernel("keep_rows")?,
            put_samples: module.kernel("put_samples")?,
            of: PhantomData,
        })
    }

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
    ) -> Result<(), CudaError> {
        const DOING: &str = "adding and normalising rows";
        let (x, out, (norm, epsilon)) = (x.into(), out.into(), norm);
        let column = |slice: Slice<'_, T>| holds(slice, width.into());
        let fits = has_room(&x, area(rows, width)) && has_room(&out, area(rows, width)) && norm.is_none_or(column);
        let added =
            addition.is_none_or(|more| holds(more.y, area(rows, width)) && column(more.bias) && column(more.scale));
        expect(DOING, fits && added, "a buffer is too small")?;
        let rows = count_rows(DOING, rows.into())?;
        let [y, bias, scale] = match addition {
            Some(more) => [Some(more.y), Some(more.bias), Some(more.scale)],
            None => [None; 3],
        };
        let places = [Some(x.pointer()), Some(out.pointer()), pointer(y), pointer(bias), pointer(scale), pointer(norm)];
        let (kernel, shape) = chosen::<T>(&self.add_norm, [rows, width], &places);
        let arguments: [Argument; 9] = [
            (&x).into(),
            y.into(),
            bias.into(),
            scale.into(),
            norm.into(),
            (&out).into(),
            rows.into(),
            width.into(),
            epsilon.into(),
        ];
        // SAFETY: the kernel stays within the sizes, and the buffers are at least as large.
        launch(rows, || unsafe { kernel.launch(stream, shape, &arguments) })
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
    ) -> Result<(), CudaError> {
        const DOING: &str = "mixing rows";
        let (x, out) = (x.into(), out.into());
        let Mixer { seen, weight, bias, scale, taps } = *mixer;
        let fits = has_room(&x, area(rows, width)) && has_room(&out, area(rows, width));
        let columns = [bias, scale, norm].into_iter().all(|column| holds(column, width.into()));
        let looked = u64::from(rows) + u64::from(taps.max(1)) - 1;
        let mixed = holds(weight, area(taps, width)) && holds(seen, looked.saturating_mul(width.into()));
        expect(DOING, fits && columns && mixed, "a buffer is too small")?;
        let rows = count_rows(DOING, rows.into())?;
        let places = [x.pointer(), out.pointer(), seen.pointer(), weight.pointer(), bias.pointer(), scale.pointer()];
        let places: Vec<Option<u64>> = places.into_iter().chain([norm.pointer()]).map(Some).collect();
        let (kernel, shape) = chosen::<T>(&self.mix_norm, [rows, width], &places);
        let arguments: [Argument; 11] = [
            seen.into(),
            weight.into(),
            bias.into(),
            scale.into(),
            (&x).into(),
            norm.into(),
            (&out).into(),
            rows.into(),
            width.into(),
            taps.into(),
            epsilon.into(),
        ];
        // SAFETY: as above.
        launch(rows, || unsafe { kernel.launch(stream, shape, &arguments) })
    }

    /// Lays weights `[channels, taps]` out as `[taps, channels]`.
    pub fn turn_taps<'a>(
        &self,
        stream: &Stream,
        from: impl Into<Slice<'a, T>>,
        to: impl Into<SliceMut<'a, T>>,
        [channels, taps]: [u32; 2],
    ) -> Result<(), CudaError> {
        let (from, to, numbers) = (from.into(), to.into(), area(channels, taps));
        let fits = holds(from, numbers) && has_room(&to, numbers) && numbers < 1 << 31;
        expect("transposing taps", fits, "a buffer is too small")?;
        let arguments: [Argument; 4] = [from.into(), (&to).into(), channels.into(), taps.into()];
        let blocks = (numbers as u32).div_ceil(THREADS);
        // SAFETY: the kernel writes each number once.
        launch(blocks, || unsafe { self.turn_taps.launch(stream, Shape::line(blocks, THREADS), &arguments) })
    }

    /// Moves the last rows of every list to its beginning, after this number of tokens passed through it.
    pub fn keep(&self, stream: &Stream, kept: &mut Kept<T>, tokens: u32) -> Result<(), CudaError> {
        expect("storing rows", tokens <= kept.tokens, "too many tokens for the capacity")?;
        let lists = count_rows("storing rows", kept.lists.length() as u64)?;
        let arguments: [Argument; 3] = [(&mut kept.rows).into(), (&kept.lists).into(), tokens.into()];
        let shape = Shape { grid: [8, lists, 1], block: [256, 1, 1], shared_bytes: 0 };
        // SAFETY: the lists are within the rows for as many tokens.
        launch(lists, || unsafe { self.keep_rows.launch(stream, shape, &arguments) })
    }

    /// Puts the samples of a token, rounded to numbers of this type, to their place among `all`, and into `out`. The
    /// token's number is read on the device; there is room for it, as its owner answers for.
    pub fn put_samples(
        &self,
        stream: &Stream,
        (from, token): (&Buffer<f32>, &Buffer<u32>),
        all: &mut Buffer<f32>,
        out: SliceMut<'_, T>,
        samples: u32,
    ) -> Result<(), CudaError> {
        let fits = from.length() >= samples as usize && all.length() >= samples as usize && token.length() >= 1;
        expect("writing samples", fits && has_room(&out, samples.into()), "a buffer is too small")?;
        let arguments: [Argument; 5] = [from.into(), token.into(), all.into(), (&out).into(), samples.into()];
        let blocks = samples.div_ceil(THREADS);
        // SAFETY: the kernel stays within the sizes, and within as many tokens as there is room for.
        launch(blocks, || unsafe { self.put_samples.launch(stream, Shape::line(blocks, THREADS), &arguments) })
    }
}

fn pointer<T: Element>(slice: Option<Slice<'_, T>>) -> Option<u64> {
    slice.map(|slice| slice.pointer())
}

/// Which of two kernels goes over rows, and with how many threads.
fn chosen<'a, T: Element>(pair: &'a Pair, [rows, width]: [u32; 2], places: &[Option<u64>]) -> (&'a Kernel, Shape) {
    let places: Vec<u64> = places.iter().flatten().copied().collect();
    let (kernel, columns) = pair.chosen::<T>(width, is_by_16_bytes::<T>(width, &places));
    let sharing = columns.next_power_of_two().clamp(1, MOST_SHARING);
    let together = if sharing <= 32 { THREADS / sharing } else { 1 };
    (kernel, Shape { grid: [rows.div_ceil(together), 1, 1], block: [sharing, together, 1], shared_bytes: 0 })
}
