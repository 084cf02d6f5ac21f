//! Observes the generation of tokens.

use laptime_bench::Case;
use laptime_models::LayerVisit;

/// Is called for every token of a generation, and may stop it. It is called inside iterations, so it must be fast.
pub trait Observer: Send + Sync {
    /// A generation begins.
    fn begin(&self) {}

    /// A token was generated: its number in this generation (from 1), its time, and the visits of offloaded layers.
    fn token(&self, number: usize, nanos: u64, visits: &[LayerVisit]) {
        let _ = (number, nanos, visits);
    }

    /// Whether to end the generation after this token.
    fn is_stopped(&self) -> bool {
        false
    }

    /// A generation ended or failed: what was generated so far. This is called outside of iterations.
    fn end(&self, generated: Generated) {
        drop(generated);
    }
}

/// The result of a generation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Generated {
    /// The case.
    pub case: Case,
    /// The audio; empty where there is none.
    pub samples: Vec<f32>,
    /// Its samples per second.
    pub rate: u32,
    /// The name of the script.
    pub stem: String,
    /// Length of the prompt.
    pub prefilled: usize,
    /// Time to encode voices and prompt, in nanoseconds.
    pub prefill_ns: u64,
    /// The time of each token, in nanoseconds.
    pub tokens_ns: Vec<u64>,
    /// Layers of the model, and layers kept on the device.
    pub layers: [usize; 2],
    /// Visits of offloaded layers.
    pub visits: Visits,
    /// Peak memory of the device so far, and its free memory, in bytes.
    pub memory: [Option<u64>; 2],
}

/// Sums over the visits of offloaded layers. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Visits {
    /// Number of visits.
    pub count: u64,
    /// Copies that were prefetched.
    pub ahead: u64,
    /// Time that compute waited.
    pub wait_ns: f64,
    /// Time of releases.
    pub release_ns: f64,
    /// Time of copies.
    pub copy_ns: f64,
}

impl Visits {
    /// Adds visits.
    pub fn add(&mut self, visits: &[LayerVisit]) {
        for visit in visits {
            self.count += 1;
            self.ahead += u64::from(visit.is_ahead);
            self.wait_ns += visit.wait_ns;
            self.release_ns += visit.release_ns;
            self.copy_ns += visit.copy_ns;
        }
    }
}

/// Observes nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}
