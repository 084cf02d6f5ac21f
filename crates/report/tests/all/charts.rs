//! Charts: what they show, that nothing of them collides, and that nothing in the data breaks them.

use crate::seen::Seen;
use laptime_report::chart::{
    Chart, Line, Point, Reading, Theme,
    charts::{
        Attention, AttentionKind, Crossovers, Models, Roof, Roofline, WarmupLaps, WarmupRow, attention_efficiency,
        attention_latency, attention_memory, crossover, model_performance, roofline, warmup_laps,
    },
};
use proptest::prelude::*;

const THEMES: [Theme; 2] = [Theme::Light, Theme::Dark];

fn all_charts() -> Vec<(&'static str, Chart)> {
    let charts = crate::figures::charts().into_iter().map(|chart| (chart.name, chart));
    charts.chain(crate::figures::hard_charts()).collect()
}

fn of_points(points: Vec<Point>) -> Attention {
    let kind = AttentionKind { time_ns: Line::new("dense", points), ..AttentionKind::default() };
    Attention { subtitle: "a machine".to_owned(), kinds: vec![kind], ratios: Vec::new() }
}

fn latency(points: Vec<Point>) -> Seen {
    Seen::of(&attention_latency(&of_points(points)).expect("there is something to draw").to_svg(Theme::Light))
}

#[test]
fn each_chart_matches_its_golden_file() {
    for chart in crate::figures::charts() {
        crate::blessed::compare(&format!("{}.svg", chart.name), &chart.to_svg(Theme::Light));
    }
    crate::blessed::compare("crossover-dark.svg", &crate::figures::charts()[4].to_svg(Theme::Dark));
}

#[test]
fn equal_figures_give_equal_bytes() {
    for (one, other) in crate::figures::charts().iter().zip(&crate::figures::charts()) {
        for theme in THEMES {
            assert_eq!(one.to_svg(theme), other.to_svg(theme));
            assert_eq!(one.to_png(theme, 800).unwrap(), other.to_png(theme, 800).unwrap());
        }
    }
}

#[test]
fn text_is_inside_the_picture_legible_and_not_overlapping() {
    for (name, chart) in all_charts() {
        let seen = Seen::of(&chart.to_svg(Theme::Light));
        seen.assert_is_inside();
        for (at, text) in seen.texts.iter().enumerate() {
            assert!(text.size >= 12.0, "{name}: `{}` has size {}", text.text, text.size);
            let covered = seen.texts[..at].iter().find(|other| other.overlaps(text));
            assert_eq!(covered.map(|other| &other.text), None, "{name}: on `{}`", text.text);
        }
    }
}

#[test]
fn the_legend_is_below_the_panels() {
    for (name, chart) in all_charts() {
        let seen = Seen::of(&chart.to_svg(Theme::Light));
        let axes = chart.panels.iter().map(|panel| seen.text(panel.x.label).bottom);
        let axis = axes.fold(0.0, f64::max);
        let entry = seen.texts.iter().rev().find(|text| text.size == 13.0).expect("a legend has text");
        assert!(entry.top >= axis, "{name}: `{}`", entry.text);
    }
}

#[test]
fn a_png_has_the_requested_width_and_the_svgs_aspect() {
    for chart in crate::figures::charts() {
        let seen = Seen::of(&chart.to_svg(Theme::Light));
        for width in [800, 1600] {
            let pixels = crate::seen::Pixels::of(&chart.to_png(Theme::Light, width).unwrap());
            assert_eq!(pixels.width, width);
            assert!((f64::from(pixels.height) - seen.height * f64::from(width) / 800.0).abs() <= 1.0);
        }
    }
}

#[test]
fn an_unreasonable_width_is_clamped() {
    let chart = &crate::figures::charts()[2];
    let widths = [0, 9_000].map(|width| crate::seen::Pixels::of(&chart.to_png(Theme::Light, width).unwrap()).width);
    assert_eq!(widths, [200, 6_400]);
}

#[test]
fn a_png_shows_letters_and_lines_on_its_background() {
    for (theme, background) in [(Theme::Light, [255, 255, 255]), (Theme::Dark, [0x14, 0x16, 0x1a])] {
        for chart in crate::figures::charts() {
            let seen = Seen::of(&chart.to_svg(theme));
            let pixels = crate::seen::Pixels::of(&chart.to_png(theme, 800).unwrap());
            assert_eq!(pixels.at(0, 0), background);
            let title = seen.text(&chart.title);
            assert!(pixels.share_unlike(background, title) > 0.1, "{}: no letters", chart.name);
            assert!(pixels.colours() > 50, "{}: {} colours", chart.name, pixels.colours());
        }
    }
}

#[test]
fn a_missing_point_is_a_gap_in_the_line() {
    let measured = |x: f64| Point::measured(x, x * 1e3);
    let whole = latency([512.0, 1024.0, 2048.0, 4096.0].map(measured).into());
    let with_gap = vec![measured(512.0), measured(1024.0), Point::missing(1500.0), measured(2048.0), measured(4096.0)];
    let broken = latency(with_gap);
    let lines = |seen: &Seen| seen.paths.iter().filter(|path| path.stroke_width == "2").count();
    // The legend has one of them.
    assert_eq!((lines(&whole), lines(&broken)), (2, 3));
}

#[test]
fn failures_are_marked_at_the_upper_edge_with_a_reason() {
    let points =
        vec![Point::measured(512.0, 1e6), Point::measured(1024.0, 4e6), Point::failed(2048.0, "out of memory")];
    let seen = latency(points);
    let word = seen.text("out of memory");
    let crosses: Vec<_> = seen.paths.iter().filter(|path| path.stroke_width == "2.2").collect();
    assert_eq!(crosses.len(), 1);
    let highest = seen.circles.iter().map(|circle| circle.1).fold(f64::INFINITY, f64::min);
    assert!(crosses[0].bottom < highest && word.bottom < highest && word.right < crosses[0].left);
}

#[test]
fn one_point_gives_a_chart_and_no_point_gives_none() {
    assert_eq!(latency(vec![Point::measured(1024.0, 5e6).within(4e6, 6e6)]).circles.len(), 2);
    for points in [vec![], vec![Point::missing(512.0)], vec![Point::failed(512.0, "failed")]] {
        assert_eq!(attention_latency(&of_points(points)), None);
    }
    for value in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        assert_eq!(attention_latency(&of_points(vec![Point::measured(512.0, value)])), None);
    }
    assert_eq!(attention_memory(&Attention::default()), None);
    assert_eq!(attention_efficiency(&Attention::default()), None);
    assert_eq!(model_performance(&Models::default()), None);
    assert_eq!(crossover(&Crossovers::default()), None);
    assert_eq!(warmup_laps(&WarmupLaps::default()), None);
    assert_eq!(roofline(&Roofline::default()), None);
    let without_roof = Roofline { compute: Vec::new(), ..crate::figures::roofs() };
    assert_eq!(roofline(&without_roof), None);
}

#[test]
fn a_panel_without_values_is_left_out() {
    let models = Models { loss: Vec::new(), training_over_inference: Vec::new(), ..crate::figures::models() };
    let titles: Vec<String> = model_performance(&models).unwrap().panels.into_iter().map(|panel| panel.title).collect();
    assert_eq!(titles, ["Time", "Memory"]);
}

#[test]
fn ticks_of_lengths_and_times_are_round_numbers() {
    let seen = Seen::of(&crate::figures::charts()[0].to_svg(Theme::Light));
    for tick in ["512", "1024", "2048", "4096", "8192", "16384", "0.02", "0.05", "0.1", "5", "10", "∝ N", "∝ N²"] {
        seen.text(tick);
    }
    seen.text("time of an iteration (ms)");
}

#[test]
fn a_name_has_the_same_style_in_every_chart() {
    let charts = crate::figures::charts();
    let colour = |chart: &Chart| Seen::of(&chart.to_svg(Theme::Light)).colour_before("sparse");
    assert_eq!(colour(&charts[0]), colour(&charts[1]));
    assert_eq!(colour(&charts[0]), colour(&charts[2]));
}

#[test]
fn hostile_names_give_a_well_formed_chart() {
    let long = "x".repeat(100_000);
    let names =
        ["</svg><script>alert(1)</script>", "\"q\" 'q' & &lt ]]>", "\u{1b}[31m\0\u{ffff}\u{202e}", &long, "", "注意力"];
    let points = || vec![Point::measured(512.0, 1e6).labelled(names[1]), Point::failed(1024.0, names[2])];
    let kind = |name: &&str| AttentionKind { time_ns: Line::new(*name, points()), ..AttentionKind::default() };
    let attention = Attention { subtitle: names.concat(), kinds: names.iter().map(kind).collect(), ratios: Vec::new() };
    let chart = attention_latency(&attention).unwrap();
    let seen = Seen::of(&chart.to_svg(Theme::Light));
    seen.assert_is_inside();
    seen.text("</svg><script>alert(1)</script>");
    chart.to_png(Theme::Light, 400).unwrap();
}

#[test]
fn a_million_steps_are_a_small_picture() {
    let laps_ns = (0..1_000_000).map(|step| 4_000_000 + step % 1_000).collect();
    let row = WarmupRow { name: "0 warm-up iterations".to_owned(), laps_ns, not_counted: 3 };
    let warmup = WarmupLaps { rows: vec![row], ..WarmupLaps::default() };
    let svg = warmup_laps(&warmup).unwrap().to_svg(Theme::Light);
    assert!(svg.len() < 100_000, "{} bytes", svg.len());
    Seen::of(&svg).assert_is_inside();
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 1e-3..1e12_f64,
        2 => proptest::num::f64::ANY,
        1 => prop::sample::select(vec![0.0, -0.0, 1.0, 512.0, 1e150, -1e150, 1e-150, f64::MIN_POSITIVE, f64::NAN]),
    ]
}

fn any_reading() -> impl Strategy<Value = Reading> {
    prop_oneof![
        5 => (any_number(), prop::option::of([any_number(), any_number()]))
            .prop_map(|(value, interval)| Reading::Measured { value, interval }),
        1 => Just(Reading::Missing),
        1 => ".{0,12}".prop_map(Reading::Failed),
    ]
}

fn any_line() -> impl Strategy<Value = Line> {
    let point = (any_number(), any_reading(), ".{0,6}", any::<bool>())
        .prop_map(|(x, reading, label, is_hollow)| Point { x, reading, label, is_hollow });
    (".{0,30}", prop::collection::vec(point, 0..6)).prop_map(|(name, points)| Line::new(name, points))
}

fn any_lines() -> impl Strategy<Value = Vec<Line>> {
    prop::collection::vec(any_line(), 0..5)
}

fn assert_is_drawn(chart: Option<Chart>) {
    let Some(chart) = chart else { return };
    for theme in THEMES {
        Seen::of(&chart.to_svg(theme)).assert_is_inside();
    }
    assert!(chart.to_png(Theme::Dark, 200).expect("it can be drawn").len() > 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_attention_figures_can_be_drawn(time in any_lines(), bytes in any_lines(), ratios in any_lines()) {
        let kinds = time.iter().zip(&bytes).map(|(time, bytes)| AttentionKind {
            time_ns: time.clone(),
            peak_bytes: bytes.clone(),
            sparsity: bytes.clone(),
        });
        let attention = Attention { subtitle: "any".to_owned(), kinds: kinds.collect(), ratios };
        assert_is_drawn(attention_latency(&attention));
        assert_is_drawn(attention_memory(&attention));
        assert_is_drawn(attention_efficiency(&attention));
    }

    #[test]
    fn any_model_figures_can_be_drawn(
        time_ns in any_lines(),
        training_over_inference in any_lines(),
        loss in any_lines(),
        subtitle in ".{0,200}",
    ) {
        let peak_bytes = time_ns.clone();
        assert_is_drawn(model_performance(&Models { subtitle, time_ns, peak_bytes, training_over_inference, loss }));
    }

    #[test]
    fn any_crossovers_can_be_drawn(ratios in any_lines(), at in any_number(), ends in [any_number(), any_number()]) {
        let mut crossovers = Crossovers { ratios, ..crate::figures::crossovers() };
        crossovers.crossings[0].at = at;
        crossovers.crossings[0].interval = Some(ends);
        assert_is_drawn(crossover(&crossovers));
    }

    #[test]
    fn any_warm_up_can_be_drawn(laps_ns in prop::collection::vec(any::<u64>(), 0..60), steady in any_number()) {
        let row = WarmupRow { name: "any".to_owned(), laps_ns, not_counted: 7 };
        assert_is_drawn(warmup_laps(&WarmupLaps { rows: vec![row], steady_ns: Some(steady), ..WarmupLaps::default() }));
    }

    #[test]
    fn any_roofline_can_be_drawn(reached in any_lines(), bytes_s in any_number(), flops_s in [any_number(), any_number()]) {
        let mut roofs = Roofline { reached, memory: Roof { name: "memory".to_owned(), rate: bytes_s }, ..crate::figures::roofs() };
        for (roof, rate) in roofs.compute.iter_mut().zip(flops_s) {
            roof.rate = rate;
        }
        assert_is_drawn(roofline(&roofs));
    }
}
