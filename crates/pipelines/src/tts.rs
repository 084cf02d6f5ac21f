//! The workload `tts`: text to speech, from a text to the last sample of audio.

mod audio;
mod axes;
mod check;
mod corpus;
mod extras;
mod files;
mod header;
mod iteration;
mod make;
mod plan;
mod playback;
mod profile;
mod runner;
mod spec;
mod speech;
#[cfg(test)]
mod tests;
mod work;

use std::ops::ControlFlow;

use laptime_bench::{
    Alias, AxisSpec, Better, Case, Device, Given, GivenSettings, MetricSpec, ParsedCase, Plan, PlanError, Prepared,
    WarmUp, Work, Workload,
};
use laptime_models::tts::Audio;

pub use self::extras::TtsExtras;
use self::{
    axes::{ALIASES, AUTO, ON_CPU, ON_GPU, axes},
    iteration::SpeechIteration,
    plan::settle,
    runner::Runner,
    spec::Spec,
    speech::{Speech, find},
};
use crate::model::into_error;

/// Text to speech: a talker and a predictor generate frames of codes, and a codec decodes them to audio.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextToSpeech;

/// Warm-up iterations, as in qwen3-tts-rs.
const WARM_UP: usize = 1;

/// Measured iterations, as in qwen3-tts-rs.
const ITERATIONS: usize = 3;

impl TextToSpeech {
    /// The work of each stage of a case, for all frames together; empty if the case is invalid, or if its weights decide the
    /// number of frames.
    pub fn stage_work(case: &Case) -> Vec<(&'static str, Work)> {
        let of_case = || {
            let spec = Spec::of(case).ok()?;
            Some(work::stage_work(&Speech::of(&spec).ok()?, &spec))
        };
        of_case().unwrap_or_default()
    }

    /// Generates the audio of a case. Sampling is seeded, so it is the audio of every iteration.
    pub fn speak(case: &Case, device: &dyn Device) -> anyhow::Result<Audio> {
        let (speech, spec) = Self.read(case, device)?;
        let mut runner = Runner::new(speech, spec, device)?;
        let spoken = runner.speak().map_err(into_error)?;
        Ok(runner.audio(spoken.samples))
    }

    /// Generates a case and passes its audio on in chunks; the listener may stop it. Returns the number of samples.
    pub fn stream(
        case: &Case,
        device: &dyn Device,
        listener: &mut dyn FnMut(&[f32]) -> ControlFlow<()>,
    ) -> anyhow::Result<usize> {
        let (speech, spec) = Self.read(case, device)?;
        let spoken = Runner::new(speech, spec, device)?.speak_to(listener).map_err(into_error)?;
        Ok(spoken.samples.len())
    }

    /// The sample rate of a case's audio; none if the case is invalid.
    pub fn sample_rate(case: &Case) -> Option<u32> {
        Some(Speech::of(&Spec::of(case).ok()?).ok()?.config.codec.sample_rate)
    }

    fn read(&self, case: &Case, device: &dyn Device) -> anyhow::Result<(Speech, Spec)> {
        let spec = Spec::of(&self.on_device(case, device))?;
        Ok((Speech::of(&spec)?, spec))
    }
}

impl Workload for TextToSpeech {
    fn name(&self) -> &'static str {
        "tts"
    }

    fn about(&self) -> &'static str {
        "text to speech (Qwen3-TTS): talker, code predictor and audio codec"
    }

    fn axes(&self) -> Vec<AxisSpec> {
        axes()
    }

    fn aliases(&self) -> Vec<Alias> {
        ALIASES.to_vec()
    }

    fn plan(&self, given: &[Given]) -> Result<Plan, PlanError> {
        settle(given)
    }

    fn usual_settings(&self) -> GivenSettings {
        GivenSettings {
            warmup: Some(WarmUp::Iterations(WARM_UP)),
            iterations: Some(ITERATIONS),
            ..GivenSettings::default()
        }
    }

    fn on_device(&self, case: &Case, device: &dyn Device) -> Case {
        let usual = if make::is_gpu(device) { ON_GPU } else { ON_CPU };
        let named = case.text("model").unwrap_or(AUTO);
        let Ok((config, folder)) = find(if named == AUTO { usual } else { named }) else { return case.clone() };
        let case = if folder.is_none() { case.with("model", config.name) } else { case.clone() };
        match case.text("dtype") {
            Ok(AUTO) => case.with("dtype", config.talker.dtype.word()),
            _ => case,
        }
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        let metric = |name, about, better| MetricSpec { name, about, better };
        vec![
            metric("rtf", "real-time factor: time / audio duration", Better::Lower),
            metric("rtfx", "inverse real-time factor: audio duration / time", Better::Higher),
            metric("tok_s", "frames per second", Better::Higher),
            metric("ttfa_ms", "time until the first chunk can be played", Better::Lower),
            metric("prefill_ms", "prefill time", Better::Lower),
            metric("generation_ms", "time to generate all frames", Better::Lower),
            metric("decode_ms", "time to decode the audio", Better::Lower),
            metric("frame_p50_ms", "median time per frame", Better::Lower),
            metric("frame_p95_ms", "95th percentile of the time per frame", Better::Lower),
            metric("frame_p99_ms", "99th percentile of the time per frame", Better::Lower),
            metric("late_frames", "frames that are late for playback", Better::Lower),
            metric("buffer_ms", "playback delay that would avoid late frames", Better::Lower),
        ]
    }

    fn parse<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Box<dyn ParsedCase<'a> + 'a>> {
        let (speech, spec) = self.read(case, device)?;
        if let Some(reason) = speech.refusal() {
            return Ok(Box::new(|| Ok(Prepared::DoesNotApply(reason))));
        }
        Ok(Box::new(SpeechCase { speech, spec, device }))
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        self.parse(case, device)?.prepare()
    }
}

/// A parsed case.
struct SpeechCase<'a> {
    speech: Speech,
    spec: Spec,
    device: &'a dyn Device,
}

impl<'a> ParsedCase<'a> for SpeechCase<'a> {
    fn predicted_bytes(&self) -> Option<u64> {
        Some(make::needed_bytes(&self.speech, &self.spec, self.device))
    }

    fn predicted_work(&self) -> Option<Work> {
        work::work(&self.speech, &self.spec)
    }

    fn prepare(self: Box<Self>) -> anyhow::Result<Prepared<'a>> {
        let Self { speech, spec, device } = *self;
        if let Some(reason) = make::refusal(&spec, device) {
            return Ok(Prepared::DoesNotApply(reason));
        }
        let needed = make::needed_bytes(&speech, &spec, device);
        Prepared::if_it_fits(needed, device, || Ok(Box::new(SpeechIteration::new(Runner::new(speech, spec, device)?))))
    }
}
