//! The depth of a device's stages. Commands set it, workloads read it.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use laptime_trace::run::Depth;

/// A depth that can be set through a shared reference.
#[derive(Debug, Default)]
pub struct AtomicDepth(AtomicU8);

impl AtomicDepth {
    /// Sets the depth from here on.
    pub fn set(&self, depth: Depth) {
        let at = Depth::ALL.iter().position(|known| *known == depth).unwrap_or(0);
        self.0.store(at as u8, Relaxed);
    }

    /// The current depth.
    pub fn get(&self) -> Depth {
        Depth::ALL.get(usize::from(self.0.load(Relaxed))).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_depth_is_kept() {
        let kept = AtomicDepth::default();
        assert_eq!(kept.get(), Depth::Pipeline);
        for depth in Depth::ALL {
            kept.set(depth);
            assert_eq!(kept.get(), depth);
        }
    }
}
