//! A program that marks its stages with `laptime-probe` and records them with `laptime-trace`.
//!
//! `cargo run -p laptime-example-pipeline --features profiling` writes `pipeline.pftrace` into the current folder;
//! without the feature the same program runs without any recording code.

use laptime_probe::{lap, mark, stage, sync_point, value};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(feature = "profiling")]
    let recording = laptime_trace::record_to("pipeline.pftrace")?;
    #[cfg(feature = "profiling")]
    tracing::subscriber::set_global_default(laptime_probe::tracing::Subscriber::new())?;

    let words = summarise("the lap time of a lap is the time that the lap takes", 3);
    assert_eq!(words, ["the", "lap", "time"]);

    #[cfg(feature = "profiling")]
    recording.finish()?;
    Ok(())
}

/// Finds the most frequent words of a text.
fn summarise(text: &str, most: usize) -> Vec<&str> {
    let _stage = stage!("summarise", bytes = text.len());
    let words = tokenise(text);
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let _lap = lap!("count", word = at);
        let seen = sync_point!("read_count", words[..=at].iter().filter(|other| *other == word).count());
        value!("distinct_words", counts.len());
        match counts.iter_mut().find(|(known, _)| known == word) {
            Some((_, count)) => *count = seen,
            None => counts.push((word, seen)),
        }
    }
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    mark!("done", distinct = counts.len());
    counts.into_iter().take(most).map(|(word, _)| word).collect()
}

fn tokenise(text: &str) -> Vec<&str> {
    // Spans of `tracing` need no change.
    #[cfg(feature = "profiling")]
    let _span = tracing::info_span!("my_new_stage").entered();
    text.split_whitespace().collect()
}
