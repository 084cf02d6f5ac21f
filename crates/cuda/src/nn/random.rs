//! Weights that look random and are the same on every device; constants; and the count of what is no finite number.

use super::Operations;
use crate::launch::{Done, Element, Launch, Slice, SliceMut, Stream};

/// The number that belongs to an index, between plus and minus `amplitude`: the same on the CPU and on every device.
pub fn random_value(key: u64, index: u64, amplitude: f32) -> f32 {
    let [key_low, key_high] = halves(key);
    let [index_low, index_high] = halves(index);
    let hash = mixed(index_low ^ mixed(index_high ^ mixed(key_low) ^ key_high));
    let share = (hash >> 8) as f32 / (1 << 24) as f32;
    amplitude * (2.0 * share - 1.0)
}

fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// The last step of MurmurHash3, by which each bit depends on all.
fn mixed(mut bits: u32) -> u32 {
    bits ^= bits >> 16;
    bits = bits.wrapping_mul(0x85eb_ca6b);
    bits ^= bits >> 13;
    bits = bits.wrapping_mul(0xc2b2_ae35);
    bits ^ (bits >> 16)
}

impl<T: Element> Operations<T> {
    /// Puts [`random_value`] of each index, counted from the beginning of `out`, into `out`.
    pub fn fill_random<'a>(&self, stream: &Stream, out: impl Into<SliceMut<'a, T>>, key: u64, amplitude: f32) -> Done {
        let out = out.into();
        let count = out.length() as u64;
        let launch = Launch::new(stream, "filling").write(out, count).with_all([count, key]).with(amplitude);
        launch.skip_if(count == 0).run(&self.fill_random, self.along_memory)
    }

    /// Puts one value into all of `out`.
    pub fn fill<'a>(&self, stream: &Stream, out: impl Into<SliceMut<'a, T>>, value: f32) -> Done {
        let out = out.into();
        let count = out.length() as u64;
        let launch = Launch::new(stream, "filling").write(out, count).with(count).with(value);
        launch.skip_if(count == 0).run(&self.fill_numbers, self.along_memory)
    }

    /// Adds to `found[0]` how many of the values are infinite or no numbers. Several buffers can be counted into one.
    pub fn count_not_finite<'a>(
        &self,
        stream: &Stream,
        values: impl Into<Slice<'a, T>>,
        found: impl Into<SliceMut<'a, u32>>,
    ) -> Done {
        let values = values.into();
        let count = values.length() as u64;
        let launch = Launch::new(stream, "counting").read(values, count).with(count).write(found.into(), 1_u32);
        launch.skip_if(count == 0).run(&self.count_not_finite, self.along_memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_values_are_known() {
        // Other values would be other weights: results of old runs could not be compared.
        let known = [(0, 0), (1, 0), (0, 1), (7 << 40, 3 << 33)].map(|(key, index)| random_value(key, index, 1.0));
        assert_eq!(known.map(f32::to_bits), [0xbf80_0000, 0xbea3_a41c, 0xbeba_c760, 0xbddd_61f0]);
    }

    #[test]
    fn random_values_are_within_their_bounds_and_spread_evenly() {
        let values: Vec<f32> = (0..100_000).map(|index| random_value(42, index, 0.5)).collect();
        assert!(values.iter().all(|value| value.abs() <= 0.5));
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let square = values.iter().map(|value| value * value).sum::<f32>() / values.len() as f32;
        assert!(mean.abs() < 0.003 && (square - 0.25 / 3.0).abs() < 0.001, "{mean} {square}");
    }

    #[test]
    fn two_keys_give_unrelated_values() {
        let product = |offset: u64| {
            let each = (0..50_000).map(|index| random_value(1, index, 1.0) * random_value(2, index ^ offset, 1.0));
            each.sum::<f32>() / 50_000.0
        };
        assert!((0..20).all(|offset| product(offset).abs() < 0.01));
    }
}
