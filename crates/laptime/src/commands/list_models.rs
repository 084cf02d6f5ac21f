//! `laptime list models`: the built-in models and their sizes.

use laptime_models::Config;
use laptime_report::{Cell, Table, table};

const MEBIBYTE: f64 = 1_048_576.0;

pub fn table() -> Table {
    let mut table = table!("models", Config::presets(), config: Config => {
        let whole = |size: usize| Cell::Whole(i64::try_from(size).unwrap_or(i64::MAX));
        let heads = if config.heads == config.kv_heads {
            config.heads.to_string()
        } else {
            format!("{}/{}", config.heads, config.kv_heads)
        };
    } [
        ("model", "model") => Cell::text(&config.name),
        ("family", "family").drop(2) => Cell::text(config.family.word()),
        ("layers", "layers") => whole(config.layers),
        ("hidden", "hidden") => whole(config.hidden),
        ("heads", "heads").drop(1).human_only() => Cell::text(heads),
        ("heads", "heads").machine_only() => whole(config.heads),
        ("kv_heads", "kv heads").machine_only() => whole(config.kv_heads),
        ("head_dim", "head dim").drop(5) => whole(config.head_dim),
        ("ffn", "ffn").drop(6) => whole(config.ffn),
        ("vocab", "vocab").drop(4) => whole(config.vocab),
        ("context", "context") => whole(config.context),
        ("parameters", "parameters") => Cell::Count(config.parameters()),
        ("dtype", "dtype").drop(3) => Cell::text(config.dtype.word()),
        ("weight_mib", "weights (MiB)").human_only() =>
            Cell::Number(config.weight_bytes(config.dtype) as f64 / MEBIBYTE),
        ("weight_bytes", "weights").machine_only() => Cell::Bytes(config.weight_bytes(config.dtype)),
        ("kv_token_bytes", "KV") => Cell::Bytes(config.kv_bytes_per_token(config.dtype)),
        ("attention", "attention").machine_only() => Cell::text(config.attention_type.word()),
    ]);
    table.note("Heads: query heads / key-value heads. `weights` and `KV` (per token) are in the dtype of the model.");
    table.note(
        "`laptime bench model --preset NAME` measures one. Names ignore case; `qwen3_0.6b` and `Qwen/Qwen3-0.6B` work too.",
    );
    table
}
