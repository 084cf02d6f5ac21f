//! `tracing` spans and events through our subscriber and through our layer.

mod outline;

use std::{fmt, thread};

use laptime_probe::{
    Config, Recorder,
    tracing::{Layer, Subscriber},
};
use outline::{drained, outline, recorded};
use tracing::{Dispatch, Level, Span, dispatcher::with_default, field::Empty, info, info_span};
use tracing_subscriber::{Registry, prelude::*};

fn subscriber() -> Dispatch {
    Dispatch::new(Subscriber::new())
}

fn layer() -> Dispatch {
    Dispatch::new(Registry::default().with(Layer::new()))
}

/// Records `work` through the subscriber, then through the layer, and expects the same result.
fn expect_of_both(expected: &str, work: impl Fn()) {
    for (name, dispatch) in [("subscriber", subscriber()), ("layer", layer())] {
        assert_eq!(recorded(|| with_default(&dispatch, &work)), expected, "through the {name}");
    }
}

#[test]
fn spans_nest_and_keep_their_fields() {
    let expected = "\
generate tokens=512u text=\"größer\" ratio=0.5 warm=true signed=-3
  prefill shape=\"[1, 2]\" name=\"x\"
  decode
";
    expect_of_both(expected, || {
        let _generate =
            info_span!("generate", tokens = 512_u64, text = "größer", ratio = 0.5, warm = true, signed = -3).entered();
        info_span!("prefill", shape = ?[1, 2], name = %"x").in_scope(|| ());
        let _decode = info_span!("decode").entered();
    });
}

#[test]
fn a_typical_span_of_a_pipeline_is_recorded() {
    expect_of_both("my_new_stage\n", || {
        let _span = tracing::info_span!("my_new_stage").entered();
    });
}

#[test]
fn a_span_entered_again_keeps_its_fields() {
    expect_of_both("step layer=3\nstep layer=3\n", || {
        let span = info_span!("step", layer = 3);
        span.in_scope(|| ());
        span.in_scope(|| ());
    });
}

#[test]
fn an_empty_field_is_absent_until_it_is_recorded() {
    expect_of_both("decode layer=1, then tokens=7\ndecode layer=1 tokens=7\n", || {
        let span = info_span!("decode", layer = 1, tokens = Empty);
        span.in_scope(|| span.record("tokens", 7));
        span.in_scope(|| ());
    });
}

#[test]
fn late_fields_replace_earlier_ones_whatever_their_type() {
    expect_of_both("decode text=\"a longer text than before\" tokens=\"many\" ratio=0.5\n", || {
        let span = info_span!("decode", text = "short", tokens = 7, ratio = Empty);
        span.record("tokens", "many");
        span.record("text", "in between");
        span.record("text", "a longer text than before").record("ratio", 0.5);
        span.in_scope(|| ());
    });
}

#[test]
fn fields_too_long_for_a_slot_are_recorded() {
    let long = "x".repeat(300);
    let expected = format!("load path=\"{long}\" size=1\nload path=\"{long}\" size=2\n");
    expect_of_both(&expected, || {
        let span = info_span!("load", path = long, size = 1);
        span.in_scope(|| ());
        let copy = span.clone();
        drop(span);
        copy.record("size", 2);
        copy.in_scope(|| ());
    });
}

#[test]
fn a_long_string_is_truncated_at_a_character_boundary() {
    let long = format!("a{}", "é".repeat(3_000));
    let expected = format!("load path=\"{}\" after=1\n", &long[..4_095]);
    expect_of_both(&expected, || {
        let _span = info_span!("load", path = long, after = 1).entered();
    });
}

#[test]
fn more_spans_than_slots_keep_their_fields() {
    let expected: String = (0..3_000).map(|i| format!("step number={i}\n")).collect();
    expect_of_both(&expected, || {
        let spans: Vec<Span> = (0..3_000).map(|i| info_span!("step", number = i)).collect();
        spans.iter().for_each(|span| span.in_scope(|| ()));
    });
}

#[test]
fn fields_beyond_the_fifteenth_are_left_out() {
    expect_of_both("many a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1 j=1 k=1 l=1 m=1 n=1 o=1\nafter z=2\n", || {
        #[rustfmt::skip]
        let span = info_span!("many", a = 1, b = 1, c = 1, d = 1, e = 1, f = 1, g = 1, h = 1, i = 1, j = 1, k = 1,
            l = 1, m = 1, n = 1, o = 1, p = 1, q = 1);
        span.in_scope(|| ());
        info_span!("after", z = 2).in_scope(|| ());
    });
}

#[test]
fn events_of_target_gpu_sync_are_sync_marks_and_others_marks() {
    let expected = "\
generate
  sync mark read_token bytes=4
  mark end_of_text reason=\"stop\"
  sync wait stream=0
";
    expect_of_both(expected, || {
        let _span = info_span!("generate").entered();
        info!(name: "read_token", target: "gpu_sync", bytes = 4);
        info!(name: "end_of_text", reason = "stop");
        let _wait = info_span!(target: "gpu_sync", "wait", stream = 0).entered();
    });
}

#[test]
fn a_message_is_a_field() {
    expect_of_both("mark loaded message=\"3 shards\" seconds=1.5\n", || {
        info!(name: "loaded", seconds = 1.5, "{} shards", 3);
    });
}

#[test]
fn spans_may_be_left_out_of_order() {
    expect_of_both("outer\n  inner\n  mark between message=\"\"\nmark after message=\"\"\n", || {
        let (outer, inner) = (info_span!("outer").entered(), info_span!("inner").entered());
        drop(outer);
        info!(name: "between", "");
        drop(inner);
        info!(name: "after", "");
    });
}

/// A value whose `Debug` creates a span.
struct Traced;

impl fmt::Debug for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let _span = info_span!("shown", by = "debug").entered();
        f.write_str("traced")
    }
}

#[test]
fn a_value_whose_debug_traces_is_recorded() {
    // `tracing` itself hides the inner span if the subscriber is set for the thread.
    expect_of_both("step value=\"traced\" after=1\n", || {
        let _span = info_span!("step", value = ?Traced, after = 1).entered();
    });
}

#[test]
fn a_span_is_recorded_on_the_thread_that_enters_it() {
    for dispatch in [subscriber(), layer()] {
        let mut recorder = Recorder::new(Config::default());
        let entered = recorder.handle().enter();
        let span = with_default(&dispatch, || info_span!("load", shard = 2));
        thread::scope(|scope| {
            let (span, handle) = (&span, recorder.handle());
            scope.spawn(move || {
                let _entered = handle.enter();
                span.in_scope(|| ());
                span.in_scope(|| ());
            });
        });
        drop((span, entered));
        let seen: Vec<String> = drained(&mut recorder).into_iter().map(|batch| outline(&[batch])).collect();
        assert!(seen.contains(&"load shard=2\nload shard=2\n".to_owned()), "{seen:?}");
        assert_eq!(seen.concat().lines().count(), 2, "{seen:?}");
    }
}

#[test]
fn a_recording_that_starts_inside_a_span_begins_with_the_next() {
    for dispatch in [subscriber(), layer()] {
        with_default(&dispatch, || {
            let open = info_span!("open").entered();
            let seen = recorded(|| {
                info_span!("child").in_scope(|| ());
                drop(open);
                info_span!("sibling").in_scope(|| ());
            });
            assert_eq!(seen, "child\nsibling\n");
        });
    }
}

#[test]
fn a_span_left_after_its_recording_ended_writes_nothing() {
    for dispatch in [subscriber(), layer()] {
        with_default(&dispatch, || {
            let mut first = Recorder::new(Config::default());
            let entered = first.handle().enter();
            let open = info_span!("first", layer = 1).entered();
            let seen = outline(&drained(&mut first));
            drop((entered, first));
            let next = recorded(|| {
                drop(open);
                info_span!("second").in_scope(|| ());
            });
            assert_eq!((seen.as_str(), next.as_str()), ("first layer=1 (open)\n", "second\n"));
        });
    }
}

#[test]
fn levels_beyond_the_most_verbose_are_left_out() {
    let dispatch = Dispatch::new(Subscriber::new().with_max_level(Level::INFO));
    let seen = recorded(|| {
        with_default(&dispatch, || {
            let _info = info_span!("kept").entered();
            let _debug = tracing::debug_span!("left_out").entered();
            tracing::trace!("left out");
        });
    });
    assert_eq!(seen, "kept\n");
}

#[test]
fn native_stages_and_spans_share_a_track() {
    expect_of_both("generate\n  prefill\n    decode\n", || {
        let _generate = laptime_probe::stage!("generate");
        let _prefill = info_span!("prefill").entered();
        let _decode = laptime_probe::stage!("decode");
    });
}

/// Late fields are written by one thread while another enters the span: each entry shows one state or the other.
#[test]
fn fields_recorded_while_another_thread_enters_are_never_mixed() {
    const TIMES: usize = 2_000;
    for dispatch in [subscriber(), layer()] {
        let mut recorder = Recorder::new(Config::default());
        let span = with_default(&dispatch, || info_span!("step", text = "aaaaaaaaaaaaaaaaa", layer = 1, more = "a"));
        thread::scope(|scope| {
            let (span, handle) = (&span, recorder.handle());
            scope.spawn(move || {
                let _entered = handle.enter();
                (0..TIMES).for_each(|_| span.in_scope(|| ()));
            });
            for i in 0..TIMES {
                span.record("text", if i % 2 == 0 { "b" } else { "aaaaaaaaaaaaaaaaa" });
            }
        });
        let seen = outline(&drained(&mut recorder));
        let whole = ["step text=\"aaaaaaaaaaaaaaaaa\" layer=1 more=\"a\"", "step text=\"b\" layer=1 more=\"a\""];
        assert_eq!(seen.lines().filter(|line| whole.contains(line)).count(), TIMES);
        assert_eq!(seen.lines().count(), TIMES);
    }
}
