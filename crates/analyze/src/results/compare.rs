//! Comparison of two runs, case by case.

use laptime_stats::{Group, Interval, Judged, Reason, Tally, Verdict, judge_all};
use laptime_trace::run::{Better, CaseResult, Measured, Run};

use crate::by_case::{CaseId, Processes, Trouble, by_case, distinct};
use crate::cases::known_values;
use crate::differences::{Difference, differences};
use crate::figures::{Figures, numbers};

/// One side of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct RunResults<'a> {
    /// The run, if it is known.
    pub run: Option<&'a Run>,
    /// Its results.
    pub results: &'a [CaseResult],
}

/// How two runs are compared.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CompareOptions {
    /// The metric to compare; the time of an iteration if none.
    pub metric: Option<String>,
    /// The margin: a relative difference that does not matter.
    pub threshold: Option<f64>,
}

/// How two runs compare.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The metric that was compared; the time of an iteration if none.
    pub metric: Option<String>,
    /// Which direction is better.
    pub better: Better,
    /// The cases of the first run in their order, then those that only the second has.
    pub cases: Vec<ComparedCase>,
    /// Differences between the runs, if both are known.
    pub differences: Vec<Difference>,
    /// The commits of both, if both are known.
    pub commits: Option<[String; 2]>,
}

/// The comparison of one case.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedCase {
    /// Which case.
    pub id: CaseId,
    /// Processes of each side that gave no figures.
    pub troubles: [Vec<Trouble>; 2],
    /// The two sides, or why there is no comparison.
    pub pair: Result<Pair, NotCompared>,
}

/// The two sides of a case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// The first side, which is the reference: a time in nanoseconds, or a metric in its own unit.
    pub a: Figures,
    /// The second side.
    pub b: Figures,
    /// How they differ: for a rate, 0.05 is 5 % more. Faster means better, whatever is compared.
    pub judged: Judged,
}

laptime_trace::words! {
    /// Which of the two runs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Which: letter {
        A = "a",
        B = "b",
    }
}

/// Why a case is not compared.
#[derive(Debug, Clone, PartialEq)]
pub enum NotCompared {
    /// Only one run has it.
    OnlyIn(Which),
    /// It was not measured in one run; the troubles say why.
    NotMeasured(Which),
    /// It was not measured in either run.
    NotMeasuredInBoth,
    /// One run lacks the metric.
    NoMetric(Which),
    /// A value of the metric is 0 or negative, so there is no ratio.
    NoRatio(Which),
}

impl Compared {
    /// Whether a case is slower, beyond the margin and beyond chance for this number of cases.
    pub fn is_regression(&self) -> bool {
        self.tally().slower > 0
    }

    /// Counts the verdicts of the cases that were compared.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        let pairs = self.cases.iter().filter_map(|case| case.pair.as_ref().ok());
        pairs.for_each(|pair| tally.add(pair.judged.verdict));
        tally
    }
}

/// The metrics of some results, by name.
pub fn metrics(results: &[CaseResult]) -> Vec<String> {
    let metrics = results.iter().filter_map(CaseResult::measured).flat_map(|measured| &measured.metrics);
    distinct(metrics.map(|metric| &metric.name)).into_iter().cloned().collect()
}

/// Compares two runs, case by case.
///
/// Cases are equal if workload, device and all axis values are. Each side of a case is the group of its processes; failed
/// processes are left out and listed. For metrics where more is better, reciprocals are compared, so that more is always
/// worse; the reported values are those of the metric. Verdicts are corrected for the number of cases, see
/// [`judge_all`].
pub fn compare(a: &RunResults<'_>, b: &RunResults<'_>, how: &CompareOptions) -> Compared {
    let (ours, theirs) = (by_case(a.results), by_case(b.results));
    let better = better(how, a.results).or_else(|| better(how, b.results)).unwrap_or(Better::Lower);
    let comparer = Comparer { how, better };
    let other = |case: &Processes<'_>| theirs.iter().find(|other| other.id == case.id);
    let is_new = |case: &&Processes<'_>| !ours.iter().any(|known| known.id == case.id);
    let sides = ours.iter().map(|case| [Some(case), other(case)]);
    let sides = sides.chain(theirs.iter().filter(is_new).map(|case| [None, Some(case)]));
    let mut groups = Vec::new();
    let cases: Vec<_> = sides.map(|sides| comparer.case(sides, &mut groups)).collect();
    // All pairs are judged together.
    let mut judged = judge_all(&groups, how.threshold).into_iter();
    let mut pair = |[a, b]: [Figures; 2]| {
        let judged = judged.next().expect("every pair was judged");
        Pair { a, b, judged: if better == Better::Higher { of_values(judged) } else { judged } }
    };
    let cases = cases.into_iter();
    let cases = cases.map(|(id, troubles, figures)| ComparedCase { id, troubles, pair: figures.map(&mut pair) });
    let cases = cases.collect();
    let runs = a.run.zip(b.run);
    Compared {
        metric: how.metric.clone(),
        better,
        cases,
        differences: runs.map_or_else(Vec::new, |(a, b)| differences(a, b)),
        commits: runs.map(|(a, b)| [a, b].map(|run| run.environment.build.commit.clone())),
    }
}

fn better(how: &CompareOptions, results: &[CaseResult]) -> Option<Better> {
    let name = how.metric.as_ref()?;
    results.iter().filter_map(CaseResult::measured).find_map(|measured| Some(measured.metric(name)?.better))
}

struct Comparer<'a> {
    how: &'a CompareOptions,
    better: Better,
}

impl Comparer<'_> {
    /// The figures of a case; what can be compared is added to `groups`.
    fn case(
        &self,
        [a, b]: [Option<&Processes<'_>>; 2],
        groups: &mut Vec<(Group, Group)>,
    ) -> (CaseId, [Vec<Trouble>; 2], Result<[Figures; 2], NotCompared>) {
        let id = a.or(b).map(|case| case.id.clone()).expect("a case is in one run at least");
        let troubles = [a, b].map(|side| side.map_or_else(Vec::new, Processes::troubles));
        let sides = match (a, b) {
            (Some(a), Some(b)) => self.sides(a, b),
            (Some(_), None) => Err(NotCompared::OnlyIn(Which::A)),
            (None, _) => Err(NotCompared::OnlyIn(Which::B)),
        };
        let figures = sides.map(|[a, b]| {
            groups.push((a.1, b.1));
            [a.0, b.0]
        });
        (id, troubles, figures)
    }

    fn sides(&self, a: &Processes<'_>, b: &Processes<'_>) -> Result<[(Figures, Group); 2], NotCompared> {
        match [a, b].map(|side| side.measured().next().is_some()) {
            [false, false] => Err(NotCompared::NotMeasuredInBoth),
            [false, true] => Err(NotCompared::NotMeasured(Which::A)),
            [true, false] => Err(NotCompared::NotMeasured(Which::B)),
            [true, true] => Ok([self.side(a, Which::A)?, self.side(b, Which::B)?]),
        }
    }

    /// One side of a case: the reported values, and the compared values.
    fn side(&self, side: &Processes<'_>, which: Which) -> Result<(Figures, Group), NotCompared> {
        let values = |(_, measured): (u32, &Measured)| match &self.how.metric {
            None => numbers(&measured.wall_ns),
            Some(name) => known_values(measured, name),
        };
        let mut iterations: Vec<Vec<f64>> = side.measured().map(values).filter(|values| !values.is_empty()).collect();
        let figures = Figures::of(iterations.clone()).ok_or(NotCompared::NoMetric(which))?;
        // More is worse from here on.
        if self.better == Better::Higher {
            iterations.iter_mut().flatten().for_each(|value| *value = value.recip());
        }
        let group = Group::new(&iterations).map_err(|_| NotCompared::NoRatio(which))?;
        Ok((figures, group))
    }
}

/// The same with differences of reciprocals converted to differences of values.
fn of_values(mut judged: Judged) -> Judged {
    let convert = |change: f64| (1.0 + change).recip() - 1.0;
    if let Verdict::Unclear(Reason::TooWide { furthest }) = &mut judged.verdict {
        *furthest = convert(*furthest);
    }
    let interval = |Interval { low, high, level }| Interval { low: convert(high), high: convert(low), level };
    Judged { difference: convert(judged.difference), interval: judged.interval.map(interval), ..judged }
}
