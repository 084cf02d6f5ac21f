//! Observes generations with offloaded layers: prints progress lines and keeps the longest generation.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{path::Path, time::Instant};

use laptime_analyze::Thresholds;
use laptime_bench::{Case, Interrupt};
use laptime_models::LayerVisit;
use laptime_report::offload_text::{LayerLine, profiling_summary};

use super::runner::{Generated, Observer};
use crate::extras::Screen;

const EVERY_TOKENS: usize = 10;
const EVERY_NS: u64 = 5_000_000_000;
const MOST_LAYERS: usize = 8;

/// What is printed while tokens are generated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Style {
    #[default]
    Silent,
    /// One line per token that is due.
    Line,
    /// The blocks of VibeVoice offload.
    Compat,
}

/// Prints progress while tokens are generated.
pub struct Live {
    state: Mutex<State>,
    interrupt: Interrupt,
    screen: Arc<dyn Screen>,
    origin: Instant,
}

#[derive(Default)]
struct State {
    style: Style,
    is_paused: bool,
    emulated_gbps: Option<f64>,
    due: Due,
    last: Option<LastToken>,
    longest: HashMap<String, Generated>,
}

#[derive(Debug, Clone, PartialEq)]
struct LastToken {
    number: usize,
    nanos: u64,
    layers: Vec<LayerLine>,
}

/// When a line is due: every 10 tokens or 5 seconds in the first generation, and every 5 seconds in later ones, which
/// repeat it, so that nothing is printed inside short iterations.
#[derive(Debug, Default)]
struct Due {
    generations: u64,
    printed_ns: u64,
}

impl Due {
    fn begin(&mut self, now_ns: u64) {
        self.generations += 1;
        if self.generations == 1 {
            self.printed_ns = now_ns;
        }
    }

    fn is_due(&mut self, number: usize, now_ns: u64) -> bool {
        let is_counted = self.generations == 1 && number.is_multiple_of(EVERY_TOKENS);
        let is_due = is_counted || now_ns.saturating_sub(self.printed_ns) >= EVERY_NS;
        if is_due {
            self.printed_ns = now_ns;
        }
        is_due
    }
}

impl Live {
    /// Generations end when the program is interrupted.
    pub fn new(interrupt: Interrupt, screen: Arc<dyn Screen>) -> Self {
        Self { state: Mutex::default(), interrupt, screen, origin: Instant::now() }
    }

    /// Sets the style of the output, and the rate of an emulated link.
    pub fn show(&self, style: Style, emulated_gbps: Option<f64>) {
        let mut state = self.state();
        (state.style, state.emulated_gbps) = (style, emulated_gbps);
    }

    /// Ignores tokens from here on, because they belong to the baseline.
    pub fn pause(&self) {
        self.state().is_paused = true;
    }

    /// The longest generation of a case; the last one if several are as long.
    pub fn generated(&self, case: &Case) -> Option<Generated> {
        self.state().longest.get(&case.to_string()).cloned()
    }

    /// The offloaded layers of the last token with the longest waits, one line each.
    pub fn layer_lines(&self, folder: &Path) -> Vec<String> {
        let state = self.state();
        state.last.as_ref().map(|last| last.layer_lines(folder)).unwrap_or_default()
    }

    /// The block of VibeVoice offload for the last token.
    pub fn compat_block(&self) -> Option<String> {
        let state = self.state();
        state.last.as_ref().map(|last| last.compat_block(state.emulated_gbps))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl LastToken {
    /// The token in one line: its time, the share of copies that were prefetched, and the layer that was waited for longest.
    fn line(&self) -> String {
        let time = format!("token {}: {:.2} ms", self.number, self.nanos as f64 / 1e6);
        let Some(slowest) = self.layers.iter().max_by(|a, b| a.pre_ns.total_cmp(&b.pre_ns)) else {
            return format!("{time}, no layer is offloaded");
        };
        let (count, ahead) = (self.layers.len(), self.layers.iter().filter(|layer| layer.is_async).count());
        let tag = if slowest.is_async { "[ASYNC]" } else { "[SYNC]" };
        let (wait, layer) = (slowest.pre_ns / 1e6, slowest.layer);
        format!(
            "{time}, async {ahead}/{count} layers ({} %), longest wait {wait:.2} ms, layer {layer} {tag}",
            100 * ahead / count
        )
    }

    /// The layers with the longest waits, in their order.
    fn layer_lines(&self, folder: &Path) -> Vec<String> {
        let mut layers = self.layers.clone();
        layers.sort_by(|a, b| b.pre_ns.total_cmp(&a.pre_ns));
        let more = layers.len().saturating_sub(MOST_LAYERS);
        layers.truncate(MOST_LAYERS);
        layers.sort_by_key(|layer| layer.layer);
        let line = |layer: &LayerLine| {
            let tag = if layer.is_async { "[ASYNC]" } else { "[SYNC]" };
            let [wait, release] = [layer.pre_ns, layer.post_ns].map(|nanos| nanos / 1e6);
            format!("  layer {:2}: wait {wait:.2} ms, release {release:.2} ms {tag}", layer.layer)
        };
        let mut lines: Vec<String> = layers.iter().map(line).collect();
        lines.extend((more > 0).then(|| {
            format!("  {more} more layers with shorter waits: `laptime diagnose {} --layers`", folder.display())
        }));
        lines
    }

    fn compat_block(&self, emulated_gbps: Option<f64>) -> String {
        let (token, nanos) = (self.number as u64, self.nanos as f64);
        profiling_summary(token, &self.layers, &Thresholds::default(), Some(nanos), emulated_gbps)
    }
}

/// The layers of one token. For several passes: the longest wait and release, and prefetched if all were.
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

impl Observer for Live {
    fn begin(&self) {
        let now = self.now_ns();
        self.state().due.begin(now);
    }

    fn token(&self, number: usize, nanos: u64, visits: &[LayerVisit]) {
        let now = self.now_ns();
        let mut state = self.state();
        if state.is_paused {
            return;
        }
        let last = LastToken { number, nanos, layers: lines(visits) };
        if state.style != Style::Silent && state.due.is_due(number, now) {
            let is_compat = state.style == Style::Compat;
            let text = if is_compat { last.compat_block(state.emulated_gbps) } else { last.line() };
            self.screen.say_above(&text);
        }
        state.last = Some(last);
    }

    fn is_stopped(&self) -> bool {
        self.interrupt.is_requested()
    }

    fn end(&self, generated: Generated) {
        let mut state = self.state();
        let key = generated.case.to_string();
        let is_shorter = state.longest.get(&key).is_some_and(|kept| kept.tokens_ns.len() > generated.tokens_ns.len());
        if !is_shorter {
            state.longest.insert(key, generated);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nowhere;

    impl Screen for Nowhere {
        fn say(&self, _: &str) {}

        fn say_above(&self, _: &str) {}

        fn table(&self, _: &laptime_report::Table, _: &mut dyn std::io::Write) -> anyhow::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_shows_the_async_share_and_the_longest_wait() {
        let layer = |layer, pre_ns, is_async| LayerLine { layer, pre_ns, post_ns: 0.0, is_async };
        let token =
            LastToken { number: 10, nanos: 12_340_000, layers: vec![layer(2, 1e6, true), layer(3, 4e6, false)] };
        let line = "token 10: 12.34 ms, async 1/2 layers (50 %), longest wait 4.00 ms, layer 3 [SYNC]";
        assert_eq!(token.line(), line);
        let alone = LastToken { number: 1, nanos: 1_000_000, layers: Vec::new() };
        assert_eq!(alone.line(), "token 1: 1.00 ms, no layer is offloaded");
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_first_generation_prints_every_ten_tokens_or_five_seconds() {
        let mut due = Due::default();
        due.begin(100);
        let printed: Vec<usize> = (1..=35).filter(|number| due.is_due(*number, 100)).collect();
        assert_eq!(printed, [10, 20, 30]);
        let slow: Vec<usize> =
            (36..=50).filter(|number| due.is_due(*number, (*number as u64 - 35) * 2 * SECOND)).collect();
        // Two seconds per token: the third, then the third after each printed one, and every tenth.
        assert_eq!(slow, [38, 40, 43, 46, 49, 50]);
    }

    #[test]
    fn later_generations_print_every_five_seconds_only() {
        let mut due = Due::default();
        due.begin(0);
        due.begin(SECOND);
        assert!(!due.is_due(10, 2 * SECOND) && due.is_due(3, 5 * SECOND) && !due.is_due(20, 6 * SECOND));
    }

    fn visit(layer: usize, is_ahead: bool, wait_ns: f64, release_ns: f64) -> LayerVisit {
        LayerVisit { layer, pass: 0, is_ahead, wait_ns, release_ns, copy_ns: 1.0 }
    }

    #[test]
    fn a_layer_of_two_passes_is_one_line_with_the_longer_times() {
        let visits = [visit(1, true, 5.0, 2.0), visit(0, true, 1.0, 1.0), visit(1, false, 3.0, 4.0)];
        let line = |layer, pre_ns, post_ns, is_async| LayerLine { layer, pre_ns, post_ns, is_async };
        assert_eq!(lines(&visits), [line(0, 1.0, 1.0, true), line(1, 5.0, 4.0, false)]);
    }

    fn generated(tokens: usize) -> Generated {
        Generated { tokens_ns: vec![1; tokens], ..Generated::default() }
    }

    #[test]
    fn the_longest_generation_is_kept_and_an_interrupt_stops_it() {
        let interrupt = Interrupt::new();
        let live = Live::new(interrupt.clone(), Arc::new(Nowhere));
        live.end(generated(3));
        live.end(generated(1));
        assert_eq!(live.generated(&Case::default()).map(|kept| kept.tokens_ns.len()), Some(3));
        assert!(!live.is_stopped());
        interrupt.ask();
        assert!(live.is_stopped());
    }

    #[test]
    fn without_offloaded_layers_only_the_token_is_printed() {
        let live = Live::new(Interrupt::new(), Arc::new(Nowhere));
        live.token(7, 2_500_000, &[]);
        live.pause();
        live.token(1, 1, &[]);
        let block = live.compat_block().unwrap();
        assert!(block.contains("Token 7\n") && block.contains("No layer is offloaded\nToken: 2.50 ms\n"), "{block}");
    }
}
