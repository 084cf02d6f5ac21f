//! What a take has to do, and what is known of the pair.

use laptime_bench::{AxisValue, Fact, Work};
use laptime_models::{Attention, Config, fuser::Gates};

use super::{pair::Pair, wanted::Wanted};

/// A fact that is a whole number.
pub fn whole(name: &str, value: u64) -> Fact {
    Fact::new(name, AxisValue::Int(i64::try_from(value).unwrap_or(i64::MAX)))
}

/// The work of a take: both prompts, the fuse, the last token and every step.
pub fn work(pair: &Pair, wanted: &Wanted, gates: &Gates) -> Work {
    let dtype = pair.dtype;
    let prefill = |config: &Config, tokens: usize, cached: usize| {
        config.prefill_work(1, tokens, cached, Attention::Dense, dtype).work()
    };
    let (base, tokens) = (&pair.base.config, pair.tokens());
    let before = tokens.saturating_sub(1);
    let fused: usize =
        pair.prompt.sections.iter().filter(|section| section.mask.has(0)).map(|section| section.positions.len()).sum();
    let passes = [
        (before > 0).then(|| prefill(base, before, 0)),
        (pair.heard() > 0).then(|| prefill(&pair.teacher.config, pair.heard(), 0)),
        (fused > 0).then(|| pair.fuser.fuse_work(gates, 1, fused, dtype).work()),
    ];
    let steps = before..pair.positions(wanted);
    let steps = steps.map(|position| base.step_work(1, position, dtype)).reduce(|all, step| all.plus(&step));
    let all = passes.into_iter().flatten().chain(steps.map(|steps| steps.work()));
    all.reduce(plus).unwrap_or_else(|| base.step_work(1, 0, dtype).work())
}

fn plus(one: Work, other: Work) -> Work {
    let (flops, bytes) = (one.flops.saturating_add(other.flops), one.bytes.saturating_add(other.bytes));
    Work { flops, bytes, ..one }
}

/// Bytes that are known before anything is allocated: of weights, of both caches, of the fuser.
pub fn sizes(pair: &Pair, wanted: &Wanted) -> Vec<Fact> {
    let [weights, caches, fuser] = bytes(pair, wanted);
    vec![
        whole("parameters", pair.base.config.parameters()),
        whole("teacher_parameters", pair.teacher.config.parameters()),
        whole("fuser_parameters", pair.fuser.parameters()),
        whole("weight_bytes", weights),
        whole("cache_bytes", caches),
        whole("fuser_bytes", fuser),
    ]
}

/// Bytes of the weights of both models, of both caches, and of the fuser's weights.
pub fn bytes(pair: &Pair, wanted: &Wanted) -> [u64; 3] {
    let (base, teacher, dtype) = (&pair.base.config, &pair.teacher.config, pair.dtype);
    let cache = |config: &Config, positions: usize| config.kv_bytes_per_token(dtype).saturating_mul(positions as u64);
    let caches = cache(base, pair.positions(wanted)).saturating_add(cache(teacher, pair.heard()));
    let weights = base.weight_bytes(dtype).saturating_add(teacher.weight_bytes(dtype));
    [weights, caches, pair.fuser.weight_bytes(dtype)]
}
