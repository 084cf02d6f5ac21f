//! Comparison of two runs, case by case.

use laptime_stats::{Group, Interval, Judged, Reason, Tally, Verdict, judge_all};
use laptime_trace::run::{Better, CaseResult, Measured, Run};

use crate::by_case::{CaseId, Processes, Trouble, by_case};
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
pub struct Comparing {
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

/// Which of the two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The first.
    A,
    /// The second.
    B,
}

impl Which {
    /// Its letter.
    pub const fn letter(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
        }
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
    let mut names: Vec<String> = Vec::new();
    for metric in results.iter().filter_map(CaseResult::measured).flat_map(|measured| &measured.metrics) {
        if !names.contains(&metric.name) {
            names.push(metric.name.clone());
        }
    }
    names
}

/// Compares two runs, case by case.
///
/// Cases are equal if workload, device and all axis values are. Each side of a case is the group of its processes; failed
/// processes are left out and listed. For metrics where more is better, reciprocals are compared, so that more is always
/// worse; the reported values are those of the metric. Verdicts are corrected for the number of cases, see
/// [`judge_all`].
pub fn compare(a: &RunResults<'_>, b: &RunResults<'_>, how: &Comparing) -> Compared {
    let (ours, theirs) = (by_case(a.results), by_case(b.results));
    let better = better(how, a.results).or_else(|| better(how, b.results)).unwrap_or(Better::Lower);
    let comparer = Comparer { how, better };
    let other = |case: &Processes<'_>| theirs.iter().find(|other| other.id == case.id);
    let is_new = |case: &&Processes<'_>| !ours.iter().any(|known| known.id == case.id);
    let mut cases: Vec<UnjudgedCase> = ours.iter().map(|case| comparer.case(Some(case), other(case))).collect();
    cases.extend(theirs.iter().filter(is_new).map(|case| comparer.case(None, Some(case))));
    let cases = comparer.judged(cases);
    let runs = a.run.zip(b.run);
    Compared {
        metric: how.metric.clone(),
        better,
        cases,
        differences: runs.map_or_else(Vec::new, |(a, b)| differences(a, b)),
        commits: runs.map(|(a, b)| [a, b].map(|run| run.environment.build.commit.clone())),
    }
}

fn better(how: &Comparing, results: &[CaseResult]) -> Option<Better> {
    let name = how.metric.as_ref()?;
    results.iter().filter_map(CaseResult::measured).find_map(|measured| Some(measured.metric(name)?.better))
}

struct Comparer<'a> {
    how: &'a Comparing,
    better: Better,
}

impl Comparer<'_> {
    fn case(&self, a: Option<&Processes<'_>>, b: Option<&Processes<'_>>) -> UnjudgedCase {
        let id = a.or(b).map(|case| case.id.clone()).expect("a case is in one run at least");
        let troubles = [a, b].map(|side| side.map_or_else(Vec::new, Processes::troubles));
        let sides = match (a, b) {
            (Some(a), Some(b)) => self.sides(a, b),
            (Some(_), None) => Err(NotCompared::OnlyIn(Which::A)),
            (None, _) => Err(NotCompared::OnlyIn(Which::B)),
        };
        UnjudgedCase { id, troubles, sides }
    }

    /// Judges all cases that can be compared, together.
    fn judged(&self, cases: Vec<UnjudgedCase>) -> Vec<ComparedCase> {
        let (mut groups, mut unjudged) = (Vec::new(), Vec::new());
        for UnjudgedCase { id, troubles, sides } in cases {
            let figures = sides.map(|[a, b]| {
                groups.push((a.group, b.group));
                [a.figures, b.figures]
            });
            unjudged.push((id, troubles, figures));
        }
        let mut judged = judge_all(&groups, self.how.threshold).into_iter();
        let mut pair = |[a, b]: [Figures; 2]| {
            let judged = judged.next().expect("every pair was judged");
            Pair { a, b, judged: if self.better == Better::Higher { turned(judged) } else { judged } }
        };
        let cases = unjudged.into_iter();
        cases.map(|(id, troubles, figures)| ComparedCase { id, troubles, pair: figures.map(&mut pair) }).collect()
    }

    fn sides(&self, a: &Processes<'_>, b: &Processes<'_>) -> Result<[Side; 2], NotCompared> {
        let is_measured = [a, b].map(|side| side.measured().next().is_some());
        match is_measured {
            [false, false] => return Err(NotCompared::NotMeasuredInBoth),
            [false, true] => return Err(NotCompared::NotMeasured(Which::A)),
            [true, false] => return Err(NotCompared::NotMeasured(Which::B)),
            [true, true] => {}
        }
        Ok([self.side(a, Which::A)?, self.side(b, Which::B)?])
    }

    fn side(&self, side: &Processes<'_>, which: Which) -> Result<Side, NotCompared> {
        let iterations =
            side.measured().map(|(_, measured)| self.takes(measured)).filter(|iterations| !iterations.is_empty());
        let iterations: Vec<Vec<f64>> = iterations.collect();
        let figures = Figures::of(iterations.clone()).ok_or(NotCompared::NoMetric(which))?;
        let group = Group::new(&self.more_is_worse(iterations)).map_err(|_| NotCompared::NoRatio(which))?;
        Ok(Side { figures, group })
    }

    fn takes(&self, measured: &Measured) -> Vec<f64> {
        self.how.metric.as_ref().map_or_else(|| numbers(&measured.wall_ns), |name| known_values(measured, name))
    }

    fn more_is_worse(&self, mut iterations: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
        if self.better == Better::Higher {
            iterations.iter_mut().flatten().for_each(|value| *value = value.recip());
        }
        iterations
    }
}

/// A case before all cases are judged together.
struct UnjudgedCase {
    id: CaseId,
    troubles: [Vec<Trouble>; 2],
    sides: Result<[Side; 2], NotCompared>,
}

/// One side of a case: the reported values, and the compared values.
struct Side {
    figures: Figures,
    group: Group,
}

/// The same with differences of reciprocals converted to differences of values.
fn turned(judged: Judged) -> Judged {
    let turn = |change: f64| (1.0 + change).recip() - 1.0;
    let verdict = match judged.verdict {
        Verdict::Unclear(Reason::TooWide { furthest }) => {
            Verdict::Unclear(Reason::TooWide { furthest: turn(furthest) })
        }
        verdict => verdict,
    };
    let interval =
        judged.interval.map(|Interval { low, high, level }| Interval { low: turn(high), high: turn(low), level });
    Judged { difference: turn(judged.difference), interval, verdict, ..judged }
}
