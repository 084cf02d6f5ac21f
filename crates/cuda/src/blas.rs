//! Matrix products by cuBLAS, row-major.
#![allow(unsafe_code)]

use std::{ffi::c_void, ptr, sync::Arc};

use bytemuck::Pod;
use cudarc::cublas::sys::{self, cublasStatus_t};
use half::{bf16, f16};

use crate::{device::Device, error::CudaError, library, memory::Buffer, stream::Stream};

/// What cuBLAS may use beside its arguments: NVIDIA advises 32 MiB for Hopper. Given once, so that it allocates
/// nothing while something is measured or captured.
const WORKSPACE_BYTES: usize = 32 << 20;

/// A type that matrices can be of.
pub trait Element: Pod {
    #[doc(hidden)]
    const TYPE: sys::cudaDataType;
    /// What kernels are compiled with for numbers of this type: `-DNUMBER_F32`.
    const OPTION: &'static str;

    /// The nearest number of this type.
    fn narrowed(value: f32) -> Self;
    /// The same number in f32.
    fn widened(self) -> f32;
}

impl Element for f32 {
    const TYPE: sys::cudaDataType = sys::cudaDataType::CUDA_R_32F;
    const OPTION: &'static str = "-DNUMBER_F32";

    fn narrowed(value: f32) -> Self {
        value
    }
    fn widened(self) -> f32 {
        self
    }
}
impl Element for f16 {
    const TYPE: sys::cudaDataType = sys::cudaDataType::CUDA_R_16F;
    const OPTION: &'static str = "-DNUMBER_F16";

    fn narrowed(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn widened(self) -> f32 {
        self.to_f32()
    }
}
impl Element for bf16 {
    const TYPE: sys::cudaDataType = sys::cudaDataType::CUDA_R_16BF;
    const OPTION: &'static str = "-DNUMBER_BF16";

    fn narrowed(value: f32) -> Self {
        Self::from_f32(value)
    }
    fn widened(self) -> f32 {
        self.to_f32()
    }
}

/// The sizes of a product: `a` is m by k, `b` is k by n, `c` is m by n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Rows of `a` and `c`.
    pub m: u32,
    /// Columns of `b` and `c`.
    pub n: u32,
    /// Columns of `a`, rows of `b`.
    pub k: u32,
    /// Whether `b` lies transposed, n by k, as the weights of linear layers do.
    pub b_is_transposed: bool,
}

impl Sizes {
    /// Floating-point operations of the product.
    pub fn operations(&self) -> u64 {
        2 * u64::from(self.m) * u64::from(self.n) * u64::from(self.k)
    }

    fn fits(&self, a: usize, b: usize, c: usize) -> bool {
        let holds = |length: usize, rows: u32, columns: u32| length as u64 >= u64::from(rows) * u64::from(columns);
        holds(a, self.m, self.k) && holds(b, self.k, self.n) && holds(c, self.m, self.n)
    }

    fn is_for_cublas(&self) -> bool {
        [self.m, self.n, self.k].iter().all(|size| (1..=i32::MAX as u32).contains(size))
    }
}

/// cuBLAS on one stream.
#[derive(Debug)]
pub struct Blas {
    handle: sys::cublasHandle_t,
    stream: Arc<Stream>,
    _workspace: Buffer<u8>,
}

// SAFETY: a handle may move between threads; it is not used by two at once, since it is not `Sync`.
unsafe impl Send for Blas {}

impl Blas {
    /// Starts cuBLAS on the device's compute stream. Products in f32 are computed in f32, without TF32.
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        library::load(library::CUBLAS)?;
        device.context().bind()?;
        let stream = Arc::clone(device.stream());
        let workspace = device.allocate::<u8>(WORKSPACE_BYTES)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the library is there, and the place is valid.
        check("starting cuBLAS", unsafe { sys::cublasCreate_v2(&mut handle) })?;
        let blas = Self { handle, stream, _workspace: workspace };
        blas.set_up()?;
        Ok(blas)
    }

    fn set_up(&self) -> Result<(), CudaError> {
        let workspace = self._workspace.pointer() as *mut c_void;
        // SAFETY: the handle lives, the stream is of the same context, and the workspace lives as long as the handle.
        unsafe {
            // Setting the stream takes the workspace away, so the workspace comes second.
            check("setting cuBLAS's stream", sys::cublasSetStream_v2(self.handle, self.stream.raw().cast()))?;
            check("setting cuBLAS's workspace", sys::cublasSetWorkspace_v2(self.handle, workspace, WORKSPACE_BYTES))?;
            check(
                "setting cuBLAS's arithmetic",
                sys::cublasSetMathMode(self.handle, sys::cublasMath_t::CUBLAS_DEFAULT_MATH),
            )
        }
    }

    /// Puts the product `c = a b` on the stream, added up in f32, and does not wait for it.
    pub fn multiply<T: Element>(
        &self,
        [a, b]: [&Buffer<T>; 2],
        c: &mut Buffer<T>,
        sizes: Sizes,
    ) -> Result<(), CudaError> {
        if !sizes.is_for_cublas() || !sizes.fits(a.length(), b.length(), c.length()) {
            return Err(CudaError::refused("multiplying", 0, "the buffers do not fit the sizes"));
        }
        self.stream.context.bind()?;
        let place = |buffer: &Buffer<T>| buffer.pointer() as *const c_void;
        // SAFETY: the handle lives, and the buffers hold what the call reads and writes.
        let status = unsafe { self.multiply_places(T::TYPE, [place(a), place(b)], c.pointer() as *mut c_void, sizes) };
        check("multiplying", status)
    }

    /// cuBLAS counts by columns: a row-major matrix is the transpose of what it sees, so `cᵀ = bᵀ aᵀ` is asked for.
    unsafe fn multiply_places(
        &self,
        of: sys::cudaDataType,
        [a, b]: [*const c_void; 2],
        c: *mut c_void,
        sizes: Sizes,
    ) -> cublasStatus_t {
        use sys::{cublasComputeType_t as Compute, cublasGemmAlgo_t as Algorithm, cublasOperation_t as Operation};
        let [m, n, k] = [sizes.m, sizes.n, sizes.k].map(|size| size as i32);
        let (one, zero) = (1_f32, 0_f32);
        let (b_operation, b_stride) =
            if sizes.b_is_transposed { (Operation::CUBLAS_OP_T, k) } else { (Operation::CUBLAS_OP_N, n) };
        // SAFETY: the caller answers for the places.
        unsafe {
            sys::cublasGemmEx(
                self.handle,
                b_operation,
                Operation::CUBLAS_OP_N,
                n,
                m,
                k,
                (&raw const one).cast(),
                b,
                of,
                b_stride,
                a,
                of,
                k,
                (&raw const zero).cast(),
                c,
                of,
                n,
                Compute::CUBLAS_COMPUTE_32F,
                Algorithm::CUBLAS_GEMM_DFALT,
            )
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

fn check(doing: &str, status: cublasStatus_t) -> Result<(), CudaError> {
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

    const SIZES: Sizes = Sizes { m: 2, n: 3, k: 4, b_is_transposed: false };

    #[test]
    fn buffers_that_are_too_small_do_not_fit() {
        assert!(SIZES.fits(8, 12, 6));
        assert!(!SIZES.fits(7, 12, 6) && !SIZES.fits(8, 11, 6) && !SIZES.fits(8, 12, 5));
    }

    #[test]
    fn a_product_takes_two_operations_a_step() {
        assert_eq!(SIZES.operations(), 48);
    }

    #[test]
    fn sizes_that_cublas_cannot_count_are_refused() {
        assert!(SIZES.is_for_cublas());
        assert!(!Sizes { k: 0, ..SIZES }.is_for_cublas());
        assert!(!Sizes { m: 1 << 31, ..SIZES }.is_for_cublas());
    }

    #[test]
    fn a_lack_of_memory_in_cublas_is_a_lack_of_memory() {
        assert!(check("multiplying", cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED).unwrap_err().is_out_of_memory());
    }
}
