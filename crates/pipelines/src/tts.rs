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
    AxisSpec, Case, Device, Given, GivenSettings, MetricSpec, ParsedCase, Plan, PlanError, Prepared, Work, Workload,
};

use self::axes::{ON_CPU, ON_GPU, aliases, axes};
pub(crate) use self::extras::TtsExtras;
use self::runner::{Runner, needed_bytes};
use self::speech::{Spec, Speech, find};
use self::{iteration::SpeechIteration, plan::settle};
use crate::axis::{AUTO, describe, metrics};
use crate::backend::{Parsed, does_not_apply, is_gpu, no_graphs};
use crate::request::few_iterations;

/// Text to speech: a talker and a predictor generate frames of codes, and a codec decodes them to audio.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextToSpeech;

impl TextToSpeech {
    /// The work of each stage of a case, for all frames together; empty if the case is invalid or a checkpoint determines
    /// the number of frames.
    pub fn stage_work(case: &Case) -> Vec<(&'static str, Work)> {
        let of_case = || {
            let spec = Spec::of(case).ok()?;
            Some(speech::stage_work(&Speech::of(&spec).ok()?, &spec))
        };
        of_case().unwrap_or_default()
    }

    /// Loads the model of a case. Sampling is seeded, so it generates the same audio as every iteration.
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
    describe!("tts", "text to speech (Qwen3-TTS): talker, code predictor and audio codec", axes(), aliases(), settle);

    /// As in qwen3-tts-rs.
    fn usual_settings(&self) -> GivenSettings {
        few_iterations()
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
        metrics! {
            "rtf", Lower, "real-time factor: time / audio duration";
            "rtfx", Higher, "inverse real-time factor: audio duration / time";
            "tok_s", Higher, "frames per second";
            "ttfa_ms", Lower, "time until the first chunk can be played";
            "prefill_ms", Lower, "prefill time";
            "generation_ms", Lower, "time to generate all frames";
            "decode_ms", Lower, "time to decode the audio";
            "frame_p50_ms", Lower, "median time per frame";
            "frame_p95_ms", Lower, "95th percentile of the time per frame";
            "frame_p99_ms", Lower, "99th percentile of the time per frame";
            "late_frames", Lower, "frames that are late for playback";
            "buffer_ms", Lower, "playback delay that would avoid late frames";
        }
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
