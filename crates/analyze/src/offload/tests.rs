use laptime_trace::{
    TraceBuilder,
    run::{Fact, Measured},
};
use proptest::prelude::*;

use super::*;
use crate::bottleneck::Severity;

#[path = "../../../../tests/generated/offload.rs"]
mod fixture;

use fixture::{OffloadTrace as Fixture, Streaming};

fn facts() -> OffloadFacts {
    OffloadFacts { mode: Some("wrap".into()), link_gbps: Some(26.0), ..OffloadFacts::default() }
}

fn analysed(fixture: Fixture, facts: OffloadFacts) -> Offload {
    offload(&fixture.trace(), facts, Thresholds::default()).unwrap()
}

fn rules(answer: &Offload) -> Vec<&'static str> {
    answer.findings.iter().map(|found| found.finding.rule).collect()
}

/// Copies of 30 ms that layers of 5 ms cannot hide.
fn slow_link() -> Fixture {
    Fixture { copy: 30_000, ..Fixture::default() }
}

#[test]
fn a_healthy_run_has_no_findings() {
    let answer = analysed(Fixture::default(), facts());
    assert_eq!(answer.findings, []);
    assert_eq!((answer.ahead(), answer.async_share()), ((32, 32), Some(1.0)));
    assert!(answer.hidden().unwrap() > 0.999, "{:?}", answer.usual);
    assert_eq!((answer.gb_s(), answer.cold), (Some(25.0), 1));
}

#[test]
fn a_trace_without_offloaded_layers_has_no_answer() {
    let nothing = TraceBuilder::default().build().unwrap();
    assert_eq!(offload(&nothing, OffloadFacts::default(), Thresholds::default()), None);
    let resident = Fixture { layers: 0, ..Fixture::default() };
    assert_eq!(offload(&resident.trace(), OffloadFacts::default(), Thresholds::default()), None);
}

#[test]
fn the_parts_of_a_token_add_up() {
    let answer = analysed(Fixture::default(), facts());
    let median = |part| answer.part(part).unwrap();
    // Four layers with wait, launch and release, and the resident ones.
    let pass = 1e3 * (4.0 * (1.0 + 2.0 + 5_000.0 + 10.0) + 10_000.0);
    assert_eq!((median(TokenPart::Positive), median(TokenPart::Negative)), (pass, pass));
    assert_eq!((median(TokenPart::Diffusion), median(TokenPart::AudioDecode)), (8e6, 3e6));
    assert_eq!((median(TokenPart::SemanticEncode), median(TokenPart::Other)), (2e6, 0.2e6));
    assert_eq!(answer.part(TokenPart::Transformer), None);
    let sum: f64 = answer.parts.iter().map(|(_, figures)| figures.median).sum();
    assert_eq!(sum, answer.length.median);
}

#[test]
fn a_single_pass_is_the_transformer_part() {
    let answer = analysed(Fixture { forwards: 1, ..Fixture::default() }, facts());
    assert!(answer.part(TokenPart::Transformer).is_some() && answer.part(TokenPart::Positive).is_none());
}

#[test]
fn a_layer_has_copy_wait_and_compute_times() {
    let answer = analysed(slow_link(), facts());
    let layer = &answer.layers[1];
    assert_eq!((layer.layer, layer.copies, layer.bytes, layer.pinned), (1, 8, Some(100_000_000), Some(true)));
    assert_eq!((layer.copy_ns, layer.compute_ns, layer.release_ns), (Some(30e6), Some(5e6), Some(10e3)));
    assert_eq!((layer.hits, layer.late, layer.misses), (0, 8, 0));
    // Issued when the previous layer starts: 5.01 ms ahead, done 24.99 ms after it was needed.
    assert_eq!((layer.issued_ahead_ns, layer.exposed_ns), (Some(5.01e6), Some(24.99e6)));
    assert_eq!(layer.finished_ahead_ns, Some(-24.99e6));
    assert!((layer.hidden().unwrap() - 5.01 / 30.0).abs() < 1e-12);
    assert_eq!((layer.tag(), layer.prefetch()), (Some("ASYNC"), Some(Prefetch::Late)));
}

#[test]
fn passes_of_a_token_are_separate_so_no_median_hides_a_wait() {
    let answer = analysed(slow_link(), facts());
    let passes: Vec<_> = answer.passes.iter().filter(|layer| layer.layer == 0).collect();
    let parts: Vec<_> = passes.iter().map(|layer| layer.pass.unwrap().part).collect();
    assert_eq!(parts, [Some(TokenPart::Positive), Some(TokenPart::Negative)]);
    assert!(passes[0].exposed_ns < passes[1].exposed_ns, "copies of the first hide behind the diffusion head");
    let all: f64 = answer.passes.iter().filter_map(|layer| layer.exposed_ns).sum();
    assert!((all - answer.usual.exposed).abs() < 0.01 * all, "{all} of {}", answer.usual.exposed);
}

#[test]
fn the_best_time_never_falls_below_compute() {
    for (tokens, release) in [(1, 10), (2, 0), (5, 10)] {
        let fixture = Fixture { tokens, release, ..slow_link() };
        let answer = analysed(fixture, OffloadFacts { link_gbps: Some(3.4), ..facts() });
        let found = answer.findings.iter().find(|found| found.finding.rule == "link-bound").unwrap();
        let best = answer.length.median - found.gain_ns.unwrap();
        assert!(best >= answer.minimum.compute as f64 - 1.0, "{tokens} tokens: {best}, {:?}", answer.minimum);
    }
}

#[test]
fn a_wait_of_a_tenth_of_the_copy_or_more_is_late() {
    // The copy is issued 5.01 ms before it is needed, so compute waits for copy - 5.01 ms.
    let kind = |copy| analysed(Fixture { copy, ..Fixture::default() }, facts()).layers[1].prefetch();
    assert_eq!(kind(5_560), Some(Prefetch::Hit));
    assert_eq!(kind(5_570), Some(Prefetch::Late));
}

#[test]
fn without_a_device_prefetching_is_derived_from_issue_times() {
    let answer = analysed(Fixture { has_device: false, ..slow_link() }, facts());
    assert_eq!((answer.async_share(), answer.layers[1].late), (Some(1.0), 8));
    let at_turn = Fixture { has_device: false, streaming: Streaming::AtItsTurn, ..Fixture::default() };
    assert_eq!(analysed(at_turn, facts()).async_share(), Some(0.0));
}

#[test]
fn copies_issued_on_demand_mean_that_prefetching_does_not_run() {
    let fixture = Fixture { streaming: Streaming::AtItsTurn, ..Fixture::default() };
    let answer = analysed(fixture, OffloadFacts { mode: Some("pinned".into()), ..facts() });
    assert_eq!(rules(&answer), ["async-not-running"]);
    let found = &answer.findings[0];
    assert_eq!((found.severity, answer.layers[0].tag()), (Severity::Bad, Some("SYNC")));
    assert!(found.finding.next.contains("`--mode wrap`"), "{}", found.finding);
    // Of eight copies of 4 ms only the first of each pass cannot be hidden.
    let gain = found.gain_ns.unwrap();
    assert!((23.9e6..24.2e6).contains(&gain), "{gain}");
}

#[test]
fn a_wait_of_only_the_first_layer_is_normal_without_wrap() {
    let fixture = Fixture { streaming: Streaming::Prefetch, ..Fixture::default() };
    let answer = analysed(fixture, OffloadFacts { mode: Some("prefetch".into()), ..facts() });
    assert_eq!(rules(&answer), ["first-layer-not-prefetched"]);
    let found = &answer.findings[0];
    assert_eq!((found.severity, found.gain_ns), (Severity::Normal, Some(8e6)));
    assert!(found.finding.next.contains("`--mode wrap`"), "{}", found.finding);
    let wrapped = analysed(fixture, facts());
    assert_eq!(wrapped.findings[0].severity, Severity::Notable);
}

#[test]
fn little_prefetching_is_bad_below_half_and_notable_above() {
    // Two layers without wrap: one of two copies is issued ahead.
    let fixture = Fixture { streaming: Streaming::Prefetch, layers: 2, ..Fixture::default() };
    assert_eq!(rules(&analysed(fixture, facts())), ["first-layer-not-prefetched"]);
    let limits = Thresholds { async_bad: 0.51, ..Thresholds::default() };
    let answer = offload(&fixture.trace(), facts(), limits).unwrap();
    assert_eq!((rules(&answer), answer.findings[0].severity), (vec!["async-partly"], Severity::Bad));
    let loose = Thresholds { async_good: 0.5, ..Thresholds::default() };
    assert_eq!(rules(&offload(&fixture.trace(), facts(), loose).unwrap()), Vec::<&str>::new());
}

#[test]
fn copies_longer_than_compute_are_limited_by_the_link() {
    let answer = analysed(slow_link(), OffloadFacts { link_gbps: Some(3.4), ..facts() });
    assert_eq!(rules(&answer), ["link-bound"]);
    let finding = &answer.findings[0].finding;
    assert!(finding.evidence.contains("0.80 GB at 3.33 GB/s"), "{finding}");
    assert!(finding.next.contains("more layers on the GPU") && finding.next.contains("`--mode batched`"), "{finding}");
    assert_eq!(answer.minimum.copies, 240_000_000);
    assert!(
        answer.minimum.with_wrap >= 240_000_000 - 30_000_000 && answer.minimum.with_wrap <= answer.minimum.measured
    );
}

#[test]
fn copies_far_below_the_link_peak_are_reported_with_the_reason() {
    let text = |fixture: Fixture| {
        let answer = analysed(fixture, OffloadFacts { link_gbps: Some(25.0), ..facts() });
        assert_eq!(answer.findings[0].finding.rule, "link-below-peak");
        answer.findings[0].finding.to_string()
    };
    assert!(text(Fixture { pinned: false, ..slow_link() }).contains("pageable"));
    assert!(text(Fixture { bytes: 3 << 20, ..slow_link() }).contains("small"));
    assert!(text(slow_link()).contains("something else uses the link"));
    // 3.33 GB/s are 60 % of 5.56.
    let at = |peak| rules(&analysed(slow_link(), OffloadFacts { link_gbps: Some(peak), ..facts() }))[0];
    assert_eq!((at(5.5), at(5.6)), ("link-bound", "link-below-peak"));
}

#[test]
fn a_slow_token_is_explained_by_its_largest_part() {
    let of = |fixture: Fixture| rules(&analysed(fixture, facts()));
    assert_eq!(of(Fixture { compute: 40_000, ..Fixture::default() }), ["compute-limit"]);
    assert_eq!(of(Fixture { diffusion: 1_000_000, ..Fixture::default() }), ["diffusion-limit"]);
    assert_eq!(of(Fixture { decode: 300_000, encode: 100_000, ..Fixture::default() }), ["codec-limit"]);
    assert_eq!(of(Fixture { other: 300_000, ..Fixture::default() }), ["other-limit"]);
}

#[test]
fn a_token_is_slow_if_it_takes_longer_than_its_audio() {
    let of = |audio_ns| analysed(Fixture::default(), OffloadFacts { audio_ns: Some(audio_ns), ..facts() });
    assert_eq!((rules(&of(73.4e6)), rules(&of(73.2e6))), (vec![], vec!["compute-limit"]));
    assert_eq!(of(146.608e6).rtf(), Some(0.5));
}

#[test]
fn cache_clearing_is_reported_from_a_twentieth_of_a_token_on() {
    // A token is 73.3 ms without it.
    let of = |clear| rules(&analysed(Fixture { clear, ..Fixture::default() }, facts()));
    assert_eq!((of(3_800), of(3_900)), (vec![], vec!["memory-stalls"]));
}

#[test]
fn a_late_host_is_reported() {
    // Eight layers a token wait for their launch.
    assert_eq!(rules(&analysed(Fixture { launch: 400, ..Fixture::default() }, facts())), Vec::<&str>::new());
    assert_eq!(rules(&analysed(Fixture { launch: 700, ..Fixture::default() }, facts())), ["host-late"]);
    assert_eq!(rules(&analysed(Fixture { issue: 700, ..Fixture::default() }, facts())), ["host-late"]);
    assert_eq!(
        rules(&analysed(Fixture { issue: 700, pinned: false, ..Fixture::default() }, facts())),
        Vec::<&str>::new()
    );
}

#[test]
fn a_release_is_notable_from_a_millisecond_and_bad_over_two_hundred() {
    let of = |release| {
        let answer = analysed(Fixture { release, ..Fixture::default() }, facts());
        answer.findings.first().map(|found| (found.finding.rule, found.severity))
    };
    assert_eq!(of(999), None);
    assert_eq!(of(1_000), Some(("release-blocks", Severity::Notable)));
    assert_eq!(of(201_000), Some(("release-blocks", Severity::Bad)));
}

#[test]
fn a_long_wait_without_another_cause_is_reported() {
    // The link is fast enough on the whole: one long wait in a token of long compute.
    let fixture =
        Fixture { layers: 2, forwards: 1, copy: 150_000, compute: 10_000, resident: 10_000_000, ..Fixture::default() };
    let limits = Thresholds { token_good_ns: 1e12, ..Thresholds::default() };
    let text = |limits| {
        let answer = offload(&fixture.trace(), OffloadFacts::default(), limits).unwrap();
        answer.findings.first().map(|found| (found.finding.rule, found.severity))
    };
    assert_eq!(text(limits), Some(("long-wait", Severity::Notable)));
    assert_eq!(text(Thresholds { pre_bad_ns: 120e6, ..limits }), Some(("long-wait", Severity::Bad)));
    assert_eq!(text(Thresholds { pre_good_ns: 150e6, ..limits }), None);
}

#[test]
fn findings_are_sorted_by_gain() {
    let fixture = Fixture { copy: 30_000, diffusion: 400_000, clear: 100_000, ..Fixture::default() };
    let answer = analysed(fixture, OffloadFacts { link_gbps: Some(3.4), ..facts() });
    assert_eq!(rules(&answer), ["diffusion-limit", "link-bound", "memory-stalls"]);
    let gains: Vec<f64> = answer.findings.iter().filter_map(|found| found.gain_ns).collect();
    assert!(gains.is_sorted_by(|a, b| a >= b), "{gains:?}");
}

#[test]
fn the_expected_token_time_is_derived_from_case_facts() {
    let facts = [
        ("layers", 28),
        ("gpu_layers", 20),
        ("layer_bytes", 300_000_000),
        ("layer_flops", 1),
        ("streams", 1),
        ("link_gbps", 10),
        ("memory_gbps", 60),
        ("peak_gflops", 1000),
    ];
    let mut facts: Vec<Fact> = facts.iter().map(|&(name, value)| Fact::new(name, value)).collect();
    facts.push(Fact::new("mode", "prefetch"));
    let read = OffloadFacts::of(&Measured { facts, ..Measured::default() });
    assert_eq!((read.wraps(), read.prefetches(), read.link_gbps), (false, true, Some(10.0)));
    let text = analysed(Fixture::default(), read).expected.unwrap();
    assert_eq!(text.transformer, 345e6);
}

proptest! {
    #[test]
    fn a_measured_token_is_never_below_the_lower_bound(
        copy in 1_u64..20_000,
        compute in 1_u64..10_000,
        resident in 0_u64..40_000,
        layers in 1_u64..6,
        forwards in 1_u64..3,
        which in 0_usize..3,
    ) {
        let streaming = [Streaming::AtItsTurn, Streaming::Prefetch, Streaming::Wrap][which];
        let fixture = Fixture { streaming, copy, compute, resident, layers, forwards, ..Fixture::default() };
        let answer = offload(&fixture.trace(), OffloadFacts::default(), Thresholds::default()).unwrap();
        let least = answer.minimum.least(streaming == Streaming::Wrap);
        prop_assert!(least <= answer.minimum.measured, "{:?}", answer.minimum);
        for token in &answer.tokens {
            let sum: u64 = token.parts.iter().flatten().sum();
            prop_assert_eq!(sum, token.length);
        }
    }
}
