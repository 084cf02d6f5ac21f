//! Text-to-speech cases in the columns of the qwen3-tts-rs profiling tool, and a few more.

use laptime_analyze::{CaseFigures, Cases, Figures, MeasuredFigures, SharedDoubt};
use laptime_trace::run::AxisValue;

use super::axes::{Axes, UsedKeys};
use super::troubles;
use crate::{Cell, Column, Table};

/// The workload of these cases.
const WORKLOAD: &str = "tts";

/// Axes that other columns already show.
const SHOWN_ELSEWHERE: &[&str] = &["label", "text", "text_file", "frames", "streaming"];

/// Lays out text-to-speech cases: one table for complete and one for streamed generation, with the columns of
/// qwen3-tts-rs first. Empty if there are cases of other workloads.
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
    let axes = Axes::of(cases.iter().map(|case| &case.id)).without(SHOWN_ELSEWHERE);
    let shared: &[Figure] = if is_streaming { STREAMED } else { AT_ONCE };
    let mut table = Table::new("speech", columns(shared, &axes));
    for case in cases {
        table.push(row(case, shared, &axes));
    }
    add_notes(&mut table, cases, &axes, is_streaming);
    Some(table)
}

/// The varying axes, the columns of qwen3-tts-rs, and further columns.
fn columns(shared: &[Figure], axes: &Axes) -> Vec<Column> {
    let mut columns = vec![Column::new("Label", "Label"), Column::new("Words", "Words")];
    columns.extend(shared.iter().map(|one| {
        let column = Column::new(one.label, one.label);
        match GOES_FIRST.iter().position(|label| *label == one.label) {
            Some(rank) => column.drop(1 + rank as u8),
            None => column,
        }
    }));
    let behind = OWN.iter().zip(1 + GOES_FIRST.len()..);
    columns.extend(behind.map(|(one, rank)| Column::new(one.label, one.label).drop(rank as u8)));
    columns.push(Column::new("outcome", "outcome"));
    let mut all = axes.columns(&mut UsedKeys::by(&columns));
    all.extend(columns);
    all
}

fn row(case: &CaseFigures, shared: &[Figure], axes: &Axes) -> Vec<Cell> {
    let measured = case.measured.as_ref();
    let mut cells = axes.cells(&case.id);
    cells.push(Cell::from(case.id.case.get("label").map(|label| Cell::text(label.to_string()))));
    cells.push(Cell::number(measured.and_then(|measured| number(measured, "words"))));
    cells.extend(shared.iter().chain(OWN).map(|one| Cell::from(measured.map(one.cell))));
    cells.push(Cell::from(measured.is_none().then(|| Cell::text(case.outcome()))));
    cells
}

/// Columns that are dropped first on a narrow terminal, from the last to the first.
const GOES_FIRST: &[&str] = &["Prefill", "Mem (MB)", "Audio (s)", "±"];

/// A column: its label, and its value for a measured case.
struct Figure {
    label: &'static str,
    cell: fn(&MeasuredFigures) -> Cell,
}

const AT_ONCE: &[Figure] = &[
    Figure { label: "Wall (ms)", cell: |measured| Cell::Number(measured.wall.all.mean / 1e6) },
    Figure { label: "±", cell: spread },
    Figure { label: "Audio (s)", cell: |measured| Cell::number(number(measured, "audio_s")) },
    Figure { label: "RTF", cell: |measured| Cell::number(measured.metric("rtf").map(|rtf| rtf.all.mean)) },
    Figure { label: "Tok/s", cell: frames_per_second },
    Figure { label: "Mem (MB)", cell: |measured| mib(measured.peak_bytes) },
    Figure { label: "Prefill", cell: |measured| share_of_stages(measured, "prefill_ms") },
    Figure { label: "Generate", cell: |measured| share_of_stages(measured, "generation_ms") },
    Figure { label: "Decode", cell: |measured| share_of_stages(measured, "decode_ms") },
];

const STREAMED: &[Figure] = &[
    Figure { label: "Wall (ms)", cell: |measured| Cell::Number(measured.wall.all.mean / 1e6) },
    Figure { label: "Audio (s)", cell: |measured| Cell::number(number(measured, "audio_s")) },
    Figure { label: "RTF", cell: |measured| Cell::number(measured.metric("rtf").map(|rtf| rtf.all.mean)) },
    Figure { label: "TTFA (ms)", cell: |measured| Cell::number(measured.metric("ttfa_ms").map(|ttfa| ttfa.all.mean)) },
    Figure { label: "Tok/s", cell: frames_per_second },
    Figure { label: "Mem (MB)", cell: |measured| mib(measured.peak_bytes) },
];

/// Further columns, the first of them dropped last.
const OWN: &[Figure] = &[
    Figure { label: "late", cell: |measured| median(measured, "late_frames") },
    Figure { label: "buffer (ms)", cell: |measured| median(measured, "buffer_ms") },
    Figure { label: "x limit", cell: |measured| Cell::number(measured.limits.and_then(|limits| limits.x_limit)) },
    Figure { label: "p50 (ms)", cell: |measured| median(measured, "frame_p50_ms") },
    Figure { label: "p95 (ms)", cell: |measured| median(measured, "frame_p95_ms") },
    Figure { label: "p99 (ms)", cell: |measured| median(measured, "frame_p99_ms") },
    Figure { label: "host (MiB)", cell: |measured| mib(measured.peak_rss_bytes) },
];

fn number(measured: &MeasuredFigures, fact: &str) -> Option<f64> {
    match measured.fact(fact)? {
        AxisValue::Int(whole) => Some(*whole as f64),
        AxisValue::Float(number) => Some(*number),
        _ => None,
    }
}

fn median(measured: &MeasuredFigures, metric: &str) -> Cell {
    Cell::number(measured.metric(metric).map(|figures: &Figures| figures.median))
}

fn spread(measured: &MeasuredFigures) -> Cell {
    Cell::number(measured.wall.all.std.map(|std| std / 1e6))
}

fn frames_per_second(measured: &MeasuredFigures) -> Cell {
    let frames = number(measured, "frames_made").filter(|_| measured.wall.all.mean > 0.0);
    Cell::number(frames.map(|frames| frames * 1e9 / measured.wall.all.mean))
}

fn mib(bytes: Option<u64>) -> Cell {
    Cell::number(bytes.map(|bytes| (bytes as f64 / f64::from(1 << 20)).round()))
}

/// A stage as qwen3-tts-rs prints it: its time, and its share of the three stages.
fn share_of_stages(measured: &MeasuredFigures, name: &str) -> Cell {
    let time = |name: &str| measured.metric(name).map(|figures| figures.all.mean);
    let all: Option<f64> = ["prefill_ms", "generation_ms", "decode_ms"].into_iter().map(time).sum();
    let text = time(name).zip(all.filter(|all| *all > 0.0)).map(|(ms, all)| {
        let digits = if ms < 10.0 { 1 } else { 0 };
        format!("{ms:.digits$}ms ({:.0}%)", 100.0 * ms / all)
    });
    Cell::from(text.map(Cell::text))
}

fn add_notes(table: &mut Table, cases: &[&CaseFigures], axes: &Axes, is_streaming: bool) {
    axes.add_common(table);
    troubles::add_cases(table, &Axes::of(cases.iter().map(|case| &case.id)), cases.iter().copied());
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
