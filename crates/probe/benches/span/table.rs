//! The measurements as a table: one row per variant, one column per shape.

use std::fmt;

use crate::{
    Figures,
    sample::{Measured, Sample, shapes},
    variant::Variant,
};

/// The medians of every sample.
pub struct Table<'a>(&'a Figures);

impl<'a> Table<'a> {
    pub fn new(figures: &'a Figures) -> Self {
        Self(figures)
    }

    /// Nanoseconds per span.
    pub fn nanos(&self, variant: Variant, threads: usize, depth: u32, fields: bool) -> Option<f64> {
        median(self.figures(variant, threads, depth, fields)?.iter().map(|measured| measured.nanos_a_span))
    }

    /// Bytes of buffer per span.
    pub fn bytes_in_memory(&self, variant: Variant, fields: bool) -> Option<f64> {
        median(self.figures(variant, 1, 1, fields)?.iter().filter_map(|measured| measured.bytes_a_span))
    }

    fn figures(&self, variant: Variant, threads: usize, depth: u32, fields: bool) -> Option<&[Measured]> {
        self.0.get(&Sample { variant, fields, depth, threads }).map(Vec::as_slice)
    }

    /// The cost of `tracing-chrome` divided by the cost of this variant, on one thread at depth 1.
    fn cheaper_than_chrome(&self, variant: Variant, fields: bool) -> Option<f64> {
        Some(self.nanos(Variant::Chrome, 1, 1, fields)? / self.nanos(variant, 1, 1, fields)?)
    }

    fn row(&self, variant: Variant) -> Vec<String> {
        let nanos = shapes().map(|(threads, depth, fields)| self.nanos(variant, threads, depth, fields));
        let bytes = [false, true].map(|fields| self.bytes_in_memory(variant, fields));
        let ratios = [false, true].map(|fields| self.cheaper_than_chrome(variant, fields));
        let mut cells: Vec<String> = nanos.map(figure).collect();
        cells.extend(bytes.map(figure));
        cells.extend(ratios.map(figure));
        cells
    }
}

fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = figures.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn figure(value: Option<f64>) -> String {
    match value {
        None => String::new(),
        Some(value) if value < 10.0 => format!("{value:.2}"),
        Some(value) if value < 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:22} {:^27} {:^27} {:^13} {:^13}", "", "ns, one thread", "ns, two threads", "bytes", "chrome /")?;
        let (plain, two) = ("none", "two");
        let depths = format!("{:^13} {:^13}", "depth 1", "depth 3");
        writeln!(f, "{:22} {depths} {depths} {:^13} {:^13}", "", "in memory", "variant")?;
        let pair = format!("{plain:>6} {two:>6}");
        writeln!(f, "{:22} {pair} {pair} {pair} {pair} {pair} {pair}", "fields")?;
        for variant in Variant::ALL {
            write!(f, "{:22}", variant.name())?;
            for cell in self.row(variant) {
                write!(f, " {cell:>6}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
