//! The work of an iteration of a model, and facts about the model.

use laptime_bench::{AxisValue, Fact, Work};
use laptime_models::{
    Config, PassWork, TrainOptions,
    attention::{CPU_TILING, Kept, Layout},
};
use laptime_trace::run::Traffic;

use super::{
    spec::Spec,
    test_name::{Pass, Training},
};

/// The work of an iteration: one pass, or all steps.
pub fn work(config: &Config, spec: &Spec) -> Work {
    let Spec { batch, dtype, attention, test, .. } = spec;
    let of_kept = |work: PassWork| match &spec.kept {
        None => work.work(),
        Some(kept) => work.with_pairs(config, *batch, connections(kept, test.tokens)).work(),
    };
    match test.pass {
        Pass::Forward => of_kept(config.forward_work(*batch, test.tokens, *attention, *dtype)),
        Pass::Prefill => of_kept(config.prefill_work(*batch, test.tokens, test.cached, *attention, *dtype)),
        Pass::Decode => {
            let positions = spec.prompt()..spec.positions();
            let steps = positions.map(|position| config.step_work(*batch, position, *dtype));
            let all = steps.reduce(|all, step| all.plus(&step));
            all.map_or_else(|| config.step_work(*batch, 0, *dtype).work(), |all| all.work())
        }
        Pass::Training(part) => training_work(config, spec, part),
    }
}

/// Pairs of a head that are kept.
fn connections(kept: &Kept, tokens: usize) -> u64 {
    Layout::build(kept, tokens, CPU_TILING).connections()
}

/// Facts about attention with a pattern.
pub fn kept_facts(kept: &Kept, tokens: usize) -> Vec<Fact> {
    let connections = connections(kept, tokens);
    let sparsity = 1.0 - connections as f64 / kept.allowed(tokens).max(1) as f64;
    let whole = AxisValue::Int(i64::try_from(connections).unwrap_or(i64::MAX));
    vec![Fact::new("connections", whole), Fact::new("sparsity", AxisValue::Float(sparsity))]
}

/// The work of a training step, or of the part of it that is timed.
fn training_work(config: &Config, spec: &Spec, part: Training) -> Work {
    let Spec { batch, dtype, attention, test, .. } = spec;
    let backward = || config.backward_work(*batch, test.tokens, *attention, *dtype).work();
    let forward = || config.forward_work(*batch, test.tokens, *attention, *dtype).work();
    let parts = match part {
        Training::Backward => vec![backward()],
        Training::ForwardBackward => vec![forward(), backward()],
        Training::Step => vec![forward(), backward(), config.update_work(*dtype)],
    };
    let sum = |of: fn(&Work) -> u64| parts.iter().map(of).fold(0, u64::saturating_add);
    let (flops, bytes) = (sum(|work| work.flops), sum(|work| work.bytes));
    Work { flops, dtype: dtype.word().to_owned(), bytes, traffic: Traffic::Copy }
}

/// Facts about the memory that training a model takes, computed before anything is allocated.
pub fn training_facts(config: &Config, options: &TrainOptions) -> Vec<Fact> {
    let whole = |name: &str, value: u64| Fact::new(name, AxisValue::Int(i64::try_from(value).unwrap_or(i64::MAX)));
    let need = config.train_need(options);
    vec![
        whole("gradient_bytes", need.gradients),
        whole("optimizer_bytes", need.optimizer),
        whole("activation_bytes", need.activations),
    ]
}

/// Facts about the model of a case.
pub fn facts(config: &Config, spec: &Spec) -> Vec<Fact> {
    let whole = |name: &str, value: u64| Fact::new(name, AxisValue::Int(i64::try_from(value).unwrap_or(i64::MAX)));
    let size = |name: &str, value: usize| whole(name, value as u64);
    vec![
        whole("parameters", config.parameters()),
        whole("weight_bytes", config.weight_bytes(spec.dtype)),
        whole("kv_token_bytes", config.kv_bytes_per_token(spec.dtype)),
        size("layers", config.layers),
        size("hidden", config.hidden),
        size("heads", config.heads),
        size("kv_heads", config.kv_heads),
        size("head_dim", config.head_dim),
        size("ffn", config.ffn),
        size("vocab", config.vocab),
        size("context", config.context),
    ]
}
