use proptest::prelude::*;

use super::*;

type Record = super::Record<String>;

/// Bytes of a record, with values put where a structure of CUPTI has them.
struct Bytes(Vec<u8>);

impl Bytes {
    fn new(kind: u32, size: usize) -> Self {
        Self(vec![0; size]).put(0, &kind.to_ne_bytes())
    }

    fn put(mut self, at: usize, value: &[u8]) -> Self {
        self.0[at..at + value.len()].copy_from_slice(value);
        self
    }

    fn u32(self, at: usize, value: u32) -> Self {
        self.put(at, &value.to_ne_bytes())
    }

    fn u64(self, at: usize, value: u64) -> Self {
        self.put(at, &value.to_ne_bytes())
    }

    fn times(self, at: usize) -> Self {
        self.u64(at, 1_000).u64(at + 8, 1_500)
    }

    fn decode(&self) -> Option<Record> {
        decode(&self.0, |address| format!("name at {address}"))
    }
}

fn a_kernel(size: usize) -> Bytes {
    let bytes = Bytes::new(kind::KERNEL, size).put(6, &40_u16.to_ne_bytes()).times(16).u32(40, 1).u32(48, 7);
    let bytes = bytes.u32(52, 2).u32(56, 3).u32(60, 4).u32(64, 128).u32(68, 1).u32(72, 1);
    bytes.u32(76, 100).u32(80, 28).u32(92, 55).u64(104, 4_096)
}

fn the_kernel(graph: Option<GraphNode>) -> Record {
    let kind = WorkKind::Kernel {
        name: "name at 4096".into(),
        grid: [2, 3, 4],
        block: [128, 1, 1],
        registers: 40,
        shared_bytes: 128,
    };
    let (start_nanos, end_nanos) = (1_000, 1_500);
    Record::Work(Work { kind, start_nanos, end_nanos, device: 1, stream: 7, correlation: 55, graph })
}

#[test]
fn a_kernel_is_read_with_any_fields_that_a_version_added_at_the_end() {
    for size in [160, 216, 224, 240] {
        assert_eq!(a_kernel(size).decode(), Some(the_kernel(None)), "{size} bytes");
    }
}

#[test]
fn a_kernel_of_a_graph_names_its_node() {
    let bytes = a_kernel(216).u64(144, 9).u32(156, 3);
    assert_eq!(bytes.decode(), Some(the_kernel(Some(GraphNode { graph: 3, node: 9 }))));
}

#[test]
fn a_copy_reports_both_memories() {
    let bytes = Bytes::new(kind::COPY, 96).put(4, &[1, 2, 3]).u64(8, 4_096).times(16).u32(40, 7).u32(44, 56);
    let kind = WorkKind::Copy { from: MemoryKind::Pinned, to: MemoryKind::Device, bytes: 4_096 };
    let (start_nanos, end_nanos) = (1_000, 1_500);
    let work = Work { kind, start_nanos, end_nanos, device: 0, stream: 7, correlation: 56, graph: None };
    assert_eq!(bytes.decode(), Some(Record::Work(work)));
}

#[test]
fn a_copy_between_devices_has_its_number_elsewhere() {
    let bytes = Bytes::new(kind::PEER_COPY, 96).put(4, &[10, 3, 3]).times(16).u32(44, 1).u32(60, 57);
    let Some(Record::Work(work)) = bytes.decode() else { panic!("no work") };
    assert_eq!(work.correlation, 57);
    assert!(matches!(work.kind, WorkKind::Copy { from: MemoryKind::Device, to: MemoryKind::Device, .. }));
}

#[test]
fn a_fill_reports_its_memory() {
    let bytes = Bytes::new(kind::FILL, 88).u64(8, 64).times(16).u32(44, 58).put(50, &3_u16.to_ne_bytes());
    let Some(Record::Work(work)) = bytes.decode() else { panic!("no work") };
    assert_eq!((work.kind, work.correlation), (WorkKind::Fill { memory: MemoryKind::Device, bytes: 64 }, 58));
}

#[test]
fn a_wait_for_all_streams_names_none() {
    let bytes = Bytes::new(kind::WAIT, 56).u32(4, 4).times(8).u32(24, 59).u32(32, u32::MAX);
    let (start_nanos, end_nanos) = (1_000, 1_500);
    let wait = Wait { kind: WaitKind::Context, start_nanos, end_nanos, stream: None, correlation: 59 };
    assert_eq!(bytes.decode(), Some(Record::Wait(wait)));
}

#[test]
fn calls_of_the_driver_are_reported_from_those_of_the_runtime() {
    for (number, is_driver) in [(kind::DRIVER, true), (kind::RUNTIME, false)] {
        let bytes = Bytes::new(number, 40).u32(4, 307).times(8).u32(28, 4_242).u32(32, 60);
        let (start_nanos, end_nanos) = (1_000, 1_500);
        let call = Call { is_driver, function: 307, start_nanos, end_nanos, thread: 4_242, correlation: 60 };
        assert_eq!(bytes.decode(), Some(Record::Call(call)));
    }
}

#[test]
fn a_tie_joins_a_call_and_a_stage() {
    let bytes = Bytes::new(kind::TIE, 24).u64(8, 1 << 40).u32(16, 61);
    assert_eq!(bytes.decode(), Some(Record::Tie(Tie { correlation: 61, stage: 1 << 40 })));
}

#[test]
fn a_launch_of_a_whole_graph_names_the_graph() {
    let bytes = Bytes::new(kind::GRAPH, 56).u32(4, 62).times(8).u32(24, 1).u32(28, 3).u32(36, 7);
    let (start_nanos, end_nanos, graph) = (1_000, 1_500, Some(GraphNode { graph: 3, node: 0 }));
    let kind = WorkKind::Graph;
    let work = Work { kind, start_nanos, end_nanos, device: 1, stream: 7, correlation: 62, graph };
    assert_eq!(bytes.decode(), Some(Record::Work(work)));
}

#[test]
fn allocations_and_releases_are_distinguished() {
    for (operation, is_release) in [(1, false), (2, true)] {
        let bytes = Bytes::new(kind::MEMORY, 128).u32(4, operation).u32(8, 3).u64(24, 4_096).u64(32, 9).u32(52, 1);
        let memory = Memory { nanos: 9, device: 1, memory: MemoryKind::Device, bytes: 4_096, is_release };
        assert_eq!(bytes.decode(), Some(Record::Memory(memory)));
    }
}

proptest! {
    #[test]
    fn no_bytes_break_the_reading(bytes in prop::collection::vec(any::<u8>(), 0..240), first in 0_u8..60) {
        let mut bytes = bytes;
        if let Some(kind) = bytes.first_mut() {
            *kind = first;
        }
        bytes.iter_mut().skip(1).take(3).for_each(|byte| *byte = 0);
        decode(&bytes, |_| ());
    }
}
