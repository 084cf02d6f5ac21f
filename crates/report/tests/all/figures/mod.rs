//! Made-up figures to draw, similar to real ones.

use laptime_report::chart::{
    Chart, Highlight, Line, Point,
    charts::{
        Attention, AttentionKind, Crossovers, Models, Roof, Roofline, WarmupLaps, WarmupRow, attention_efficiency,
        attention_latency, attention_memory, crossover, model_performance, roofline, warmup_laps,
    },
};

/// Noise between -1 and 1 that is the same every time.
fn noise(at: usize) -> f64 {
    (at as f64 * 12.9898).sin()
}

/// Costs over length: a constant, a linear and a quadratic term; lengths above `fits` run out of memory.
fn growing(name: &str, lengths: &[f64], cost: [f64; 3], fits: f64) -> Line {
    let point = |(at, &length): (usize, &f64)| {
        let value = (cost[0] + cost[1] * length + cost[2] * length * length) * (1.0 + 0.01 * noise(at));
        let half = value * (0.02 + 0.05 * noise(at + 7).abs());
        match length <= fits {
            true => Point::measured(length, value).within(value - half, value + half),
            false => Point::failed(length, "out of memory"),
        }
    };
    Line::new(name, lengths.iter().enumerate().map(point).collect())
}

fn lengths(from: u32, count: u32) -> Vec<f64> {
    (0..count).map(|power| f64::from(from << power)).collect()
}

fn kind(name: &str, lengths: &[f64], time: [f64; 3], memory: [f64; 3], fits: f64) -> AttentionKind {
    let mut peak_bytes = growing(name, lengths, memory, fits);
    for point in &mut peak_bytes.points {
        if let laptime_report::chart::Reading::Measured { interval, .. } = &mut point.reading {
            *interval = None;
        }
    }
    AttentionKind { time_ns: growing(name, lengths, time, fits), peak_bytes, ..AttentionKind::default() }
}

/// Naive, dense and sparse attention, the first out of memory at the end.
pub fn attention() -> Attention {
    let lengths = lengths(512, 6);
    let mut naive = kind("naive", &lengths, [20e3, 40.0, 0.2], [4e6, 8e3, 96.0], 8192.0);
    naive.time_ns.note = "exponent 1.93 [1.88, 1.97]".to_owned();
    let mut dense = kind("dense", &lengths, [9e3, 5.0, 0.012], [1e6, 8192.0, 0.0], 1e9);
    dense.time_ns.note = "exponent 1.84 [1.80, 1.89]".to_owned();
    dense.peak_bytes.note = "exponent 1.00".to_owned();
    let mut sparse = kind("sparse", &lengths, [14e3, 9.0, 0.0], [1.2e6, 8392.0, 0.0], 1e9);
    sparse.time_ns.note = "exponent 1.02 [0.98, 1.05]".to_owned();
    let share = |length: &f64| Point::measured(*length, 1.0 - 300.0 / length);
    sparse.sparsity = Line::new("sparse", lengths.iter().map(share).collect());
    Attention {
        subtitle: "made-up figures: a GPU, bf16, causal, batch 1, 16 heads of 64; medians of 30 iterations, cold L2"
            .to_owned(),
        kinds: vec![naive, dense, sparse],
        ratios: ratios(&lengths),
    }
}

fn ratios(lengths: &[f64]) -> Vec<Line> {
    let ratio = |value: f64| (value * 0.93, value * 1.08);
    let time = |&length: &f64| {
        let value = (9e3 + 5.0 * length + 0.012 * length * length) / (14e3 + 9.0 * length);
        let (low, high) = ratio(value);
        Point::measured(length, value).within(low, high)
    };
    let memory = |&length: &f64| Point::measured(length, (1e6 + 8192.0 * length) / (1.2e6 + 8392.0 * length));
    vec![
        Line::new("time, sparse", lengths.iter().map(time).collect()),
        Line::new("memory, sparse", lengths.iter().map(memory).collect()),
    ]
}

/// Where dense attention becomes slower than sparse.
pub fn crossovers() -> Crossovers {
    Crossovers {
        subtitle: attention().subtitle,
        ratios: ratios(&lengths(512, 6)),
        crossings: vec![Highlight {
            at: 890.0,
            interval: Some([790.0, 1010.0]),
            label: "sparse: faster from 890 [790, 1,010] on".to_owned(),
        }],
    }
}

/// Two models in both passes, with their losses.
pub fn models() -> Models {
    let lengths = lengths(256, 3);
    let line = |name: &str, cost: [f64; 3], fits: f64| growing(name, &lengths, cost, fits);
    let names =
        ["decoder_tiny, inference", "decoder_tiny, training", "decoder_small, inference", "decoder_small, training"];
    let loss = |name: &str, from: f64| {
        let value = |step: usize| from * (-(step as f64) / 25.0).exp() + 2.0 + 0.08 * noise(step);
        Line::new(name, (0..60).map(|step| Point::measured((step + 1) as f64, value(step))).collect())
    };
    let over = |name: &str, value: f64| {
        let point = |(at, &length): (usize, &f64)| {
            let value = value + 0.2 * noise(at);
            Point::measured(length, value).within(value - 0.15, value + 0.15)
        };
        Line::new(name, lengths.iter().enumerate().map(point).collect())
    };
    Models {
        subtitle: "made-up figures: 2 cores, f32, batch 1; medians of 10 iterations in each of 3 processes".to_owned(),
        time_ns: vec![
            line(names[0], [1e6, 9e3, 2.0], 1e9),
            line(names[1], [4e6, 30e3, 7.0], 1e9),
            line(names[2], [8e6, 90e3, 9.0], 1e9),
            line(names[3], [30e6, 300e3, 30.0], 512.0),
        ],
        peak_bytes: vec![
            line(names[0], [2e6, 3e3, 16.0], 1e9),
            line(names[1], [2e7, 60e3, 160.0], 1e9),
            line(names[2], [6e6, 9e3, 32.0], 1e9),
            line(names[3], [2e8, 300e3, 640.0], 512.0),
        ],
        training_over_inference: vec![over(names[1], 3.1), over(names[3], 3.4)],
        loss: vec![loss(names[1], 6.0), loss(names[3], 7.0)],
    }
}

/// Four numbers of warm-up iterations, the first step of each process slow.
pub fn warmup(steps: usize) -> WarmupLaps {
    let row = |warmup: usize| {
        let lap = |step: usize| match step {
            0 => 180e6 * (1.0 + 0.2 * noise(warmup)),
            1 => 9e6,
            step => 4.1e6 * (1.0 + 0.04 * noise(step * 3 + warmup)),
        };
        let laps_ns = (0..steps).map(|step| lap(step) as u64).collect();
        WarmupRow { name: format!("{warmup} warm-up iterations"), laps_ns, not_counted: warmup }
    };
    WarmupLaps {
        subtitle: "made-up figures: a GPU, decode, batch 1; each row in a fresh process".to_owned(),
        rows: [0, 1, 5].map(row).into(),
        steady_ns: Some(4.1e6),
    }
}

/// Some work under two roofs.
pub fn roofs() -> Roofline {
    let reached = |name: &str, at: &[(f64, f64, &str)]| {
        Line::new(name, at.iter().map(|(x, y, label)| Point::measured(*x, *y).labelled(*label)).collect())
    };
    Roofline {
        subtitle: "made-up figures: a GPU, and roofs as `laptime peaks` measures them".to_owned(),
        memory: Roof { name: "memory, 4.1 TB/s".to_owned(), rate: 4.1e12 },
        compute: vec![
            Roof { name: "f32, 51 TFLOP/s".to_owned(), rate: 51e12 },
            Roof { name: "bf16, 790 TFLOP/s".to_owned(), rate: 790e12 },
        ],
        reached: vec![
            reached(
                "attention, dense",
                &[(120.0, 60e12, "512"), (250.0, 180e12, "1024"), (500.0, 320e12, "2k"), (2000.0, 430e12, "8k")],
            ),
            reached("attention, sparse", &[(60.0, 22e12, "512"), (62.0, 41e12, "2k"), (64.0, 70e12, "8k")]),
            reached("decode", &[(1.0, 3.2e12, "batch 1"), (8.0, 21e12, "batch 8")]),
        ],
    }
}

/// One chart of each kind.
pub fn charts() -> Vec<Chart> {
    let attention = attention();
    let charts = [
        attention_latency(&attention),
        attention_memory(&attention),
        attention_efficiency(&attention),
        model_performance(&models()),
        crossover(&crossovers()),
        warmup_laps(&warmup(25)),
        roofline(&roofs()),
    ];
    charts.into_iter().map(|chart| chart.expect("there is something to draw")).collect()
}

/// Figures that are hard to draw well: many, few, far apart, failed.
pub fn hard_charts() -> Vec<(&'static str, Chart)> {
    let charts = [
        ("many_lines", attention_latency(&many_kinds())),
        ("one_point", attention_latency(&one_point())),
        ("far_apart", attention_memory(&far_apart())),
        ("many_bars", attention_efficiency(&many_bars())),
        ("many_steps", warmup_laps(&warmup(3_000))),
        ("few_lengths", crossover(&few_lengths())),
        ("models_without_training", model_performance(&inference_only())),
        ("crowded_roof", roofline(&crowded_roof())),
        ("many_failures", attention_memory(&many_failures())),
    ];
    charts.into_iter().map(|(name, chart)| (name, chart.expect("there is something to draw"))).collect()
}

fn many_kinds() -> Attention {
    let names =
        ["naive", "dense", "sparse", "sliding-window", "block-sparse from a mask of sixty-four rows and columns"];
    let kinds = names.iter().enumerate().flat_map(|(at, name)| {
        [1, 4, 16].map(|batch| {
            let cost = f64::from(batch) * (1.0 + at as f64);
            let name = format!("{name}, batch {batch}");
            let fits = if at == 0 { 16384.0 / f64::from(batch) } else { 1e9 };
            kind(&name, &lengths(512, 7), [9e3, 5.0 * cost, 0.004 * cost], [1e6, 8e3 * cost, 0.0], fits)
        })
    });
    Attention {
        subtitle: "a long line on the machine and the method ".repeat(4),
        kinds: kinds.collect(),
        ratios: vec![],
    }
}

fn many_failures() -> Attention {
    let kinds = (0..9_u32).map(|at| {
        let fits = if at == 0 { 1e9 } else { f64::from(512 << (at % 3)) };
        kind(&format!("kind {at}"), &lengths(512, 5), [9e3, 5.0, 0.0], [1e6, 8e3 * f64::from(at + 1), 0.0], fits)
    });
    Attention { subtitle: "made-up figures".to_owned(), kinds: kinds.collect(), ratios: vec![] }
}

fn one_point() -> Attention {
    let kind = kind("dense", &[1024.0], [9e3, 5.0, 0.012], [1e6, 8e3, 0.0], 1e9);
    Attention { subtitle: "one length".to_owned(), kinds: vec![kind], ratios: vec![] }
}

fn far_apart() -> Attention {
    let lengths = lengths(16, 15);
    let kinds = vec![
        kind("naive", &lengths, [1e3, 1.0, 1.0], [0.0, 64.0, 512.0], 65536.0),
        kind("dense", &lengths, [1e3, 1.0, 1.0], [0.0, 64.0, 0.0], 1e9),
    ];
    Attention { subtitle: "nine decades".to_owned(), kinds, ratios: vec![] }
}

fn many_bars() -> Attention {
    let mut attention = attention();
    let lengths = lengths(512, 8);
    let line = |at: usize| {
        let point = |length: &f64| match *length > 16384.0 && at == 0 {
            true => Point::failed(*length, "timed out"),
            false => Point::measured(*length, (at + 1) as f64 * (length / 900.0).sqrt()).within(0.5, 3.0),
        };
        Line::new(format!("time, batch {}", 1 << at), lengths.iter().map(point).collect())
    };
    attention.ratios = (0..4).map(line).collect();
    attention
}

fn few_lengths() -> Crossovers {
    let points = vec![Point::measured(512.0, 0.8).within(0.7, 0.9), Point::measured(1024.0, 1.3).within(1.2, 1.4)];
    let crossing =
        |label: &str, at: f64| Highlight { at, interval: Some([at * 0.9, at * 1.1]), label: label.to_owned() };
    Crossovers {
        subtitle: "two lengths, two crossings near each other".to_owned(),
        ratios: vec![Line::new("time", points)],
        crossings: vec![crossing("sparse: faster from 660 on", 660.0), crossing("sparse: smaller from 700 on", 700.0)],
    }
}

fn inference_only() -> Models {
    let models = models();
    let only = |lines: &[Line]| lines.iter().filter(|line| line.name.ends_with("inference")).cloned().collect();
    Models {
        time_ns: only(&models.time_ns),
        peak_bytes: only(&models.peak_bytes),
        subtitle: models.subtitle,
        ..Models::default()
    }
}

fn crowded_roof() -> Roofline {
    let point =
        |at: usize| Point::measured(60.0 + 3.0 * at as f64, 3e13 + 2e12 * noise(at)).labelled(format!("case {at}"));
    let mut roofs = roofs();
    roofs.compute.push(Roof { name: "f16, 800 TFLOP/s".to_owned(), rate: 800e12 });
    roofs.compute.push(Roof { name: "tf32, 400 TFLOP/s".to_owned(), rate: 400e12 });
    roofs.reached.push(Line::new("many at one place", (0..30).map(point).collect()));
    roofs
}
