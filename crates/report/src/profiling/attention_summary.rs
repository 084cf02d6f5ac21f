//! Attention in the columns of Nano XYZ, one row per kind, then further columns.

use laptime_analyze::{CaseFigures, CaseId, MeasuredFigures, Profiling, ScalingSeries, grouped};

use super::{labels::Labels, largest, mean, megabytes, smallest};
use crate::{Cell, Table, table::table, tables::lengths};

/// The axes that a summary averages over.
const ALONG: [&str; 2] = ["seq_len", "test"];

/// Lays out attention, one row per kind: the columns of Nano XYZ in its order, then further columns. None if there is none.
///
/// Averages are over the measured lengths, so rows with other lengths are not comparable. Sparsity is the share of causal
/// entries that are not computed.
pub fn attention_summary(answer: &Profiling) -> Option<Table> {
    let part = &answer.attention;
    let labels = Labels::of(part.cases.iter().map(|case| &case.id), &["attention"]);
    let mut table = table!("attention_summary", by_series(&part.cases), cases: LengthGroup<'_> => {
        let series = part.scaling.series.iter().find(|series| series.id == cases.id);
        let numbers = |name: &'static str| cases.measured().filter_map(move |measured| measured.number(name));
        let memory = || cases.measured().filter_map(|measured| Some(megabytes(measured.peak_bytes? as f64)));
        let exponent = |of: fn(&ScalingSeries) -> Option<f64>| Cell::number(series.and_then(of));
    } [
        ("Attention Type") => Cell::text(labels.kind(&cases.id.case)),
        ("Avg Latency (ms)") => mean(cases.measured().map(|measured| measured.wall.median / 1e6)),
        ("Avg Memory (MB)") => mean(memory()),
        ("Max Memory (MB)") => largest(memory()),
        ("Avg Sparsity") => mean(numbers("sparsity")),
        ("Setting") => Cell::text(labels.setting(&cases.id)),
        ("Lengths") => Cell::text(cases.lengths()),
        ("Cases") => Cell::count(cases.cases.len()),
        ("Not Measured") => cases.unmeasured(),
        ("Time Exponent") => exponent(|series| Some(series.time.overall?.value)),
        ("Memory Exponent") => exponent(|series| Some(series.memory.overall?.value)),
        ("Max TFLOP/s") => largest(numbers("tflop_s")),
        ("Best x Limit") => smallest(cases.measured().filter_map(|measured| measured.limits?.x_limit)),
        ("Avg Build (ms)") => mean(numbers("build_ms")),
        ("Avg Mass Kept") => mean(numbers("mass_kept")),
        ("Avg Output Error") => mean(numbers("output_error")),
    ]);
    if table.rows.is_empty() {
        return None;
    }
    table.note("Averages are over the lengths in `Lengths`; a megabyte is 2^20 bytes; sparsity is the share of allowed entries that is not computed.");
    Some(table)
}

/// Cases that differ only in length.
pub(super) struct LengthGroup<'a> {
    /// What they have in common.
    pub(super) id: CaseId,
    pub(super) cases: Vec<&'a CaseFigures>,
}

impl<'a> LengthGroup<'a> {
    pub(super) fn measured(&self) -> impl Iterator<Item = &'a MeasuredFigures> + Clone {
        self.cases.iter().filter_map(|case| case.measured.as_ref())
    }

    /// The shortest and the longest length that were measured.
    pub(super) fn lengths(&self) -> String {
        let of = |case: &&&CaseFigures| case.measured.is_some();
        let known =
            self.cases.iter().filter(of).filter_map(|case| u64::try_from(case.id.case.int("seq_len").ok()?).ok());
        let mut known: Vec<u64> = known.collect();
        known.sort_unstable();
        known.dedup();
        lengths(&known)
    }

    pub(super) fn unmeasured(&self) -> Cell {
        Cell::Count(self.cases.iter().filter(|case| case.measured.is_none()).count() as u64)
    }
}

/// Groups cases that differ only in length, in order of first appearance.
pub(super) fn by_series<'a>(cases: &'a [CaseFigures]) -> Vec<LengthGroup<'a>> {
    let series = |(_, cases): (_, Vec<&'a CaseFigures>)| LengthGroup { id: cases[0].id.without(&ALONG), cases };
    grouped(cases.iter().map(|case| (case.id.without(&ALONG).key(), case))).into_iter().map(series).collect()
}
