//! The sizes of a convolution, and how much of it a block can take.

use crate::launch::*;

/// Numbers behind the taps of a row of columns: a one for the bias, and zeros that keep rows aligned.
const BEHIND: u32 = 8;
/// Channels that a block gathers; the kernel has the same number.
pub(super) const CHUNK: u32 = 64;
/// Outputs that a block gathers at most.
const MOST_GATHERED: u32 = 128;
/// Shared memory that every kernel may have.
pub(super) const SHARED_BYTES: u32 = 48 << 10;

/// A convolution over time that looks at the past alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convolution {
    /// Channels of the signal.
    pub inputs: u32,
    /// Channels of the result.
    pub outputs: u32,
    /// Taps as they are stored.
    pub kernel: u32,
    /// Moments from one output to the next; outputs from one moment to the next if it is transposed.
    pub stride: u32,
    /// Moments from one tap to the next.
    pub dilation: u32,
    /// Whether it makes a signal longer. What the last moment gives beyond `stride` outputs is cut off.
    pub is_transposed: bool,
    /// Whether a signal begins with what is kept of what came before, [`Convolution::kept`] moments: outputs are computed for
    /// those behind them. Otherwise there are zeros before the first.
    pub goes_on: bool,
}

impl Convolution {
    /// One that keeps the length.
    pub const fn plain([inputs, outputs]: [u32; 2], kernel: u32, dilation: u32) -> Self {
        Self { inputs, outputs, kernel, stride: 1, dilation, is_transposed: false, goes_on: false }
    }

    /// One that makes a signal `stride` times as long.
    pub const fn transposed([inputs, outputs]: [u32; 2], kernel: u32, stride: u32) -> Self {
        Self { inputs, outputs, kernel, stride, dilation: 1, is_transposed: true, goes_on: false }
    }

    /// The same for signals that begin with what is kept of what came before.
    #[must_use]
    pub const fn going_on(self) -> Self {
        Self { goes_on: true, ..self }
    }

    /// Moments before the first that an output looks at: as many are kept of a signal that goes on.
    pub fn kept(&self) -> u32 {
        let stride = if self.is_transposed { 1 } else { self.stride };
        (self.reach() + 1).saturating_sub(stride)
    }

    /// Length of the result for this length of the signal: outputs that begin before its end.
    pub fn length(&self, of: u32) -> u32 {
        let of = self.new_moments(of);
        if self.is_transposed { of.saturating_mul(self.stride) } else { of.div_ceil(self.stride.max(1)) }
    }

    /// Moments that a row of columns looks at.
    pub(super) fn taps(&self) -> u32 {
        if self.is_transposed { self.kernel.div_ceil(self.stride.max(1)) } else { self.kernel }
    }

    /// Moments of a signal that outputs are computed for.
    fn new_moments(&self, of: u32) -> u32 {
        if self.goes_on { of.saturating_sub(self.kept()) } else { of }
    }

    pub(super) fn rows(&self, of: u32) -> u32 {
        if self.is_transposed { self.new_moments(of) } else { self.length(of) }
    }

    /// Numbers of a row of columns, and of a row of packed weights.
    pub fn width(&self) -> u32 {
        self.taps().saturating_mul(self.inputs).saturating_add(BEHIND)
    }

    pub(super) fn outputs_per_row(&self) -> u32 {
        if self.is_transposed { self.outputs.saturating_mul(self.stride) } else { self.outputs }
    }

    /// Numbers of the packed weights.
    pub fn packed_numbers(&self) -> u64 {
        area(self.outputs_per_row(), self.width())
    }

    /// Numbers of the weights as they are stored.
    pub fn stored_numbers(&self) -> u64 {
        area(self.inputs, self.outputs).saturating_mul(self.kernel.into())
    }

    pub(super) fn reach(&self) -> u32 {
        (self.taps().saturating_sub(1)).saturating_mul(if self.is_transposed { 1 } else { self.dilation })
    }

    pub(super) fn check(&self, doing: &str) -> Done {
        let sizes = [self.inputs, self.outputs, self.kernel, self.stride, self.dilation];
        expect(doing, sizes.iter().all(|size| (1..1 << 20).contains(size)), "a size of the convolution cannot be")?;
        let looks_back = self.is_transposed || self.stride <= self.reach() + 1;
        expect(doing, looks_back, "the convolution leaves moments out")?;
        let fits = area(self.taps(), self.inputs) < 1 << 31 && area(self.outputs, self.stride) < 1 << 31;
        expect(doing, fits && u64::from(self.kernel) * u64::from(self.dilation) < 1 << 31, "a row is too long")
    }

    /// The kernel's `Taps`.
    pub(super) fn arguments(&self, length: u32) -> [u32; 6] {
        let (stride, dilation) = if self.is_transposed { (1, 1) } else { (self.stride, self.dilation) };
        let before = if self.goes_on { 0 } else { self.kept() };
        [length, self.inputs, self.taps(), dilation, stride, before]
    }

    /// Outputs that a block can gather in shared memory; none if not even one fits.
    pub(super) fn gathered<T>(&self) -> u32 {
        let stride = if self.is_transposed { 1 } else { self.stride };
        let rows = SHARED_BYTES / (CHUNK * size_of::<T>() as u32);
        let looked = rows.saturating_sub(self.reach());
        (looked.saturating_add(stride - 1) / stride).min(MOST_GATHERED)
    }

    pub(super) fn gathered_bytes<T>(&self, each: u32) -> u32 {
        let stride = if self.is_transposed { 1 } else { self.stride };
        ((each - 1) * stride + self.reach() + 1) * CHUNK * size_of::<T>() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DILATED: Convolution = Convolution::plain([96, 96], 7, 9);
    const LONGER: Convolution = Convolution::transposed([1536, 768], 16, 8);

    #[test]
    fn a_transposed_convolution_is_a_plain_one_of_fewer_taps() {
        assert_eq!((LONGER.taps(), LONGER.outputs_per_row(), LONGER.width()), (2, 8 * 768, 2 * 1536 + BEHIND));
        assert_eq!((LONGER.length(5), LONGER.rows(5)), (40, 5));
        assert_eq!(LONGER.packed_numbers(), 8 * 768 * (2 * 1536 + 8));
    }

    #[test]
    fn what_is_kept_is_what_the_first_output_looks_back_at() {
        let strided = Convolution { stride: 4, ..Convolution::plain([8, 8], 8, 1) };
        assert_eq!([DILATED, LONGER, strided, Convolution::plain([8, 8], 1, 1)].map(|of| of.kept()), [54, 1, 4, 0]);
        assert_eq!((strided.length(12), strided.going_on().length(12)), (3, 2));
        assert_eq!((LONGER.length(3), LONGER.going_on().length(3)), (24, 16));
    }

    #[test]
    fn a_strided_convolution_has_an_output_for_every_begun_stride() {
        let strided = Convolution { stride: 4, ..Convolution::plain([8, 8], 8, 1) };
        assert_eq!([0, 1, 4, 5, 8].map(|length| strided.length(length)), [0, 1, 1, 2, 2]);
    }

    #[test]
    fn what_a_block_looks_at_fits_its_shared_memory() {
        for of in [DILATED, LONGER, Convolution { stride: 5, ..DILATED }, Convolution::plain([8, 8], 1, 1)] {
            let (of_f32, of_f16) = (of.gathered::<f32>(), of.gathered::<half::f16>());
            assert!((1..=MOST_GATHERED).contains(&of_f32) && (1..=MOST_GATHERED).contains(&of_f16), "{of:?}");
            assert!(of.gathered_bytes::<f32>(of_f32) <= SHARED_BYTES, "{of:?}");
            assert!(of.gathered_bytes::<half::f16>(of_f16) <= SHARED_BYTES, "{of:?}");
        }
        assert_eq!(Convolution::plain([8, 8], 200, 9).gathered::<f32>(), 0);
    }

    #[test]
    fn convolutions_that_cannot_be_are_refused() {
        assert!(DILATED.check("x").is_ok() && LONGER.check("x").is_ok());
        assert!(Convolution { kernel: 0, ..DILATED }.check("x").is_err());
        assert!(Convolution { stride: 2, ..Convolution::plain([8, 8], 1, 1) }.check("x").is_err());
        assert!(Convolution::plain([1 << 19, 8], 1 << 19, 1).check("x").is_err());
    }
}
