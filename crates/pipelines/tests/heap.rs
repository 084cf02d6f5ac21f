//! Exact numbers of the installed counting heap. Counts are process-wide, so there is no harness, whose threads could
//! allocate at any time.

// Without a harness, the lint does not know that this is a test.
#![allow(clippy::unwrap_used)]

use std::{
    alloc::{GlobalAlloc, Layout},
    hint::black_box,
    sync::Barrier,
    thread,
};

use laptime_bench::{Case, Device, Prepared, Simulated, Workload};
use laptime_pipelines::{
    Attention, COPY_OPS, CacheToCache, Chain, CountingHeap, CpuDevice, MATMUL_DTYPES, Matmul, MemoryCopy, Model,
    OffloadedLayers, TextToSpeech, heap,
};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

const MIB: u64 = 1 << 20;

/// Live bytes and peak, both less the live bytes at the start.
fn counts(start: u64) -> (u64, u64) {
    (heap::live_bytes().unwrap() - start, heap::peak_bytes().unwrap() - start)
}

fn start() -> u64 {
    heap::reset_peak();
    heap::live_bytes().unwrap()
}

/// Functions with their names.
macro_rules! tests {
    ($($test:ident),* $(,)?) => { [$((stringify!($test), $test as fn())),*] };
}

/// Runs the tests one after the other; words choose those whose names contain one.
fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let tests: &[(&str, fn())] = &tests![
        a_block_counts_until_it_is_freed,
        impossible_sizes_are_refused_before_memory_is_used,
        the_memory_of_a_case_does_not_depend_on_its_position,
        a_step_uses_at_least_the_memory_of_forward_and_backward,
        zeroed_blocks_count_too,
        growing_and_shrinking_a_block_counts_the_difference,
        a_failed_request_counts_nothing,
        blocks_of_all_threads_are_added_up,
        blocks_that_outlive_their_thread_are_counted,
        freeing_blocks_from_before_the_reset_lowers_the_next_peak,
        the_device_reports_the_peak_of_the_heap,
        copies_use_the_predicted_memory,
        products_use_the_predicted_memory,
        chains_use_the_predicted_memory,
        the_process_shows_the_memory_of_a_case,
        attention_uses_the_predicted_memory,
        // Last: the heap keeps freed memory of large models, which is part of the process's memory.
        models_use_the_predicted_memory,
        cache_fusion_uses_the_predicted_memory,
        speech_uses_the_predicted_memory,
        offloaded_layers_use_the_predicted_memory,
    ];
    for (_, test) in tests.iter().filter(|(name, _)| words.is_empty() || words.iter().any(|word| name.contains(word))) {
        test();
    }
}

fn a_block_counts_until_it_is_freed() {
    let start = start();
    let block = black_box(Vec::<u8>::with_capacity(1000));
    assert_eq!(counts(start), (1000, 1000));
    drop(block);
    assert_eq!(counts(start), (0, 1000));
    let small = black_box(Box::new(7_u64));
    assert_eq!(counts(start), (8, 1000));
    drop(small);
}

fn zeroed_blocks_count_too() {
    let start = start();
    let block = black_box(vec![0_u64; 1 << 17]);
    assert_eq!(counts(start), (MIB, MIB));
    assert!(block.iter().all(|&word| word == 0));
}

fn growing_and_shrinking_a_block_counts_the_difference() {
    let start = start();
    let mut block = black_box(Vec::<u8>::with_capacity(100));
    block.reserve_exact(5000);
    assert_eq!(counts(start), (5000, 5000));
    block.extend([1, 2, 3]);
    block.shrink_to(40);
    assert_eq!(counts(start), (40, 5000));
    assert_eq!(block, [1, 2, 3]);
    drop(block);
    assert_eq!(counts(start), (0, 5000));
}

fn a_failed_request_counts_nothing() {
    let start = start();
    let mut block = black_box(Vec::<u8>::with_capacity(64));
    assert!(block.try_reserve_exact(isize::MAX as usize).is_err());
    assert!(Vec::<u8>::new().try_reserve_exact(isize::MAX as usize).is_err());
    assert_eq!(counts(start), (64, 64));
}

/// The error of the counts of several threads: what each has not yet added to the total.
const SLACK: i64 = 4 * (64 << 10);

fn blocks_of_all_threads_are_added_up() {
    let everyone = Barrier::new(5);
    // Read while the threads wait, checked when they have ended: a failing test must not leave them waiting.
    let (mut held, mut peak, mut left) = (0, 0, 0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| hold_a_block(&everyone));
        }
        everyone.wait();
        let start = start() as i64;
        let since = |bytes: Option<u64>| bytes.map_or(i64::MIN, |bytes| bytes as i64 - start);
        everyone.wait();
        everyone.wait();
        (held, peak) = (since(heap::live_bytes()), since(heap::peak_bytes()));
        everyone.wait();
        everyone.wait();
        left = since(heap::live_bytes());
        everyone.wait();
    });
    let held_at_once = 4 * MIB as i64;
    assert!((held - held_at_once).abs() <= SLACK, "{held}");
    assert!((peak - held_at_once).abs() <= SLACK, "{peak}");
    assert!(left.abs() <= SLACK, "{left}");
}

fn blocks_that_outlive_their_thread_are_counted() {
    let start = start() as i64;
    let blocks = 100;
    let left: Vec<HeapBlock> = (0..blocks).map(|_| thread::spawn(|| HeapBlock::new(1000)).join().unwrap()).collect();
    let live = heap::live_bytes().unwrap() as i64 - start;
    let expected = 1000 * blocks + (left.capacity() * size_of::<HeapBlock>()) as i64;
    // If threads did not add their counts when they exit, the thousand bytes of each would be missing. The threads
    // themselves keep a little, once.
    assert!((live - expected).abs() < 20_000, "{live} of {expected}");
    drop(left);
    assert!((heap::live_bytes().unwrap() as i64 - start).abs() < 20_000);
}

/// Starts, holds a block, frees it and ends, each in step with the other threads.
fn hold_a_block(everyone: &Barrier) {
    everyone.wait();
    everyone.wait();
    let held = HeapBlock::new(MIB as usize);
    for _ in 0..1000 {
        drop(black_box(HeapBlock::new(512)));
    }
    everyone.wait();
    everyone.wait();
    drop(black_box(held));
    everyone.wait();
    everyone.wait();
}

/// A block straight from the heap, without the overhead of a collection.
struct HeapBlock {
    pointer: *mut u8,
    layout: Layout,
}

#[allow(unsafe_code)]
// SAFETY: only `drop` uses the pointer, and blocks of the heap may be freed on any thread.
unsafe impl Send for HeapBlock {}

impl HeapBlock {
    #[allow(unsafe_code)]
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes, 8).unwrap();
        // SAFETY: the layout is not empty.
        let pointer = unsafe { HEAP.alloc(layout) };
        assert!(!pointer.is_null());
        Self { pointer, layout }
    }
}

impl Drop for HeapBlock {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the block came from this heap with this layout and is freed once.
        unsafe { HEAP.dealloc(self.pointer, self.layout) };
    }
}

fn freeing_blocks_from_before_the_reset_lowers_the_next_peak() {
    let old = black_box(vec![1_u8; MIB as usize]);
    let start = start();
    drop(old);
    assert_eq!(heap::live_bytes().unwrap(), start - MIB);
    assert_eq!(heap::peak_bytes().unwrap(), start);
    heap::reset_peak();
    let new = black_box(vec![1_u8; 10]);
    assert_eq!(heap::peak_bytes().unwrap(), start - MIB + 10);
    drop(new);
}

fn the_device_reports_the_peak_of_the_heap() {
    let device = CpuDevice::new();
    device.reset_peak();
    assert_eq!(device.peak_bytes(), Some(0), "earlier blocks do not count");
    drop(black_box(vec![1_u8; 3 * MIB as usize]));
    assert_eq!(device.peak_bytes(), Some(3 * MIB));
}

/// The predicted memory and the peak memory of the first case of a line.
fn predicted_and_used(workload: &dyn Workload, line: &str) -> (u64, u64) {
    let case = cases(workload, line).swap_remove(0);
    let Prepared::DoesNotFit { needed, .. } = workload.prepare(&case, &Simulated::with_memory(0)).unwrap() else {
        panic!("there is no memory")
    };
    let start = start();
    let device = CpuDevice::new();
    let Prepared::Ready(mut iteration) = workload.prepare(&case, &device).unwrap() else { panic!("it fits") };
    iteration.check().unwrap();
    iteration.ready().unwrap();
    iteration.run().unwrap();
    (needed, heap::peak_bytes().unwrap() - start)
}

/// Checks that cases use at most the predicted memory, and that the prediction is at most `most` times the peak.
fn check_predictions(workload: &dyn Workload, lines: &[&str], most: f64) -> Vec<u64> {
    let check = |line: &&str| {
        let (predicted, used) = predicted_and_used(workload, line);
        let what = format!("{} {line}: {used} of {predicted}", workload.name());
        assert!(used <= predicted, "{what}");
        assert!(predicted as f64 <= most * used as f64, "{what}");
        used
    };
    lines.iter().map(check).collect()
}

/// Checks cases that use 100 MB or more: the prediction is at most 5 % higher. In smaller ones, small allocations that are
/// not counted individually matter more.
fn check_large(workload: &dyn Workload, lines: &[&str]) {
    check_larger(workload, lines, 1.05);
}

fn check_larger(workload: &dyn Workload, lines: &[&str], most: f64) {
    let used = check_predictions(workload, lines, most);
    assert!(used.iter().all(|used| *used >= 100_000_000), "{used:?}");
}

/// Kernels without AVX-512 may pack blocks of factors or not, which is not predicted.
fn most_of_products() -> f64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        return 1.05;
    }
    1.2
}

fn products_use_the_predicted_memory() {
    for dtype in MATMUL_DTYPES {
        let of = |line: &str| format!("{line} dtype={dtype}");
        let tiny = ["size=7 threads=1", "size=129 threads=2"].map(of);
        check_predictions(&Matmul, &tiny.each_ref().map(String::as_str), f64::INFINITY);
        let small = ["size=1024 threads=1", "size=1024 threads=2", "size=1500 threads=2"].map(of);
        check_predictions(&Matmul, &small.each_ref().map(String::as_str), 2.0);
    }
    let large = ["size=3000 dtype=f32 threads=2", "size=2200 dtype=f64 threads=1", "size=3400 dtype=bf16 threads=2"];
    check_larger(&Matmul, &large, most_of_products());
}

fn chains_use_the_predicted_memory() {
    let small = [
        "small=7 large=9 threads=1 graph=off",
        "small=64 large=512 threads=2 graph=off",
        "small=32 large=1024 threads=1 graph=off",
    ];
    check_predictions(&Chain, &small, f64::INFINITY);
    check_larger(&Chain, &["small=32 large=2900 threads=2 graph=off"], most_of_products());
}

fn models_use_the_predicted_memory() {
    let small = [
        "model=tiny test=pp64 batch_size=2",
        "model=tiny test=tg16@d32 dtype=bf16",
        "model=tiny test=step64 batch_size=2",
    ];
    check_predictions(&Model::new(), &small, f64::INFINITY);
    let large = [
        "model=decoder_tiny test=forward128 threads=2",
        "model=decoder_tiny test=forward128 dtype=bf16 threads=2",
        "model=decoder_tiny test=pp256 attention=naive threads=2",
        "model=decoder_tiny test=tg4@d200 batch_size=2 threads=2",
        "model=decoder_tiny test=tg4@d200 dtype=bf16 threads=2",
        "model=decoder_tiny test=step64 threads=2",
        "model=decoder_tiny test=forward256 attention=sparse threads=2",
        "model=decoder_tiny test=forward_backward64 batch_size=2 dtype=bf16 attention=naive threads=2",
        "model=gemma-3-270m test=pp16 dtype=bf16 threads=2",
    ];
    check_large(&Model::new(), &large);
}

fn offloaded_layers_use_the_predicted_memory() {
    let workload = OffloadedLayers::new();
    let lines = [
        "pipeline=lm model=decoder_tiny gpu_layers=2 max_tokens=4 threads=1",
        "pipeline=lm model=decoder_tiny gpu_layers=all max_tokens=4 threads=1",
        "pipeline=lm model=decoder_tiny gpu_layers=3 max_tokens=4 threads=2 mode=sync",
    ];
    check_large(&workload, &lines);
    // The memory of threads and small allocations exceeds that of this model. `laptime-models` tests a larger one.
    check_predictions(&workload, &["pipeline=speech model=tiny gpu_layers=1 max_tokens=4 threads=1"], 2.0);
}

fn cache_fusion_uses_the_predicted_memory() {
    let of = |line: &str| format!("prompt_tokens=64 max_new_tokens=4 threads=2 {line}");
    let large = ["dtype=bf16", "dtype=bf16 include_response=true"];
    let large = large.map(|line| of(&format!("base_model=decoder_tiny teacher_model=decoder_tiny {line}")));
    check_large(&CacheToCache, &large.each_ref().map(String::as_str));
    check_predictions(&CacheToCache, &[&of("preset=tiny")], 4.0);
}

fn speech_uses_the_predicted_memory() {
    // `laptime-models` tests a larger model.
    let lines = ["model=tiny frames=20 threads=2", "model=tiny frames=200 threads=1 dtype=bf16"];
    check_predictions(&TextToSpeech, &lines, 2.0);
}

/// The cases of a line of axes and values; none if they are refused.
fn cases(workload: &dyn Workload, line: &str) -> Vec<Case> {
    let given = |word: &str| {
        let (axis, value) = word.split_once('=').unwrap();
        (axis.to_owned(), vec![value.to_owned()])
    };
    let plan = workload.plan(&line.split(' ').map(given).collect::<Vec<_>>());
    plan.map(|plan| plan.cases()).unwrap_or_default()
}

fn impossible_sizes_are_refused_before_memory_is_used() {
    let workloads: [(&dyn Workload, &[&str]); 8] = [
        (&Matmul, &["size=MOST"]),
        (&MemoryCopy, &["size=MOST"]),
        (&Chain, &["small=MOST", "large=MOST"]),
        (&Attention, &["seq_len=2097151 attention=naive", "seq_len=64 batch_size=MOST", "seq_len=64 heads=MOST"]),
        (
            &Model::new(),
            &[
                "model=tiny pass_type=forward seq_len=MOST",
                "model=tiny pass_type=step seq_len=64 batch_size=MOST",
                "model=tiny pass_type=decode seq_len=8 cache_tokens=MOST",
                "model=tiny pass_type=forward seq_len=64 batch_size=MOST attention=sparse",
                "model=tiny test=tgMOST",
            ],
        ),
        (
            &CacheToCache,
            &[
                "preset=tiny prompt_tokens=MOST",
                "prompt_tokens=MOST",
                "preset=default prompt_tokens=MOST",
                "preset=tiny prompt_tokens=8 max_new_tokens=MOST",
                "preset=tiny prompt_tokens=8 against=text text_tokens=MOST",
            ],
        ),
        (&TextToSpeech, &["model=tiny frames=MOST", "model=tiny frames=4 chunk_frames=MOST streaming=true"]),
        (&OffloadedLayers::new(), &["model=tiny max_tokens=MOST", "pipeline=lm model=tiny max_tokens=MOST"]),
    ];
    for (workload, lines) in workloads {
        for line in lines {
            let line = line.replace("MOST", &u32::MAX.to_string());
            let start = start();
            for case in cases(workload, &line) {
                let device = Simulated::with_memory(1 << 30);
                let prepared = workload.prepare(&case, &device);
                // A chunk longer than the audio is the whole audio.
                let is_ready = matches!(prepared, Ok(Prepared::Ready(_)));
                assert!(!is_ready || line.contains("chunk_frames"), "{} {line}", workload.name());
            }
            let used = heap::peak_bytes().unwrap() - start;
            assert!(used < 64 * MIB, "{} {line}: {used} bytes", workload.name());
        }
    }
}

/// The peak of a case as the device reports it.
fn peak(workload: &dyn Workload, line: &str) -> u64 {
    let cases = cases(workload, line);
    let device = CpuDevice::new();
    device.reset_peak();
    let Prepared::Ready(mut iteration) = workload.prepare(&cases[0], &device).unwrap() else { panic!("it fits") };
    iteration.check().unwrap();
    iteration.ready().unwrap();
    iteration.run().unwrap();
    device.peak_bytes().unwrap()
}

/// Runs a function on a fresh thread, like the first case of a process.
fn on_a_fresh_thread<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(act).join().unwrap())
}

fn the_memory_of_a_case_does_not_depend_on_its_position() {
    // A workload may keep a model for its next case, so each case has its own workload. One thread each: threads of a pool
    // exit at any time, and would free their workspaces during the next case.
    type MakeWorkload = fn() -> Box<dyn Workload>;
    let cases: [(MakeWorkload, &str); 7] = [
        (|| Box::new(Model::new()), "model=tiny test=pp64 threads=1"),
        (|| Box::new(Model::new()), "model=tiny test=pp64 threads=2"),
        (|| Box::new(Model::new()), "model=tiny test=forward32 threads=1"),
        (|| Box::new(Matmul), "size=96 dtype=f32 threads=1"),
        (|| Box::new(Matmul), "size=96 dtype=f32 threads=2"),
        (|| Box::new(Attention), "attention=naive seq_len=64 threads=1"),
        (|| Box::new(OffloadedLayers::new()), "pipeline=lm model=tiny gpu_layers=1 max_tokens=2 threads=1"),
    ];
    for (make, line) in cases {
        let (first, later) = on_a_fresh_thread(|| (peak(&*make(), line), peak(&*make(), line)));
        assert!(first.abs_diff(later) <= SLACK as u64, "{line}: {first} first, {later} later");
    }
}

fn a_step_uses_at_least_the_memory_of_forward_and_backward() {
    let peak = |pass: &str| peak(&Model::new(), &format!("model=tiny pass_type={pass} seq_len=16 threads=2"));
    let (step, both) = on_a_fresh_thread(|| {
        let both = peak("forward_backward");
        (peak("step"), both)
    });
    assert!(step >= both, "{step} of a step, {both} of forward and backward");
}

fn attention_uses_the_predicted_memory() {
    let small = [
        "attention=naive seq_len=512",
        "attention=dense seq_len=2048",
        "attention=sparse seq_len=2048 threads=1",
        "attention=sparse seq_len=1000 random_per=row kv_heads=4",
        "attention=sparse seq_len=2048 causal=false dtype=bf16",
        "attention=block-sparse seq_len=1000 batch_size=2 dtype=f16",
    ];
    check_predictions(&Attention, &small, 3.0);
    let large = [
        "attention=naive seq_len=1024 batch_size=2 threads=2",
        "attention=dense seq_len=512 batch_size=64 threads=2",
        "attention=sparse seq_len=1024 batch_size=32 threads=2",
        "attention=block-sparse seq_len=1024 batch_size=64 dtype=bf16 threads=2",
    ];
    check_large(&Attention, &large);
}

fn copies_use_the_predicted_memory() {
    for op in COPY_OPS {
        for threads in [1, 2] {
            let line = format!("op={op} size=16 dtype=bf16 threads={threads}");
            let (predicted, used) = predicted_and_used(&MemoryCopy, &line);
            // Starting threads use some kilobytes, and those of the previous case may still be freeing theirs.
            assert!(used.abs_diff(predicted) < MIB / 4, "{op} {threads}: {used} of {predicted}");
        }
        check_large(&MemoryCopy, &[&format!("op={op} size=128 dtype=f32 threads=2")]);
    }
}

fn the_process_shows_the_memory_of_a_case() {
    let device = CpuDevice::new();
    device.reset_peak();
    drop(black_box(vec![1_u8; 64 * MIB as usize]));
    // The peak is unknown if the system does not allow a reset.
    let Some(high) = device.peak_rss_bytes() else { return };
    device.reset_peak();
    let low = device.peak_rss_bytes().unwrap();
    assert!(high >= 64 * MIB && low < high, "{high}, {low}");
}
