//! Looks on while tokens are made with layers that do not stay: tells the layers of a token now and then, and keeps what
//! was made.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use laptime_analyze::Thresholds;
use laptime_bench::{Case, Interrupt};
use laptime_models::LayerVisit;
use laptime_pipelines::{Generated, Watch};
use laptime_report::offload_text::{LayerLine, profiling_summary};

use crate::output::say_above;

/// Tokens between two summaries.
const EVERY_TOKENS: usize = 10;

/// Time after which there is one anyway.
const EVERY_NS: u64 = 5_000_000_000;

/// Looks on while tokens are made.
pub struct Live {
    state: Mutex<State>,
    interrupt: Interrupt,
    origin: Instant,
}

#[derive(Default)]
struct State {
    /// Whether summaries are shown while tokens are made.
    is_shown: bool,
    /// Whether tokens are passed over.
    is_resting: bool,
    /// An emulated link, in 10^9 bytes a second.
    emulated_gbps: Option<f64>,
    due: Due,
    last: Option<LastToken>,
    /// What was made, by case.
    made: HashMap<String, Generated>,
}

/// The token that was made last.
#[derive(Debug, Clone, PartialEq)]
struct LastToken {
    made: usize,
    nanos: u64,
    layers: Vec<LayerLine>,
}

/// When a summary is due: in the first generation every 10 tokens or 5 seconds. Those behind it are the same again, so
/// every 5 seconds are enough to see that something goes on, and nothing is written inside short takes.
#[derive(Debug, Default)]
struct Due {
    generations: u64,
    told_ns: u64,
}

impl Due {
    fn begin(&mut self, now_ns: u64) {
        self.generations += 1;
        if self.generations == 1 {
            self.told_ns = now_ns;
        }
    }

    fn is_due(&mut self, made: usize, now_ns: u64) -> bool {
        let is_counted = self.generations == 1 && made.is_multiple_of(EVERY_TOKENS);
        let is_due = is_counted || now_ns.saturating_sub(self.told_ns) >= EVERY_NS;
        if is_due {
            self.told_ns = now_ns;
        }
        is_due
    }
}

impl Live {
    /// Looks on until somebody wants to stop.
    pub fn new(interrupt: Interrupt) -> Self {
        Self { state: Mutex::default(), interrupt, origin: Instant::now() }
    }

    /// Says whether summaries are shown from here on, and which link is emulated.
    pub fn show(&self, is_shown: bool, emulated_gbps: Option<f64>) {
        let mut state = self.state();
        (state.is_shown, state.emulated_gbps) = (is_shown, emulated_gbps);
    }

    /// From here on tokens are passed over: those of a run that stands beside.
    pub fn rest(&self) {
        self.state().is_resting = true;
    }

    /// The longest that was made of a case, and of as long ones the last.
    pub fn made(&self, case: &Case) -> Option<Generated> {
        self.state().made.get(&case.to_string()).cloned()
    }

    /// The layers of the token that was made last.
    pub fn summary(&self) -> Option<String> {
        let state = self.state();
        state.last.as_ref().map(|last| last.told(state.emulated_gbps))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl LastToken {
    fn told(&self, emulated_gbps: Option<f64>) -> String {
        let (token, nanos) = (self.made as u64, self.nanos as f64);
        profiling_summary(token, &self.layers, &Thresholds::default(), Some(nanos), emulated_gbps)
    }
}

/// The layers of one token: of several passes the longest wait and release; asked for ahead if all were.
fn lines(visits: &[LayerVisit]) -> Vec<LayerLine> {
    let mut layers: BTreeMap<usize, LayerLine> = BTreeMap::new();
    for visit in visits {
        let layer = visit.layer as u64;
        let line = layers.entry(visit.layer).or_insert(LayerLine { layer, pre_ns: 0.0, post_ns: 0.0, is_async: true });
        line.pre_ns = line.pre_ns.max(visit.wait_ns);
        line.post_ns = line.post_ns.max(visit.release_ns);
        line.is_async &= visit.is_ahead;
    }
    layers.into_values().collect()
}

impl Watch for Live {
    fn begin(&self) {
        let now = self.now_ns();
        self.state().due.begin(now);
    }

    fn token(&self, made: usize, nanos: u64, visits: &[LayerVisit]) {
        let now = self.now_ns();
        let mut state = self.state();
        if state.is_resting {
            return;
        }
        let last = LastToken { made, nanos, layers: lines(visits) };
        if state.is_shown && state.due.is_due(made, now) {
            say_above(&last.told(state.emulated_gbps));
        }
        state.last = Some(last);
    }

    fn is_stopped(&self) -> bool {
        self.interrupt.is_asked()
    }

    fn end(&self, generated: Generated) {
        let mut state = self.state();
        let key = generated.case.to_string();
        let is_shorter = state.made.get(&key).is_some_and(|kept| kept.tokens_ns.len() > generated.tokens_ns.len());
        if !is_shorter {
            state.made.insert(key, generated);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_first_generation_is_told_every_ten_tokens_or_five_seconds() {
        let mut due = Due::default();
        due.begin(100);
        let told: Vec<usize> = (1..=35).filter(|made| due.is_due(*made, 100)).collect();
        assert_eq!(told, [10, 20, 30]);
        let slow: Vec<usize> = (36..=50).filter(|made| due.is_due(*made, (*made as u64 - 35) * 2 * SECOND)).collect();
        // Two seconds a token: the third, then three behind each that was told, and every tenth.
        assert_eq!(slow, [38, 40, 43, 46, 49, 50]);
    }

    #[test]
    fn later_generations_are_told_every_five_seconds_alone() {
        let mut due = Due::default();
        due.begin(0);
        due.begin(SECOND);
        assert!(!due.is_due(10, 2 * SECOND) && due.is_due(3, 5 * SECOND) && !due.is_due(20, 6 * SECOND));
    }

    fn visit(layer: usize, is_ahead: bool, wait_ns: f64, release_ns: f64) -> LayerVisit {
        LayerVisit { layer, pass: 0, is_ahead, wait_ns, release_ns, copy_ns: 1.0 }
    }

    #[test]
    fn a_layer_of_two_passes_is_told_once_by_the_worse() {
        let visits = [visit(1, true, 5.0, 2.0), visit(0, true, 1.0, 1.0), visit(1, false, 3.0, 4.0)];
        let line = |layer, pre_ns, post_ns, is_async| LayerLine { layer, pre_ns, post_ns, is_async };
        assert_eq!(lines(&visits), [line(0, 1.0, 1.0, true), line(1, 5.0, 4.0, false)]);
    }

    fn made(tokens: usize) -> Generated {
        Generated { tokens_ns: vec![1; tokens], ..Generated::default() }
    }

    #[test]
    fn the_longest_that_was_made_is_kept_and_a_stop_is_seen() {
        let interrupt = Interrupt::new();
        let live = Live::new(interrupt.clone());
        live.end(made(3));
        live.end(made(1));
        assert_eq!(live.made(&Case::default()).map(|kept| kept.tokens_ns.len()), Some(3));
        assert!(!live.is_stopped());
        interrupt.ask();
        assert!(live.is_stopped());
    }

    #[test]
    fn without_streamed_layers_the_token_is_told_alone() {
        let live = Live::new(Interrupt::new());
        live.token(7, 2_500_000, &[]);
        live.rest();
        live.token(1, 1, &[]);
        let told = live.summary().unwrap();
        assert!(told.contains("Token 7\n") && told.contains("No layer is offloaded\nToken: 2.50 ms\n"), "{told}");
    }
}
