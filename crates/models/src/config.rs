//! What a model is: its dimensions and its variants.

use serde::{Deserialize, Serialize};

use crate::{Dtype, fp8::WeightScales, words::words};

/// What a model is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Its name, as results tell it.
    pub name: String,
    /// The family whose checkpoints it reads.
    pub family: Family,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads, which divide the query heads.
    pub kv_heads: usize,
    /// Width of a head, which need not be `hidden / heads`.
    pub head_dim: usize,
    /// Width inside the feed-forward part.
    pub ffn: usize,
    /// Positions at most.
    pub context: usize,
    /// How positions enter.
    pub rope: Rope,
    /// What is added under the root of a norm.
    pub norm_eps: f64,
    /// Whether the head is the embedding.
    pub tied: bool,
    /// Whether queries and keys are normed by head before positions enter.
    pub qk_norm: bool,
    /// Whether the projections to queries, keys and values have a bias.
    pub qkv_bias: bool,
    /// Whether the projections of the feed-forward part have a bias.
    pub ffn_bias: bool,
    /// How attention is computed unless asked otherwise.
    pub attention_type: Attention,
    /// The pattern of sparse attention, where the model has one.
    pub pattern: Option<Pattern>,
    /// The number type of its published weights.
    pub dtype: Dtype,
    /// Which quantised weights share a scale.
    #[serde(default)]
    pub weight_scales: WeightScales,
    /// What the feed-forward part applies to its gate.
    #[serde(default)]
    pub activation: Activation,
    /// Whether the outputs of attention and of the feed-forward part are normed before they are added.
    #[serde(default)]
    pub post_norms: bool,
    /// Whether checkpoints store the weights of norms minus one.
    #[serde(default)]
    pub zero_centred_norms: bool,
    /// Whether embedded tokens are multiplied with the root of `hidden`.
    #[serde(default)]
    pub scaled_embedding: bool,
    /// The layers that attend to a sliding window; none if every layer attends to all positions.
    #[serde(default)]
    pub window: Option<SlidingWindow>,
}

impl Config {
    /// The positions that a query of a layer sees, of which its own is the last; none if it sees all before it.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        let window = self.window.filter(|window| !(layer + 1).is_multiple_of(window.full_every));
        window.map(|window| window.size)
    }

    /// What embedded tokens are multiplied with.
    pub fn embedding_scale(&self) -> Option<f32> {
        self.scaled_embedding.then(|| (self.hidden as f64).sqrt() as f32)
    }
}

/// What the feed-forward part applies to its gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// SiLU, which makes it SwiGLU.
    #[default]
    Silu,
    /// GELU, approximated by tanh, which makes it GeGLU.
    GeluTanh,
}

/// Attention to a sliding window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SlidingWindow {
    /// Positions that a query sees, of which its own is the last.
    pub size: usize,
    /// The last layer of each group of this many attends to all positions.
    pub full_every: usize,
    /// The base of RoPE wavelengths in the layers with a window.
    pub theta: f64,
}

words! {
    /// The family whose checkpoints a model reads.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Family {
        /// Qwen3.
        Qwen3 = "qwen3",
        /// Qwen2 and Qwen2.5.
        Qwen2 = "qwen2",
        /// Llama.
        Llama = "llama",
        /// Gemma 3, text only.
        Gemma3 = "gemma3",
        /// The five model sizes of CS336 assignment 2.
        Course = "course",
        /// The decoders of Nano XYZ.
        Nano = "nano",
    }
}

words! {
    /// How attention is computed.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Attention {
        /// Scores of all pairs are stored, then weighted: three steps.
        Naive = "naive",
        /// One fused step that never stores the scores.
        Dense = "dense",
    }
}

/// A pattern of sparse attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// Keys around a query.
    pub window: usize,
    /// Tokens at the beginning that see and are seen by all.
    pub global: usize,
    /// Random keys a query.
    pub random: usize,
}

/// How positions enter.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// The base of the wavelengths.
    pub theta: f64,
    /// Which numbers of a head are turned together.
    pub layout: RopeLayout,
    /// How wavelengths are stretched beyond the length that was trained.
    pub scaling: Option<RopeScaling>,
}

/// Which numbers of a head are turned together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RopeLayout {
    /// The i-th of the first half with the i-th of the second.
    Halves,
    /// Neighbours.
    Pairs,
}

/// How Llama 3 stretches wavelengths.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RopeScaling {
    /// How much the long ones are stretched.
    pub factor: f64,
    /// Wavelengths beyond the trained length over this are stretched whole.
    pub low: f64,
    /// Wavelengths under the trained length over this are kept.
    pub high: f64,
    /// The length that was trained.
    pub trained: usize,
}
