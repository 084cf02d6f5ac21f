//! The tables that the tests of this crate write down.

mod doctor;

use laptime_report::{Cell, Column, Table};

pub use self::doctor::doctor;

/// Stages of a text-to-speech run of 84 ms, four levels deep.
pub fn stages() -> Table {
    let mut table = Table::new("stages", stage_columns());
    for (path, count, per_parent, host, own, device, median, p95) in STAGES {
        let depth = path.matches('/').count();
        let label = path.rsplit('/').next().unwrap_or(path);
        let device = device.map(Cell::Nanos);
        table.push([
            Cell::tree(depth, label, path),
            Cell::Count(count),
            Cell::Nanos(host),
            Cell::Share(host as f64 / 84_123_456.0),
            Cell::Nanos(own),
            device.into(),
            Cell::Empty,
            Cell::Nanos(median),
            Cell::Nanos(p95),
            Cell::Number(per_parent),
            Cell::Count(depth as u64),
        ]);
    }
    table.fact("lost_events", "events lost", Cell::Count(0));
    table.machine_fact("clock_uncertainty_ns", Cell::Count(1_250));
    table.note("Device times are stream time between the events of a stage, idle included.");
    table.note("`tokenize` never reached the device.");
    table
}

fn stage_columns() -> [Column; 11] {
    [
        Column::new("path", "stage"),
        Column::new("count", "count"),
        Column::new("host_ms", "host"),
        Column::new("share", "share").drop(1),
        Column::new("self_ms", "self").drop(3),
        Column::new("device_ms", "device").drop(2),
        Column::new("busy_ms", "busy").drop(2),
        Column::new("median_ms", "median").drop(4),
        Column::new("p95_ms", "p95").drop(5),
        Column::new("per_parent", "per parent").drop(6),
        Column::new("depth", "depth").machine_only(),
    ]
}

type Stage = (&'static str, u64, f64, u64, u64, Option<u64>, u64, u64);

const STAGES: [Stage; 12] = [
    ("synthesize", 1, 1.0, 84_123_456, 1_203_400, None, 84_123_456, 84_123_456),
    ("synthesize/tokenize", 1, 1.0, 310_200, 310_200, None, 310_200, 310_200),
    ("synthesize/prefill", 1, 1.0, 9_412_008, 612_008, Some(9_105_664), 9_412_008, 9_412_008),
    ("synthesize/prefill/attention", 28, 28.0, 5_200_000, 5_200_000, Some(5_011_200), 184_300, 201_220),
    ("synthesize/prefill/mlp", 28, 28.0, 3_600_000, 3_600_000, Some(3_550_848), 127_100, 140_002),
    ("synthesize/decode", 512, 512.0, 61_800_512, 4_300_512, Some(58_220_000), 118_204, 163_840),
    ("synthesize/decode/layer", 14_336, 28.0, 55_400_000, 9_100_000, Some(54_001_920), 3_810, 4_402),
    ("synthesize/decode/layer/attention", 14_336, 1.0, 28_100_000, 28_100_000, Some(27_400_192), 1_930, 2_210),
    ("synthesize/decode/layer/mlp", 14_336, 1.0, 18_200_000, 18_200_000, Some(17_900_032), 1_255, 1_480),
    ("synthesize/decode/sample_token", 512, 1.0, 2_100_000, 2_100_000, Some(11_264), 4_050, 5_120),
    ("synthesize/vocoder", 16, 16.0, 11_397_336, 11_396_936, Some(11_020_288), 702_011, 790_101),
    ("synthesize/vocoder/flush", 1, 0.0625, 400, 400, None, 400, 400),
];

/// Names that try to break out of every format.
pub fn hostile() -> Table {
    let mut table = Table::new(
        "spans",
        [
            Column::new("name", "name"),
            Column::new("kind", "kind"),
            Column::new("count", "count"),
            Column::new("peak_bytes", "peak"),
            Column::new("ratio", "ratio"),
            Column::new("is_async", "async"),
        ],
    );
    for (at, name) in HOSTILE.iter().enumerate() {
        let peak = (at % 3 != 0).then_some(Cell::Bytes(700 << (3 * at)));
        let ratio = if at % 4 == 0 { f64::NAN } else { at as f64 / 7.0 };
        let kind = Cell::text(HOSTILE[(at + 1) % HOSTILE.len()]);
        let count = Cell::Count(1 << (4 * at));
        let is_async = Cell::Bool(at % 2 == 0);
        table.push([Cell::text(*name), kind, count, peak.into(), Cell::Number(ratio), is_async]);
    }
    table.fact("longest", "longest name", Cell::text(HOSTILE[0]));
    table.note(format!("The stage `{}` was never closed.", HOSTILE[1]));
    table
}

const HOSTILE: [&str; 9] = [
    "\u{1b}[2J\u{1b}[31mred\u{1b}[0m\r\nnext line",
    "</td></script><script>alert(1)</script>",
    "pipe | back\\slash `tick` *star* __init__",
    "comma, \"quote\" and\ttab",
    "層ごとの注意機構を計算する段階の名前",
    "🚀❤️👩‍💻 emoji",
    "\u{202e}reversed\u{202c}",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
    "",
];
