//! Transformer parts: configurations, weights, a decoder on CPU and CUDA, its KV cache, and its work.
//!
//! A [`Config`] describes a model; a [`Decoder`] has its weights on a device. The CPU uses our own kernels and `gemm`, a GPU
//! our own kernels and cuBLAS. CUDA is loaded at run time.

#![cfg_attr(not(feature = "cuda"), allow(dead_code, unused_imports, reason = "some items are only used with CUDA"))]

pub mod attention;
mod check;
mod config;
mod config_json;
pub mod cpu;
mod decoder;
mod dtype;
mod error;
mod folder;
pub mod fp8;
pub mod fuser;
#[cfg(feature = "cuda")]
pub mod gpu;
mod map;
mod marks;
mod misfit;
mod numbers;
mod offload;
mod parts;
mod presets;
mod rope;
pub mod stages;
pub mod synthetic;
mod tensors;
pub mod threads;
mod tokenizer;
mod torch;
mod train;
pub mod tts;
pub mod vibevoice;
mod weights;
mod words;
mod work;

pub use self::{
    config::{Activation, Attention, Config, Family, Pattern, Rope, RopeLayout, RopeScaling, SlidingWindow},
    decoder::{
        CacheCapacity, Decoder, DecoderBackend, EmbeddingStage, GraphMode, KeysValues, Marks, Options, Replay, Tokens,
    },
    dtype::Dtype,
    error::ModelError,
    marks::{StageNames, tool_range},
    numbers::{from_f32, to_f32},
    offload::{Home, LayerVisit, Offload, Offloading, StreamMode, most_resident},
    rope::{RopeTable, rope_frequencies},
    synthetic::Fill,
    tensors::{Role, TensorSpec},
    tokenizer::{TokenRole, Tokenizer},
    train::{AdamW, BackwardWork, TrainMemory, TrainOptions, Trainer, random_batch},
    weights::{HasTensors, TensorData, Weights, WeightsOf},
    work::{PassWork, Stage, StageWork},
};
pub(crate) use self::{error::Done, train::TrainSizes};
