//! A synthesis as an iteration.

use anyhow::ensure;
use laptime_bench::{AxisValue, Fact, Iteration, Nanos, Work};
use laptime_models::tts::Spoken;
use laptime_stats::Sorted;

use super::{
    check::{check_audio, check_chunks, check_codes},
    playback::playback,
    runner::Runner,
    work::{sizes, whole, work},
};
use crate::model::into_error;

/// A synthesis: text in, audio out.
pub struct SpeechIteration<'a> {
    runner: Runner<'a>,
    /// The result of the last iteration.
    last: Spoken,
    /// How loud the difference of audio in chunks is, as a share of the audio's loudness.
    chunk_difference: Option<f64>,
}

impl<'a> SpeechIteration<'a> {
    /// A prepared model.
    pub fn new(runner: Runner<'a>) -> Self {
        Self { runner, last: Spoken::default(), chunk_difference: None }
    }

    /// The audio of all frames, at once and in chunks.
    fn decode_both(&mut self) -> anyhow::Result<[Vec<f32>; 2]> {
        let (chunk, model) = (self.runner.spec.chunk_frames, &mut self.runner.made.model);
        let frames = model.frames();
        let whole = model.decode(0..frames).map_err(into_error)?;
        let mut chunked = Vec::with_capacity(whole.len());
        for start in (0..frames).step_by(chunk.max(1)) {
            let end = start.saturating_add(chunk).min(frames);
            chunked.extend(model.decode(start..end).map_err(into_error)?);
        }
        Ok([whole, chunked])
    }

    /// The duration of the last audio.
    fn audio_s(&self) -> f64 {
        self.last.samples.len() as f64 / f64::from(self.runner.speech.config.codec.sample_rate.max(1))
    }
}

impl Iteration for SpeechIteration<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        let frames = self.runner.made.model.frames();
        let speech = &self.runner.speech;
        let (expected, is_endless) = (speech.frames, speech.folder.is_none());
        ensure!(!is_endless || frames == expected, "there are {frames} frames, expected {expected}");
        let codes = self.runner.made.model.codes(0..frames).map_err(into_error)?;
        check_codes(&codes, &self.runner.speech.config)?;
        check_audio(&self.last.samples, frames, &self.runner.speech.config)?;
        let [whole, chunked] = self.decode_both()?;
        let speech = &self.runner.speech;
        check_audio(&whole, frames, &speech.config)?;
        check_audio(&chunked, frames, &speech.config)?;
        let chunk = self.runner.spec.chunk_frames;
        self.chunk_difference = check_chunks(&chunked, &whole, chunk, &speech.config, speech.dtype)?;
        Ok(())
    }

    fn ready(&mut self) -> anyhow::Result<()> {
        self.last = Spoken::default();
        self.runner.made.model.reset().map_err(into_error)
    }

    fn run(&mut self) -> anyhow::Result<()> {
        self.last = self.runner.speak().map_err(into_error)?;
        Ok(())
    }

    fn readings(&mut self, wall: Nanos) -> Vec<Option<f64>> {
        let Spoken { prefill_ns, generation_ns, decode_ns, frames_ns, ready, .. } = &self.last;
        let (audio, wall) = (self.audio_s(), wall.0 as f64 / 1e9);
        let over = |one: f64, other: f64| (other > 0.0).then(|| one / other);
        let ms = |nanos: u64| Some(nanos as f64 / 1e6);
        let frames = Sorted::<u64>::from_unsorted(frames_ns.clone());
        let frame = |part: f64| frames.quantile(part).map(|nanos| nanos / 1e6);
        let played = playback(ready, self.runner.frame_ns());
        vec![
            over(wall, audio),
            over(audio, wall),
            over(frames_ns.len() as f64, wall),
            ready.first().and_then(|first| ms(first.at_ns)),
            ms(*prefill_ns),
            ms(*generation_ns),
            ms(*decode_ns),
            frame(0.5),
            frame(0.95),
            frame(0.99),
            played.map(|played| played.late as f64),
            played.and_then(|played| ms(played.buffer_ns)),
        ]
    }

    fn work(&self) -> Option<Work> {
        work(&self.runner.speech, &self.runner.spec)
    }

    fn facts(&self) -> Vec<Fact> {
        let speech = &self.runner.speech;
        let mut facts = sizes(speech);
        facts.extend(self.chunk_difference.map(|share| Fact::new("chunk_difference", AxisValue::Float(share))));
        facts.extend([
            Fact::new("audio_s", AxisValue::Float(self.audio_s())),
            whole("frames_made", self.last.frames_ns.len() as u64),
            Fact::new("weights", self.runner.made.weights),
            Fact::new("said", speech.text.clone()),
        ]);
        facts
    }
}
