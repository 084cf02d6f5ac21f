//! Cache-to-cache fusion: models that communicate through their KV caches.
//!
//! A *receiver* answers; a *sharer* only reads the prompt. For every layer of the receiver, a *projector* takes the keys
//! (and, on a separate path, the values) of sharer and receiver, and computes an addition to the receiver's:
//! `X' = T + gate * w * P`. All projectors together are a *fuser*. [`FuserConfig`] describes one, [`FuserWeights`] are its
//! weights, [`Fusing`] is a fuser on a device, and [`C2c`] runs models with it.

mod align;
mod c2c;
mod chat;
mod checkpoint;
mod config;
pub(crate) mod engine;
mod fusing;
mod prompt;
mod sizes;
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
