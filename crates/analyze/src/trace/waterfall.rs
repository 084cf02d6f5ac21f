//! The difference between two traces, step by step; the steps add up to it.

use hashbrown::HashMap;

use crate::account::{Account, Accounts, EntryKind, LapsCovered, Owner};
use crate::finding::Finding;

/// The difference between two traces.
#[derive(Debug, Clone, PartialEq)]
pub struct Waterfall {
    /// Whose time is compared, in trace a and in trace b.
    pub of: [Owner; 2],
    /// What the times cover.
    pub per: Per,
    /// The time of each, in nanoseconds.
    pub totals: [f64; 2],
    /// What changed, the largest change first. The changes add up to the difference of the totals.
    pub steps: Vec<Step>,
    /// The same by kind, the largest change first.
    pub kinds: Vec<(EntryKind, f64)>,
    /// Devices of each trace that were not compared.
    pub other_devices: [usize; 2],
    /// Checks that each trace fails.
    pub findings: [Vec<Finding>; 2],
}

/// What the times of a comparison cover.
#[derive(Debug, Clone, PartialEq)]
pub enum Per {
    /// One lap with what follows it, on average from the start of the first to the start of the last.
    Lap([LapsCovered; 2]),
    /// Each whole trace, because the laps differ or are missing.
    Trace([Option<LapsCovered>; 2]),
}

/// One entry of both traces, or of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Its kind; none for several entries combined.
    pub kind: Option<EntryKind>,
    /// Its name.
    pub name: String,
    /// Its time in each, in nanoseconds; none where it does not occur.
    pub times: [Option<f64>; 2],
    /// How often it occurs in each.
    pub counts: [f64; 2],
}

impl Step {
    /// How much longer it is in b.
    pub fn change(&self) -> f64 {
        self.times[1].unwrap_or(0.0) - self.times[0].unwrap_or(0.0)
    }
}

impl Waterfall {
    /// How much longer b is.
    pub fn change(&self) -> f64 {
        self.totals[1] - self.totals[0]
    }

    /// The change as a share of a; none if a took no time.
    pub fn share(&self) -> Option<f64> {
        (self.totals[0] > 0.0).then(|| self.change() / self.totals[0])
    }

    /// The median lap of each trace, if laps are compared.
    pub fn median_laps(&self) -> Option<[f64; 2]> {
        match &self.per {
            Per::Lap(laps) => Some(laps.each_ref().map(|laps| laps.median)),
            Per::Trace(_) => None,
        }
    }

    /// Keeps the largest steps and combines all others, so that they still add up.
    pub fn shortened(mut self, most: usize) -> Self {
        if self.steps.len() <= most.saturating_add(1) {
            return self;
        }
        let rest = self.steps.split_off(most);
        let sum = |side: usize| rest.iter().filter_map(|step| step.times[side]).sum::<f64>();
        let count = |side: usize| rest.iter().map(|step| step.counts[side]).sum::<f64>();
        self.steps.push(Step {
            kind: None,
            name: format!("all {} others", rest.len()),
            times: [Some(sum(0)), Some(sum(1))],
            counts: [count(0), count(1)],
        });
        self
    }
}

/// Compares two traces; per lap if both have laps of one unit.
pub fn waterfall(a: &Accounts, b: &Accounts) -> Waterfall {
    let laps = |accounts: &Accounts| accounts.of_laps.as_ref().and_then(|account| account.laps.clone());
    let (sides, per) = match (&a.of_laps, &b.of_laps, laps(a), laps(b)) {
        (Some(of_a), Some(of_b), Some(laps_a), Some(laps_b)) if are_alike(&laps_a, &laps_b) => {
            ([of_a, of_b], Per::Lap([laps_a, laps_b]))
        }
        (_, _, laps_a, laps_b) => ([&a.whole, &b.whole], Per::Trace([laps_a, laps_b])),
    };
    let periods = match &per {
        Per::Lap(laps) => laps.each_ref().map(|laps| laps.periods.max(1) as f64),
        Per::Trace(_) => sides.map(|side| side.devices.max(1) as f64),
    };
    let steps = steps(sides, periods);
    Waterfall {
        of: sides.map(|side| side.of.clone()),
        per,
        totals: [sides[0].total as f64 / periods[0], sides[1].total as f64 / periods[1]],
        kinds: kinds(&steps),
        steps,
        other_devices: [a.other_devices, b.other_devices],
        findings: [a.findings.clone(), b.findings.clone()],
    }
}

/// Sequences of kernels that differ in length by more than this are different units.
const MOST_LONGER: f64 = 1.5;

/// Named laps must have the same name; detected sequences of kernels may differ slightly in length, because fused
/// kernels are fewer.
fn are_alike(a: &LapsCovered, b: &LapsCovered) -> bool {
    match (a.kernels, b.kernels) {
        (Some(a), Some(b)) => a.max(b) as f64 <= MOST_LONGER * a.min(b) as f64,
        (None, None) => a.unit == b.unit,
        _ => false,
    }
}

fn steps(sides: [&Account; 2], periods: [f64; 2]) -> Vec<Step> {
    let mut places: HashMap<(EntryKind, &str), usize> = HashMap::new();
    let mut steps: Vec<Step> = Vec::new();
    for (side, account) in sides.into_iter().enumerate() {
        for entry in &account.entries {
            let place = *places.entry((entry.kind, &entry.name)).or_insert(steps.len());
            if place == steps.len() {
                steps.push(Step {
                    kind: Some(entry.kind),
                    name: entry.name.clone(),
                    times: [None; 2],
                    counts: [0.0; 2],
                });
            }
            steps[place].times[side] = Some(entry.time as f64 / periods[side]);
            steps[place].counts[side] = entry.count as f64 / periods[side];
        }
    }
    let size = |step: &Step| step.change().abs();
    steps.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| (a.kind, &a.name).cmp(&(b.kind, &b.name))));
    steps
}

fn kinds(steps: &[Step]) -> Vec<(EntryKind, f64)> {
    let mut kinds: HashMap<EntryKind, f64> = HashMap::new();
    for step in steps {
        if let Some(kind) = step.kind {
            *kinds.entry(kind).or_default() += step.change();
        }
    }
    let mut kinds: Vec<(EntryKind, f64)> = kinds.into_iter().collect();
    kinds.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0)));
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Entry;
    use proptest::prelude::*;

    fn account(laps: Option<(&str, u64)>, entries: &[(EntryKind, &str, u64, u64)]) -> Account {
        let entry = |&(kind, name, time, count): &(EntryKind, &str, u64, u64)| Entry {
            kind,
            name: name.to_owned(),
            time,
            count,
        };
        let entries: Vec<Entry> = entries.iter().map(entry).collect();
        let laps = laps.map(|(unit, count)| LapsCovered {
            unit: unit.to_owned(),
            count,
            periods: count,
            median: 5.0,
            kernels: None,
        });
        let total = entries.iter().map(|entry| entry.time).sum();
        Account { of: Owner::Device("device 0".to_owned()), laps, total, entries, devices: 1 }
    }

    fn accounts(laps: Option<(&str, u64)>, entries: &[(EntryKind, &str, u64, u64)]) -> Accounts {
        let of_laps = laps.map(|laps| account(Some(laps), entries));
        Accounts { of_laps, whole: account(None, entries), other_devices: 0, findings: Vec::new() }
    }

    #[test]
    fn steps_are_ordered_by_their_change_and_add_up() {
        let a = accounts(
            None,
            &[(EntryKind::Kernel, "gemm", 100, 4), (EntryKind::Gap, "sync", 50, 2), (EntryKind::Copy, "old", 7, 1)],
        );
        let b = accounts(
            None,
            &[(EntryKind::Kernel, "gemm", 90, 4), (EntryKind::Gap, "sync", 10, 1), (EntryKind::Kernel, "new", 5, 1)],
        );
        let answer = waterfall(&a, &b);
        let shown: Vec<_> = answer.steps.iter().map(|step| (step.name.as_str(), step.change())).collect();
        assert_eq!(shown, [("sync", -40.0), ("gemm", -10.0), ("old", -7.0), ("new", 5.0)]);
        assert_eq!((answer.totals, answer.change()), ([157.0, 105.0], -52.0));
        assert_eq!(answer.steps[2].times, [Some(7.0), None]);
        assert_eq!(answer.kinds, [(EntryKind::Gap, -40.0), (EntryKind::Copy, -7.0), (EntryKind::Kernel, -5.0)]);
    }

    #[test]
    fn laps_with_the_same_unit_are_compared_per_lap() {
        let a = accounts(Some(("token", 10)), &[(EntryKind::Kernel, "gemm", 100, 10)]);
        let b = accounts(Some(("token", 5)), &[(EntryKind::Kernel, "gemm", 60, 5)]);
        let answer = waterfall(&a, &b);
        assert_eq!((answer.totals, answer.steps[0].counts), ([10.0, 12.0], [1.0, 1.0]));
        assert_eq!(answer.share(), Some(0.2));
    }

    #[test]
    fn laps_of_different_units_are_not_compared() {
        let a = accounts(Some(("token", 10)), &[(EntryKind::Kernel, "gemm", 100, 10)]);
        let b = accounts(Some(("step", 5)), &[(EntryKind::Kernel, "gemm", 60, 5)]);
        assert_eq!(waterfall(&a, &b).totals, [100.0, 60.0]);
        assert!(matches!(waterfall(&a, &b).per, Per::Trace([Some(_), Some(_)])));
    }

    #[test]
    fn kernel_sequences_may_differ_in_length_by_half() {
        let laps =
            |kernels| LapsCovered { unit: String::new(), count: 3, periods: 2, median: 5.0, kernels: Some(kernels) };
        assert!(are_alike(&laps(30), &laps(45)) && are_alike(&laps(45), &laps(30)));
        assert!(!are_alike(&laps(30), &laps(46)));
        assert!(!are_alike(&laps(30), &LapsCovered { kernels: None, ..laps(30) }));
    }

    proptest! {
        #[test]
        fn the_steps_add_up_to_the_difference_however_many_are_shown(
            a in prop::collection::vec((0_usize..9, 0_u64..1000), 0..20),
            b in prop::collection::vec((0_usize..9, 0_u64..1000), 0..20),
            most in 0_usize..8,
        ) {
            let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
            let entries = |times: &[(usize, u64)]| {
                let mut sums = std::collections::BTreeMap::new();
                times.iter().for_each(|(name, time)| *sums.entry(names[*name]).or_insert(0) += time);
                sums.into_iter().map(|(name, time)| (EntryKind::Kernel, name, time, 1)).collect::<Vec<_>>()
            };
            let answer = waterfall(&accounts(None, &entries(&a)), &accounts(None, &entries(&b))).shortened(most);
            let sum: f64 = answer.steps.iter().map(Step::change).sum();
            prop_assert!((sum - answer.change()).abs() < 1e-6);
            prop_assert!(answer.steps.len() <= most + 1);
        }
    }
}
