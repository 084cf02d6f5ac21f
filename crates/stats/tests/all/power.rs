//! False alarms and misses of the comparison, on synthetic recordings.
//!
//! The example `power_table` prints the table that the README quotes.

use crate::common::power::{Power, PowerError, Shortfall, Trial, power, power_of};
use crate::common::{Noise, TYPICAL, recording};
use laptime_stats::{Group, Judged, Reason, Rng, Tally, Verdict, judge, judge_all};

/// The tested spreads between processes, from a quiet machine to an unusably noisy one.
const SPREADS: [f64; 9] = [0.002, 0.005, 0.01, 0.015, 0.02, 0.05, 0.1, 0.2, 0.3];

/// The number of recordings per spread.
const RECORDINGS: u64 = 4;

/// Processes whose iterations have a typical variation, so that the spread of their medians is about the given one.
fn noise(between: f64) -> Noise {
    Noise { between, within: between, processes: 40, ..TYPICAL }
}

/// Tries 500 pairs of each of several recordings and adds up the results.
fn tried(between: f64) -> Power {
    let each = |seed: u64| {
        let trial = Trial { seed, ..Trial::default() };
        power(&recording(noise(between), seed), &trial).expect("the recording is large enough")
    };
    let added = |sum: Tally, more: Tally| Tally {
        faster: sum.faster + more.faster,
        slower: sum.slower + more.slower,
        same: sum.same + more.same,
        unclear: sum.unclear + more.unclear,
    };
    let all = (1..=RECORDINGS).map(each).reduce(|sum, more| Power {
        alike: added(sum.alike, more.alike),
        slight: added(sum.slight, more.slight),
        slowed: added(sum.slowed, more.slowed),
        ..more
    });
    // The requirement depends on the requested spread, not on that of one recording.
    Power { between: Some(between), deviation: Some(between), ..all.expect("there are recordings") }
}

#[test]
fn recordings_of_every_spread_meet_the_requirements() {
    for between in SPREADS {
        let power = tried(between);
        assert_eq!(power.alike.all(), 500 * RECORDINGS as usize);
        assert_eq!(power.shortfalls(), [], "{between}: {power:?}");
        // Different sides are never called the same, however noisy the machine is.
        assert!(between < 0.02 || power.slight.same + power.slowed.same == 0, "{between}: {power:?}");
    }
}

#[test]
fn more_processes_find_a_slowdown_on_a_noisy_machine() {
    let noisy = recording(Noise { processes: 600, ..noise(0.25) }, 1);
    let tried = |processes| {
        let trial = Trial { processes, pairs: 40, slowdown: 1.15, ..Trial::default() };
        power(&noisy, &trial).expect("the recording is large enough")
    };
    let (few, many) = (tried(20), tried(300));
    assert!(many.found() >= Some(0.95) && many.found() > few.found(), "{few:?} {many:?}");
    assert_eq!((few.slowed.same, many.slowed.same), (0, 0));
}

/// The levels of some processes of a case, one iteration each.
fn side(between: f64, processes: usize, rng: &mut Rng) -> Group {
    let iterations: Vec<Vec<f64>> =
        (0..processes).map(|_| vec![(between * crate::common::normal(rng)).exp()]).collect();
    Group::new(&iterations).expect("the iterations are above 0")
}

/// The number of 500 sweeps of 40 equal cases in which some case is called slower.
fn regressions(between: f64, processes: usize) -> usize {
    let mut rng = Rng::new(40);
    let mut sweep = || {
        let mut pair = || (side(between, processes, &mut rng), side(between, processes, &mut rng));
        let pairs: Vec<(Group, Group)> = (0..40).map(|_| pair()).collect();
        judge_all(&pairs, None).iter().any(|judged| judged.verdict == Verdict::Slower)
    };
    (0..500).filter(|_| sweep()).count()
}

#[test]
fn a_sweep_of_40_equal_cases_rarely_finds_a_slower_one() {
    for (between, processes) in [(0.02, 10), (0.3, 5), (0.3, 10)] {
        let found = regressions(between, processes);
        assert!(found <= 25, "{found} of 500 sweeps, {processes} processes that spread by {between}");
    }
}

#[test]
fn a_slow_case_is_found_among_40() {
    let mut rng = Rng::new(3);
    let found = (0..50).filter(|_| {
        let mut pairs: Vec<(Group, Group)> =
            (0..40).map(|_| (side(0.01, 10, &mut rng), side(0.01, 10, &mut rng))).collect();
        let slowed: Vec<Vec<f64>> = pairs[5].1.medians().iter().map(|median| vec![1.05 * median]).collect();
        pairs[5].1 = Group::new(&slowed).unwrap();
        judge_all(&pairs, None)[5].verdict == Verdict::Slower
    });
    assert!(found.count() >= 45);
}

#[test]
fn the_advised_number_of_processes_settles_most_unclear_verdicts() {
    let mut rng = Rng::new(11);
    let (mut settled, mut tried) = (0, 0);
    while tried < 200 {
        let judged = |processes: usize, rng: &mut Rng| -> Judged {
            let slower =
                side(0.03, processes, rng).medians().iter().map(|median| vec![1.025 * median]).collect::<Vec<_>>();
            judge(&side(0.03, processes, rng), &Group::new(&slower).unwrap(), None)
        };
        let first = judged(10, &mut rng);
        let Some(needed) = first.needed else { continue };
        tried += 1;
        settled += usize::from(!matches!(judged(needed, &mut rng).verdict, Verdict::Unclear(_)));
    }
    assert!(settled >= 120, "{settled} of {tried}");
}

#[test]
fn always_answering_unclear_falls_short() {
    let silent = |_: &_, _: &_| Verdict::Unclear(Reason::AroundMargin);
    let power = power_of(&recording(Noise { drift: 0.0, ..noise(0.004) }, 1), &Trial::default(), silent).unwrap();
    assert_eq!(power.shortfalls(), [Shortfall::Misses, Shortfall::RarelySame, Shortfall::NeverDecides]);
    assert_eq!((power.alike.all(), power.alike.unclear), (500, 500));
}

#[test]
fn always_answering_slower_falls_short() {
    let power = power_of(&recording(noise(0.01), 1), &Trial::default(), |_, _| Verdict::Slower).unwrap();
    assert_eq!(power.shortfalls(), [Shortfall::FalseAlarms]);
    assert_eq!(power.alike, Tally { slower: 500, ..Tally::default() });
}

#[test]
fn always_answering_same_falls_short_however_noisy_the_recording() {
    let shortfalls = |between| {
        let always = |_: &_, _: &_| Verdict::Same;
        power_of(&recording(noise(between), 1), &Trial::default(), always).unwrap().shortfalls()
    };
    assert_eq!(shortfalls(0.01), [Shortfall::CalledSame, Shortfall::Misses]);
    assert_eq!(shortfalls(0.3), [Shortfall::CalledSame]);
}

#[test]
fn a_recording_too_small_for_two_sides_is_refused() {
    let small = recording(Noise { processes: 19, ..TYPICAL }, 1);
    let refused = PowerError::TooFewProcesses { found: 19, per_side: 10 };
    assert_eq!(power(&small, &Trial::default()), Err(refused));
}

#[test]
fn a_trial_is_reproducible() {
    let trial = |seed| power(&recording(noise(0.01), 1), &Trial { pairs: 10, seed, ..Trial::default() });
    assert_eq!(trial(3), trial(3));
}
