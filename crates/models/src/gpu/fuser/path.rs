//! Some paths of a fuser over the tokens of a section, all together.

// Kernels are given addresses of caches; the fuse borrows them until all is on the stream.
#![allow(unsafe_code)]

use std::ops::Range;

use laptime_cuda::{
    Batch, Blas, Buffer, CudaError, Matrices, Stream,
    nn::{Additions, CacheSection, Fuse, FuseSizes},
};

use super::{
    super::{size, weights::Number},
    buffers::Buffers,
    weights::{Block, Matrix, Packed, Vectors},
};
use crate::{Marks, marks::stage_mark};

/// What is added under the root of a norm.
const EPS: f32 = 1e-6;

/// Some paths over the tokens of a section.
pub struct Run<'a, T> {
    pub stream: &'a Stream,
    pub blas: &'a Blas,
    pub operations: &'a Fuse<T>,
    pub marks: &'a Marks,
    pub weights: &'a Packed<T>,
    /// Which of the open paths.
    pub paths: Range<usize>,
    pub sizes: FuseSizes,
    /// Where the section is in the caches of the sharer.
    pub heard: CacheSection,
    /// Where it is read of the receiver.
    pub own: CacheSection,
    /// Where it is in the receiver's caches.
    pub target: CacheSection,
}

impl<T: Number> Run<'_, T> {
    /// Adds to the receiver's caches what the paths make of what was heard and of what is there.
    ///
    /// # Safety
    ///
    /// The tables of the weights have the addresses of caches of these sections, which live until this is done.
    pub unsafe fn add(&self, buffers: &mut Buffers<T>) -> Result<(), CudaError> {
        let weights = self.weights;
        {
            let _stage = stage_mark!(self.marks, Ops, "fuse_input");
            // SAFETY: the caller answers for the caches.
            unsafe { self.join(buffers)? };
            self.product(&buffers.joined, &weights.input.weight, &mut buffers.stream, false)?;
        }
        let Buffers { stream, second, normed, inner, value, weights: by_head, .. } = buffers;
        {
            let _stage = stage_mark!(self.marks, Ops, "fuse_common");
            self.block(&weights.common, Some(&weights.input.bias), stream, None, [&mut *normed, &mut *inner])?;
        }
        {
            let _stage = stage_mark!(self.marks, Ops, "fuse_weight");
            self.block(&weights.weight, None, stream, Some(&mut *second), [&mut *normed, &mut *inner])?;
            self.product(stream, &weights.head.weight, by_head, false)?;
        }
        {
            let _stage = stage_mark!(self.marks, Ops, "fuse_value");
            for block in &weights.value {
                self.block(block, None, second, None, [&mut *normed, &mut *inner])?;
            }
            self.product(second, &weights.output.weight, value, false)?;
        }
        let _stage = stage_mark!(self.marks, Ops, "fuse_add");
        let additions = Additions {
            values: value.all(),
            value_bias: weights.output.bias.of(&self.paths)?,
            weights: by_head.all(),
            weight_bias: weights.head.bias.of(&self.paths)?,
        };
        let target = weights.tables.target.paths(self.paths.start, self.paths.len())?;
        // SAFETY: the caller answers for the caches; each path has another one.
        unsafe { self.operations.add(self.stream, (target, &self.target), &additions, &self.sizes) }
    }

    /// # Safety
    ///
    /// As for [`Run::add`].
    unsafe fn join(&self, buffers: &mut Buffers<T>) -> Result<(), CudaError> {
        let tables = &self.weights.tables;
        let heard = (tables.heard.paths(self.paths.start, self.paths.len())?, &self.heard);
        let own = (tables.own.paths(self.paths.start, self.paths.len())?, &self.own);
        // SAFETY: the caller answers for the caches.
        unsafe { self.operations.join(self.stream, [heard, own], &mut buffers.joined, &self.sizes) }
    }

    /// `x + down(gelu(up(norm(x))))`, where `x` is. A bias is added to `x` first where there is one, and what `x` was then
    /// goes to `copy` too where that is.
    fn block(
        &self,
        block: &Block<T>,
        bias: Option<&Vectors<T>>,
        x: &mut Buffer<T>,
        copy: Option<&mut Buffer<T>>,
        [normed, inner]: [&mut Buffer<T>; 2],
    ) -> Result<(), CudaError> {
        let bias = bias.map(|bias| bias.of(&self.paths)).transpose()?;
        let by_path = [bias, Some(block.norm.of(&self.paths)?)];
        let width = (&self.sizes, size(block.up.inputs)?);
        let copy = copy.map(Buffer::all_mut);
        self.operations.norm(self.stream, &mut *x, by_path, &mut *normed, copy, width, EPS)?;
        self.product(normed, &block.up, inner, false)?;
        let numbers = self.sizes.paths as usize * self.sizes.rows() as usize * block.up.outputs;
        self.operations.gelu(self.stream, inner.slice_mut(0..numbers)?)?;
        self.product(inner, &block.down, x, true)
    }

    /// The rows of each path times its matrix, in one batch.
    fn product(
        &self,
        rows: &Buffer<T>,
        matrix: &Matrix<T>,
        to: &mut Buffer<T>,
        is_added: bool,
    ) -> Result<(), CudaError> {
        let (m, n, k) = (self.sizes.rows(), size(matrix.outputs)?, size(matrix.inputs)?);
        let (a, b, c) = (Matrices::plain(m, k), Matrices::transposed(k, n), Matrices::plain(m, n));
        let batch = Batch { count: self.sizes.paths, m, n, k, a, b, c, scale: 1.0, is_added };
        self.blas.multiply_batch([rows.all(), matrix.of(&self.paths)?], to.all_mut(), &batch)
    }
}
