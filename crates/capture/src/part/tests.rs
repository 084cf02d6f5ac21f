use proptest::prelude::*;

use super::*;
use crate::cupti::{GraphNode, MemoryKind, WaitKind, WorkKind};

fn kernel(name: u32, start: u64, correlation: u32) -> Work<u32> {
    let kind = WorkKind::Kernel { name, grid: [40, 1, 1], block: [128, 1, 1], registers: 32, shared_bytes: 1024 };
    let (start_nanos, end_nanos) = (start, start + 2_500);
    Work { kind, start_nanos, end_nanos, device: 0, stream: 7, correlation, graph: None }
}

fn call(name: u32, start: u64, correlation: u32) -> Call {
    let (start_nanos, end_nanos) = (start, start + 3_000);
    Call { is_driver: false, name, start_nanos, end_nanos, thread: 4711, correlation }
}

#[test]
fn everything_that_is_written_is_read_again() {
    let mut encoder = Encoder::default();
    encoder.info("pid", "17");
    let device = Device {
        number: 0,
        name: "NVIDIA H200".into(),
        bus: "0000:01:00.0".into(),
        memory_bytes: 1 << 37,
        multiprocessors: 132,
        capability: (9, 0),
    };
    encoder.device(&device);
    let anchor = Anchor { host_nanos: 5, cupti_nanos: u64::MAX - 3, window_nanos: 80 };
    encoder.anchor(anchor);
    encoder.state(9, State::Light);
    let (gemm, launch, step) = (encoder.name(b"gemm"), encoder.name(b"cudaLaunchKernel"), encoder.name(b"step"));
    assert_eq!((gemm, launch, encoder.name(b"gemm"), encoder.name(b"")), (1, 2, 1, 0));
    let graph = Some(GraphNode { graph: 3, node: 12 });
    let copy = WorkKind::Copy { from: MemoryKind::Device, to: MemoryKind::Pinned, bytes: 4096 };
    let work = [
        kernel(gemm, 1_000_000, 50),
        Work { graph, ..kernel(gemm, 900_000, 40) },
        Work { kind: copy, ..kernel(0, 1_100_000, 51) },
        Work { kind: WorkKind::Fill { memory: MemoryKind::Device, bytes: 8 }, graph, ..kernel(0, 1_200_000, 52) },
        Work { kind: WorkKind::Graph, graph, stream: 9, ..kernel(0, 1_300_000, 53) },
    ];
    work.iter().for_each(|work| encoder.work(work));
    let wait = Wait { kind: WaitKind::Stream, start_nanos: 7, end_nanos: 9, stream: Some(0), correlation: 54 };
    let waits = [wait.clone(), Wait { stream: None, kind: WaitKind::Context, ..wait }];
    waits.iter().for_each(|wait| encoder.wait(wait));
    encoder.call(&call(launch, 999_000, 50));
    let memory = Memory { nanos: 3, device: 0, memory: MemoryKind::Device, bytes: 1 << 30, is_release: true };
    encoder.memory(&memory);
    let push = Range {
        host_nanos: 77,
        thread: 4712,
        action: RangeAction::Push,
        name: step,
        domain: 0,
        category: gemm,
        payload: Some(Payload::Signed(-3)),
    };
    let pop = Range { action: RangeAction::Pop, name: 0, category: 0, payload: None, host_nanos: 99, ..push };
    let ranges = [
        push,
        pop,
        Range { action: RangeAction::Start(u64::MAX), payload: Some(Payload::Float(0.5)), ..push },
        Range { action: RangeAction::End(u64::MAX), ..pop },
        Range { action: RangeAction::Mark, payload: Some(Payload::Unsigned(u64::MAX)), ..push },
    ];
    ranges.iter().for_each(|range| encoder.range(range));
    encoder.thread_name(4712, b"loader");
    encoder.dropped(Kind::Cupti, 5);
    let bytes = encoder.block().unwrap().to_vec();

    let part = read(&bytes);
    assert_eq!(part.cut_bytes, 0);
    let mut expected = vec![
        Event::Info { key: "pid".into(), value: "17".into() },
        Event::Device(device),
        Event::Anchor(anchor),
        Event::State { host_nanos: 9, state: State::Light },
    ];
    expected.extend(work.map(Event::Work));
    expected.extend(waits.map(Event::Wait));
    expected.push(Event::Call(call(launch, 999_000, 50)));
    expected.push(Event::Memory(memory));
    expected.extend(ranges.map(Event::Range));
    expected.push(Event::Thread { thread: 4712, name: 4 });
    expected.push(Event::Dropped { kind: Kind::Cupti, count: 5 });
    assert_eq!(part.events, expected);
    assert_eq!((part.name(gemm), part.name(4), part.name(99)), ("gemm", "loader", ""));
}

#[test]
fn a_launch_and_its_kernel_take_at_most_20_bytes() {
    let mut encoder = Encoder::default();
    let names: Vec<u32> = (0..200).map(|at| encoder.name(format!("kernel {at}").as_bytes())).collect();
    let before = encoder.block_bytes();
    const LAUNCHES: u32 = 10_000;
    for at in 0..LAUNCHES {
        let start = 1_790_000_000_000_000_000 + u64::from(at) * 15_000;
        encoder.call(&call(names[0], start, 10 * at));
        encoder.work(&kernel(names[at as usize % 200], start + 9_000, 10 * at));
    }
    let each = (encoder.block_bytes() - before) as f64 / f64::from(LAUNCHES);
    assert!(each <= 20.0, "{each} bytes");
}

#[test]
fn blocks_follow_each_other_and_a_cut_one_is_left_out() {
    let mut encoder = Encoder::default();
    let name = encoder.name(b"gemm");
    encoder.work(&kernel(name, 1_000, 1));
    let mut bytes = encoder.block().unwrap().to_vec();
    encoder.written();
    assert_eq!(encoder.block(), None);
    encoder.work(&kernel(name, 2_000, 2));
    let second = encoder.block().unwrap().to_vec();
    let whole = bytes.len();
    bytes.extend(&second);
    assert_eq!(read(&bytes).events, [Event::Work(kernel(name, 1_000, 1)), Event::Work(kernel(name, 2_000, 2))]);
    let cut = read(&bytes[..whole + 20]);
    assert_eq!((cut.events.len(), cut.cut_bytes), (1, 20));
}

#[test]
fn unwritten_records_are_counted_by_kind_and_the_next_part_is_complete() {
    let mut encoder = Encoder::default();
    let name = encoder.name(b"gemm");
    encoder.work(&kernel(name, 1_000, 1));
    encoder.call(&call(name, 900, 1));
    encoder.failed();
    let name = encoder.name(b"softmax");
    encoder.work(&kernel(name, 2_000, 2));
    let part = read(encoder.block().unwrap());
    assert_eq!(part.name(1), "softmax");
    let dropped = |kind| Event::Dropped { kind, count: 1 };
    assert_eq!(part.events, [Event::Work(kernel(name, 2_000, 2)), dropped(Kind::Kernel), dropped(Kind::Call)]);
}

proptest! {
    #[test]
    fn no_bytes_break_the_reading(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut block = BLOCK_MARK.to_le_bytes().to_vec();
        block.extend((bytes.len() as u32).to_le_bytes());
        block.extend(checksum(&bytes).to_le_bytes());
        block.extend(&bytes);
        read(&block);
        read(&bytes);
    }
}
