//! Operations on rows between the convolutions of a codec.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::{
    AUDIO_ROWS,
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
    nvrtc,
    slice::{Slice, SliceMut},
    stream::Stream,
};

const THREADS: u32 = 256;

/// Books of codes: the rows that codes stand for.
#[derive(Debug)]
pub struct Codebooks<'a, T> {
    /// `[groups, size, width]`.
    pub rows: Slice<'a, T>,
    /// Books.
    pub groups: u32,
    /// Codes of a book.
    pub size: u32,
    /// Numbers of a row.
    pub width: u32,
}

/// What a number is let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// `x (1 + erf(x / √2)) / 2`: the exact gelu.
    Gelu,
    /// `x / (1 + exp(-x))`.
    Silu,
}

/// Operations on rows of a codec, on numbers of one type, on one device.
#[derive(Debug)]
pub struct AudioRows<T> {
    layer_norm: Kernel,
    bias_gate: Pair,
    add_scaled: Pair,
    scale_rows: Kernel,
    add_embedding: Kernel,
    code_rows: Kernel,
    of: PhantomData<T>,
}

impl<T: Element> AudioRows<T> {
    /// Loads them all, from the cache where they are there.
    pub fn load(device: &Device, cache: &Cache) -> Result<Self, CudaError> {
        let module = nvrtc::load(device, cache, AUDIO_ROWS, &[T::OPTION.to_owned()])?.0;
        let pair = |name: &str| -> Result<Pair, CudaError> {
            Ok(Pair { by_16_bytes: module.kernel(name)?, any: module.kernel(&format!("{name}_any"))? })
        };
        Ok(Self {
            layer_norm: module.kernel("layer_norm")?,
            bias_gate: pair("bias_gate")?,
            add_scaled: pair("add_scaled")?,
            scale_rows: module.kernel("scale_rows")?,
            add_embedding: module.kernel("add_embedding")?,
            code_rows: module.kernel("code_rows")?,
            of: PhantomData,
        })
    }

    /// Puts each row of `x` (rows by `width`), less its mean and divided by the root of its variance plus `epsilon`,
    /// times `weight` and with `bias` added, into `out`.
    pub fn layer_norm<'a>(
        &self,
        stream: &Stream,
        x: impl Into<Slice<'a, T>>,
        [weight, bias]: [Slice<'_, T>; 2],
        out: impl Into<SliceMut<'a, T>>,
        [rows, width]: [u32; 2],
        epsilon: f32,
    ) -> Result<(), CudaError> {
        const DOING: &str = "normalising a layer";
        let (x, out) = (x.into(), out.into());
        let fits = holds(x, area(rows, width)) && has_room(&out, area(rows, width));
        let weights = holds(weight, width.into()) && holds(bias, width.into());
        expect(DOING, fits && weights, "a buffer is too small")?;
        let rows = count_rows(DOING, rows.into())?;
        let arguments: [Argument; 6] =
            [x.into(), weight.into(), bias.into(), (&out).into(), width.into(), epsilon.into()];
        let threads = width.next_multiple_of(32).clamp(32, THREADS);
        // SAFETY: the kernel reads and writes a row a block, and there are as many.
        launch(rows, || unsafe { self.layer_norm.launch(stream, Shape::line(rows, threads), &arguments) })
    }

    /// Adds `bias` to each row of `x` (rows by `width`), and lets every number through a gate.
    pub fn bias_gate<'a>(
        &self,
        stream: &Stream,
        x: impl Into<SliceMut<'a, T>>,
        bias: Option<Slice<'_, T>>,
        [rows, width]: [u32; 2],
        gate: Gate,
    ) -> Result<(), CudaError> {
        let x = x.into();
        let fits = has_room(&x, area(rows, width)) && bias.is_none_or(|bias| holds(bias, width.into()));
        expect("gating rows", fits, "a buffer is too small")?;
        let aligned = is_by_16_bytes::<T>(width, &[x.pointer()]);
        let is_silu = u32::from(gate == Gate::Silu);
        let arguments: [Argument; 5] = [(&x).into(), bias.into(), rows.into(), width.into(), is_silu.into()];
        // SAFETY: the kernel stays within the sizes, and the buffers are at least as large.
        launch(rows, || unsafe { self.bias_gate.launch::<T>(stream, [rows, width], aligned, &arguments) })
    }

    /// Adds to each row of `x` (rows by `width`) that of `y` with `bias`, times `scale`.
    pub fn add_scaled<'a>(
        &self,
        stream: &Stream,
        x: impl Into<SliceMut<'a, T>>,
        (y, bias): (Slice<'_, T>, Option<Slice<'_, T>>),
        scale: Slice<'_, T>,
        [rows, width]: [u32; 2],
    ) -> Result<(), CudaError> {
        let x = x.into();
        let fits = has_room(&x, area(rows, width)) && holds(y, area(rows, width)) && holds(scale, width.into());
        let biased = bias.is_none_or(|bias| holds(bias, width.into()));
        expect("adding scaled rows", fits && biased, "a buffer is too small")?;
        let aligned = is_by_16_bytes::<T>(width, &[x.pointer(), y.pointer()]);
        let arguments: [Argument; 6] = [(&x).into(), y.into(), bias.into(), scale.into(), rows.into(), width.into()];
        // SAFETY: as above.
        launch(rows, || unsafe { self.add_scaled.launch::<T>(stream, [rows, width], aligned, &arguments) })
    }

    /// Multiplies each row of `x` (rows by `width`) with its number of `by`.
    pub fn scale_rows<'a>(
        &self,
        stream: &Stream,
        x: impl Into<SliceMut<'a, T>>,
        by: Slice<'_, T>,
        [rows, width]: [u32; 2],
    ) -> Result<(), CudaError> {
        const DOING: &str = "scaling rows";
        let x = x.into();
        expect(DOING, has_room(&x, area(rows, width)) && holds(by, rows.into()), "a buffer is too small")?;
        let rows = count_rows(DOING, rows.into())?;
        let arguments: [Argument; 3] = [(&x).into(), by.into(), width.into()];
        // SAFETY: the kernel reads and writes a row a block, and there are as many.
        launch(rows, || unsafe { self.scale_rows.launch(stream, Shape::line(rows, THREADS), &arguments) })
    }

    /// Adds to each row of `x` the row of `table` (vocabulary by `width`) that its id names; nothing where the id is
    /// beyond the vocabulary.
    pub fn add_embedding<'a>(
        &self,
        stream: &Stream,
        ids: Slice<'_, u32>,
        table: Slice<'_, T>,
        x: impl Into<SliceMut<'a, T>>,
        [vocabulary, width]: [u32; 2],
    ) -> Result<(), CudaError> {
        const DOING: &str = "adding an embedding";
        let x = x.into();
        let rows = count_rows(DOING, ids.length() as u64)?;
        expect(
            DOING,
            has_room(&x, area(rows, width)) && holds(table, area(vocabulary, width)),
            "a buffer is too small",
        )?;
        let arguments: [Argument; 5] = [ids.into(), table.into(), (&x).into(), vocabulary.into(), width.into()];
        // SAFETY: the kernel reads the rows that are in the table, and changes a row for each id.
        launch(rows, || unsafe { self.add_embedding.launch(stream, Shape::line(rows, THREADS), &arguments) })
    }

    /// Puts for each row of codes, `[rows, groups]`, what they stand for into `out`, `[rows, 2 width]`: the row of the
    /// first book, and behind it the sum of the rows of the others.
    ///
    /// A code outside its codebook gives NaN.
    pub fn code_rows<'a>(
        &self,
        stream: &Stream,
        codes: Slice<'_, u32>,
        books: &Codebooks<'_, T>,
        out: impl Into<SliceMut<'a, T>>,
        rows: u32,
    ) -> Result<(), CudaError> {
        const DOING: &str = "looking codes up";
        let (out, Codebooks { rows: table, groups, size, width }) = (out.into(), books);
        let table_fits = u64::from(*groups) * area(*size, *width) <= table.length() as u64;
        let fits = holds(codes, area(rows, *groups)) && has_room(&out, 2 * area(rows, *width));
        expect(DOING, fits && table_fits && *groups > 0, "a buffer is too small")?;
        let rows = count_rows(DOING, rows.into())?;
        let arguments: [Argument; 6] =
            [codes.into(), (*table).into(), (&out).into(), (*groups).into(), (*size).into(), (*width).into()];
        let threads = width.next_multiple_of(32).clamp(32, THREADS);
        // SAFETY: the kernel reads a row of codes and the rows that are there, and writes a row for each.
        launch(rows, || unsafe { self.code_rows.launch(stream, Shape::line(rows, threads), &arguments) })
    }
}
