//! Row-major GEMMs with cuBLAS.
#![allow(unsafe_code)]

mod sizes;

use std::{cell::RefCell, ffi::c_void, ptr, sync::Arc};

use bytemuck::Pod;
use cudarc::cublas::sys::{self, cublasStatus_t};
use half::{bf16, f16};
use laptime_probe::stage;

pub use self::sizes::{Batch, Matrices, Sizes};
use crate::error::{CudaError, Done};
use crate::slice::{Slice, SliceMut};
use crate::{device::Device, library, memory::Buffer, stream::Stream};

/// The workspace of cuBLAS: NVIDIA recommends 32 MiB for Hopper. Allocated once, so that nothing is allocated during a
/// measurement or capture.
const WORKSPACE_BYTES: usize = 32 << 20;

/// A dtype.
pub trait Element: Pod {
    #[doc(hidden)]
    const TYPE: sys::cudaDataType;
    /// The compiler option for this dtype: `-DDTYPE_F32`.
    const OPTION: &'static str;

    /// Rounds to this dtype.
    fn narrowed(value: f32) -> Self;
    /// Converts to f32.
    fn widened(self) -> f32;
}

macro_rules! elements {
    ($($type:ty: $of_cublas:ident, $option:literal, |$value:ident| $narrowed:expr, $widened:expr;)*) => {
        $(impl Element for $type {
            const TYPE: sys::cudaDataType = sys::cudaDataType::$of_cublas;
            const OPTION: &'static str = $option;

            fn narrowed($value: f32) -> Self {
                $narrowed
            }
            fn widened(self) -> f32 {
                let $value = self;
                $widened
            }
        })*
    };
}

elements! {
    f32: CUDA_R_32F, "-DDTYPE_F32", |value| value, value;
    f16: CUDA_R_16F, "-DDTYPE_F16", |value| Self::from_f32(value), value.to_f32();
    bf16: CUDA_R_16BF, "-DDTYPE_BF16", |value| Self::from_f32(value), value.to_f32();
}

/// cuBLAS on one stream.
#[derive(Debug)]
pub struct Blas {
    handle: sys::cublasHandle_t,
    stream: Arc<Stream>,
    _workspace: Buffer<u8>,
    /// The products so far, by dtype and sizes.
    seen: RefCell<Vec<(u32, Batch)>>,
}

// SAFETY: a handle may move between threads; it is not used by two at once, since it is not `Sync`.
unsafe impl Send for Blas {}

impl Blas {
    /// Starts cuBLAS on the device's compute stream. f32 products are computed in f32, without TF32.
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        library::load(library::CUBLAS)?;
        device.context().bind()?;
        let _stage = stage!("start_cublas");
        let stream = Arc::clone(device.stream());
        let workspace = device.allocate::<u8>(WORKSPACE_BYTES)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the library is loaded, and the pointer is valid.
        check("starting cuBLAS", unsafe { sys::cublasCreate_v2(&mut handle) })?;
        let blas = Self { handle, stream, _workspace: workspace, seen: RefCell::default() };
        blas.set_up()?;
        if blas.is_tf32_allowed()? {
            return Err(CudaError::refused("starting cuBLAS", 0, "f32 products would use TF32"));
        }
        Ok(blas)
    }

    fn set_up(&self) -> Done {
        let workspace = self._workspace.pointer() as *mut c_void;
        // SAFETY: the handle is valid, the stream has the same context, and the workspace lives as long as the handle.
        unsafe {
            // Setting the stream resets the workspace, so the workspace is set second.
            check("setting the stream of cuBLAS", sys::cublasSetStream_v2(self.handle, self.stream.raw().cast()))?;
            check(
                "setting the workspace of cuBLAS",
                sys::cublasSetWorkspace_v2(self.handle, workspace, WORKSPACE_BYTES),
            )?;
            let mode = sys::cublasMath_t::CUBLAS_DEFAULT_MATH;
            check("setting the math mode of cuBLAS", sys::cublasSetMathMode(self.handle, mode))
        }
    }

    /// Whether f32 products may use TF32: always false.
    pub fn is_tf32_allowed(&self) -> Result<bool, CudaError> {
        let mut mode = sys::cublasMath_t::CUBLAS_TF32_TENSOR_OP_MATH;
        // SAFETY: the handle and the pointer are valid.
        check("querying the math mode of cuBLAS", unsafe { sys::cublasGetMathMode(self.handle, &mut mode) })?;
        Ok(mode != sys::cublasMath_t::CUBLAS_DEFAULT_MATH)
    }

    /// `c = a b`, accumulated in f32. Does not wait.
    pub fn multiply<T: Element>(&self, [a, b]: [&Buffer<T>; 2], c: &mut Buffer<T>, sizes: Sizes) -> Done {
        self.multiply_slices([a.all(), b.all()], c.all_mut(), sizes)
    }

    /// The same for slices of buffers.
    pub fn multiply_slices<T: Element>(&self, factors: [Slice<'_, T>; 2], c: SliceMut<'_, T>, sizes: Sizes) -> Done {
        self.multiply_batch(factors, c, &Batch::one(sizes, false))
    }

    /// `c += a b`.
    pub fn multiply_add<T: Element>(&self, factors: [Slice<'_, T>; 2], c: SliceMut<'_, T>, sizes: Sizes) -> Done {
        self.multiply_batch(factors, c, &Batch::one(sizes, true))
    }

    /// Several products of the same sizes in one call.
    pub fn multiply_batch<T: Element>(&self, [a, b]: [Slice<'_, T>; 2], c: SliceMut<'_, T>, batch: &Batch) -> Done {
        if !batch.is_for_cublas() || !batch.fits(a.length(), b.length(), c.length()) {
            return Err(CudaError::refused("multiplying", 0, "the buffers do not match the sizes"));
        }
        self.stream.context.bind()?;
        self.stream.stamp_boundary()?;
        // cuBLAS loads a kernel on first use, which takes much longer than a launch.
        let _stage =
            self.is_first(T::TYPE, batch).then(|| stage!("first_product", m = batch.m, n = batch.n, k = batch.k));
        let (a, b, c) = (a.pointer() as *const c_void, b.pointer() as *const c_void, c.pointer() as *mut c_void);
        // SAFETY: the handle is valid, and the slices contain what the call accesses.
        check("multiplying", unsafe { self.gemm(T::TYPE, [a, b], c, batch) })
    }

    /// Whether this is the first product of its kind.
    fn is_first(&self, of: sys::cudaDataType, batch: &Batch) -> bool {
        let mut seen = self.seen.borrow_mut();
        let product = (of as u32, *batch);
        let is_first = !seen.contains(&product);
        if is_first {
            seen.push(product);
        }
        is_first
    }

    /// cuBLAS is column-major: a row-major matrix is the transpose of what it sees, so `cᵀ = bᵀ aᵀ` is requested.
    unsafe fn gemm(
        &self,
        of: sys::cudaDataType,
        [a, b]: [*const c_void; 2],
        c: *mut c_void,
        batch: &Batch,
    ) -> cublasStatus_t {
        use sys::{cublasComputeType_t as Compute, cublasGemmAlgo_t as Algorithm, cublasOperation_t as Operation};
        let [m, n, k, count] = [batch.m, batch.n, batch.k, batch.count].map(|size| size as i32);
        let (scale, kept) = (batch.scale, if batch.is_added { 1_f32 } else { 0_f32 });
        let operation = |of: Matrices| if of.is_transposed { Operation::CUBLAS_OP_T } else { Operation::CUBLAS_OP_N };
        let row = |of: Matrices| of.row as i32;
        macro_rules! gemm {
            ($call:ident $(, $of_a:expr, $of_b:expr, $of_c:expr, $count:expr)?) => {
                sys::$call(
                    self.handle,
                    operation(batch.b),
                    operation(batch.a),
                    n,
                    m,
                    k,
                    (&raw const scale).cast(),
                    b,
                    of,
                    row(batch.b),
                    $($of_b,)?
                    a,
                    of,
                    row(batch.a),
                    $($of_a,)?
                    (&raw const kept).cast(),
                    c,
                    of,
                    row(batch.c),
                    $($of_c, $count,)?
                    Compute::CUBLAS_COMPUTE_32F,
                    Algorithm::CUBLAS_GEMM_DFALT,
                )
            };
        }
        let [of_a, of_b, of_c] = [batch.a, batch.b, batch.c].map(|of| of.stride as i64);
        // SAFETY: the caller vouches for the pointers.
        unsafe {
            match count {
                1 => gemm!(cublasGemmEx),
                _ => gemm!(cublasGemmStridedBatchedEx, of_a, of_b, of_c, count),
            }
        }
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        if self.stream.context.bind().is_ok() {
            // SAFETY: the handle is destroyed once.
            let _ = unsafe { sys::cublasDestroy_v2(self.handle) };
        }
    }
}

fn check(doing: &str, status: cublasStatus_t) -> Done {
    match status {
        cublasStatus_t::CUBLAS_STATUS_SUCCESS => Ok(()),
        cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED => {
            Err(CudaError::OutOfMemory { wanted: None, free: None, total: None })
        }
        other => Err(CudaError::refused(doing, other as i64, format!("{other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_memory_in_cublas_is_reported_as_such() {
        assert!(check("multiplying", cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED).unwrap_err().is_out_of_memory());
    }
}
