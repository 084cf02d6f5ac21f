//! Measures the noise of this machine: threads only read the clock for about a quarter of a second.
//!
//! Two consecutive readings are almost simultaneous, so a long step of the clock is time in which the thread did not
//! run: an interrupt, another program, a hypervisor, or an exhausted quota. Equal slices of time contain equal numbers
//! of readings, unless the core changes its speed. The arithmetic works with any clock and is tested with synthetic
//! ones.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use laptime_probe::{Anchor, TickMap, clock_name, has_invariant_counter, now};
use laptime_stats::spread::{MAD_TO_STD, mad, median};
use laptime_trace::run::{HostClock, Noise, StallStats, Steal};

use crate::environment::{Linux, parallelism};

/// How long a single thread observes.
const ALONE_NS: f64 = 100e6;

/// How long several threads observe: longer than the 100 ms period of a control group's quota.
const TOGETHER_NS: f64 = 125e6;

/// Time for the kernel to move each thread to a separate CPU before the observation starts.
const SETTLE_NS: f64 = 10e6;

/// The number of slices used to compute the spread of the pace.
const SLICE_NS: f64 = 5e6;

/// A longer step of the clock is a gap, unless ten readings take longer. A reading takes tens of nanoseconds, the
/// shortest interrupt about a microsecond.
const GAP_NS: f64 = 1e3;

/// The minimum number of slices for a spread.
const FEWEST_SLICES: usize = 8;

/// The minimum distance of two moments from which the rate of the clock is computed.
const RATE_NS: u64 = 5_000_000;

/// Measures the noise of this machine for about a quarter of a second.
pub fn noise() -> Noise {
    let nanos_per_tick = rate();
    let clock = host_clock(nanos_per_tick);
    let window = |length_ns: f64| Window::new(length_ns, clock.reading_ns, nanos_per_tick);
    let before = Linux::here().steal();
    let alone = seen(&[watch(|| now().0, window(ALONE_NS))], nanos_per_tick);
    let threads = parallelism();
    let together = (threads > 1).then(|| seen(&watch_together(threads, window(TOGETHER_NS)), nanos_per_tick));
    let steal = before.zip(Linux::here().steal()).map(|(before, after)| between(before, after));
    Noise { alone, together, steal, clock }
}

/// Nanoseconds per tick of the probe's clock.
fn rate() -> f64 {
    let first = Anchor::take();
    loop {
        let second = Anchor::take();
        if second.nanos.saturating_sub(first.nanos) >= RATE_NS {
            return TickMap::new(first, second).map_or(1.0, |map| map.nanos_per_tick());
        }
    }
}

fn host_clock(nanos_per_tick: f64) -> HostClock {
    let mut now = || now().0;
    HostClock {
        name: clock_name().to_owned(),
        is_invariant: has_invariant_counter(),
        step_ns: smallest_step(&mut now, 100_000).map(|ticks| ticks as f64 * nanos_per_tick),
        reading_ns: reading_ticks(&mut now, 9, 1_000) * nanos_per_tick,
    }
}

/// The smallest step above zero among this number of readings.
fn smallest_step(now: &mut impl FnMut() -> u64, readings: usize) -> Option<u64> {
    let mut last = now();
    let steps = (0..readings).filter_map(|_| {
        let at = now();
        let step = at.saturating_sub(last);
        last = at;
        (step > 0).then_some(step)
    });
    steps.min()
}

/// The cost of a reading: the median over rounds of this number of readings each.
fn reading_ticks(now: &mut impl FnMut() -> u64, rounds: usize, readings: u32) -> f64 {
    let mut round = || {
        let start = now();
        let end = (0..readings).fold(start, |_, _| now());
        end.saturating_sub(start) as f64 / f64::from(readings)
    };
    let costs: Vec<f64> = (0..rounds).map(|_| round()).collect();
    median(&costs).unwrap_or(0.0)
}

/// How long to observe, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window {
    settle: u64,
    length: u64,
    slice: u64,
    gap: u64,
}

impl Window {
    fn new(length_ns: f64, reading_ns: f64, nanos_per_tick: f64) -> Self {
        let ticks = |nanos: f64| ((nanos / nanos_per_tick) as u64).max(1);
        let gap_ns = GAP_NS.max(10.0 * reading_ns);
        Self { settle: ticks(SETTLE_NS), length: ticks(length_ns), slice: ticks(SLICE_NS), gap: ticks(gap_ns) }
    }
}

/// What one thread observed, in ticks.
#[derive(Debug, Clone, PartialEq, Default)]
struct Seen {
    watched: u64,
    gaps: u64,
    lost: u64,
    longest: u64,
    /// Readings per tick in each slice.
    paces: Vec<f64>,
}

impl Seen {
    fn step(&mut self, ticks: u64, longest: u64) {
        self.watched += ticks;
        if ticks > longest {
            self.gaps += 1;
            self.lost += ticks;
            self.longest = self.longest.max(ticks);
        }
    }

    /// The spread of the pace as a share of the median.
    fn pace_spread(&self) -> Option<f64> {
        let (typical, deviation) = (median(&self.paces)?, mad(&self.paces)?);
        (self.paces.len() >= FEWEST_SLICES && typical > 0.0).then(|| MAD_TO_STD * deviation / typical)
    }
}

/// Reads a clock repeatedly.
fn watch(mut now: impl FnMut() -> u64, window: Window) -> Seen {
    let settled = now().saturating_add(window.settle);
    let mut last = now();
    while last < settled {
        last = now();
    }
    let end = last.saturating_add(window.length);
    let mut seen = Seen { paces: Vec::with_capacity((window.length / window.slice) as usize + 1), ..Seen::default() };
    let (mut slice_start, mut readings) = (last, 0_u64);
    while last < end {
        let at = now();
        seen.step(at.saturating_sub(last), window.gap);
        (last, readings) = (at, readings + 1);
        let slice = at.saturating_sub(slice_start);
        if slice >= window.slice {
            seen.paces.push(readings as f64 / slice as f64);
            (slice_start, readings) = (at, 0);
        }
    }
    seen
}

/// Observes on this number of threads at once. A thread that cannot be started is left out.
fn watch_together(threads: u32, window: Window) -> Vec<Seen> {
    let go = AtomicBool::new(false);
    let one = || {
        while !go.load(Ordering::Acquire) {
            thread::yield_now();
        }
        watch(|| now().0, window)
    };
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, one).ok();
        let started: Vec<_> = (0..threads).filter_map(start).collect();
        go.store(true, Ordering::Release);
        started.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

/// Adds up the observations of several threads, in nanoseconds.
fn seen(threads: &[Seen], nanos_per_tick: f64) -> StallStats {
    let nanos = |ticks: u64| (ticks as f64 * nanos_per_tick).round() as u64;
    let sum = |of: fn(&Seen) -> u64| threads.iter().map(of).sum::<u64>();
    let spreads: Vec<f64> = threads.iter().filter_map(Seen::pace_spread).collect();
    StallStats {
        threads: threads.len() as u32,
        watched_ns: nanos(sum(|seen| seen.watched)),
        gaps: sum(|seen| seen.gaps),
        lost_ns: nanos(sum(|seen| seen.lost)),
        longest_gap_ns: nanos(threads.iter().map(|seen| seen.longest).max().unwrap_or(0)),
        pace_spread: median(&spreads),
    }
}

fn between(before: Steal, after: Steal) -> Steal {
    Steal { ticks: after.ticks.saturating_sub(before.ticks), of_ticks: after.of_ticks.saturating_sub(before.of_ticks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { settle: 0, length: 1_000, slice: 100, gap: 50 };

    /// A clock that advances by 10 at each reading, and by more at the listed readings.
    fn clock(jumps: &'static [(u64, u64)]) -> impl FnMut() -> u64 {
        let (mut reading, mut at) = (0, 0);
        move || {
            reading += 1;
            at += jumps.iter().find(|(when, _)| *when == reading).map_or(10, |(_, jump)| *jump);
            at
        }
    }

    #[test]
    fn an_even_clock_has_no_gaps_and_a_constant_pace() {
        let even = watch(clock(&[]), WINDOW);
        assert_eq!(even, Seen { watched: 1_000, paces: vec![0.1; 10], ..Seen::default() });
        assert_eq!(even.pace_spread(), Some(0.0));
    }

    #[test]
    fn a_long_step_is_lost_time() {
        let seen = watch(clock(&[(10, 80), (20, 300), (30, 50)]), WINDOW);
        assert_eq!((seen.gaps, seen.lost, seen.longest), (2, 380, 300));
        assert_eq!(seen.watched, 1_000);
    }

    #[test]
    fn a_gap_during_settling_does_not_count() {
        let seen = watch(clock(&[(5, 400)]), Window { settle: 100, ..WINDOW });
        assert_eq!((seen.gaps, seen.watched), (0, 1_000));
    }

    #[test]
    fn a_changing_clock_speed_spreads_the_pace() {
        // From the second reading on, at 40, slices alternate between ten and five readings.
        let mut at = 0_i64;
        let speeding = move || {
            at += if (at - 40).rem_euclid(200) < 100 { 10 } else { 20 };
            at as u64
        };
        let spread = watch(speeding, WINDOW).pace_spread().unwrap();
        assert!((spread - MAD_TO_STD * 0.025 / 0.075).abs() < 1e-9, "{spread}");
    }

    #[test]
    fn too_few_slices_have_no_spread() {
        assert_eq!(watch(clock(&[]), Window { length: 300, ..WINDOW }).pace_spread(), None);
    }

    #[test]
    fn threads_are_added_up_in_nanoseconds() {
        let one = watch(clock(&[(10, 80)]), WINDOW);
        let other = watch(clock(&[]), WINDOW);
        let both = seen(&[one, other], 0.5);
        assert_eq!((both.threads, both.watched_ns, both.gaps), (2, 1_000, 1));
        assert_eq!((both.lost_ns, both.longest_gap_ns, both.lost_share()), (40, 40, Some(0.04)));
        assert_eq!(seen(&[], 0.5), StallStats::default());
    }

    #[test]
    fn readings_show_the_step_and_the_cost_of_a_clock() {
        // A clock that does not advance for three of four readings.
        let mut readings = 0;
        let mut coarse = || {
            readings += 1;
            readings / 4 * 100
        };
        assert_eq!(smallest_step(&mut coarse, 50), Some(100));
        assert_eq!(reading_ticks(&mut coarse, 3, 400), 25.0);
        assert_eq!(smallest_step(&mut || 7, 50), None);
    }

    #[test]
    fn a_slow_clock_raises_the_threshold_of_gaps() {
        assert_eq!(Window::new(1e6, 20.0, 0.5).gap, 2_000);
        assert_eq!(Window::new(1e6, 400.0, 0.5).gap, 8_000);
    }

    #[test]
    fn stolen_ticks_are_those_of_the_window() {
        let (before, after) = (Steal { ticks: 3, of_ticks: 100 }, Steal { ticks: 5, of_ticks: 140 });
        assert_eq!(between(before, after), Steal { ticks: 2, of_ticks: 40 });
    }

    #[test]
    fn the_noise_of_this_machine_is_measured() {
        let noise = noise();
        assert!(noise.alone.watched_ns >= 99_000_000 && noise.clock.reading_ns > 0.0, "{noise:?}");
        assert_eq!(noise.together.is_some(), parallelism() > 1);
    }
}
