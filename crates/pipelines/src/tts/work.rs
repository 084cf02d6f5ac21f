//! The work of a synthesis, and facts about it.

use laptime_bench::{AxisValue, Fact, Work};
use laptime_models::{StageWork, tts::TtsStage};
use laptime_trace::run::Traffic;

use super::{spec::Spec, speech::Speech};

/// A fact that is a whole number.
pub fn whole(name: &str, value: u64) -> Fact {
    Fact::new(name, AxisValue::Int(i64::try_from(value).unwrap_or(i64::MAX)))
}

/// The work of each stage, for all frames together; empty where the weights decide the number of frames.
pub fn stage_work(speech: &Speech, spec: &Spec) -> Vec<(&'static str, Work)> {
    if speech.folder.is_some() {
        return Vec::new();
    }
    TtsStage::ALL.iter().map(|stage| (stage.word(), as_work(of_stage(*stage, speech, spec), speech))).collect()
}

fn of_stage(stage: TtsStage, speech: &Speech, spec: &Spec) -> StageWork {
    let Speech { config, prompt, dtype, frames, .. } = speech;
    let (positions, frames) = (prompt.positions.len(), *frames);
    match stage {
        TtsStage::Prefill => config.prefill_work(positions, prompt.following.len(), *dtype),
        TtsStage::CodePredictor => times(config.code_predictor_work(*dtype), frames),
        // The talker does not run after the last frame.
        TtsStage::TalkerStep => {
            let steps = (1..frames).map(|frame| config.talker_step_work(positions + frame - 1, *dtype));
            steps.fold(StageWork::default(), StageWork::plus)
        }
        TtsStage::Sampling => times(config.sampling_work(), frames),
        TtsStage::Decode if spec.streaming => {
            let starts = (0..frames).step_by(spec.chunk_frames.max(1));
            let chunk = |start: usize| start..start.saturating_add(spec.chunk_frames).min(frames);
            let parts = starts.map(|start| config.decode_work(chunk(start), *dtype));
            parts.fold(StageWork::default(), StageWork::plus)
        }
        TtsStage::Decode => config.decode_work(0..frames, *dtype),
    }
}

fn times(work: StageWork, count: usize) -> StageWork {
    let of = |amount: u64| amount.saturating_mul(count as u64);
    StageWork {
        flops: of(work.flops),
        weight_bytes: of(work.weight_bytes),
        kv_read: of(work.kv_read),
        kv_written: of(work.kv_written),
    }
}

fn as_work(work: StageWork, speech: &Speech) -> Work {
    let dtype = speech.dtype.word().to_owned();
    Work { flops: work.flops, dtype, bytes: work.bytes_read(), traffic: Traffic::Read }
}

/// The work of an iteration: all of its stages.
pub fn work(speech: &Speech, spec: &Spec) -> Option<Work> {
    let plus = |one: Work, other: Work| {
        let (flops, bytes) = (one.flops.saturating_add(other.flops), one.bytes.saturating_add(other.bytes));
        Work { flops, bytes, ..one }
    };
    stage_work(speech, spec).into_iter().map(|(_, work)| work).reduce(plus)
}

/// Facts that are known before anything is allocated.
pub fn sizes(speech: &Speech) -> Vec<Fact> {
    let Speech { config, dtype, .. } = speech;
    vec![
        whole("words", speech.words() as u64),
        whole("prompt_positions", speech.prompt.positions.len() as u64),
        whole("parameters", config.parameters()),
        whole("weight_bytes", config.weight_bytes(*dtype)),
        whole("cache_bytes", config.cache_bytes(speech.room(), *dtype)),
    ]
}
