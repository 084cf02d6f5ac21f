//! The work of a synthesis, and facts about it.

use laptime_bench::{AxisValue, Fact, Work};
use laptime_models::StageWork;
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
    let Speech { config, prompt, dtype, frames, .. } = speech;
    let chunk = spec.streaming.then_some(spec.chunk_frames);
    let stages = config.stage_work([prompt.positions.len(), prompt.following.len()], *frames, chunk, *dtype);
    stages.into_iter().map(|(name, work)| (name, as_work(work, speech))).collect()
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
