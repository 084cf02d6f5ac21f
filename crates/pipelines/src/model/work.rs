//! What a take of a model has to do, and what is known of the model.

use laptime_bench::{AxisValue, Fact, Work};
use laptime_models::Config;

use super::{test_name::Pass, wanted::Wanted};

/// The work of a take: of one pass, or of all steps.
pub fn work(config: &Config, wanted: &Wanted) -> Work {
    let Wanted { batch, dtype, attention, test, .. } = wanted;
    match test.pass {
        Pass::Forward => config.forward_work(*batch, test.tokens, *attention, *dtype).work(),
        Pass::Prefill => config.prefill_work(*batch, test.tokens, test.cached, *attention, *dtype).work(),
        Pass::Decode => {
            let positions = wanted.prompt()..wanted.positions();
            let steps = positions.map(|position| config.step_work(*batch, position, *dtype));
            let all = steps.reduce(|all, step| all.plus(&step));
            all.map_or_else(|| config.step_work(*batch, 0, *dtype).work(), |all| all.work())
        }
    }
}

/// What is known of the model of a case.
pub fn facts(config: &Config, wanted: &Wanted) -> Vec<Fact> {
    let whole = |name: &str, value: u64| Fact::new(name, AxisValue::Int(i64::try_from(value).unwrap_or(i64::MAX)));
    let size = |name: &str, value: usize| whole(name, value as u64);
    vec![
        whole("parameters", config.parameters()),
        whole("weight_bytes", config.weight_bytes(wanted.dtype)),
        whole("kv_token_bytes", config.kv_bytes_per_token(wanted.dtype)),
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
