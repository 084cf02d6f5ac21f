use laptime_trace::{LAP, Nanos, SYNC, TraceBuilder, activity::category};

use super::*;

/// A trace of laps of these lengths, 10 apart, with a span of a name in each that takes what is beyond 80.
fn trace_of(lengths: &[u64]) -> Trace {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let mut at = 0;
    for &length in lengths {
        builder.span(main, Nanos(at), Nanos(length), "token", LAP);
        builder.span(main, Nanos(at), Nanos(80.min(length)), "forward", "");
        if length > 100 {
            builder.span(main, Nanos(at + 80), Nanos(length - 100), "allocate", "");
        }
        at += length + 10;
    }
    builder.build().unwrap()
}

fn found(lengths: &[u64]) -> Laps {
    laps(&trace_of(lengths), None).unwrap()
}

fn slow(answer: &Laps) -> Vec<usize> {
    answer.laps.iter().enumerate().filter(|(_, lap)| lap.is_slow).map(|(at, _)| at).collect()
}

#[test]
fn figures_exclude_cold_laps() {
    let answer = found(&[900, 100, 102, 98, 100]);
    let length = answer.figures.length;
    assert_eq!((answer.cold, length.n, length.median, length.min, length.max), (1, 4, 100.0, 98.0, 102.0));
    assert_eq!(answer.figures.period.map(|period| period.median), Some(110.0));
    assert_eq!(answer.figures.busy, None, "no device, no busy time");
    assert_eq!((answer.values()[0], answer.values()[2]), (Some(5.0), None));
}

#[test]
fn a_lap_is_slow_if_it_exceeds_the_median_by_a_tenth() {
    assert_eq!(slow(&found(&[100, 100, 100, 110, 100, 100])), Vec::<usize>::new());
    assert_eq!(slow(&found(&[100, 100, 100, 111, 100, 100])), [3]);
}

#[test]
fn a_lap_is_slow_beyond_three_median_absolute_deviations() {
    // The median is 100 and the median distance from it 20: the limit is 100 + 3 · 1.4826 · 20 = 188.96.
    let around = |last: u64| [100, 80, 120, 80, 120, 100, 70, 130, last];
    assert_eq!(slow(&found(&around(188))), Vec::<usize>::new());
    assert_eq!(slow(&found(&around(189))), [8]);
}

#[test]
fn slow_first_laps_are_cold_up_to_a_quarter_of_all_laps() {
    assert_eq!(found(&[300, 200, 100, 100, 100, 100, 100, 100]).cold, 2);
    let half = found(&[300, 200, 300, 100, 100, 100, 100, 100]);
    assert_eq!((half.cold, slow(&half)), (0, vec![0, 1, 2]));
    // One may always be.
    assert_eq!(found(&[300, 100, 100]).cold, 1);
}

#[test]
fn a_slow_lap_is_explained_by_its_extra_time() {
    let answer = found(&[100, 100, 100, 240, 100, 100]);
    let [lap] = answer.slow.as_slice() else { panic!("{:?}", answer.slow) };
    let expected =
        PartDifference { part: LapPart::Host("allocate".to_owned()), more: 140.0, count: 1, usual_count: 0.0 };
    assert_eq!((lap.at, lap.more.as_slice()), (3, &[expected][..]));
}

#[test]
fn the_slowest_laps_are_explained_and_all_slow_laps_are_counted() {
    let mut lengths = vec![100; 40];
    for at in 0..7 {
        lengths[5 * at + 4] = 200 + at as u64;
    }
    let answer = found(&lengths);
    let explained: Vec<usize> = answer.slow.iter().map(|lap| lap.at).collect();
    assert_eq!((answer.slow_count(), explained), (7, vec![34, 29, 24, 19, 14]));
}

#[test]
fn a_cold_lap_is_explained_first() {
    let answer = found(&[400, 100, 100, 100, 150, 100, 100]);
    assert_eq!(answer.slow.iter().map(|lap| lap.at).collect::<Vec<_>>(), [0, 4]);
}

#[test]
fn growing_laps_have_a_trend_and_steady_laps_do_not() {
    let growing: Vec<u64> = (0..50).map(|lap| 1000 + 10 * lap).collect();
    let trend = found(&growing).trend.unwrap();
    assert_eq!(trend.slope, 10.0);
    assert!((trend.share - 490.0 / 1245.0).abs() < 1e-12);
    let steady: Vec<u64> = (0..50).map(|lap| 1000 + 40 * (lap % 7)).collect();
    assert_eq!(found(&steady).trend, None);
    // It rises for certain, but only by 4.9 %.
    let hardly: Vec<u64> = (0..50).map(|lap| 1000 + lap).collect();
    assert_eq!(found(&hardly).trend, None);
    assert_eq!(found(&growing[..9]).trend, None);
}

#[test]
fn a_trend_over_many_laps_is_reported_per_lap() {
    let growing: Vec<u64> = (0..1000).map(|lap| 1000 + 2 * lap).collect();
    assert_eq!(found(&growing).trend.unwrap().slope, 2.0);
}

/// Two laps of 100: a launch and a wait in each, a kernel that overlaps another.
fn with_device() -> Trace {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let streams = [builder.stream(1, 7, "stream 7"), builder.stream(1, 8, "stream 8")];
    for at in [0, 100, 200] {
        builder.span(main, Nanos(at), Nanos(100), "token", LAP);
        let launch = builder.span(main, Nanos(at + 5), Nanos(5), "cudaLaunchKernel", category::RUNTIME);
        let gemm = builder.span(streams[0], Nanos(at + 20), Nanos(40), "gemm", category::KERNEL);
        builder.span(streams[1], Nanos(at + 50), Nanos(20), "copy", category::KERNEL);
        builder.flow(launch, gemm);
        builder.span(main, Nanos(at + 60), Nanos(30), "read", SYNC);
        builder.span(main, Nanos(at + 62), Nanos(20), "cudaStreamSynchronize", category::RUNTIME);
    }
    builder.build().unwrap()
}

#[test]
fn busy_time_is_a_union_and_nested_syncs_count_once() {
    let answer = laps(&with_device(), None).unwrap();
    let lap = &answer.laps[1];
    assert_eq!((lap.busy, lap.idle(), lap.launches), (Some(50), Some(50), Some(1)));
    assert_eq!((lap.waits, lap.waiting), (1, 30));
    assert_eq!(answer.figures.busy_share, Some(0.5));
}

#[test]
fn laps_detected_on_a_device_count_the_launches_of_their_kernels() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let stream = builder.stream(1, 7, "stream 7");
    for at in 0..12_u64 {
        let launch = builder.span(main, Nanos(at), Nanos(1), "cudaLaunchKernel", category::RUNTIME);
        let name = ["a", "b", "c"][at as usize % 3];
        let kernel = builder.span(stream, Nanos(100 + at * 10), Nanos(8), name, category::KERNEL);
        builder.flow(launch, kernel);
    }
    let answer = laps(&builder.build().unwrap(), None).unwrap();
    assert_eq!(answer.source, LapSource::Kernels);
    assert_eq!(answer.laps.iter().map(|lap| lap.launches).collect::<Vec<_>>(), [Some(3); 3]);
}

/// Repetitions of four kernels of 10 each; one has a long kernel and one a long pause.
fn slow_on_a_device() -> Trace {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let stream = builder.stream(1, 7, "stream 7");
    let mut at = 0;
    for turn in 0..12 {
        at += if turn == 8 { 60 } else { 10 };
        for name in ["a", "b", "c", "d"] {
            let length = if (turn, name) == (4, "c") { 80 } else { 10 };
            let launch = builder.span(main, Nanos(at), Nanos(1), "cudaLaunchKernel", category::RUNTIME);
            let kernel = builder.span(stream, Nanos(at), Nanos(length), name, category::KERNEL);
            builder.flow(launch, kernel);
            at += length;
        }
    }
    builder.build().unwrap()
}

#[test]
fn a_slow_device_lap_is_explained_by_the_host_only_while_the_device_was_idle() {
    let answer = laps(&slow_on_a_device(), None).unwrap();
    let text: Vec<_> =
        answer.slow.iter().map(|slow| (slow.at, slow.more.iter().map(|more| more.part.clone()))).collect();
    let text: Vec<_> = text.into_iter().map(|(at, parts)| (at, parts.collect::<Vec<_>>())).collect();
    let expected = [(4, vec![LapPart::Device("c".to_owned())]), (7, vec![LapPart::Idle, LapPart::Unrecorded])];
    assert_eq!(text, expected);
}

#[test]
fn two_laps_are_too_few_to_find_a_slow_one() {
    assert_eq!(found(&[900, 100]).limit, None);
}

#[test]
fn a_trace_without_repetition_has_no_laps() {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    builder.span(main, Nanos(0), Nanos(100), "load", "");
    assert_eq!(laps(&builder.build().unwrap(), None), Err(NoLaps::NothingRepeats));
}
