//! Tensor maps, for tiles that kernels load with Hopper's tensor memory accelerator (TMA).
#![allow(unsafe_code)]

use std::ffi::c_void;

use cudarc::driver::sys;

use crate::{context::driver, error::CudaError};

/// A tensor map: describes rows in memory for TMA loads of tiles.
#[derive(Debug, Clone, Copy)]
pub struct TensorMap(sys::CUtensorMap);

/// Rows of two-byte elements: `groups` groups of `rows` rows, `group_rows` rows apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedRows {
    /// Elements per row, a multiple of 64.
    pub width: u32,
    /// Rows of a group that may be read. A tile is zero beyond them.
    pub rows: u32,
    /// The stride of the groups in rows.
    pub group_rows: u32,
    pub groups: u32,
}

impl TensorMap {
    /// A map of tiles of `tile_rows` rows by 64 elements, with a 128-byte swizzle.
    ///
    /// The address must be a multiple of 16.
    pub fn new(pointer: u64, of: MappedRows, tile_rows: u32) -> Result<Self, CudaError> {
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        let row_bytes = 2 * u64::from(of.width);
        let dims = [of.width, of.rows, of.groups].map(u64::from);
        let strides = [row_bytes, row_bytes * u64::from(of.group_rows)];
        let (tile, steps) = ([64, tile_rows, 1], [1_u32; 3]);
        driver!(
            "mapping a tensor",
            cuTensorMapEncodeTiled(
                &mut map,
                // Bits are copied unchanged, so this serves f16 too.
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                3,
                pointer as *mut _,
                dims.as_ptr(),
                strides.as_ptr(),
                tile.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        )?;
        Ok(Self(map))
    }

    pub(super) fn address(&self) -> *mut c_void {
        (&raw const self.0).cast_mut().cast()
    }
}
