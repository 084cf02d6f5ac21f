//! The cost of the counting heap: a loop of allocations with the system's heap and the counting heap in alternation, on
//! one thread and on all. `cargo run --release -p laptime-pipelines --example heap_cost`.

// Both heaps are called by hand, so that one process can compare them.
#![allow(unsafe_code)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    hint::black_box,
    io::{Write, stdout},
    thread,
    time::Instant,
};

use laptime_pipelines::CountingHeap;

const PAIRS: usize = 1_000_000;
const ROUNDS: usize = 15;

fn main() -> std::io::Result<()> {
    let all = thread::available_parallelism().map_or(1, usize::from);
    for (bytes, threads) in [(64, 1), (64, all), (1 << 16, 1), (1 << 20, 1)] {
        let (mut plain, mut counted) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            plain.push(nanos_a_pair(&System, bytes, threads));
            counted.push(nanos_a_pair(&CountingHeap, bytes, threads));
        }
        let (plain, counted) = (median(plain), median(counted));
        let ratio = counted / plain;
        writeln!(
            stdout(),
            "{bytes:8} bytes, threads {threads}: {plain:6.1} ns, counted {counted:6.1} ns, {ratio:.2} times"
        )?;
    }
    Ok(())
}

/// The time of an allocation and its end, on each of the threads.
fn nanos_a_pair(heap: &(impl GlobalAlloc + Sync), bytes: usize, threads: usize) -> f64 {
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..PAIRS).for_each(|_| allocate_and_free(heap, bytes)));
        }
    });
    start.elapsed().as_nanos() as f64 / PAIRS as f64
}

fn allocate_and_free(heap: &impl GlobalAlloc, bytes: usize) {
    let layout = Layout::from_size_align(bytes, 8).expect("a small power of two");
    // SAFETY: the layout is not empty; the block is written within its bounds and freed once, by the same heap.
    unsafe {
        let place = black_box(heap.alloc(layout));
        assert!(!place.is_null());
        place.write(1);
        heap.dealloc(place, layout);
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
