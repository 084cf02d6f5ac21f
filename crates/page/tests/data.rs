//! The data of a page is the trace: read back here, column by column.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{collections::HashMap, io::Read};

use flate2::read::ZlibDecoder;
use laptime_page::{
    About,
    data::{Data, Encoder, Extra, encode},
    of_trace,
};
use laptime_trace::{Nanos, Number, Trace, TraceBuilder};
use proptest::prelude::*;
use serde_json::Value;

struct Decoded {
    header: Value,
    columns: Vec<u8>,
}

impl Decoded {
    fn of(data: &Data) -> Self {
        let mut bytes = Vec::new();
        ZlibDecoder::new(&data.bytes[..]).read_to_end(&mut bytes).unwrap();
        let (length, rest) = bytes.split_first_chunk::<4>().unwrap();
        let (header, columns) = rest.split_at(u32::from_le_bytes(*length) as usize);
        Self { header: serde_json::from_slice(header).unwrap(), columns: columns.to_vec() }
    }

    fn bytes(&self, name: &str) -> &[u8] {
        let place = |at: usize| self.header["columns"][name][at].as_u64().unwrap() as usize;
        &self.columns[place(0)..place(0) + place(1)]
    }

    fn numbers(&self, name: &str) -> Vec<u64> {
        let (mut numbers, mut value, mut shift) = (Vec::new(), 0, 0);
        for &byte in self.bytes(name) {
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                numbers.push(value);
                (value, shift) = (0, 0);
            }
        }
        numbers
    }

    /// Name, start, duration, depth, count and busy time of every span, with its track.
    fn spans(&self) -> Vec<(usize, String, u64, u64, u64, u64, u64)> {
        let [starts, durations, kinds, depths] = ["start", "duration", "kind", "depth"].map(|name| self.numbers(name));
        let mut blocks = HashMap::new();
        let mut at = 0;
        for block in self.numbers("blocks").chunks_exact(3) {
            at += block[0];
            blocks.insert(at as usize, (block[1], block[2]));
        }
        let (mut spans, mut span) = (Vec::new(), 0);
        for (track, described) in self.header["tracks"].as_array().unwrap().iter().enumerate() {
            let mut start = 0;
            for _ in 0..described["spans"].as_u64().unwrap() {
                start += starts[span];
                let name = self.header["kinds"][kinds[span] as usize][0].as_str().unwrap().to_owned();
                let (count, busy) = blocks.get(&span).copied().unwrap_or((1, durations[span]));
                spans.push((track, name, start, durations[span], depths[span], count, busy));
                span += 1;
            }
        }
        spans
    }
}

fn small() -> Trace {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let stream = builder.stream(1, 7, "stream 7");
    builder.span(main, Nanos(1_000), Nanos(500), "step", "");
    let launch = builder.span(main, Nanos(1_010), Nanos(20), "cudaLaunchKernel", "cuda_runtime");
    builder.span_field(launch, "size", 512_i64);
    let kernel = builder.span(stream, Nanos(1_100), Nanos(300), "gemm", "kernel");
    builder.flow(launch, kernel);
    let memory = builder.counter(1, "memory", "bytes");
    builder.value(memory, Nanos(1_200), Number::Int(4096));
    builder.build().unwrap()
}

#[test]
fn spans_fields_flows_and_curves_come_back() {
    let read = Decoded::of(&encode(&small(), &Extra::default(), 100).unwrap());
    let names: Vec<_> = read.spans().into_iter().map(|span| (span.1, span.2, span.3, span.4)).collect();
    let expected = [("step", 0, 500, 0), ("cudaLaunchKernel", 10, 20, 1), ("gemm", 100, 300, 0)];
    assert_eq!(names, expected.map(|(name, start, duration, depth)| (name.to_owned(), start, duration, depth)));
    assert_eq!(read.header["length"], 500);
    let set = read.numbers("set")[1] as usize;
    assert_eq!(read.header["sets"][set], serde_json::json!([0, 512]));
    assert_eq!(read.header["keys"], serde_json::json!(["size"]));
    // Signed differences: from span 1 to span 2.
    assert_eq!((read.numbers("flowFrom"), read.numbers("flowTo")), (vec![2], vec![4]));
    assert_eq!((read.numbers("valueTime"), read.bytes("value")), (vec![200], &4096_f64.to_le_bytes()[..]));
    assert_eq!(read.header.get("thinned"), None);
}

#[test]
fn a_field_that_identifies_each_span_is_left_out_and_named() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    for at in 0..6_000_u64 {
        let span = builder.span(main, Nanos(at * 10), Nanos(5), "op", "cpu_op");
        builder.span_field(span, "External id", at as i64);
        builder.span_field(span, "width", (at % 3) as i64);
    }
    let read = Decoded::of(&encode(&builder.build().unwrap(), &Extra::default(), 10_000).unwrap());
    assert_eq!(read.header["leftOut"], serde_json::json!(["External id"]));
    assert_eq!(read.header["keys"], serde_json::json!(["width"]));
    assert_eq!(read.header["sets"].as_array().unwrap().len(), 4, "none, and one per width");
}

#[test]
fn a_long_curve_keeps_its_extremes() {
    let mut builder = TraceBuilder::default();
    let memory = builder.counter(1, "memory", "bytes");
    for at in 0..100_000_u64 {
        let spike = if at == 77_777 { 1e12 } else { (at % 100) as f64 };
        builder.value(memory, Nanos(at), Number::Float(spike));
    }
    let read = Decoded::of(&encode(&builder.build().unwrap(), &Extra::default(), 10).unwrap());
    let values: Vec<f64> =
        read.bytes("value").chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap())).collect();
    assert!(values.len() <= 16_384, "{}", values.len());
    assert!(values.contains(&1e12) && values.contains(&0.0));
    assert_eq!(read.header["curves"][0]["of"], 100_000);
}

#[test]
fn names_with_any_content_are_text() {
    let evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>";
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, evil);
    let span = builder.span(main, Nanos(0), Nanos(500), evil, evil);
    builder.span_field(span, evil, evil);
    builder.metadata.set_text(evil, evil);
    let trace = builder.build().unwrap();
    let about = About { name: evil.to_owned(), command: Some(evil.to_owned()), ..About::default() };
    let mut out = Vec::new();
    of_trace(&trace, &about).unwrap().write(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.matches("<script").count(), 2, "the data and the script");
    assert_eq!(text.matches("</script").count(), 2);
    assert!(!text.contains("<img"));
}

/// Like a thread of a framework: operations with calls inside, and a stream of kernels.
fn framework(steps: u64) -> Trace {
    let mut builder = TraceBuilder::default();
    let (main, stream) = (builder.thread(1, 1, "main"), builder.stream(1, 7, "stream 7"));
    // A fixed sequence that looks like jitter.
    let mut state = 1_u64;
    let mut jitter = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let mut time = 0;
    for step in 0..steps {
        let length = 8_000 + jitter(4_000);
        let operation =
            builder.span(main, Nanos(time), Nanos(length), ["aten::mm", "aten::add"][step as usize % 2], "cpu_op");
        builder.span_field(operation, "External id", step as i64);
        let launch = builder.span(
            main,
            Nanos(time + 3_000 + jitter(900)),
            Nanos(2_000 + jitter(900)),
            "cudaLaunchKernel",
            "cuda_runtime",
        );
        builder.span_field(launch, "correlation", step as i64);
        let kernel = builder.span(stream, Nanos(time + 9_000), Nanos(3_000 + jitter(4_000)), "gemm", "kernel");
        builder.span_field(kernel, "correlation", step as i64);
        builder.flow(launch, kernel);
        time += length + jitter(1_500);
    }
    builder.build().unwrap()
}

#[test]
fn a_span_needs_at_most_ten_bytes_of_the_page() {
    // A trace of 218 MB has about 900,000 events; 15 MB of base64 are 12 bytes each.
    let trace = framework(20_000);
    let data = encode(&trace, &Extra::default(), 1_000_000).unwrap();
    let each = data.bytes.len() as f64 * 4.0 / 3.0 / trace.span_count() as f64;
    assert!(each < 10.0, "{each:.1} bytes per span");
}

#[test]
fn a_thinned_trace_says_so_and_keeps_long_spans_and_their_flows() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    for at in 0..1_000_u64 {
        builder.span(main, Nanos(at * 1_000), Nanos(100), "short", "");
    }
    builder.span(main, Nanos(2_000_000), Nanos(500_000), "long", "");
    let data = encode(&builder.build().unwrap(), &Extra::default(), 50).unwrap();
    let read = Decoded::of(&data);
    assert!(read.spans().len() <= 50, "{}", read.spans().len());
    assert_eq!(data.thinned, 1_000);
    assert_eq!(read.header["thinned"]["spans"], 1_000);
    assert!(read.spans().iter().any(|span| span.1 == "long" && span.3 == 500_000 && span.5 == 1));
}

fn rows(spans: impl Iterator<Item = (usize, u64, u64, u64)>) -> HashMap<(usize, u64), (u64, u64)> {
    let mut rows: HashMap<(usize, u64), (u64, u64)> = HashMap::new();
    for (track, depth, count, busy) in spans {
        let row = rows.entry((track, depth)).or_default();
        *row = (row.0 + count, row.1 + busy);
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn thinning_keeps_the_exact_time_and_number_of_spans_of_every_row(
        spans in prop::collection::vec((0_usize..3, 0_u64..5_000, 0_u64..300), 1..400),
        most in 4_usize..200,
    ) {
        let mut builder = TraceBuilder::default();
        let tracks = [builder.thread(1, 1, "a"), builder.thread(1, 2, "b"), builder.stream(1, 3, "c")];
        for (track, start, duration) in spans {
            builder.span(tracks[track], Nanos(start), Nanos(duration), "work", "");
        }
        let trace = builder.build().unwrap();
        let depth = |span: &laptime_trace::Span<'_>| {
            std::iter::successors(span.parent, |&parent| trace.span_parent(parent)).count() as u64
        };
        let place = |id| trace.tracks().position(|(known, _)| known == id).unwrap();
        let exact = rows(trace.spans().map(|span| (place(span.track), depth(&span), 1, span.duration.0)));
        let read = Decoded::of(&encode(&trace, &Extra::default(), most).unwrap());
        let shown = rows(read.spans().into_iter().map(|span| (span.0, span.4, span.5, span.6)));
        prop_assert_eq!(exact, shown);
        // Blocks of a row stay disjoint, which the page relies on.
        let lanes = read.numbers("lane");
        let mut reached: HashMap<(usize, u64, u64), u64> = HashMap::new();
        for (span, lane) in read.spans().into_iter().zip(lanes) {
            let end = reached.entry((span.0, span.4, lane)).or_default();
            prop_assert!(span.2 >= *end, "a span begins at {} before {}", span.2, end);
            *end = span.2 + span.3;
        }
    }
}

#[test]
fn a_window_has_all_its_spans_and_the_rows_of_the_whole_trace() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    builder.span(main, Nanos(0), Nanos(100_000), "all", "");
    for at in 0..1_000_u64 {
        let span = builder.span(main, Nanos(at * 100), Nanos(50), "step", "");
        builder.span_field(span, "at", (at % 7) as i64);
    }
    builder.span(main, Nanos(90_010), Nanos(5), "deep", "");
    let trace = builder.build().unwrap();
    let whole = encode(&trace, &Extra::default(), 200).unwrap();
    assert!(whole.thinning.is_some());
    let encoded = Encoder::of(&trace, Some(5_000..6_000), 200).finish(&Extra::default()).unwrap();
    let [whole, window] = [&whole, &encoded].map(Decoded::of);
    assert_eq!((encoded.thinned, window.header.get("thinned")), (0, None));
    let spans: Vec<_> = window.spans().into_iter().map(|span| (span.1, span.2)).collect();
    let steps = (50..60).map(|at| ("step".to_owned(), at * 100));
    assert_eq!(spans, std::iter::once(("all".to_owned(), 0)).chain(steps).collect::<Vec<_>>());
    assert_eq!(window.header["length"], 100_000);
    assert_eq!(window.header["tracks"][0]["lanes"], serde_json::json!([3]));
    assert_eq!(window.header["tracks"][0]["lanes"], whole.header["tracks"][0]["lanes"]);
}

#[test]
fn a_trace_of_a_run_with_known_work_and_peaks_has_a_roofline() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/report/model");
    let run = laptime_trace::run::Run::read(&folder).unwrap();
    let results = laptime_trace::run::read_results(&folder.join("results.jsonl")).unwrap().results;
    let html = |results: &[laptime_trace::run::CaseResult]| {
        let mut out = Vec::new();
        let about = About { run: Some(&run), results, ..About::default() };
        of_trace(&small(), &about).unwrap().write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert!(html(&results).contains("<section id=\"roofline\">\n<h2>Roofline</h2>\n<figure>"));
    assert!(!html(&[]).contains("id=\"roofline\""));
}
