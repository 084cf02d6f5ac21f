//! Cases of text to speech in the columns of the kit, and a few more.

use laptime_analyze::{CaseFigures, Cases, Figures, MeasuredFigures, SharedDoubt};
use laptime_trace::run::AxisValue;

use super::{
    axes::{Axes, Taken},
    troubles,
};
use crate::{Cell, Column, Table};

/// The workload whose cases these are.
const WORKLOAD: &str = "tts";

/// Axes that the columns of the kit tell already, or that follow from those.
const TOLD: &[&str] = &["label", "text", "text_file", "frames", "streaming"];

/// Lays out cases of text to speech: those that were said at once and those that were streamed, each as a table with the
/// columns of the kit and then ours. Nothing if other workloads are among them.
pub fn speech(answer: &Cases, doubts: &[SharedDoubt]) -> Vec<Table> {
    if answer.cases.iter().any(|case| case.id.workload != WORKLOAD) {
        return Vec::new();
    }
    let of = |is_streaming: bool| {
        answer.cases.iter().filter(move |case| is_streamed(case) == is_streaming).collect::<Vec<_>>()
    };
    let mut tables: Vec<Table> = [false, true].into_iter().filter_map(|is| table(&of(is), is)).collect();
    if let Some(last) = tables.last_mut() {
        doubts.iter().for_each(|doubt| last.warn(doubt.note()));
    }
    tables
}

fn is_streamed(case: &CaseFigures) -> bool {
    case.id.case.get("streaming") == Some(&AxisValue::Bool(true))
}

fn table(cases: &[&CaseFigures], is_streaming: bool) -> Option<Table> {
    cases.first()?;
    let axes = Axes::of(cases.iter().map(|case| &case.id)).without(TOLD);
    let kit: &[Kit] = if is_streaming { STREAMED } else { AT_ONCE };
    let mut table = Table::new("speech", columns(kit, &axes));
    for case in cases {
        table.push(row(case, kit, &axes));
    }
    add_notes(&mut table, cases, &axes, is_streaming);
    Some(table)
}

/// What else varies, the columns of the kit, and ours.
fn columns(kit: &[Kit], axes: &Axes) -> Vec<Column> {
    let mut columns = vec![Column::new("Label", "Label"), Column::new("Words", "Words")];
    columns.extend(kit.iter().map(|one| {
        let column = Column::new(one.label, one.label);
        match GOES_FIRST.iter().position(|label| *label == one.label) {
            Some(rank) => column.drop(1 + rank as u8),
            None => column,
        }
    }));
    let behind = OWN.iter().zip(1 + GOES_FIRST.len()..);
    columns.extend(behind.map(|(one, rank)| Column::new(one.label, one.label).drop(rank as u8)));
    columns.push(Column::new("outcome", "outcome"));
    let mut all = axes.columns(&mut Taken::by(&columns));
    all.extend(columns);
    all
}

fn row(case: &CaseFigures, kit: &[Kit], axes: &Axes) -> Vec<Cell> {
    let measured = case.measured.as_ref();
    let mut cells = axes.cells(&case.id);
    cells.push(Cell::from(case.id.case.get("label").map(|label| Cell::text(label.to_string()))));
    cells.push(Cell::from(measured.and_then(|measured| number(measured, "words")).map(Cell::Number)));
    cells.extend(kit.iter().chain(OWN).map(|one| Cell::from(measured.map(one.cell))));
    cells.push(Cell::from(measured.is_none().then(|| Cell::text(case.outcome()))));
    cells
}

/// Columns of the kit that go where a terminal is narrow, the last of them first.
const GOES_FIRST: &[&str] = &["Prefill", "Mem (MB)", "Audio (s)", "±"];

/// A column: its label, and what stands in it of a case that was measured.
struct Kit {
    label: &'static str,
    cell: fn(&MeasuredFigures) -> Cell,
}

const AT_ONCE: &[Kit] = &[
    Kit { label: "Wall (ms)", cell: |measured| Cell::Number(measured.wall.mean / 1e6) },
    Kit { label: "±", cell: spread },
    Kit { label: "Audio (s)", cell: |measured| cell(number(measured, "audio_s")) },
    Kit { label: "RTF", cell: |measured| cell(measured.metric("rtf").map(|rtf| rtf.mean)) },
    Kit { label: "Tok/s", cell: frames_a_second },
    Kit { label: "Mem (MB)", cell: |measured| mib(measured.peak_bytes) },
    Kit { label: "Prefill", cell: |measured| share_of_stages(measured, "prefill_ms") },
    Kit { label: "Generate", cell: |measured| share_of_stages(measured, "generation_ms") },
    Kit { label: "Decode", cell: |measured| share_of_stages(measured, "decode_ms") },
];

const STREAMED: &[Kit] = &[
    Kit { label: "Wall (ms)", cell: |measured| Cell::Number(measured.wall.mean / 1e6) },
    Kit { label: "Audio (s)", cell: |measured| cell(number(measured, "audio_s")) },
    Kit { label: "RTF", cell: |measured| cell(measured.metric("rtf").map(|rtf| rtf.mean)) },
    Kit { label: "TTFA (ms)", cell: |measured| cell(measured.metric("ttfa_ms").map(|ttfa| ttfa.mean)) },
    Kit { label: "Tok/s", cell: frames_a_second },
    Kit { label: "Mem (MB)", cell: |measured| mib(measured.peak_bytes) },
];

/// What the kit does not tell, the first of them kept longest.
const OWN: &[Kit] = &[
    Kit { label: "late", cell: |measured| median(measured, "late_frames") },
    Kit { label: "buffer (ms)", cell: |measured| median(measured, "buffer_ms") },
    Kit { label: "x limit", cell: |measured| cell(measured.limits.and_then(|limits| limits.x_limit)) },
    Kit { label: "p50 (ms)", cell: |measured| median(measured, "frame_p50_ms") },
    Kit { label: "p95 (ms)", cell: |measured| median(measured, "frame_p95_ms") },
    Kit { label: "p99 (ms)", cell: |measured| median(measured, "frame_p99_ms") },
    Kit { label: "host (MiB)", cell: |measured| mib(measured.peak_rss_bytes) },
];

fn cell(number: Option<f64>) -> Cell {
    Cell::from(number.map(Cell::Number))
}

fn number(measured: &MeasuredFigures, fact: &str) -> Option<f64> {
    match measured.fact(fact)? {
        AxisValue::Int(whole) => Some(*whole as f64),
        AxisValue::Float(number) => Some(*number),
        _ => None,
    }
}

fn median(measured: &MeasuredFigures, metric: &str) -> Cell {
    cell(measured.metric(metric).map(|figures: &Figures| figures.median))
}

fn spread(measured: &MeasuredFigures) -> Cell {
    cell(measured.wall.std.map(|std| std / 1e6))
}

fn frames_a_second(measured: &MeasuredFigures) -> Cell {
    cell(
        number(measured, "frames_made")
            .filter(|_| measured.wall.mean > 0.0)
            .map(|made| made * 1e9 / measured.wall.mean),
    )
}

fn mib(bytes: Option<u64>) -> Cell {
    cell(bytes.map(|bytes| (bytes as f64 / f64::from(1 << 20)).round()))
}

/// A stage as the kit has it: its time, and its share of the three together.
fn share_of_stages(measured: &MeasuredFigures, name: &str) -> Cell {
    let time = |name: &str| measured.metric(name).map(|figures| figures.mean);
    let all: Option<f64> = ["prefill_ms", "generation_ms", "decode_ms"].into_iter().map(time).sum();
    let told = time(name).zip(all.filter(|all| *all > 0.0)).map(|(ms, all)| {
        let digits = if ms < 10.0 { 1 } else { 0 };
        format!("{ms:.digits$}ms ({:.0}%)", 100.0 * ms / all)
    });
    Cell::from(told.map(Cell::text))
}

fn add_notes(table: &mut Table, cases: &[&CaseFigures], axes: &Axes, is_streaming: bool) {
    if let Some(first) = cases.first() {
        axes.add_common(table, &first.id);
    }
    let processes = |case: &CaseFigures| case.measured.as_ref().map_or(0, |figures| figures.wall.processes);
    let told =
        cases.iter().map(|case| troubles::Told { id: &case.id, troubles: &case.troubles, measured: processes(case) });
    troubles::add_notes(table, &Axes::of(cases.iter().map(|case| &case.id)), told);
    table.legend(
        "Wall is the mean of the iterations ± their standard deviation. RTF is wall time / audio; lower is better. Tok/s \
         is frames per second. Mem is the peak memory of the device. p50, p95 and p99 are the time per frame in the \
         median iteration.",
    );
    if is_streaming {
        table.legend(
            "TTFA is the time to first audio. Late frames arrive after their playback time, one every 80 ms from the \
             first audio on; a buffer of the size shown would avoid them.",
        );
    }
}
