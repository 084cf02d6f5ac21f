//! The registers of a warp: rows of 32 lanes. A register of 64 bits takes two rows.
#![allow(unsafe_code, reason = "rows are addressed by numbers that were checked when the kernel was translated")]

use crate::numbers::Number;

/// Threads of a warp.
pub(crate) const LANES: usize = 32;

/// Row indices from here on are constants.
pub(crate) const CONSTANTS: u32 = 1 << 31;

/// 32 bits of each lane.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(128))]
pub(crate) struct Row(pub [u32; LANES]);

impl Row {
    /// The rows of a constant: two if it has 64 bits.
    pub fn constant(bits: u64, is_wide: bool) -> [Self; 2] {
        if is_wide {
            let words = [bits as u32, (bits >> 32) as u32];
            let row = Self(std::array::from_fn(|at| words[at % 2]));
            [row, row]
        } else {
            [Self([bits as u32; LANES]); 2]
        }
    }
}

/// The registers of a warp and the constants of its kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    pub own: *mut Row,
    pub constants: *const Row,
}

impl Rows {
    /// # Safety
    ///
    /// There is such a row, or two of them if the type has 64 bits.
    #[inline(always)]
    pub unsafe fn row<T: Number>(&self, row: u32) -> *const [T::Bits; LANES] {
        // SAFETY: the caller answers for the row.
        unsafe {
            match row < CONSTANTS {
                true => self.own.cast_const().add(row as usize).cast(),
                false => self.constants.add((row - CONSTANTS) as usize).cast(),
            }
        }
    }

    /// Writes the lanes of a mask.
    ///
    /// # Safety
    ///
    /// There is such a row, which is no constant.
    #[inline(always)]
    pub unsafe fn write<T: Number>(&self, row: u32, mask: u32, values: &[T::Bits; LANES]) {
        debug_assert!(row < CONSTANTS);
        // SAFETY: the caller answers for the row, and nobody else reads it meanwhile.
        let to = unsafe { &mut *self.own.add(row as usize).cast::<[T::Bits; LANES]>() };
        if mask == !0 {
            *to = *values;
            return;
        }
        for lane in 0..LANES {
            to[lane] = if mask >> lane & 1 != 0 { values[lane] } else { to[lane] };
        }
    }

    /// One lane of a row.
    ///
    /// # Safety
    ///
    /// As for [`Self::row`].
    #[inline(always)]
    pub unsafe fn lane<T: Number>(&self, row: u32, lane: usize) -> T {
        // SAFETY: the caller answers for the row.
        unsafe { T::of((*self.row::<T>(row))[lane]) }
    }

    /// Sets one lane of a row.
    ///
    /// # Safety
    ///
    /// As for [`Self::write`].
    #[inline(always)]
    pub unsafe fn set<T: Number>(&self, row: u32, lane: usize, value: T) {
        // SAFETY: the caller answers for the row.
        unsafe { (&mut *self.own.add(row as usize).cast::<[T::Bits; LANES]>())[lane] = value.bits() }
    }
}
