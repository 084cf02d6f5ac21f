//! The models on the CPU, against what the official implementations and candle compute.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[cfg(feature = "candle")]
mod candle;
mod common;
mod cpu;
mod cpu_fixtures;
mod folders;
mod fp8;
mod fuser;
mod fuser_folders;
mod offload;
#[cfg(feature = "candle")]
mod reference;
mod speech_fixtures;
mod speech_folders;
mod train;
#[cfg(feature = "candle")]
mod train_candle;
mod tts;
mod tts_fixtures;
