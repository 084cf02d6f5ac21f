//! What a take of a model has to do, and what is known of the model.

use laptime_bench::{AxisValue, Fact, Traffic, Work};
use laptime_models::Config;

use super::wanted::Wanted;

/// The work of a take.
pub fn work(config: &Config, wanted: &Wanted) -> Work {
    let tokens = (wanted.batch * wanted.test.tokens) as u64;
    let flops = config.parameters().saturating_mul(2).saturating_mul(tokens);
    let bytes = config.weight_bytes(wanted.dtype);
    Work { flops, dtype: wanted.dtype.word().to_owned(), bytes, traffic: Traffic::Read }
}

/// What is known of the model of a case.
pub fn facts(config: &Config, wanted: &Wanted) -> Vec<Fact> {
    let whole = |name: &str, value: u64| Fact::new(name, AxisValue::Int(i64::try_from(value).unwrap_or(i64::MAX)));
    let size = |name: &str, value: usize| whole(name, value as u64);
    vec![
        whole("parameters", config.parameters()),
        whole("weight_bytes", config.weight_bytes(wanted.dtype)),
        whole("kv_bytes_token", config.kv_bytes_per_token(wanted.dtype)),
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
