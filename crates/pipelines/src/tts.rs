//! The workload `tts`: text to speech, from a text to the last sample of audio.

mod audio;
mod axes;
mod extras;
mod files;
mod iteration;
mod plan;
mod profile;
mod runner;
mod speech;
#[cfg(test)]
mod tests;

use laptime_bench::{
    AxisSpec, Better, Case, Device, Given, GivenSettings, MetricSpec, ParsedCase, Plan, PlanError, Prepared, WarmUp,
    Work, Workload,
};

use self::axes::{ALIASES, ON_CPU, ON_GPU, axes};
pub(crate) use self::extras::TtsExtras;
use self::runner::{Runner, needed_bytes};
use self::speech::{Spec, Speech, find};
use self::{iteration::SpeechIteration, plan::settle};
use crate::axis::{AUTO, describe};
use crate::backend::{Parsed, does_not_apply, is_gpu, no_graphs};

/// Text to speech: a talker and a predictor generate frames of codes, and a codec decodes them to audio.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextToSpeech;

impl TextToSpeech {
    /// The work of each stage of a case, for all frames together; empty if the case is invalid, or if its weights decide the
    /// number of frames.
    pub fn stage_work(case: &Case) -> Vec<(&'static str, Work)> {
        let of_case = || {
            let spec = Spec::of(case).ok()?;
            Some(speech::stage_work(&Speech::of(&spec).ok()?, &spec))
        };
        of_case().unwrap_or_default()
    }

    /// A model that is ready to generate a case. Sampling is seeded, so its audio is that of every iteration.
    pub(crate) fn runner<'a>(case: &Case, device: &'a dyn Device) -> anyhow::Result<Runner<'a>> {
        let (speech, spec) = Self.read(case, device)?;
        Runner::new(speech, spec, device)
    }

    fn read(&self, case: &Case, device: &dyn Device) -> anyhow::Result<(Speech, Spec)> {
        let spec = Spec::of(&self.on_device(case, device))?;
        Ok((Speech::of(&spec)?, spec))
    }
}

impl Workload for TextToSpeech {
    describe!("tts", "text to speech (Qwen3-TTS): talker, code predictor and audio codec", axes(), ALIASES, settle);

    /// As in qwen3-tts-rs.
    fn usual_settings(&self) -> GivenSettings {
        let warmup = Some(WarmUp::Iterations(1));
        GivenSettings { warmup, iterations: Some(3), ..GivenSettings::default() }
    }

    fn on_device(&self, case: &Case, device: &dyn Device) -> Case {
        let usual = if is_gpu(device) { ON_GPU } else { ON_CPU };
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
            return does_not_apply(reason);
        }
        Ok(Box::new(Parsed {
            bytes: needed_bytes(&speech, &spec, device),
            refusal: no_graphs(device, spec.graph),
            spec: (speech, spec),
            device,
            work: |(speech, spec)| speech::work(speech, spec),
            make: |(speech, spec), device| Ok(Box::new(SpeechIteration::new(Runner::new(speech, spec, device)?))),
        }))
    }
}
