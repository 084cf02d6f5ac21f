//! Cache to cache: what joins two models through their KV caches.
//!
//! A *receiver* answers; a *sharer* only reads the prompt. For every layer of the receiver a *projector* takes the keys
//! (and, on a path of its own, the values) of the sharer and of the receiver, and makes what is added to the receiver's:
//! `X' = T + gate * w * P`. All projectors together are a *fuser*. [`FuserConfig`] says what one is, [`FuserWeights`] where
//! its numbers come from, [`Fusing`] what can be asked of it on a device, and [`C2c`] runs two models with one.

mod align;
mod c2c;
mod chat;
mod checkpoint;
mod config;
pub(crate) mod engine;
mod fusing;
mod prompt;
mod sizes;
mod tensors;
mod weights;

pub(crate) use self::sizes::fuser_bytes;
pub use self::{
    align::{Aligned, Aligner, Choice},
    c2c::{C2c, Generated, Response},
    chat::{ChatStyle, Rendered},
    config::{Alignment, CacheShape, FuserConfig, Pair},
    fusing::{FuseMode, FuseOptions, FuseOrder, Fused, Fusing, Path},
    prompt::{Prompt, Section, SharerMask, sections},
    weights::{FuserWeights, Gates},
};
