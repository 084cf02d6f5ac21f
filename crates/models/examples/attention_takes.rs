//! Times attention on the CPU: `attention_takes LENGTH THREADS TAKES KIND`, or of each kind without the last.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::time::Instant;

use laptime_models::{
    Dtype, Marks,
    attention::{AttentionSizes, CPU_TILING, CpuAttention, Kept, Kind, Layout, Pattern, Random, Synthetic, executed},
};

fn main() {
    let number =
        |at: usize, default: usize| std::env::args().nth(at).and_then(|word| word.parse().ok()).unwrap_or(default);
    let (length, threads, takes) = (number(1, 4096), number(2, 2), number(3, 5));
    let sizes = AttentionSizes { batch: 1, heads: 16, kv_heads: 16, head_dim: 64, length };
    let pattern = Pattern::preset("small").expect("there is such a preset");
    let per_row = Pattern { shared: Random::PerRow, ..pattern };
    for (kind, pattern) in [
        (Kind::Naive, pattern),
        (Kind::Dense, pattern),
        (Kind::Sparse, pattern),
        (Kind::Sparse, per_row),
        (Kind::SlidingWindow, pattern),
        (Kind::BlockSparse, pattern),
    ] {
        if std::env::args().nth(4).is_some_and(|wanted| wanted != kind.word()) {
            continue;
        }
        let inputs = Synthetic { sizes, dtype: Dtype::F32, seed: 0 };
        let mut attention = CpuAttention::new(&inputs, threads, kind == Kind::Naive).expect("there is memory");
        let kept = Kept::of(kind, pattern, None);
        let began = Instant::now();
        let layout = Layout::build(&kept, length, CPU_TILING);
        let built = began.elapsed();
        let mut walls: Vec<f64> = (0..takes)
            .map(|_| {
                let began = Instant::now();
                match kind {
                    Kind::Naive => attention.attend_naive(&Marks::default(), true),
                    _ => attention.attend(&Marks::default(), &layout),
                }
                began.elapsed().as_secs_f64()
            })
            .collect();
        walls.sort_by(f64::total_cmp);
        let pairs = if kind == Kind::Naive { (length * length) as u64 } else { executed(&layout) };
        let (best, median) = (walls[0], walls[takes / 2]);
        println!(
            "{kind} {:?}: build {:.2} ms, best {:.1} ms, median {:.1} ms, {:.1} GFLOP/s executed, {} pairs of {}",
            pattern.shared,
            built.as_secs_f64() * 1e3,
            best * 1e3,
            median * 1e3,
            sizes.flops(pairs) as f64 / best / 1e9,
            layout.connections(),
            kept.allowed(length),
        );
    }
}
