//! The first token by C2C, by a text and without a teacher, measured alternately.

use anyhow::ensure;
use laptime_bench::{Fact, Iteration, Nanos};
use laptime_models::ModelError;
use laptime_probe::stage;
use laptime_stats::Rng;

use super::{check::check_logits, runner::Runner};
use crate::model::into_error;

/// How the base model gets to its first token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// With a cache that is fused with the teacher's.
    Caches,
    /// After a text that the teacher writes.
    Text,
    /// Without a teacher.
    Alone,
}

impl Way {
    const ALL: [Self; 3] = [Self::Caches, Self::Text, Self::Alone];
}

/// The first token in all three ways, in a new order each time.
pub struct AgainstIteration<'a> {
    runner: Runner<'a>,
    text_tokens: usize,
    rng: Rng,
    /// Times to the first token, in the order of [`Way::ALL`].
    first_ns: [u64; 3],
}

impl<'a> AgainstIteration<'a> {
    /// Compares the prepared models and fuser with a text of this length.
    pub fn new(runner: Runner<'a>, text_tokens: usize) -> Self {
        let rng = Rng::new(runner.spec.seed);
        Self { runner, text_tokens, rng, first_ns: [0; 3] }
    }

    /// Runs one way with empty caches.
    fn go(&mut self, way: Way) -> anyhow::Result<()> {
        self.runner.be_idle()?;
        let start = self.runner.device.now();
        self.read(way).map_err(into_error)?;
        let tokens = self.runner.sample().map_err(into_error)?;
        self.first_ns[way as usize] = self.runner.device.now().saturating_sub(start).0;
        ensure!(tokens.len() == 1, "there are {} first tokens", tokens.len());
        Ok(())
    }

    fn read(&mut self, way: Way) -> Result<(), ModelError> {
        let lane = self.runner.device.lane();
        match way {
            Way::Caches => {
                let _stage = stage!("by_caches", on = lane);
                self.runner.read().map(drop)
            }
            Way::Text => {
                let _stage = stage!("by_text", on = lane, tokens = self.text_tokens);
                self.runner.read_with_text(self.text_tokens)
            }
            Way::Alone => {
                let _stage = stage!("alone", on = lane);
                self.runner.read_alone()
            }
        }
    }
}

impl Iteration for AgainstIteration<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        for way in Way::ALL {
            self.go(way)?;
            let own = self.runner.made.joined.receiver.logits().map_err(into_error)?;
            let other = if way == Way::Caches { &self.runner.in_other_order } else { &own };
            check_logits(&own, other, self.runner.pair.dtype)?;
        }
        Ok(())
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let mut order = Way::ALL.to_vec();
        self.rng.shuffle(&mut order);
        order.into_iter().try_for_each(|way| self.go(way))
    }

    fn readings(&mut self, _: Nanos) -> Vec<Option<f64>> {
        let [caches, text, alone] = self.first_ns.map(|nanos| nanos as f64);
        let ms = |nanos: f64| Some(nanos / 1e6);
        let over = |other: f64| (caches > 0.0).then(|| other / caches);
        let of_joined = super::JOINED_METRICS - 1;
        let mut readings = vec![ms(caches)];
        readings.extend(vec![None; of_joined]);
        readings.extend([ms(text), ms(alone), over(text), over(alone)]);
        readings
    }

    fn facts(&self) -> Vec<Fact> {
        self.runner.facts()
    }
}
