//! Flame graphs of ordinary and of hostile stacks.

use laptime_report::{FlameError, FlameOptions, Weights, flamegraph};
use roxmltree::{Document, ParsingOptions};

fn options(title: &str) -> FlameOptions {
    FlameOptions { title: title.into(), subtitle: None, weights: Weights::Nanos }
}

fn draw(folded: &[&str]) -> Result<String, FlameError> {
    let mut svg = Vec::new();
    flamegraph(folded, &options("stages"), &mut svg)?;
    Ok(String::from_utf8(svg).expect("an SVG is text"))
}

/// Returns what a reader of the graph sees when pointing at each frame, sorted.
fn frames(svg: &str) -> Vec<String> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(svg, options).expect("the SVG is well-formed");
    let titles = document.descendants().filter(|node| node.has_tag_name("title"));
    let mut frames: Vec<_> = titles.filter_map(|node| node.text().map(str::to_owned)).collect();
    frames.sort();
    frames
}

#[test]
fn a_frame_shows_its_time_in_a_readable_unit() {
    let svg = draw(&["run;decode 60000000", "run;prefill 20000000"]).unwrap();
    assert_eq!(
        frames(&svg),
        [
            "all (80,000 µs, 100%)",
            "decode (60,000 µs, 75.00%)",
            "prefill (20,000 µs, 25.00%)",
            "run (80,000 µs, 100.00%)",
        ]
    );
}

#[test]
fn the_same_stacks_give_the_same_bytes() {
    let folded = ["run;prefill 5", "run;decode 2", "run;decode;sample 1"];
    assert_eq!(draw(&folded).unwrap(), draw(&folded).unwrap());
}

#[test]
fn a_frame_is_not_split_by_a_name_that_sorts_before_its_child() {
    let svg = draw(&["a 10", "a-b 10", "a;b 20"]).unwrap();
    let expected = ["a (30 ns, 75.00%)", "a-b (10 ns, 25.00%)", "all (40 ns, 100%)", "b (20 ns, 50.00%)"];
    assert_eq!(frames(&svg), expected);
}

#[test]
fn a_trailing_number_in_a_name_is_not_a_weight() {
    let svg = draw(&["layer 12 30", "layer 12;mlp 10"]).unwrap();
    let expected = ["all (40 ns, 100%)", "layer 12\u{200b} (40 ns, 100.00%)", "mlp (10 ns, 25.00%)"];
    assert_eq!(frames(&svg), expected);
}

#[test]
fn hostile_names_give_well_formed_svg() {
    let long = "x".repeat(10_000);
    let names = ["</script><script>alert(1)", "\"q\" 'q' & &lt ]]>", "\u{1b}[31m\0\u{ffff}", &long];
    let folded: Vec<_> = names.iter().map(|name| format!("{name};{name} 7")).collect();
    let mut svg = Vec::new();
    let title = FlameOptions { subtitle: Some(names.concat()), ..options(&names.concat()) };
    flamegraph(&folded, &title, &mut svg).unwrap();
    let frames = frames(&String::from_utf8(svg).unwrap());
    assert_eq!(frames.len(), 1 + 2 * names.len());
    for shown in [names[0], names[1], "\\x1b[31m\\x00\\u{ffff}", &long] {
        assert!(frames.contains(&format!("{shown} (7 ns, 25.00%)")), "{shown}");
    }
}

#[test]
fn an_empty_profile_is_an_error_and_writes_nothing() {
    for folded in [&[][..], &["a;b 0"]] {
        let mut svg = Vec::new();
        let drawn = flamegraph(folded, &options("none"), &mut svg);
        assert!(matches!(drawn, Err(FlameError::Empty)) && svg.is_empty());
    }
}

#[test]
fn an_error_names_the_line_without_a_weight() {
    let error = draw(&["a;b 5", "a;b"]).unwrap_err();
    let expected = "line 2 is not a folded stack: `a;b`, expected `a;b;c 123`";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn weights_beyond_64_bits_are_an_error() {
    let most = u64::MAX;
    for folded in [[format!("a {most}"), "a 1".into()], [format!("a {most}"), "b 1".into()]] {
        let drawn = flamegraph(&folded, &options("heavy"), std::io::sink());
        assert!(matches!(drawn, Err(FlameError::TooHeavy)));
    }
}
