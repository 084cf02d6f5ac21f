//! Many traces side by side: which one differs from the others.

use laptime_stats::Sorted;

use crate::finding::Finding;

/// What a number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Time,
    /// A part of a whole.
    Share,
    /// How many.
    Count,
    /// A plain number.
    Number,
}

/// A figure that an analysis gives for a trace as a whole, to set traces side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// Its name for machines; that of a time ends in `_ms`.
    pub key: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// What it counts.
    pub unit: Unit,
}

/// The figures of one trace, or of one device of it.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetRow {
    /// What the trace is called.
    pub label: String,
    /// The rank that wrote it.
    pub rank: Option<u64>,
    /// The device, where the trace has several.
    pub device: Option<String>,
    /// The figures; times in nanoseconds.
    pub values: Vec<Option<f64>>,
    /// Events that could not be kept while recording.
    pub lost: u64,
    /// What the trace does not keep to.
    pub findings: Vec<Finding>,
}

/// Many traces side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// What the columns are.
    pub figures: Vec<Figure>,
    /// One row a trace, or a device of it.
    pub rows: Vec<FleetRow>,
    /// What stands apart, the furthest first.
    pub odd: Vec<Odd>,
}

impl Fleet {
    /// Sets traces side by side.
    pub fn of(figures: &[Figure], rows: Vec<FleetRow>) -> Self {
        let values: Vec<Vec<Option<f64>>> = rows.iter().map(|row| row.values.clone()).collect();
        Self { figures: figures.to_vec(), odd: odd_ones(figures, &values), rows }
    }

    /// The first finding of each rule, with the traces that have one of that rule; most traces first.
    pub fn findings(&self) -> Vec<(&Finding, Vec<&str>)> {
        let mut found: Vec<(&Finding, Vec<&str>)> = Vec::new();
        for (row, finding) in self.rows.iter().flat_map(|row| row.findings.iter().map(move |finding| (row, finding))) {
            match found.iter_mut().find(|(known, _)| known.rule == finding.rule) {
                // The rows of one trace stand together.
                Some((_, traces)) if traces.last() == Some(&row.label.as_str()) => {}
                Some((_, traces)) => traces.push(&row.label),
                None => found.push((finding, vec![&row.label])),
            }
        }
        found.sort_by_key(|(_, traces)| std::cmp::Reverse(traces.len()));
        found
    }
}

/// From this many traces on one can be the odd one out.
pub const LEAST_TRACES: usize = 3;

/// How many times the usual distance from the median an odd one must be away.
pub const ODD_DISTANCE: f64 = 5.0;

/// How far from the median it must be, as a share of it; a figure that is a share itself, in parts of the whole.
pub const ODD_SHARE: f64 = 0.05;

/// A figure of one trace that stands apart from those of the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Odd {
    /// The trace, by its place.
    pub at: usize,
    /// The figure, by its place.
    pub figure: usize,
    /// Its value.
    pub value: f64,
    /// The median of all.
    pub median: f64,
    /// How many times the usual distance it is away.
    pub distance: f64,
}

/// Finds what stands apart in rows of figures, one row a trace, the furthest first; each trace is named once.
///
/// The usual distance is the median absolute deviation of the figure, scaled to a standard deviation, and at least 1 %
/// of the median (of a share, of the whole): where all others agree to the last digit, a hair's breadth is not odd.
fn odd_ones(figures: &[Figure], rows: &[Vec<Option<f64>>]) -> Vec<Odd> {
    let of_figure = |(at, figure): (usize, &Figure)| odd_of_figure(rows, at, figure.unit);
    let mut odd: Vec<Odd> = figures.iter().enumerate().flat_map(of_figure).collect();
    odd.sort_by(|a, b| b.distance.total_cmp(&a.distance).then(a.at.cmp(&b.at)));
    let mut named = std::collections::HashSet::new();
    odd.retain(|odd| named.insert(odd.at));
    odd
}

fn odd_of_figure(rows: &[Vec<Option<f64>>], figure: usize, unit: Unit) -> Vec<Odd> {
    let values: Vec<(usize, f64)> =
        rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.get(figure).copied()??))).collect();
    if values.len() < LEAST_TRACES {
        return Vec::new();
    }
    let Some(median) = median(values.iter().map(|(_, value)| *value)) else { return Vec::new() };
    let deviation = median_deviation(&values, median);
    let whole = if unit == Unit::Share { 1.0 } else { median.abs() };
    let usual = (1.4826 * deviation).max(0.01 * whole);
    let is_odd = |value: f64| {
        let away = (value - median).abs();
        away > ODD_DISTANCE * usual && away > ODD_SHARE * whole
    };
    let odd = values.into_iter().filter(|(_, value)| is_odd(*value));
    odd.map(|(at, value)| Odd {
        at,
        figure,
        value,
        median,
        distance: (value - median).abs() / usual.max(f64::MIN_POSITIVE),
    })
    .collect()
}

fn median_deviation(values: &[(usize, f64)], center: f64) -> f64 {
    median(values.iter().map(|(_, value)| (value - center).abs())).unwrap_or(0.0)
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    Sorted::<f64>::from_unsorted(values.filter(|value| value.is_finite()).collect()).ok()?.median()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Figure = Figure { key: "a_ms", label: "a", unit: Unit::Time };
    const SHARE: Figure = Figure { key: "b", label: "b", unit: Unit::Share };

    fn rows(values: &[f64]) -> Vec<Vec<Option<f64>>> {
        values.iter().map(|value| vec![Some(*value)]).collect()
    }

    fn odd_times(values: &[f64]) -> Vec<usize> {
        odd_ones(&[TIME], &rows(values)).iter().map(|odd| odd.at).collect()
    }

    #[test]
    fn the_one_far_from_the_others_is_named() {
        let odd = odd_ones(&[TIME], &rows(&[10.0, 10.1, 9.9, 14.0, 10.0]));
        assert_eq!(odd.iter().map(|odd| (odd.at, odd.median)).collect::<Vec<_>>(), [(3, 10.0)]);
    }

    #[test]
    fn spread_that_all_share_is_not_odd_and_two_traces_have_no_odd_one() {
        assert!(odd_times(&[8.0, 12.0, 9.0, 11.0, 13.0]).is_empty());
        assert!(odd_times(&[10.0, 100.0]).is_empty());
        assert!(odd_times(&[10.0, 10.0, 10.0, 10.4]).is_empty());
        assert_eq!(odd_times(&[10.0, 10.0, 10.0, 10.6]), [3]);
    }

    #[test]
    fn a_share_is_odd_by_parts_of_the_whole() {
        let odd = |last: f64| !odd_ones(&[SHARE], &rows(&[0.0, 0.0, 0.001, last])).is_empty();
        assert!(!odd(0.04) && odd(0.06));
    }

    #[test]
    fn a_trace_is_named_once_by_the_figure_furthest_away() {
        let figures = |a: f64, b: f64| vec![Some(a), Some(b)];
        let rows = [figures(1.0, 5.0), figures(1.0, 5.0), figures(1.0, 5.0), figures(2.0, 50.0)];
        let odd = odd_ones(&[TIME, TIME], &rows);
        assert_eq!(odd.iter().map(|odd| (odd.at, odd.figure)).collect::<Vec<_>>(), [(3, 1)]);
    }

    #[test]
    fn findings_are_counted_by_trace_and_named_once_a_rule() {
        let finding = |rule| Finding {
            rule,
            evidence: String::new(),
            limit: String::new(),
            meaning: String::new(),
            next: String::new(),
        };
        let row = |label: &str, rules: &[&'static str]| FleetRow {
            label: label.to_owned(),
            rank: None,
            device: None,
            values: Vec::new(),
            lost: 0,
            findings: rules.iter().copied().map(finding).collect(),
        };
        let rows = vec![row("a", &["twice"]), row("b", &[]), row("c", &["early", "early"]), row("c", &["early"])];
        let fleet = Fleet::of(&[], [rows, vec![row("d", &["early"])]].concat());
        let told: Vec<_> = fleet.findings().into_iter().map(|(finding, traces)| (finding.rule, traces)).collect();
        assert_eq!(told, [("early", vec!["c", "d"]), ("twice", vec!["a"])]);
    }

    #[test]
    fn figures_that_are_missing_are_left_out() {
        let missing = vec![None];
        assert_eq!(odd_ones(&[TIME], &[missing.clone(), missing.clone(), missing]), []);
        assert!(odd_times(&[0.0, 0.0, 0.0]).is_empty());
    }
}
