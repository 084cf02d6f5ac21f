use super::*;
use laptime_trace::{LAP, TraceBuilder, activity::category};
use proptest::prelude::*;

/// Stages as text: indented names with count, host, self, device, unit, median.
fn shown(trace: &Trace) -> String {
    let mut text = String::new();
    for stage in stages(trace).stages {
        let per = match &stage.per {
            Per::Call => "call".to_owned(),
            Per::Lap(name) => format!("lap {name}"),
        };
        let nanos = |time: Option<Nanos>| time.map_or("-".to_owned(), |time| time.0.to_string());
        text += &format!(
            "{:indent$}{} x{} host {} self {} device {} median {} per {per}\n",
            "",
            stage.name,
            stage.count,
            nanos(stage.host),
            nanos(stage.host_self),
            nanos(stage.device),
            stage.median,
            indent = 2 * stage.depth,
        );
    }
    text
}

fn span(builder: &mut TraceBuilder, track: laptime_trace::TrackId, range: std::ops::Range<u64>, name: &str) {
    builder.span(track, Nanos(range.start), Nanos(range.end - range.start), name, "");
}

#[test]
fn spans_with_the_same_ancestors_are_one_stage() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    span(&mut builder, main, 0..100, "generate");
    span(&mut builder, main, 10..20, "step");
    span(&mut builder, main, 30..60, "step");
    span(&mut builder, main, 200..205, "step");
    let trace = builder.build().unwrap();
    assert_eq!(
        shown(&trace),
        "generate x1 host 100 self 60 device - median 100 per call\n\
         \x20 step x2 host 40 self 40 device - median 20 per call\n\
         step x1 host 5 self 5 device - median 5 per call\n"
    );
    let shares: Vec<_> = stages(&trace).stages.iter().map(|stage| stage.share.unwrap()).collect();
    assert_eq!(shares, [100.0 / 205.0, 40.0 / 205.0, 5.0 / 205.0]);
}

#[test]
fn device_time_stamped_inside_a_graph_belongs_to_the_launching_stage() {
    let mut builder = TraceBuilder::default();
    // The stream comes first: the order of tracks says nothing.
    let (stream, main) = (builder.stream(1, 7, "stream 7"), builder.thread(1, 1, "main"));
    for start in [0, 100] {
        span(&mut builder, main, start..start + 50, "frame");
        let here = builder.span(main, Nanos(start), Nanos(10), "step", "");
        let there = builder.span(stream, Nanos(start + 5), Nanos(40), "step", "");
        builder.flow(here, there);
        builder.span(stream, Nanos(start + 5), Nanos(30), "layer", STAMPED);
        // It counts for its stage, like everything else inside it.
        span(&mut builder, stream, start + 36..start + 40, "other");
    }
    assert_eq!(
        shown(&builder.build().unwrap()),
        "frame x2 host 100 self 80 device 80 median 50 per call\n\
         \x20 step x2 host 20 self 20 device 80 median 10 per call\n\
         \x20   layer x2 host - self - device 60 median 30 per call\n"
    );
}

#[test]
fn a_stage_inside_laps_has_statistics_per_lap() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    for (lap, layer) in [(0, 10), (100, 20), (200, 30)] {
        builder.span(main, Nanos(lap), Nanos(90), "token", LAP);
        span(&mut builder, main, lap..lap + layer, "layer");
        span(&mut builder, main, lap + layer..lap + 2 * layer, "layer");
    }
    let trace = builder.build().unwrap();
    assert_eq!(
        shown(&trace),
        "token x3 host 270 self 150 device - median 90 per lap token\n\
         \x20 layer x6 host 120 self 120 device - median 40 per lap token\n"
    );
}

#[test]
fn profiler_steps_are_laps_of_one_stage() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    for (step, length) in [(0, 80), (1, 90), (2, 70)] {
        builder.span(main, Nanos(step * 100), Nanos(length), &format!("ProfilerStep#{step}"), category::USER);
        span(&mut builder, main, step * 100..step * 100 + 10, &format!("aten::mm, op_id = {}", 2 * step));
        span(&mut builder, main, step * 100 + 20..step * 100 + 50, &format!("aten::mm, op_id = {}", 2 * step + 1));
    }
    assert_eq!(
        shown(&builder.build().unwrap()),
        "ProfilerStep#* x3 host 240 self 120 device - median 80 per lap ProfilerStep#*\n\
         \x20 aten::mm, op_id = * x6 host 120 self 120 device - median 40 per lap ProfilerStep#*\n"
    );
}

#[test]
fn device_time_belongs_to_the_launching_stage_and_its_ancestors() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let stream = builder.stream(1, 7, "stream 7");
    span(&mut builder, main, 0..50, "decode");
    let a = builder.span(main, Nanos(1), Nanos(5), "attention", "");
    let b = builder.span(main, Nanos(10), Nanos(5), "mlp", "");
    let on_a = builder.span(stream, Nanos(20), Nanos(100), "attention", "");
    let on_b = builder.span(stream, Nanos(110), Nanos(100), "mlp", "");
    builder.flow(a, on_a);
    builder.flow(b, on_b);
    builder.span(stream, Nanos(300), Nanos(40), "memset", "");
    let trace = builder.build().unwrap();
    assert_eq!(
        shown(&trace),
        "decode x1 host 50 self 40 device 190 median 50 per call\n\
         \x20 attention x1 host 5 self 5 device 100 median 5 per call\n\
         \x20 mlp x1 host 5 self 5 device 100 median 5 per call\n\
         memset x1 host - self - device 40 median 40 per call\n"
    );
}

#[test]
fn spans_nested_too_deep_count_for_their_ancestor() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let levels = 50_000;
    for level in 0..levels {
        span(&mut builder, main, level..2 * levels - level, &format!("level {level}"));
    }
    let answer = stages(&builder.build().unwrap());
    assert_eq!((answer.stages.len(), answer.too_deep), (DEEPEST, levels - DEEPEST as u64));
    assert_eq!(answer.path(DEEPEST - 1).len(), DEEPEST);
    let deepest = &answer.stages[DEEPEST - 1];
    assert_eq!(deepest.host_self, deepest.host, "children that are not shown count as self time");
}

#[test]
fn an_empty_trace_has_no_stages() {
    assert_eq!(stages(&TraceBuilder::default().build().unwrap()).stages, []);
}

proptest! {
    #[test]
    fn children_never_exceed_their_parent_and_self_times_add_up(
        spans in prop::collection::vec((0_u64..1000, 0_u64..300, 0_usize..4), 0..40),
    ) {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        for (start, length, name) in spans {
            span(&mut builder, main, start..start + length, ["a", "b", "c", "d"][name]);
        }
        let trace = builder.build().unwrap();
        let Stages { stages, .. } = stages(&trace);
        let total: u64 = trace.spans().filter(|span| span.parent.is_none()).map(|span| span.duration.0).sum();
        prop_assert_eq!(stages.iter().map(|stage| stage.host_self.unwrap().0).sum::<u64>(), total);
        for (at, stage) in stages.iter().enumerate() {
            let inside: u64 = stages
                .iter()
                .filter(|other| other.parent == Some(at))
                .map(|other| other.host.unwrap().0)
                .sum();
            prop_assert_eq!(stage.host.unwrap().0, stage.host_self.unwrap().0 + inside);
        }
    }
}
