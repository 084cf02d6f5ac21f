//! The names of tensors in checkpoints of Nano XYZ.
//!
//! `NanoForCausalLM` saves the names of `transformers` except in the feed-forward part, and also saves what a decoder
//! without an encoder never uses: cross-attention, RoPE frequencies and the importance of tokens.

const UNUSED: [&str; 5] =
    [".cross_attn.", "_proj_cross.", ".post_cross_attention_layernorm.", ".rope.inv_freq", ".dca_allocator."];

const FEEDFORWARD: [(&str, &str); 3] = [
    (".feedforward.w1.", ".mlp.gate_proj."),
    (".feedforward.w3.", ".mlp.up_proj."),
    (".feedforward.w2.", ".mlp.down_proj."),
];

/// The name of a tensor in `transformers`; none if a decoder does not use it.
pub fn renamed(name: &str) -> Option<String> {
    if UNUSED.iter().any(|part| name.contains(part)) {
        return None;
    }
    // `NanoModel` saves no prefix, and one with `is_decoder` has its layers one level deeper.
    let inner = name.strip_prefix("model.").unwrap_or(name);
    let inner = inner.strip_prefix("decoder.").unwrap_or(inner);
    if inner == "lm_head.weight" {
        return Some(inner.to_owned());
    }
    let renamed = |name: String, (there, here): (&str, &str)| name.replace(there, here);
    Some(FEEDFORWARD.into_iter().fold(format!("model.{inner}"), renamed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nano_xyz_become_those_of_transformers() {
        let same =
            ["model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.up_proj.bias"];
        for name in same {
            assert_eq!(renamed(name).as_deref(), Some(name));
        }
        let changed = [
            ("model.layers.0.feedforward.w1.weight", "model.layers.0.mlp.gate_proj.weight"),
            ("model.layers.0.feedforward.w2.bias", "model.layers.0.mlp.down_proj.bias"),
            ("layers.3.feedforward.w3.weight", "model.layers.3.mlp.up_proj.weight"),
            ("model.decoder.norm.weight", "model.norm.weight"),
            ("model.lm_head.weight", "lm_head.weight"),
        ];
        for (there, here) in changed {
            assert_eq!(renamed(there).as_deref(), Some(here), "{there}");
        }
        let unused = [
            "model.layers.0.self_attn.q_proj_cross.weight",
            "model.layers.0.cross_attn.o_proj.weight",
            "model.layers.0.post_cross_attention_layernorm.weight",
            "model.layers.0.self_attn.rope.inv_freq",
            "model.layers.0.self_attn.dca_allocator.importance_proj.weight",
        ];
        for name in unused {
            assert_eq!(renamed(name), None, "{name}");
        }
    }
}
