//! The cost limits of a span, checked against the table.

use std::{fmt, io};

use crate::{disk, table::Table, variant::Variant};

/// One limit and the measured value.
pub struct Budget {
    what: String,
    found: f64,
    most: f64,
    unit: &'static str,
}

impl Budget {
    pub fn holds(&self) -> bool {
        self.found <= self.most
    }
}

/// Checks every limit.
pub fn judge(table: &Table<'_>) -> io::Result<Vec<Budget>> {
    let mut budgets = Vec::new();
    for fields in [false, true] {
        budgets.extend(speed(table, fields));
    }
    let idle = table.nanos(Variant::Idle, 1, 1, false).unwrap_or(f64::NAN);
    budgets.push(Budget { what: "stage! idle".to_owned(), found: idle, most: 1.5, unit: "ns" });
    budgets.extend(bytes_on_disk()?);
    Ok(budgets)
}

fn speed(table: &Table<'_>, fields: bool) -> Vec<Budget> {
    let nanos = |variant, threads| table.nanos(variant, threads, 1, fields).unwrap_or(f64::NAN);
    let clock = table.nanos(Variant::TwoTicks, 1, 1, false).unwrap_or(f64::NAN);
    let (native, subscriber, layer) = (Variant::Native, Variant::Subscriber, Variant::Layer);
    let with = if fields { ", two fields" } else { "" };
    let budget = |variant: Variant, other: &str, found: f64, most: f64| {
        let what = format!("{}{with}, against {other}", variant.name());
        Budget { what, found, most, unit: "x" }
    };
    let chrome = |variant, least: f64| {
        let found = nanos(variant, 1) / nanos(Variant::Chrome, 1);
        budget(variant, &format!("1/{least} of tracing-chrome"), found * least, 1.0)
    };
    let two_threads = nanos(native, 2) / nanos(native, 1);
    let fastrace = nanos(subscriber, 1) / nanos(Variant::Fastrace, 1);
    vec![
        budget(native, "two reads of its clock", nanos(native, 1) / clock, 2.0),
        chrome(native, if fields { 40.0 } else { 20.0 }),
        budget(native, "one thread, on two", two_threads, 1.4),
        chrome(subscriber, if fields { 25.0 } else { 12.0 }),
        budget(subscriber, "fastrace", fastrace, 1.0),
        chrome(layer, 4.0),
    ]
}

/// The size limits of a trace file.
fn bytes_on_disk() -> io::Result<Vec<Budget>> {
    let mut budgets = Vec::new();
    for (fields, with, most_raw, most_compressed) in [(false, "", 30.0, 10.0), (true, ", two fields", 46.0, 16.0)] {
        let found = disk::measure(fields)?;
        let budget = |how: &str, found: f64, most: f64| {
            let what = format!("a span on disk{with}, {how}");
            Budget { what, found, most, unit: " B" }
        };
        budgets.push(budget("uncompressed", found.raw, most_raw));
        budgets.push(budget("as written", found.compressed, most_compressed));
    }
    Ok(budgets)
}

/// Prints the limits, one per line.
pub struct Budgets<'a>(pub &'a [Budget]);

impl fmt::Display for Budgets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:62} {:>8} {:>8}", "budget", "found", "most")?;
        for budget in self.0 {
            let verdict = if budget.holds() { "holds" } else { "BROKEN" };
            let (found, most) =
                (format!("{:.2}{}", budget.found, budget.unit), format!("{:.2}{}", budget.most, budget.unit));
            writeln!(f, "{:62} {found:>8} {most:>8}  {verdict}", budget.what)?;
        }
        Ok(())
    }
}
