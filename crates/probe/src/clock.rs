//! The host clock: raw ticks while recording, nanoseconds afterwards.
//!
//! Ticks come from the CPU's time-stamp counter if it runs at a constant rate on all cores, otherwise from the
//! monotonic clock in nanoseconds. [`TickMap`] converts ticks to nanoseconds since the start of a recording.

use std::sync::{
    OnceLock,
    atomic::{AtomicU8, Ordering::Relaxed},
};
use std::time::Instant;

/// A reading of the host clock, in ticks of unspecified length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticks(pub u64);

const UNKNOWN: u8 = 0;
const TSC: u8 = 1;
const MONOTONIC: u8 = 2;

static SOURCE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Reads the clock that the probe uses.
#[inline(always)]
pub fn now() -> Ticks {
    #[cfg(target_arch = "x86_64")]
    if SOURCE.load(Relaxed) == TSC {
        return Ticks(counter());
    }
    now_slowly()
}

/// The name of the clock used by [`now`]: `tsc` or `monotonic`.
pub fn clock_name() -> &'static str {
    if source() == TSC { "tsc" } else { "monotonic" }
}

#[cold]
fn now_slowly() -> Ticks {
    #[cfg(target_arch = "x86_64")]
    if source() == TSC {
        return Ticks(counter());
    }
    Ticks(monotonic_nanos())
}

fn source() -> u8 {
    match SOURCE.load(Relaxed) {
        UNKNOWN => {
            let found = if has_steady_counter() { TSC } else { MONOTONIC };
            SOURCE.store(found, Relaxed);
            found
        }
        known => known,
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Whether the CPU reports an invariant counter, which runs at a constant rate; none if it has no such counter.
#[cfg(target_arch = "x86_64")]
pub fn has_invariant_counter() -> Option<bool> {
    use std::arch::x86_64::__cpuid;
    const INVARIANT: u32 = 1 << 8;
    let extended = __cpuid(0x8000_0000).eax;
    Some(extended >= 0x8000_0007 && __cpuid(0x8000_0007).edx & INVARIANT != 0)
}

/// Whether the CPU reports an invariant counter, which runs at a constant rate; none if it has no such counter.
#[cfg(not(target_arch = "x86_64"))]
pub fn has_invariant_counter() -> Option<bool> {
    None
}

/// Whether the counter is invariant and the kernel has not marked it as unstable.
#[cfg(target_arch = "x86_64")]
fn has_steady_counter() -> bool {
    if has_invariant_counter() != Some(true) {
        return false;
    }
    match std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
        Ok(kernel) => ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"].contains(&kernel.trim()),
        Err(_) => true,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn has_steady_counter() -> bool {
    false
}

/// Reads the monotonic clock, in nanoseconds since its first use in this process.
pub fn monotonic_nanos() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The same moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// The moment in ticks.
    pub ticks: Ticks,
    /// The moment on the monotonic clock, in nanoseconds since its first use in this process.
    pub nanos: u64,
    /// The maximum distance between the two readings, in ticks.
    pub spread: u64,
}

impl Anchor {
    /// Reads both clocks several times and keeps the closest pair.
    pub fn take() -> Self {
        let mut best: Option<Self> = None;
        for _ in 0..16 {
            let before = now().0;
            let nanos = monotonic_nanos();
            let spread = now().0.saturating_sub(before);
            if best.is_none_or(|best| spread < best.spread) {
                best = Some(Self { ticks: Ticks(before + spread / 2), nanos, spread });
            }
        }
        best.expect("the loop runs at least once")
    }
}

/// A segment of the map with one rate.
#[derive(Debug, Clone, Copy)]
struct Segment {
    from: u64,
    nanos: f64,
    nanos_per_tick: f64,
}

/// Converts ticks to nanoseconds since the first anchor.
///
/// The map is piecewise linear, continuous and monotone. Each new anchor bends it towards the monotonic clock, so that
/// errors of the first rate or of a slewed system clock do not accumulate over hours.
#[derive(Debug, Clone)]
pub struct TickMap {
    first: Anchor,
    segments: Vec<Segment>,
}

/// Anchors closer than this are dominated by reading errors.
const SHORTEST_BASE_NANOS: u64 = 1_000_000;

/// A correction is spread over this time, so that no span is distorted much.
const CORRECTION_NANOS: f64 = 2e9;

impl TickMap {
    /// Creates a map from two anchors; none if they are too close to determine a rate.
    pub fn new(first: Anchor, second: Anchor) -> Option<Self> {
        let nanos = second.nanos.checked_sub(first.nanos)?;
        let ticks = second.ticks.0.checked_sub(first.ticks.0)?;
        if nanos < SHORTEST_BASE_NANOS || ticks == 0 {
            return None;
        }
        let segment = Segment { from: first.ticks.0, nanos: 0.0, nanos_per_tick: nanos as f64 / ticks as f64 };
        Some(Self { first, segments: vec![segment] })
    }

    /// Bends the map towards a later anchor; earlier times keep their value.
    pub fn correct(&mut self, anchor: Anchor) {
        let Some(last) = self.segments.last().copied() else { return };
        let elapsed_ticks = anchor.ticks.0.saturating_sub(self.first.ticks.0);
        let elapsed_nanos = anchor.nanos.saturating_sub(self.first.nanos);
        if anchor.ticks.0 <= last.from || elapsed_ticks == 0 || elapsed_nanos < SHORTEST_BASE_NANOS {
            return;
        }
        let mapped = last.nanos + (anchor.ticks.0 - last.from) as f64 * last.nanos_per_tick;
        let rate = elapsed_nanos as f64 / elapsed_ticks as f64;
        // At least half the rate: the map stays monotone even if the system clock was set back.
        let bend = ((elapsed_nanos as f64 - mapped) / CORRECTION_NANOS).clamp(-0.5, 0.5);
        self.segments.push(Segment { from: anchor.ticks.0, nanos: mapped, nanos_per_tick: rate * (1.0 + bend) });
    }

    /// Nanoseconds from the first anchor to `ticks`; zero before it.
    pub fn nanos(&self, ticks: Ticks) -> u64 {
        let after = self.segments.partition_point(|segment| segment.from <= ticks.0);
        let Some(segment) = after.checked_sub(1).and_then(|at| self.segments.get(at)) else { return 0 };
        (segment.nanos + (ticks.0 - segment.from) as f64 * segment.nanos_per_tick).round() as u64
    }

    /// Nanoseconds per tick, from the first measurement.
    pub fn nanos_per_tick(&self) -> f64 {
        self.segments.first().map_or(1.0, |segment| segment.nanos_per_tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn anchor(ticks: u64, nanos: u64) -> Anchor {
        Anchor { ticks: Ticks(ticks), nanos, spread: 0 }
    }

    #[test]
    fn ticks_at_two_and_a_half_gigahertz_become_nanoseconds() {
        let map = TickMap::new(anchor(1_000, 500), anchor(25_001_000, 10_000_500)).unwrap();
        assert_eq!(map.nanos(Ticks(1_000)), 0);
        assert_eq!(map.nanos(Ticks(3_500)), 1_000);
        assert_eq!(map.nanos(Ticks(25_001_000)), 10_000_000);
    }

    #[test]
    fn a_time_before_the_first_anchor_is_zero() {
        let map = TickMap::new(anchor(1_000, 0), anchor(2_000_000, 2_000_000)).unwrap();
        assert_eq!(map.nanos(Ticks(5)), 0);
    }

    #[test]
    fn anchors_too_close_together_give_no_rate() {
        assert!(TickMap::new(anchor(0, 0), anchor(100, 999_999)).is_none());
    }

    #[test]
    fn a_correction_bends_the_map_to_the_clock_without_a_jump() {
        // The first rate is one part in a thousand too fast.
        let mut map = TickMap::new(anchor(0, 0), anchor(10_000_000, 10_010_000)).unwrap();
        let at = 1_000_000_000;
        map.correct(anchor(at, at));
        let (before, after) = (map.nanos(Ticks(at)), map.nanos(Ticks(at + 1)));
        assert!(after - before <= 1);
        for second in 2..20 {
            map.correct(anchor(second * at, second * at));
        }
        let error = map.nanos(Ticks(20 * at)).abs_diff(20 * at);
        assert!(error < 10_000, "{error} ns off after twenty seconds");
    }

    proptest! {
        #[test]
        fn the_map_is_monotone(
            steps in prop::collection::vec((1_u64..3_000_000_000, 0_u64..3_000_000_000), 1..20),
            probes in prop::collection::vec(0_u64..60_000_000_000, 2..40),
        ) {
            let mut map = TickMap::new(anchor(0, 0), anchor(2_500_000, 1_000_000)).unwrap();
            let (mut ticks, mut nanos) = (2_500_000, 1_000_000);
            for (tick_step, nano_step) in steps {
                ticks += tick_step;
                nanos += nano_step;
                map.correct(anchor(ticks, nanos));
            }
            let mut probes = probes;
            probes.sort_unstable();
            let mapped: Vec<u64> = probes.iter().map(|&at| map.nanos(Ticks(at))).collect();
            prop_assert!(mapped.is_sorted());
        }
    }
}
