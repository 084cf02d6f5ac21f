//! Several traces compared: which one is an outlier.

use laptime_stats::Sorted;

use crate::finding::Finding;

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Time,
    /// A share from 0 to 1.
    Share,
    /// A count.
    Count,
    /// A plain number.
    Number,
}

/// A figure of a whole trace, for comparing traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// Its name for machines; the name of a time ends in `_ms`.
    pub key: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// Its unit.
    pub unit: Unit,
}

/// The figures of one trace, or of one device of it.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetRow {
    /// The name of the trace.
    pub label: String,
    /// The rank that wrote it.
    pub rank: Option<u64>,
    /// The device, if the trace has several.
    pub device: Option<String>,
    /// The figures; times in nanoseconds.
    pub values: Vec<Option<f64>>,
    /// Events that were dropped while recording.
    pub dropped: u64,
    /// Checks that the trace fails.
    pub findings: Vec<Finding>,
}

/// Several traces compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// The columns.
    pub figures: Vec<Figure>,
    /// One row per trace, or per device of it.
    pub rows: Vec<FleetRow>,
    /// The outliers, the furthest first.
    pub outliers: Vec<Outlier>,
}

impl Fleet {
    /// Compares traces.
    pub fn of(figures: &[Figure], rows: Vec<FleetRow>) -> Self {
        let values: Vec<Vec<Option<f64>>> = rows.iter().map(|row| row.values.clone()).collect();
        Self { figures: figures.to_vec(), outliers: outliers(figures, &values), rows }
    }

    /// The first finding of each rule, with all traces that have it; most traces first.
    pub fn findings(&self) -> Vec<(&Finding, Vec<&str>)> {
        let mut found: Vec<(&Finding, Vec<&str>)> = Vec::new();
        for (row, finding) in self.rows.iter().flat_map(|row| row.findings.iter().map(move |finding| (row, finding))) {
            match found.iter_mut().find(|(known, _)| known.rule == finding.rule) {
                // The rows of one trace are adjacent.
                Some((_, traces)) if traces.last() == Some(&row.label.as_str()) => {}
                Some((_, traces)) => traces.push(&row.label),
                None => found.push((finding, vec![&row.label])),
            }
        }
        found.sort_by_key(|(_, traces)| std::cmp::Reverse(traces.len()));
        found
    }
}

/// The fewest traces among which one can be an outlier.
pub const LEAST_TRACES: usize = 3;

/// An outlier is further from the median than this many robust standard deviations …
pub const OUTLIER_DISTANCE: f64 = 5.0;

/// … and than this share of the median; for figures that are shares, than this many percentage points / 100.
pub const OUTLIER_SHARE: f64 = 0.05;

/// An outlier: a figure of one trace that differs from all others.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlier {
    /// The index of the trace.
    pub at: usize,
    /// The index of the figure.
    pub figure: usize,
    /// Its value.
    pub value: f64,
    /// The median of all traces.
    pub median: f64,
    /// Its distance from the median in robust standard deviations.
    pub distance: f64,
}

/// Finds outliers in rows of figures, one row per trace, the furthest first; each trace appears once.
///
/// The robust standard deviation is the scaled median absolute deviation, and at least 1 % of the median (for a share,
/// 0.01): otherwise tiny differences would be outliers if all other traces are equal.
fn outliers(figures: &[Figure], rows: &[Vec<Option<f64>>]) -> Vec<Outlier> {
    let of_figure = |(at, figure): (usize, &Figure)| outliers_of_figure(rows, at, figure.unit);
    let mut found: Vec<Outlier> = figures.iter().enumerate().flat_map(of_figure).collect();
    found.sort_by(|a, b| b.distance.total_cmp(&a.distance).then(a.at.cmp(&b.at)));
    let mut named = std::collections::HashSet::new();
    found.retain(|outlier| named.insert(outlier.at));
    found
}

fn outliers_of_figure(rows: &[Vec<Option<f64>>], figure: usize, unit: Unit) -> Vec<Outlier> {
    let values: Vec<(usize, f64)> =
        rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.get(figure).copied()??))).collect();
    if values.len() < LEAST_TRACES {
        return Vec::new();
    }
    let Some(median) = median(values.iter().map(|(_, value)| *value)) else { return Vec::new() };
    let deviation = median_deviation(&values, median);
    let whole = if unit == Unit::Share { 1.0 } else { median.abs() };
    let usual = (1.4826 * deviation).max(0.01 * whole);
    let is_outlier = |value: f64| {
        let away = (value - median).abs();
        away > OUTLIER_DISTANCE * usual && away > OUTLIER_SHARE * whole
    };
    let odd = values.into_iter().filter(|(_, value)| is_outlier(*value));
    odd.map(|(at, value)| Outlier {
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
        outliers(&[TIME], &rows(values)).iter().map(|odd| odd.at).collect()
    }

    #[test]
    fn a_trace_far_from_the_others_is_an_outlier() {
        let odd = outliers(&[TIME], &rows(&[10.0, 10.1, 9.9, 14.0, 10.0]));
        assert_eq!(odd.iter().map(|odd| (odd.at, odd.median)).collect::<Vec<_>>(), [(3, 10.0)]);
    }

    #[test]
    fn common_spread_gives_no_outlier_and_two_traces_have_none() {
        assert!(odd_times(&[8.0, 12.0, 9.0, 11.0, 13.0]).is_empty());
        assert!(odd_times(&[10.0, 100.0]).is_empty());
        assert!(odd_times(&[10.0, 10.0, 10.0, 10.4]).is_empty());
        assert_eq!(odd_times(&[10.0, 10.0, 10.0, 10.6]), [3]);
    }

    #[test]
    fn shares_are_outliers_by_percentage_points() {
        let odd = |last: f64| !outliers(&[SHARE], &rows(&[0.0, 0.0, 0.001, last])).is_empty();
        assert!(!odd(0.04) && odd(0.06));
    }

    #[test]
    fn a_trace_is_an_outlier_once_by_its_most_distant_figure() {
        let figures = |a: f64, b: f64| vec![Some(a), Some(b)];
        let rows = [figures(1.0, 5.0), figures(1.0, 5.0), figures(1.0, 5.0), figures(2.0, 50.0)];
        let odd = outliers(&[TIME, TIME], &rows);
        assert_eq!(odd.iter().map(|odd| (odd.at, odd.figure)).collect::<Vec<_>>(), [(3, 1)]);
    }

    #[test]
    fn findings_are_listed_once_per_rule_with_their_traces() {
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
            dropped: 0,
            findings: rules.iter().copied().map(finding).collect(),
        };
        let rows = vec![row("a", &["twice"]), row("b", &[]), row("c", &["early", "early"]), row("c", &["early"])];
        let fleet = Fleet::of(&[], [rows, vec![row("d", &["early"])]].concat());
        let text: Vec<_> = fleet.findings().into_iter().map(|(finding, traces)| (finding.rule, traces)).collect();
        assert_eq!(text, [("early", vec!["c", "d"]), ("twice", vec!["a"])]);
    }

    #[test]
    fn missing_figures_are_left_out() {
        let missing = vec![None];
        assert_eq!(outliers(&[TIME], &[missing.clone(), missing.clone(), missing]), []);
        assert!(odd_times(&[0.0, 0.0, 0.0]).is_empty());
    }
}
