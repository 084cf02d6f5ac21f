//! Synthetic weights, which are the same on every device, and constants.

use super::Operations;
use crate::launch::*;

impl<T: Element> Operations<T> {
    /// Puts the synthetic weight (`laptime_models::synthetic::value`) of each index, counted from the beginning of
    /// `out`, into `out`.
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
}
