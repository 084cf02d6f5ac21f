//! A case of `attention`, read.

use std::path::Path;

use anyhow::Context;
use laptime_bench::{AxisValue, Case, Traffic, Work};
use laptime_models::{
    Dtype,
    attention::{AttentionSizes, BlockMask, Kept, Kind, Pattern, Random, Synthetic},
};
use laptime_trace::small_file;

use super::axes::BUILT_IN;
use crate::request::seed;

#[derive(Debug, Clone)]
pub struct Spec {
    pub kind: Kind,
    pub inputs: Synthetic,
    pub kept: Kept,
    pub threads: usize,
}

impl Spec {
    /// Reads a case whose dtype is resolved.
    pub fn of(case: &Case) -> anyhow::Result<Self> {
        let kind: Kind = case.text("attention")?.parse()?;
        let sizes = AttentionSizes {
            batch: case.size("batch_size")?,
            heads: case.size("heads")?,
            kv_heads: case.size("kv_heads")?,
            head_dim: case.size("head_dim")?,
            length: case.size("seq_len")?,
        };
        let dtype: Dtype = case.text("dtype")?.parse()?;
        let (seed, is_causal) = (seed(case)?, case.get("causal") != Some(&AxisValue::Bool(false)));
        let pattern = Pattern { is_causal, seed, ..pattern(case)? };
        let mask = match case.text("block_mask")? {
            path if kind == Kind::BlockSparse && path != BUILT_IN => Some(read_mask(path)?),
            _ => None,
        };
        let kept = Kept::of(kind, pattern, mask);
        Ok(Self { kind, inputs: Synthetic { sizes, dtype, seed }, kept, threads: case.size("threads")? })
    }

    /// Why the case is invalid, if it is.
    pub fn refusal(&self) -> Option<String> {
        let sizes = self.inputs.sizes;
        sizes.refusal().or_else(|| self.kept.refusal(sizes.length))
    }

    /// The work of an iteration that keeps this many pairs of a head.
    pub fn work(&self, connections: u64) -> Work {
        let (sizes, dtype) = (self.inputs.sizes, self.inputs.dtype);
        let (flops, bytes) = (sizes.flops(connections), sizes.bytes(dtype));
        Work { flops, dtype: dtype.word().to_owned(), bytes, traffic: Traffic::Read }
    }
}

/// The pattern of a case, causal.
pub fn pattern(case: &Case) -> anyhow::Result<Pattern> {
    let shared = if case.text("random_per")? == "row" { Random::PerRow } else { Random::PerBlock };
    Ok(Pattern {
        window: case.size("window")?,
        global: case.size("global")?,
        random: case.size("random")?,
        is_causal: true,
        shared,
        seed: 0,
    })
}

pub fn read_mask(path: &str) -> anyhow::Result<BlockMask> {
    let text = small_file::read_text(Path::new(path), small_file::LARGEST_SMALL_FILE)
        .with_context(|| format!("cannot read the mask `{path}`"))?;
    BlockMask::parse(&text).with_context(|| format!("`{path}` is not a mask"))
}
