//! The work of an iteration, and facts about the pair.

use laptime_bench::{AxisValue, Fact, Work};
use laptime_models::{
    Attention, Config, Stage,
    fuser::{Gates, Response},
};

use super::{pair::Pair, spec::Spec};

/// A fact that is a whole number.
pub fn whole(name: &str, value: u64) -> Fact {
    Fact::new(name, AxisValue::Int(i64::try_from(value).unwrap_or(i64::MAX)))
}

/// The work of each stage of an iteration, in the order of stages; all steps together are one.
pub fn stage_work(pair: &Pair, spec: &Spec, gates: &Gates) -> Vec<(&'static str, Work)> {
    let (base, teacher, dtype) = (&pair.base.config, &pair.teacher.config, pair.dtype);
    let (before, heard) = (pair.tokens().saturating_sub(1), pair.heard(spec));
    let mut stages = Vec::new();
    for (names, config, tokens) in
        [(["base_embedding", "base_prefill"], base, before), (["teacher_embedding", "teacher_prefill"], teacher, heard)]
    {
        if tokens > 0 {
            let pass = config.prefill_work(1, tokens, 0, Attention::Dense, dtype);
            let rest = Stage::ALL.into_iter().filter(|stage| *stage != Stage::Embed).map(|stage| pass.work_of(stage));
            stages.push((names[0], pass.work_of(Stage::Embed)));
            stages.extend(rest.reduce(plus).map(|rest| (names[1], rest)));
        }
    }
    let fuse = |tokens: usize| pair.fuser.fuse_work(gates, 1, tokens, dtype).work(dtype);
    let sections = pair.prompt.sections.iter().filter(|section| section.mask.has(0));
    let fused: usize = sections.map(|section| section.positions.len()).sum();
    if fused > 0 {
        stages.push(("projector", fuse(fused)));
    }
    stages.push(("last_token_prefill", base.step_work(1, before, dtype).work()));
    // The teacher has one position less: it has processed the whole prompt when the first step begins.
    let teacher_tokens = pair.teacher_prompt().len();
    let steps = (1..spec.new_tokens).map(|step| match spec.response {
        Response::Plain => base.step_work(1, before + step, dtype).work(),
        Response::Fused(_) => {
            let taught = teacher.step_work(1, teacher_tokens + step - 1, dtype).work();
            [taught, fuse(1)].into_iter().fold(base.step_work(1, before + step, dtype).work(), plus)
        }
    });
    stages.extend(steps.reduce(plus).map(|steps| ("decode", steps)));
    stages
}

/// The work of an iteration: all of its stages.
pub fn work(pair: &Pair, spec: &Spec, gates: &Gates) -> Option<Work> {
    stage_work(pair, spec, gates).into_iter().map(|(_, work)| work).reduce(plus)
}

fn plus(one: Work, other: Work) -> Work {
    let (flops, bytes) = (one.flops.saturating_add(other.flops), one.bytes.saturating_add(other.bytes));
    Work { flops, bytes, ..one }
}

/// Bytes of the weights, both KV caches and the fuser, known before anything is allocated.
pub fn sizes(pair: &Pair, spec: &Spec) -> Vec<Fact> {
    let [weights, caches, fuser] = bytes(pair, spec);
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
pub fn bytes(pair: &Pair, spec: &Spec) -> [u64; 3] {
    let (base, teacher, dtype) = (&pair.base.config, &pair.teacher.config, pair.dtype);
    let cache = |config: &Config, positions: usize| config.kv_bytes_per_token(dtype).saturating_mul(positions as u64);
    let caches = cache(base, pair.positions(spec)).saturating_add(cache(teacher, pair.teacher_positions(spec)));
    let weights = base.weight_bytes(dtype).saturating_add(teacher.weight_bytes(dtype));
    [weights, caches, pair.fuser.weight_bytes(dtype)]
}
