//! Many traces side by side: which one differs from the others.

use laptime_stats::Sorted;

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
        Self { figures: figures.to_vec(), rows, odd: odd_ones(&values) }
    }
}

/// From this many traces on one can be the odd one out.
pub const LEAST_TRACES: usize = 3;

/// How many times the usual distance from the median an odd one must be away.
pub const ODD_DISTANCE: f64 = 5.0;

/// How far from the median it must be, as a share of it.
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
/// of the median: where all others agree to the last digit, a hair's breadth is not odd.
pub fn odd_ones(rows: &[Vec<Option<f64>>]) -> Vec<Odd> {
    let figures = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut odd: Vec<Odd> = (0..figures).flat_map(|figure| odd_of_figure(rows, figure)).collect();
    odd.sort_by(|a, b| b.distance.total_cmp(&a.distance).then(a.at.cmp(&b.at)));
    let mut named = std::collections::HashSet::new();
    odd.retain(|odd| named.insert(odd.at));
    odd
}

fn odd_of_figure(rows: &[Vec<Option<f64>>], figure: usize) -> Vec<Odd> {
    let values: Vec<(usize, f64)> =
        rows.iter().enumerate().filter_map(|(at, row)| Some((at, row.get(figure).copied()??))).collect();
    if values.len() < LEAST_TRACES {
        return Vec::new();
    }
    let Some(median) = median(values.iter().map(|(_, value)| *value)) else { return Vec::new() };
    let deviation = median_deviation(&values, median);
    let usual = (1.4826 * deviation).max(0.01 * median.abs());
    let is_odd = |value: f64| {
        let away = (value - median).abs();
        away > ODD_DISTANCE * usual && away > ODD_SHARE * median.abs()
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

    fn rows(values: &[f64]) -> Vec<Vec<Option<f64>>> {
        values.iter().map(|value| vec![Some(*value)]).collect()
    }

    #[test]
    fn the_one_far_from_the_others_is_named() {
        let odd = odd_ones(&rows(&[10.0, 10.1, 9.9, 14.0, 10.0]));
        assert_eq!(odd.iter().map(|odd| (odd.at, odd.median)).collect::<Vec<_>>(), [(3, 10.0)]);
    }

    #[test]
    fn spread_that_all_share_is_not_odd_and_two_traces_have_no_odd_one() {
        assert_eq!(odd_ones(&rows(&[8.0, 12.0, 9.0, 11.0, 13.0])), []);
        assert_eq!(odd_ones(&rows(&[10.0, 100.0])), []);
        assert_eq!(odd_ones(&rows(&[10.0, 10.0, 10.0, 10.4])), []);
    }

    #[test]
    fn a_trace_is_named_once_by_the_figure_furthest_away() {
        let figures = |a: f64, b: f64| vec![Some(a), Some(b)];
        let odd = odd_ones(&[figures(1.0, 5.0), figures(1.0, 5.0), figures(1.0, 5.0), figures(2.0, 50.0)]);
        assert_eq!(odd.iter().map(|odd| (odd.at, odd.figure)).collect::<Vec<_>>(), [(3, 1)]);
    }

    #[test]
    fn figures_that_are_missing_are_left_out() {
        let missing = vec![None];
        assert_eq!(odd_ones(&[missing.clone(), missing.clone(), missing]), []);
        assert_eq!(odd_ones(&rows(&[0.0, 0.0, 0.0])), []);
    }
}
