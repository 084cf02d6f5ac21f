//! Copies and communication of hand-made traces, with known answers.

use laptime_analyze::{DeviceOverlap, Overlap, Traffic, overlap};
use laptime_trace::{Nanos, TraceBuilder, TrackId, activity::category};
use proptest::prelude::*;

const PINNED: &str = "Memcpy HtoD (Pinned -> Device)";
const PAGEABLE: &str = "Memcpy HtoD (Pageable -> Device)";
const WITHIN: &str = "Memcpy DtoD (Device -> Device)";
const ALL_REDUCE: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL";

/// A trace in the making with a stream for compute and one for all else.
struct Fixture {
    builder: TraceBuilder,
    compute: TrackId,
    other: TrackId,
}

impl Fixture {
    fn new() -> Self {
        let mut builder = TraceBuilder::default();
        let [compute, other] = [7, 20].map(|stream| {
            let track = builder.stream(1, stream, &format!("stream {stream}"));
            builder.track_mut(track).device = Some(0);
            track
        });
        Self { builder, compute, other }
    }

    fn kernel(&mut self, start: u64, length: u64) -> &mut Self {
        self.builder.span(self.compute, Nanos(start), Nanos(length), "gemm", category::KERNEL);
        self
    }

    fn communicate(&mut self, start: u64, length: u64, name: &str) -> &mut Self {
        self.builder.span(self.other, Nanos(start), Nanos(length), name, category::KERNEL);
        self
    }

    fn copy(&mut self, start: u64, length: u64, name: &str, bytes: Option<i64>) -> &mut Self {
        self.copy_on(self.other, start, length, name, bytes)
    }

    fn copy_on(&mut self, stream: TrackId, start: u64, length: u64, name: &str, bytes: Option<i64>) -> &mut Self {
        let copy = self.builder.span(stream, Nanos(start), Nanos(length), name, category::COPY);
        if let Some(bytes) = bytes {
            self.builder.span_field(copy, "bytes", bytes);
        }
        self
    }

    fn answer(&mut self) -> Overlap {
        overlap(&std::mem::take(&mut self.builder).build().unwrap())
    }

    fn pause(&mut self, start: u64, end: u64) -> &mut Self {
        let pauses = format!(r#"[{{"process": 1, "start_ns": {start}, "end_ns": {end}}}]"#);
        self.builder.metadata.set(laptime_trace::metadata::NOT_RECORDED, &pauses);
        self
    }

    fn device(&mut self) -> DeviceOverlap {
        self.answer().devices.remove(0)
    }

    fn rules(&mut self) -> Vec<&'static str> {
        self.answer().findings.iter().map(|finding| finding.rule).collect()
    }
}

/// Time, hidden, exposed and alone.
fn times(traffic: &Traffic) -> [u64; 4] {
    [traffic.time, traffic.hidden, traffic.exposed(), traffic.alone].map(|time| time.0)
}

#[test]
fn paused_time_is_not_part_of_the_window() {
    let device =
        Fixture::new().kernel(0, 100).kernel(400, 100).copy(420, 20, PINNED, Some(64)).pause(150, 350).device();
    assert_eq!((device.window, device.compute), (Nanos(200), Nanos(200)));
}

#[test]
fn time_covered_by_compute_is_hidden_and_the_rest_is_exposed() {
    let device = Fixture::new().kernel(0, 100).copy(80, 50, PINNED, Some(100)).device();
    let (path, traffic) = &device.copies[0];
    assert_eq!((path.words(), traffic.count, traffic.bytes), ("HtoD pinned", 1, Some(100)));
    assert_eq!((times(traffic), traffic.hidden_share()), ([50, 20, 30, 30], Some(0.4)));
    assert_eq!((traffic.gb_s(), device.compute, device.window), (Some(2.0), Nanos(100), Nanos(130)));
}

#[test]
fn communication_does_not_hide_copies_but_is_reported() {
    let mut made = Fixture::new();
    let copies = made.builder.stream(1, 21, "stream 21");
    made.builder.track_mut(copies).device = Some(0);
    made.kernel(0, 100).communicate(90, 60, ALL_REDUCE).copy_on(copies, 120, 50, PINNED, None);
    let device = made.device();
    assert_eq!(times(&device.all_communication.unwrap()), [60, 10, 50, 20]);
    assert_eq!(times(&device.all_copies.unwrap()), [50, 0, 50, 20]);
}

#[test]
fn concurrent_copies_count_their_time_once() {
    let mut made = Fixture::new();
    let compute = made.compute;
    made.copy(0, 60, PINNED, Some(60)).copy_on(compute, 30, 70, PINNED, Some(140));
    let traffic = made.device().copies[0].1;
    assert_eq!((traffic.count, traffic.time, traffic.gb_s()), (2, Nanos(100), Some(2.0)));
}

#[test]
fn the_rate_is_computed_from_copies_with_known_bytes() {
    let mut made = Fixture::new();
    let traffic = made.copy(0, 50, PINNED, Some(100)).copy(60, 40, PINNED, None).device().copies[0].1;
    assert_eq!((traffic.time, traffic.bytes, traffic.gb_s()), (Nanos(90), Some(100), Some(2.0)));
    let unknown = Fixture::new().copy(0, 50, PINNED, None).device().copies[0].1;
    assert_eq!((unknown.bytes, unknown.gb_s()), (None, None));
}

#[test]
fn copies_are_grouped_by_direction_and_communication_by_family() {
    let mut made = Fixture::new();
    made.copy(0, 10, PINNED, None).copy(20, 10, PAGEABLE, None).copy(40, 10, WITHIN, None);
    made.communicate(60, 10, ALL_REDUCE).communicate(80, 10, "ncclDevKernel_SendRecv");
    let other = made.other;
    made.builder.span(other, Nanos(95), Nanos(5), "Memset (Device)", category::MEMSET);
    let device = made.device();
    let paths: Vec<_> = device.copies.iter().map(|(path, _)| path.words()).collect();
    assert_eq!(paths, ["HtoD pinned", "HtoD pageable", "DtoD", "memset"]);
    let families: Vec<_> = device.communication.iter().map(|(family, _)| family.word()).collect();
    assert_eq!(families, ["AllReduce", "SendRecv"]);
    assert_eq!((device.all_copies.unwrap().count, device.all_communication.unwrap().count), (4, 2));
}

#[test]
fn devices_are_reported_separately() {
    let mut made = Fixture::new();
    let second = made.builder.stream(1, 9, "stream 9");
    made.builder.track_mut(second).device = Some(1);
    made.kernel(0, 100).copy_on(second, 0, 50, PINNED, None);
    let answer = made.answer();
    assert_eq!(answer.devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>(), ["device 0", "device 1"]);
    assert_eq!(answer.devices[0].all_copies, None);
    assert_eq!(
        times(&answer.devices[1].all_copies.unwrap()),
        [50, 0, 50, 50],
        "compute of another device hides nothing"
    );
}

#[test]
fn pageable_copies_are_found_and_compared_with_pinned_ones() {
    let mut made = Fixture::new();
    made.kernel(0, 600_000).copy(0, 262_144, PAGEABLE, Some(1 << 20)).copy(320_000, 4096, PINNED, Some(98_304));
    let answer = made.answer();
    assert_eq!(answer.findings.len(), 1);
    let finding = &answer.findings[0];
    assert_eq!(finding.rule, "pageable-copy");
    let evidence = "1 host-to-device copy (1.0 MiB) used pageable memory at 4.0 GB/s (pinned copies reach 24.0 GB/s)";
    assert_eq!(finding.evidence, evidence);
    assert!(finding.next.contains("pin_memory"), "{finding}");
}

#[test]
fn pageable_copies_are_called_slower_only_if_they_are() {
    let text = |length| {
        let mut made = Fixture::new();
        made.kernel(0, 600_000).copy(0, length, PAGEABLE, Some(1_900_000)).copy(400_000, 9500, PINNED, Some(95_000));
        made.answer().findings[0].to_string()
    };
    let same = text(190_000);
    assert!(same.contains("at 10.0 GB/s (pinned copies: 10.0 GB/s); the driver copies through a buffer"), "{same}");
    assert!(!same.contains("slower"), "{same}");
    assert!(!text(200_000).contains("slower"), "95 % of the rate is not slower");
    assert!(text(200_200).contains("at 9.5 GB/s (pinned copies reach 10.0 GB/s)"), "{}", text(200_200));
    assert!(text(200_200).contains("which is slower and may block the host"), "{}", text(200_200));
}

#[test]
fn pageable_copies_are_a_finding_only_if_bytes_and_time_matter() {
    let rules = |length: u64, bytes: Option<i64>| {
        let mut made = Fixture::new();
        made.kernel(0, 1_000_000).copy(0, length, PAGEABLE, bytes).rules()
    };
    assert_eq!(rules(1_000, Some(1 << 20)), ["pageable-copy"]);
    assert_eq!(rules(999, Some(1 << 20)), [""; 0], "less than a thousandth of the device's time");
    assert_eq!(rules(1_000, Some((1 << 20) - 1)), [""; 0], "few bytes");
    assert_eq!(rules(1_000, None), ["pageable-copy"], "nobody knows how many bytes");
}

#[test]
fn copies_that_never_overlap_compute_are_a_finding() {
    assert_eq!(Fixture::new().kernel(0, 99).copy(99, 1, PINNED, None).rules(), ["copies-never-overlap"]);
    assert_eq!(Fixture::new().kernel(0, 100).copy(100, 1, PINNED, None).rules(), [""; 0], "less than 1 % of the time");
    let hidden = |start| Fixture::new().kernel(0, 1000).copy(start, 100, PINNED, None).rules();
    assert_eq!(hidden(999), [""; 0], "1 % is hidden");
    assert_eq!(hidden(1000), ["copies-never-overlap"]);
}

#[test]
fn copies_on_the_compute_stream_are_a_finding() {
    let mut made = Fixture::new();
    let compute = made.compute;
    made.kernel(0, 90).copy_on(compute, 90, 10, PINNED, None).copy_on(compute, 110, 10, PINNED, None);
    let answer = made.answer();
    assert_eq!(answer.findings.len(), 1);
    assert_eq!(answer.findings[0].rule, "copies-on-compute-stream");
    let evidence =
        "2 copies to or from the GPU run on compute streams: they take 16.7 % of the time, 0.0 % of it hidden";
    assert_eq!(answer.findings[0].evidence, evidence);
}

#[test]
fn a_stream_with_under_a_hundredth_of_the_compute_is_a_copy_stream() {
    let rules = |stray: u64| {
        let mut made = Fixture::new();
        let other = made.other;
        made.kernel(0, 1000 - stray);
        made.builder.span(other, Nanos(1000), Nanos(stray), "scale", category::KERNEL);
        made.copy(2000, 100, PINNED, None).rules()
    };
    assert_eq!(rules(9), ["copies-never-overlap"]);
    assert_eq!(rules(10), ["copies-on-compute-stream"]);
}

#[test]
fn copies_within_a_device_need_no_stream_of_their_own() {
    let mut made = Fixture::new();
    let compute = made.compute;
    let mut rules = |length: u64| {
        let mut made = std::mem::replace(&mut made, Fixture::new());
        made.kernel(0, 100 - length).copy_on(compute, 100 - length, length, WITHIN, None).rules()
    };
    assert_eq!(rules(4), [""; 0]);
    assert_eq!(rules(5), ["device-copies"], "but to be avoided");
}

#[test]
fn figures_match_values_and_missing_values_are_empty() {
    let device = Fixture::new().kernel(0, 100).copy(50, 100, PINNED, Some(300)).device();
    assert_eq!(device.values(), [None, None, Some(100.0), Some(0.5), Some(3.0), None]);
    assert_eq!(device.values().len(), Overlap::figures().len());
}

#[test]
fn a_trace_without_devices_has_no_overlap() {
    assert_eq!(overlap(&TraceBuilder::default().build().unwrap()).devices, []);
}

proptest! {
    #[test]
    fn hidden_and_exposed_add_up_and_the_total_is_between_maximum_and_sum(
        work in prop::collection::vec((0_u64..500, 0_u64..80, 0_usize..5, prop::option::of(0_i64..1000)), 0..40),
    ) {
        let mut made = Fixture::new();
        for (start, length, what, bytes) in work {
            match what {
                0 => made.kernel(start, length),
                1 => made.communicate(start, length, ALL_REDUCE),
                2 => made.communicate(start, length, "ncclDevKernel_AllGather"),
                3 => made.copy(start, length, PINNED, bytes),
                _ => made.copy(start, length, PAGEABLE, bytes),
            };
        }
        for device in made.answer().devices {
            let copies = device.copies.iter().map(|(_, traffic)| *traffic).collect::<Vec<_>>();
            let communication = device.communication.iter().map(|(_, traffic)| *traffic).collect::<Vec<_>>();
            for (whole, parts) in [(device.all_copies, copies), (device.all_communication, communication)] {
                prop_assert_eq!(whole.is_none(), parts.is_empty());
                let Some(whole) = whole else { continue };
                prop_assert_eq!(parts.iter().map(|part| part.count).sum::<u64>(), whole.count);
                let sum: u64 = parts.iter().map(|part| part.time.0).sum();
                let largest = parts.iter().map(|part| part.time.0).max().unwrap_or(0);
                prop_assert!(largest <= whole.time.0 && whole.time.0 <= sum);
                for traffic in parts.iter().chain([&whole]) {
                    let [time, hidden, exposed, alone] = times(traffic);
                    prop_assert_eq!(hidden + exposed, time);
                    prop_assert!(alone <= exposed && hidden <= device.compute.0);
                }
            }
        }
    }
}
