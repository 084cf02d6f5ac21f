//! Tensor maps, as `cuTensorMapEncodeTiled` writes them here: three dimensions, rows of 128 swizzled bytes.
#![allow(unsafe_code, reason = "it copies between places that its caller checked")]

use crate::machine::Region;

/// The contents of a map: 64 of its 128 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct TensorMap {
    pub address: u64,
    pub strides: [u64; 2],
    pub dims: [u32; 3],
    pub tile: [u32; 3],
    /// Bytes per element.
    pub bytes: u32,
    pub magic: u32,
    pub unused: u64,
}

pub(crate) const MAGIC: u32 = 0x7e45_0a3d;

impl TensorMap {
    pub fn tile_bytes(&self) -> u64 {
        self.tile.iter().map(|side| u64::from(*side)).product::<u64>() * u64::from(self.bytes)
    }

    /// Copies a tile; elements outside the tensor are zero. An address outside all regions is an error.
    ///
    /// # Safety
    ///
    /// A tile fits at `to`, where it begins a multiple of 1024 bytes.
    pub unsafe fn copy(&self, at: [i32; 3], to: *mut u8, region: impl Fn(u64) -> Option<Region>) -> Result<(), u64> {
        if self.magic != MAGIC {
            return Err(0);
        }
        let bytes = u64::from(self.bytes);
        let sides = self.tile.map(u64::from);
        for number in 0..sides.iter().product() {
            let inside = [number % sides[0], number / sides[0] % sides[1], number / sides[0] / sides[1]];
            let [x, y, z] = [0, 1, 2].map(|side| i64::from(at[side]) + inside[side] as i64);
            let is_there = [x, y, z].iter().zip(self.dims).all(|(at, size)| (0..i64::from(size)).contains(at));
            let linear = number * bytes;
            let swizzled = linear ^ (linear >> 7 & 7) << 4;
            // SAFETY: the caller answers for the tile, and what is read is in a region.
            unsafe {
                let to = to.add(swizzled as usize);
                if is_there {
                    let from =
                        self.address + x as u64 * bytes + y as u64 * self.strides[0] + z as u64 * self.strides[1];
                    region(from).filter(|region| from + bytes <= region.end).ok_or(from)?;
                    to.copy_from(from as *const u8, self.bytes as usize);
                } else {
                    to.write_bytes(0, self.bytes as usize);
                }
            }
        }
        Ok(())
    }
}
