//! `laptime list models`: the built-in models and their sizes.

use laptime_models::Config;
use laptime_report::{Cell, Column, Table};

/// Bytes of a MiB.
const MEBIBYTE: f64 = 1_048_576.0;

/// The models with their dimensions, parameters and footprint.
pub fn table() -> Table {
    let mut table = Table::new("models", columns());
    for config in Config::presets() {
        table.push(row(&config));
    }
    table.note("Heads: query heads / key-value heads. Weights and KV cache (per token) are in this `dtype`.");
    table.note(
        "`laptime bench model --preset NAME` measures one. Case does not matter; `qwen3_0.6b` and `Qwen/Qwen3-0.6B` work too.",
    );
    table
}

fn columns() -> [Column; 17] {
    [
        Column::new("model", "model"),
        Column::new("family", "family").drop(2),
        Column::new("layers", "layers"),
        Column::new("hidden", "hidden"),
        Column::new("heads", "heads").drop(1).human_only(),
        Column::new("heads", "heads").machine_only(),
        Column::new("kv_heads", "kv heads").machine_only(),
        Column::new("head_dim", "head dim").drop(5),
        Column::new("ffn", "ffn").drop(6),
        Column::new("vocab", "vocab").drop(4),
        Column::new("context", "context"),
        Column::new("parameters", "parameters"),
        Column::new("dtype", "dtype").drop(3),
        Column::new("weight_mib", "weights (MiB)").human_only(),
        Column::new("weight_bytes", "weights").machine_only(),
        Column::new("kv_token_bytes", "KV"),
        Column::new("attention", "attention").machine_only(),
    ]
}

fn row(config: &Config) -> [Cell; 17] {
    let whole = |size: usize| Cell::Whole(i64::try_from(size).unwrap_or(i64::MAX));
    let heads = if config.heads == config.kv_heads {
        config.heads.to_string()
    } else {
        format!("{}/{}", config.heads, config.kv_heads)
    };
    [
        Cell::text(&config.name),
        Cell::text(config.family.word()),
        whole(config.layers),
        whole(config.hidden),
        Cell::text(heads),
        whole(config.heads),
        whole(config.kv_heads),
        whole(config.head_dim),
        whole(config.ffn),
        whole(config.vocab),
        whole(config.context),
        Cell::Count(config.parameters()),
        Cell::text(config.dtype.word()),
        Cell::Number(config.weight_bytes(config.dtype) as f64 / MEBIBYTE),
        Cell::Bytes(config.weight_bytes(config.dtype)),
        Cell::Bytes(config.kv_bytes_per_token(config.dtype)),
        Cell::text(config.attention_type.word()),
    ]
}
