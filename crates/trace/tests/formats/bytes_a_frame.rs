//! Bytes of Chrome JSON per frame of text to speech, in a trace as recorded on a GPU.

use laptime_trace::{Format, LAP, Nanos, SYNC, SpanEntry, Trace, TraceBuilder, TrackId, read_from, write_to};

/// The maximum per frame, for host spans alone and with device spans.
const MOST: [usize; 2] = [1_000, 2_000];

const FRAMES: u64 = 59;

/// What `laptime profile tts` records per frame at its default depth, half a minute into a run.
fn frames(has_device: bool) -> Trace {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1_234_567, 1_234_567, "main");
    let device = has_device.then(|| builder.stream(1_234_567, 7, "stream 7"));
    for frame in 0..FRAMES {
        let start = 30_000_000_000 + 1_987_654 * frame;
        let mut stage = |name: &str, category: &str, [after, length]: [u64; 2], of: Option<u64>| {
            let times = [start + after, length];
            let here = span(&mut builder, main, times, (name, category), of);
            if let Some(device) = device {
                let there = span(&mut builder, device, [times[0] + 12_345, length], (name, category), of);
                builder.flow(here, there);
            }
        };
        stage("frame", LAP, [0, 1_987_000], Some(frame));
        stage("code_predictor", "", [1_234, 1_234_567], Some(frame));
        stage("talker_step", "", [1_245_678, 456_789], Some(frame));
        stage("sampling", "", [1_745_678, 45_678], Some(frame + 1));
        stage("top_k", "", [1_746_789, 12_345], None);
        stage("top_p", "", [1_766_789, 12_345], None);
        let wait = builder.span(main, Nanos(start + 1_800_000), Nanos(123_456), "read_frame", SYNC);
        builder.span_field(wait, "file", "crates/models/src/gpu/tts/engine.rs");
        builder.span_field(wait, "line", 208_u64);
        builder.span_field(wait, "stage", "frame");
        builder.span_field(wait, "lap", frame);
    }
    builder.build().unwrap()
}

fn span(
    builder: &mut TraceBuilder,
    track: TrackId,
    [start, length]: [u64; 2],
    (name, category): (&str, &str),
    frame: Option<u64>,
) -> SpanEntry {
    let span = builder.span(track, Nanos(start), Nanos(length), name, category);
    if let Some(frame) = frame {
        builder.span_field(span, "frame", frame);
    }
    span
}

#[test]
fn a_frame_takes_less_than_a_kilobyte_of_the_host_and_two_with_the_device() {
    for (has_device, most) in [false, true].into_iter().zip(MOST) {
        let trace = frames(has_device);
        let mut text = Vec::new();
        write_to(&trace, Format::Chrome, &mut text).unwrap();
        assert_eq!(read_from(text.as_slice()).unwrap(), trace);
        let each = text.len() / FRAMES as usize;
        assert!(each < most, "{each} bytes a frame, at most {most}: {}", String::from_utf8_lossy(&text[..4_000]));
    }
}
