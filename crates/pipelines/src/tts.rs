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
mod speech;
#[cfg(test)]
mod tests;
mod wanted;
mod work;

use std::ops::ControlFlow;

use laptime_bench::{
    Alias, AxisSpec, Better, Case, Device, Fact, Given, GivenSettings, MetricSpec, Plan, PlanError, Prepared, WarmUp,
    Work, Workload,
};
use laptime_models::tts::Audio;

pub use self::extras::TtsExtras;
use self::{
    axes::{ALIASES, AUTO, ON_CPU, ON_GPU, axes},
    iteration::SpeechIteration,
    plan::settle,
    runner::Runner,
    speech::{Speech, find},
    wanted::Wanted,
};
use crate::model::told;

/// Text to speech: a talker that makes frames of codes, and a codec that makes audio of them.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextToSpeech;

/// Iterations before the first that counts, as the kit has them.
const WARM_UP: usize = 1;

/// Iterations that count, as the kit has them.
const ITERATIONS: usize = 3;

impl TextToSpeech {
    /// What each stage of a case has to do, all frames together; nothing if the case makes no sense, or if its weights
    /// decide how many frames there are.
    pub fn stage_work(case: &Case) -> Vec<(&'static str, Work)> {
        let of_case = || {
            let wanted = Wanted::of(case).ok()?;
            Some(work::stage_work(&Speech::of(&wanted).ok()?, &wanted))
        };
        of_case().unwrap_or_default()
    }

    /// Says a case once, for its audio. It is the audio of every iteration: draws start from the seed of the case.
    pub fn speak(case: &Case, device: &dyn Device) -> anyhow::Result<Audio> {
        let (speech, wanted) = Self.read(case, device)?;
        let mut runner = Runner::new(speech, wanted, device)?;
        let spoken = runner.speak().map_err(told)?;
        Ok(runner.audio(spoken.samples))
    }

    /// Says a case once and hands its audio on while it is made. Whoever hears it may break off. Says how many samples
    /// were made.
    pub fn stream(
        case: &Case,
        device: &dyn Device,
        listener: &mut dyn FnMut(&[f32]) -> ControlFlow<()>,
    ) -> anyhow::Result<usize> {
        let (speech, wanted) = Self.read(case, device)?;
        let spoken = Runner::new(speech, wanted, device)?.speak_to(listener).map_err(told)?;
        Ok(spoken.samples.len())
    }

    /// Samples a second of a case's audio; none if the case makes no sense.
    pub fn sample_rate(case: &Case) -> Option<u32> {
        Some(Speech::of(&Wanted::of(case).ok()?).ok()?.config.codec.sample_rate)
    }

    fn read(&self, case: &Case, device: &dyn Device) -> anyhow::Result<(Speech, Wanted)> {
        let wanted = Wanted::of(&self.on_device(case, device))?;
        Ok((Speech::of(&wanted)?, wanted))
    }
}

impl Workload for TextToSpeech {
    fn name(&self) -> &'static str {
        "tts"
    }

    fn about(&self) -> &'static str {
        "says a text: a talker makes frames of codes, a predictor the rest of each frame, and a codec audio of all of them"
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

    fn predicted_bytes(&self, case: &Case, device: &dyn Device) -> anyhow::Result<Option<u64>> {
        let (speech, wanted) = self.read(case, device)?;
        Ok(speech.refusal().is_none().then(|| make::needed_bytes(&speech, &wanted, device)))
    }

    fn known(&self, case: &Case) -> Vec<Fact> {
        let facts = || Some(work::sizes(&Speech::of(&Wanted::of(case).ok()?).ok()?));
        facts().unwrap_or_default()
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        let metric = |name, about, better| MetricSpec { name, about, better };
        vec![
            metric("rtf", "time of computing by time of audio", Better::Lower),
            metric("rtfx", "time of audio by time of computing", Better::Higher),
            metric("tok_s", "frames a second", Better::Higher),
            metric("ttfa_ms", "time until the first chunk can be played", Better::Lower),
            metric("prefill_ms", "time of the prompt", Better::Lower),
            metric("generation_ms", "time of all frames", Better::Lower),
            metric("decode_ms", "time of making audio of them", Better::Lower),
            metric("frame_p50_ms", "time of a frame: half are faster", Better::Lower),
            metric("frame_p95_ms", "time that 95 of 100 frames keep", Better::Lower),
            metric("frame_p99_ms", "time that 99 of 100 frames keep", Better::Lower),
            metric("late_frames", "frames that are not there when they are to be played", Better::Lower),
            metric("buffer_ms", "how much later playing would have to begin for none to be late", Better::Lower),
        ]
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        let (speech, wanted) = self.read(case, device)?;
        if let Some(reason) = speech.refusal().or_else(|| make::refusal(&wanted, device)) {
            return Ok(Prepared::DoesNotApply(reason));
        }
        let needed = make::needed_bytes(&speech, &wanted, device);
        Prepared::if_it_fits(needed, device, || {
            Ok(Box::new(SpeechIteration::new(Runner::new(speech, wanted, device)?)))
        })
    }
}
