//! The models on a GPU, compared with the fixtures and with the CPU.

mod c2c;
#[path = "../../../crates/models/tests/all/common/e4m3.rs"]
mod e4m3;
mod fixture;
mod fp8;
mod learn;
mod memory;
mod offload;
mod offload_speed;
mod right;
mod speech;
mod speech_offload;
mod speed;
mod stages;
mod stamped;
#[path = "../../../crates/models/tests/stage_marks/trees.rs"]
mod trees;
mod tts;

use std::error::Error;

use laptime_models::ModelError;

use crate::harness::{Failed, Test};

impl From<ModelError> for Failed {
    fn from(error: ModelError) -> Self {
        Self::Wrong(error.to_string())
    }
}

impl From<Box<dyn Error>> for Failed {
    fn from(error: Box<dyn Error>) -> Self {
        Self::Wrong(error.to_string())
    }
}

pub const TESTS: &[Test] = &[
    ("logits of every position are the fixtures'", right::forward),
    ("greedy tokens are the fixtures', with and without a graph", right::greedy),
    ("greedy tokens are the fixtures' when many sequences run together", right::many),
    ("a prompt in two pieces is the prompt", right::pieces),
    ("prompts that are replayed give the bits of launches", right::replayed_prompts),
    ("steps and prompts without a graph say so", right::fallbacks),
    ("a long prompt is the same in pieces and replayed", right::long_prompts),
    ("a cache that grows after steps goes on alike", right::growth),
    ("a cache that is read and written back goes on alike", right::cache),
    ("bf16 and f16 are near the fixtures", right::halves),
    ("synthetic weights give the CPU's logits", right::against_cpu),
    ("sparse passes give the CPU's logits", right::sparse),
    ("what cannot be done is refused", right::refused),
    ("stages of every model have the tree that the CPU's have", stages::alike),
    ("stages inside a graph are those of launches", stamped::alike),
    ("gradients are the CPU's", learn::gradients),
    ("a model learns as on the CPU", learn::steps),
    ("fused caches and tokens are the fixtures', batched and by layer", c2c::fixtures),
    ("teachers on a stream of their own are waited for", c2c::two_streams),
    ("synthetic fusers give the CPU's caches", c2c::against_cpu),
    ("what cannot be fused is refused", c2c::refused),
    ("tts: codes are the fixture's, with and without graphs", tts::codes),
    ("tts: samples are the fixture's, whole and in chunks", tts::samples),
    ("tts: synthetic weights give the CPU's codes and samples", tts::against_cpu),
    ("tts: what cannot be done is refused", tts::refused),
    ("tts: the predicted memory is used", tts::memory),
    ("vibevoice: tokens and audio are the fixtures', with and without graphs", speech::fixtures),
    ("vibevoice: tokenizers, bf16 and f16 are near the fixtures", speech::tokenizers),
    ("vibevoice: synthetic weights give the CPU's tokens, latents and samples", speech::against_cpu),
    ("vibevoice: what cannot be done is refused", speech::refused),
    ("vibevoice: the predicted memory is used", speech::memory),
    ("vibevoice: offloaded layers give what resident ones give", speech_offload::alike),
    ("vibevoice: offloaded layers use the predicted memory", speech_offload::memory),
    ("vibevoice: speed of a token of 7b and of 1.5b", speech::speed),
    ("vibevoice: speed of a token of 7b with offloaded layers", speech_offload::speed),
    ("offload: offloaded layers give what resident ones give", offload::alike),
    ("offload: two sequences at positions of their own give what each gives alone", offload::apart),
    ("offload: what cannot be done is refused", offload::refused),
    ("offload: running out of memory in the middle is an error and breaks nothing else", offload::out_of_memory),
    ("offload: the predicted memory is used", offload::memory),
    ("memory: decoders use what was predicted", memory::decoders),
    ("memory: training uses what was predicted", memory::training),
    ("memory: a fuser uses what was predicted", memory::fusers),
    ("offload: speed of Qwen2.5-7B", offload_speed::speed),
    ("fp8: quantised weights give what they give when they are dequantised", fp8::dequantised),
    ("fp8: synthetic weights give the CPU's logits", fp8::against_cpu),
    ("fp8: offloaded layers give what resident ones give", fp8::offloaded),
    ("speed of Qwen3-0.6B", speed::small),
    ("speed of Qwen3-0.6B with stages inside its graph", stamped::cost),
    ("speed of Qwen3-4B", speed::large),
    ("speed of Qwen3-4B in fp8", speed::quantised),
    ("speed of the fuser", c2c::speed),
    ("speed of tts", tts::speed),
    ("speed of the CS336 sizes", speed::course),
    ("speed of training the CS336 sizes", learn::speed),
];
