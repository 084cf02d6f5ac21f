//! The configuration of a model: its dimensions and variants.

use serde::{Deserialize, Serialize};

use crate::{Dtype, fp8::WeightScales, words::words};

/// The configuration of a decoder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Its name in results.
    pub name: String,
    /// The family whose checkpoints it reads.
    pub family: Family,
    /// The size of the vocabulary.
    pub vocab: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// The number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads, a divisor of the query heads.
    pub kv_heads: usize,
    /// Width of a head, which need not be `hidden / heads`.
    pub head_dim: usize,
    /// Width of the FFN.
    pub ffn: usize,
    /// The most positions.
    pub context: usize,
    /// RoPE.
    pub rope: Rope,
    /// The epsilon of norms.
    pub norm_eps: f64,
    /// Whether the head is tied to the embedding.
    pub tied: bool,
    /// Whether queries and keys are normed per head before RoPE.
    pub qk_norm: bool,
    /// Whether the query, key and value projections have a bias.
    pub qkv_bias: bool,
    /// Whether the FFN projections have a bias.
    pub ffn_bias: bool,
    /// The default attention algorithm.
    pub attention_type: Attention,
    /// The pattern of sparse attention, if the model has one.
    pub pattern: Option<Pattern>,
    /// The dtype of its published weights.
    pub dtype: Dtype,
    /// Which quantised weights share a scale.
    #[serde(default)]
    pub weight_scales: WeightScales,
    /// The activation of the FFN.
    #[serde(default)]
    pub activation: Activation,
    /// Whether the outputs of attention and FFN are normed before they are added.
    #[serde(default)]
    pub post_norms: bool,
    /// Whether checkpoints store the weights of norms minus one.
    #[serde(default)]
    pub zero_centred_norms: bool,
    /// Whether embeddings are scaled by the square root of `hidden`.
    #[serde(default)]
    pub scaled_embedding: bool,
    /// The sliding window of most layers, if the model has one.
    #[serde(default)]
    pub window: Option<SlidingWindow>,
}

impl Config {
    /// The sliding window of a layer, in positions up to the query's own.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        let window = self.window.filter(|window| !(layer + 1).is_multiple_of(window.full_every));
        window.map(|window| window.size)
    }

    /// The factor of embeddings, if they are scaled.
    pub fn embedding_scale(&self) -> Option<f32> {
        self.scaled_embedding.then(|| (self.hidden as f64).sqrt() as f32)
    }
}

/// The activation of the FFN gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// SiLU, for SwiGLU.
    #[default]
    Silu,
    /// GELU in its tanh approximation, for GeGLU.
    GeluTanh,
}

/// Sliding window attention.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SlidingWindow {
    /// The window in positions, up to the query's own.
    pub size: usize,
    /// Every this many layers, the last one attends to all positions.
    pub full_every: usize,
    /// The RoPE base of layers with a window.
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
    /// The attention algorithm.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Attention {
        /// Stored scores, softmax, and a second product.
        Naive = "naive",
        /// Fused attention, which never stores the scores.
        Dense = "dense",
    }
}

/// A pattern of sparse attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    /// The width of the window around a query, in keys.
    pub window: usize,
    /// Tokens at the beginning that attend to all and are attended to by all.
    pub global: usize,
    /// Random keys per query.
    pub random: usize,
}

/// Rotary position embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// The base of the wavelengths.
    pub theta: f64,
    /// Which elements of a head are rotated together.
    pub layout: RopeLayout,
    /// Scaling beyond the trained length.
    pub scaling: Option<RopeScaling>,
}

/// Which elements of a head are rotated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RopeLayout {
    /// Element i of the first half with element i of the second.
    Halves,
    /// Neighbours.
    Pairs,
}

/// The RoPE scaling of Llama 3.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RopeScaling {
    /// The factor of long wavelengths.
    pub factor: f64,
    /// Wavelengths above the trained length over this are scaled fully.
    pub low: f64,
    /// Wavelengths below the trained length over this are kept.
    pub high: f64,
    /// The trained length.
    pub trained: usize,
}
