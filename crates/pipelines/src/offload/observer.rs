//! Who looks on while tokens are made.

use laptime_bench::Case;
use laptime_models::LayerVisit;

/// Is told of every token while a generation goes on, and may end it. It is called inside iterations: it must be quick.
pub trait Observer: Send + Sync {
    /// A generation begins.
    fn begin(&self) {}

    /// A token was made: the so manieth of this generation, in so many nanoseconds, with visits of these layers.
    fn token(&self, made: usize, nanos: u64, visits: &[LayerVisit]) {
        let _ = (made, nanos, visits);
    }

    /// Whether to end the generation after this token.
    fn is_stopped(&self) -> bool {
        false
    }

    /// A generation ended, or failed half-way: what there is of it. This is outside of iterations.
    fn end(&self, generated: Generated) {
        drop(generated);
    }
}

/// What a generation came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Generated {
    /// The case.
    pub case: Case,
    /// The audio; empty where there is none.
    pub samples: Vec<f32>,
    /// Its samples a second.
    pub rate: u32,
    /// What the script is called.
    pub stem: String,
    /// Positions of the prompt.
    pub prefilled: usize,
    /// Voices and prompt, in nanoseconds.
    pub prefill_ns: u64,
    /// Each token, in nanoseconds.
    pub tokens_ns: Vec<u64>,
    /// Layers of the model, and those that stay.
    pub layers: [usize; 2],
    /// Visits of streamed layers.
    pub visits: Visits,
    /// The highest use of the device's memory so far, and what the device has, in bytes.
    pub memory: [Option<u64>; 2],
}

/// Visits of streamed layers, summed up. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Visits {
    /// How many there were.
    pub count: u64,
    /// Copies that were asked for ahead.
    pub ahead: u64,
    /// What compute waited.
    pub wait_ns: f64,
    /// What releases took.
    pub release_ns: f64,
    /// What copies took.
    pub copy_ns: f64,
}

impl Visits {
    /// Counts some more.
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

/// Nobody looks on.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}
