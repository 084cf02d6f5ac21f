//! The dimensions of a convolution.

use crate::launch::*;

/// Elements after the taps of a row of columns: a one for the bias, and zeros that keep rows aligned.
const BIAS_PADDING: u32 = 8;
/// Channels per block of im2col; the kernel has the same constant.
pub(super) const CHUNK: u32 = 64;
/// The maximum number of outputs per block of im2col.
const MAX_OUTPUTS: u32 = 128;
/// The shared memory that every kernel may have.
pub(super) const SHARED_BYTES: u32 = 48 << 10;

/// A causal 1D convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convolution {
    /// Input channels.
    pub inputs: u32,
    /// Output channels.
    pub outputs: u32,
    /// The kernel size.
    pub kernel: u32,
    /// The stride: inputs per output, or outputs per input if it is transposed.
    pub stride: u32,
    /// The dilation.
    pub dilation: u32,
    /// Whether it is transposed. Outputs of the last input beyond `stride` are cut off.
    pub is_transposed: bool,
    /// Whether a signal begins with the last [`Convolution::history`] rows of the previous one, which have no outputs of their
    /// own. Otherwise it is padded with zeros.
    pub is_streaming: bool,
}

impl Convolution {
    /// A convolution that keeps the length.
    pub const fn plain([inputs, outputs]: [u32; 2], kernel: u32, dilation: u32) -> Self {
        Self { inputs, outputs, kernel, stride: 1, dilation, is_transposed: false, is_streaming: false }
    }

    /// A transposed convolution, whose output is `stride` times as long.
    pub const fn transposed([inputs, outputs]: [u32; 2], kernel: u32, stride: u32) -> Self {
        Self { inputs, outputs, kernel, stride, dilation: 1, is_transposed: true, is_streaming: false }
    }

    /// The same for streaming.
    #[must_use]
    pub const fn streaming(self) -> Self {
        Self { is_streaming: true, ..self }
    }

    /// Rows before the first that its output depends on.
    pub fn history(&self) -> u32 {
        (self.lookback() + 1).saturating_sub(self.input_stride())
    }

    fn input_stride(&self) -> u32 {
        if self.is_transposed { 1 } else { self.stride }
    }

    /// The output length for this input length.
    pub fn length(&self, of: u32) -> u32 {
        let of = self.new_rows(of);
        if self.is_transposed { of.saturating_mul(self.stride) } else { of.div_ceil(self.stride.max(1)) }
    }

    /// Input rows per row of columns.
    pub(super) fn taps(&self) -> u32 {
        if self.is_transposed { self.kernel.div_ceil(self.stride.max(1)) } else { self.kernel }
    }

    /// Rows of a signal that have outputs.
    fn new_rows(&self, of: u32) -> u32 {
        if self.is_streaming { of.saturating_sub(self.history()) } else { of }
    }

    pub(super) fn rows(&self, of: u32) -> u32 {
        if self.is_transposed { self.new_rows(of) } else { self.length(of) }
    }

    /// The width of the columns and of packed weights.
    pub fn width(&self) -> u32 {
        self.taps().saturating_mul(self.inputs).saturating_add(BIAS_PADDING)
    }

    pub(super) fn outputs_per_row(&self) -> u32 {
        if self.is_transposed { self.outputs.saturating_mul(self.stride) } else { self.outputs }
    }

    /// Elements of the packed weights.
    pub fn packed_elements(&self) -> u64 {
        area(self.outputs_per_row(), self.width())
    }

    /// Elements of the stored weights.
    pub fn stored_elements(&self) -> u64 {
        area(self.inputs, self.outputs).saturating_mul(self.kernel.into())
    }

    pub(super) fn lookback(&self) -> u32 {
        (self.taps().saturating_sub(1)).saturating_mul(if self.is_transposed { 1 } else { self.dilation })
    }

    pub(super) fn check(&self, doing: &str) -> Done {
        let sizes = [self.inputs, self.outputs, self.kernel, self.stride, self.dilation];
        expect(
            doing,
            sizes.iter().all(|size| (1..1 << 20).contains(size)),
            "a dimension of the convolution is zero or too large",
        )?;
        let has_all = self.is_transposed || self.stride <= self.lookback() + 1;
        expect(doing, has_all, "the stride is larger than the kernel")?;
        let fits = area(self.taps(), self.inputs) < 1 << 31 && area(self.outputs, self.stride) < 1 << 31;
        expect(doing, fits && u64::from(self.kernel) * u64::from(self.dilation) < 1 << 31, "a row is too long")
    }

    /// The kernels' `Taps`.
    pub(super) fn arguments(&self, length: u32) -> [u32; 6] {
        let (stride, dilation) = if self.is_transposed { (1, 1) } else { (self.stride, self.dilation) };
        let before = if self.is_streaming { 0 } else { self.history() };
        [length, self.inputs, self.taps(), dilation, stride, before]
    }

    /// Outputs per block of im2col whose inputs fit in shared memory; 0 if not even one fits.
    pub(super) fn outputs_per_block<T>(&self) -> u32 {
        let rows = SHARED_BYTES / (CHUNK * size_of::<T>() as u32);
        rows.saturating_sub(self.lookback()).div_ceil(self.input_stride()).min(MAX_OUTPUTS)
    }

    pub(super) fn shared_bytes<T>(&self, outputs: u32) -> u32 {
        ((outputs - 1) * self.input_stride() + self.lookback() + 1) * CHUNK * size_of::<T>() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DILATED: Convolution = Convolution::plain([96, 96], 7, 9);
    const LONGER: Convolution = Convolution::transposed([1536, 768], 16, 8);

    #[test]
    fn a_transposed_convolution_is_a_plain_one_with_fewer_taps() {
        assert_eq!((LONGER.taps(), LONGER.outputs_per_row(), LONGER.width()), (2, 8 * 768, 2 * 1536 + BIAS_PADDING));
        assert_eq!((LONGER.length(5), LONGER.rows(5)), (40, 5));
        assert_eq!(LONGER.packed_elements(), 8 * 768 * (2 * 1536 + 8));
    }

    #[test]
    fn the_history_is_what_the_first_output_depends_on() {
        let strided = Convolution { stride: 4, ..Convolution::plain([8, 8], 8, 1) };
        assert_eq!([DILATED, LONGER, strided, Convolution::plain([8, 8], 1, 1)].map(|of| of.history()), [54, 1, 4, 0]);
        assert_eq!((strided.length(12), strided.streaming().length(12)), (3, 2));
        assert_eq!((LONGER.length(3), LONGER.streaming().length(3)), (24, 16));
    }

    #[test]
    fn the_output_length_of_a_strided_convolution_is_rounded_up() {
        let strided = Convolution { stride: 4, ..Convolution::plain([8, 8], 8, 1) };
        assert_eq!([0, 1, 4, 5, 8].map(|length| strided.length(length)), [0, 1, 1, 2, 2]);
    }

    #[test]
    fn the_input_of_a_block_fits_in_shared_memory() {
        for of in [DILATED, LONGER, Convolution { stride: 5, ..DILATED }, Convolution::plain([8, 8], 1, 1)] {
            let (of_f32, of_f16) = (of.outputs_per_block::<f32>(), of.outputs_per_block::<half::f16>());
            assert!((1..=MAX_OUTPUTS).contains(&of_f32) && (1..=MAX_OUTPUTS).contains(&of_f16), "{of:?}");
            assert!(of.shared_bytes::<f32>(of_f32) <= SHARED_BYTES, "{of:?}");
            assert!(of.shared_bytes::<half::f16>(of_f16) <= SHARED_BYTES, "{of:?}");
        }
        assert_eq!(Convolution::plain([8, 8], 200, 9).outputs_per_block::<f32>(), 0);
    }

    #[test]
    fn invalid_convolutions_are_refused() {
        assert!(DILATED.check("x").is_ok() && LONGER.check("x").is_ok());
        assert!(Convolution { kernel: 0, ..DILATED }.check("x").is_err());
        assert!(Convolution { stride: 2, ..Convolution::plain([8, 8], 1, 1) }.check("x").is_err());
        assert!(Convolution::plain([1 << 19, 8], 1 << 19, 1).check("x").is_err());
    }
}
