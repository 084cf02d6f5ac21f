//! The workloads as users run them: their predicted memory is what they use.

use laptime_bench::{Case, Device as _, Prepared, Workload};
use laptime_pipelines::gpu::CudaDevice;
use laptime_pipelines::{Attention, CacheToCache, Chain, Matmul, MemoryCopy, Model, OffloadedLayers, TextToSpeech};

use crate::{Answer, Bench, Failed, expect};

/// Cases that use 100 MB or more.
const CASES: &[(&dyn Workload, &[&str])] = &[
    (&Matmul, &["size=6144 dtype=f32", "size=8192 dtype=bf16"]),
    (&MemoryCopy, &["op=copy size=256", "op=read size=512", "op=upload size=256", "op=download_pageable size=256"]),
    (&Chain, &["small=64 large=8192 graph=off", "small=64 large=8192 graph=on"]),
    (
        &Attention,
        &[
            "attention=naive seq_len=4096 dtype=bf16",
            "attention=dense seq_len=65536 dtype=bf16",
            "attention=sparse seq_len=65536 dtype=bf16",
            "attention=block-sparse seq_len=65536 dtype=f32",
        ],
    ),
    (&CacheToCache, &["prompt_tokens=256 max_new_tokens=8", "prompt_tokens=64 max_new_tokens=8 include_response=true"]),
    (&TextToSpeech, &["model=0.6b frames=20 dtype=bf16", "model=0.6b frames=200 dtype=f32 graph=off"]),
];

/// Cases of the workloads that keep a model for their next case.
const MODELS: &[&str] = &[
    "model=Qwen3-0.6B test=pp512 dtype=bf16",
    "model=Qwen3-0.6B test=tg8@d512 dtype=bf16",
    "model=Qwen3-0.6B test=tg8@d64 dtype=bf16 batch_size=32",
    "model=Qwen3-0.6B test=tg8@d64 dtype=fp8",
    "model=Qwen3-0.6B test=pp2048 dtype=f32 attention=naive",
    "model=Qwen3-0.6B test=forward1024 dtype=bf16",
    "model=gemma-3-1b test=tg8@d1024 dtype=bf16",
    "model=small test=step512 batch_size=4 dtype=bf16",
    "model=small test=forward_backward512 batch_size=2 attention=naive dtype=f32",
];
const OFFLOADED: &[&str] = &[
    "pipeline=lm model=Qwen3-0.6B gpu_layers=20 max_tokens=4 dtype=bf16",
    "pipeline=lm model=Qwen3-0.6B gpu_layers=all max_tokens=4 dtype=bf16",
    "pipeline=lm model=Qwen3-0.6B gpu_layers=8 max_tokens=4 dtype=fp8 mode=sync",
    "pipeline=speech model=1.5b gpu_layers=24 max_tokens=4 dtype=bf16",
];

pub fn memory(bench: &Bench) -> Answer {
    let device = CudaDevice::open(0).map_err(|error| Failed::Wrong(error.to_string()))?;
    // The stand-in computes nothing, so its results are wrong. What they need is allocated all the same.
    let is_stand_in = device.cuda().facts().name == "Stand-in GPU";
    let check = |workload: &dyn Workload, line: &str| {
        compare(bench, workload, line, (&device, is_stand_in))
            .unwrap_or_else(|error| (false, format!("{line}: {error:#}")))
    };
    let mut found = Vec::new();
    for (workload, lines) in CASES {
        found.extend(lines.iter().map(|line| check(*workload, line)));
    }
    found.extend(MODELS.iter().map(|line| check(&Model::new(), line)));
    found.extend(OFFLOADED.iter().map(|line| check(&OffloadedLayers::new(), line)));
    let is_good = found.iter().all(|(is_good, _)| *is_good);
    let lines = found.into_iter().map(|(is_good, line)| if is_good { line } else { format!("wrong: {line}") });
    let lines = lines.collect::<Vec<_>>().join("\n");
    expect(is_good, || lines.clone())?;
    Ok(lines)
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Runs a case, and compares the peak of the device with the prediction.
fn compare(
    bench: &Bench,
    workload: &dyn Workload,
    line: &str,
    (device, is_stand_in): (&CudaDevice, bool),
) -> Outcome<(bool, String)> {
    let given = |word: &str| word.split_once('=').map(|(axis, value)| (axis.to_owned(), vec![value.to_owned()]));
    let given: Vec<_> = line.split(' ').filter_map(given).collect();
    let case = workload.plan(&given)?.cases().swap_remove(0);
    let predicted = predicted_bytes(bench, workload, &case, device)?;
    device.reset_peak();
    let Prepared::Ready(mut iteration) = workload.prepare(&case, device)? else { return Err("it was refused".into()) };
    let checked = iteration.check();
    if !is_stand_in {
        checked?;
    }
    iteration.ready()?;
    iteration.run()?;
    device.synchronise()?;
    let used = device.peak_bytes().ok_or("no peak")?.saturating_add(iteration.kept_bytes());
    let ratio = predicted as f64 / used as f64;
    let words = format!("{} {line}: {:.1} MB of {:.1} MB ({ratio:.3})", workload.name(), mb(used), mb(predicted));
    Ok(((1.0..=1.05).contains(&ratio) && used >= 100_000_000, words))
}

/// What a case is refused for while nearly all memory is taken.
fn predicted_bytes(bench: &Bench, workload: &dyn Workload, case: &Case, device: &CudaDevice) -> Outcome<u64> {
    bench.device.give_back_memory()?;
    let free = bench.device.free_memory()?.free.saturating_sub(16 << 20);
    let _taken = bench.device.allocate::<u8>(usize::try_from(free)?)?;
    match workload.prepare(case, device)? {
        Prepared::DoesNotFit { needed, .. } => Ok(needed),
        Prepared::Ready(_) => Err("it fits where there is no memory".into()),
        Prepared::DoesNotApply(reason) => Err(reason.into()),
    }
}

fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
