//! The counting heap, installed: exact numbers. The counts are the whole process's, so there is no harness, whose
//! threads allocate when they like.

use std::{
    alloc::{GlobalAlloc, Layout},
    hint::black_box,
    sync::Barrier,
    thread,
};

use laptime_bench::Device;
use laptime_pipelines::{CountingHeap, CpuDevice, heap};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

const MIB: u64 = 1 << 20;

/// Live bytes and peak, both less what was live at the start.
fn counts(start: u64) -> (u64, u64) {
    (heap::live_bytes().unwrap() - start, heap::peak_bytes().unwrap() - start)
}

fn start() -> u64 {
    heap::reset_peak();
    heap::live_bytes().unwrap()
}

fn main() {
    a_block_counts_until_it_is_freed();
    zeroed_blocks_count_too();
    growing_and_shrinking_a_block_counts_the_difference();
    a_failed_request_counts_nothing();
    blocks_of_all_threads_count_together();
    freeing_what_is_older_than_the_reset_lowers_the_peak_to_come();
    the_device_tells_the_peak_of_the_heap();
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

fn blocks_of_all_threads_count_together() {
    // What a thread itself needs is allocated before the reset and freed after the last look.
    let everyone = Barrier::new(5);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| hold_a_block(&everyone));
        }
        everyone.wait();
        let start = start();
        everyone.wait();
        everyone.wait();
        let (held, peak) = counts(start);
        everyone.wait();
        everyone.wait();
        let (left, _) = counts(start);
        everyone.wait();
        assert_eq!((held, left), (4 * MIB, 0));
        assert!((4 * MIB..=4 * MIB + 4 * 512).contains(&peak), "each may have had a small block too: {peak}");
    });
}

/// Begins, holds a block, lets it go and ends, each when everyone is there.
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

/// A block straight from the heap, without what a collection might add.
struct HeapBlock {
    place: *mut u8,
    layout: Layout,
}

impl HeapBlock {
    #[allow(unsafe_code)]
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes, 8).unwrap();
        // SAFETY: the layout is not empty.
        let place = unsafe { HEAP.alloc(layout) };
        assert!(!place.is_null());
        Self { place, layout }
    }
}

impl Drop for HeapBlock {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the block came from this heap with this layout and is freed once.
        unsafe { HEAP.dealloc(self.place, self.layout) };
    }
}

fn freeing_what_is_older_than_the_reset_lowers_the_peak_to_come() {
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

fn the_device_tells_the_peak_of_the_heap() {
    let device = CpuDevice::new();
    device.reset_peak();
    let before = device.peak_bytes().unwrap();
    drop(black_box(vec![1_u8; 3 * MIB as usize]));
    assert_eq!(device.peak_bytes().unwrap() - before, 3 * MIB);
}
