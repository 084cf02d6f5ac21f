//! `tracing` spans and events, recorded into the same buffers as our own.
//!
//! [`Subscriber`] is for programs that only need a trace: it has no registry and costs little more than the native
//! macros. [`Layer`] composes with other layers over a `tracing-subscriber` registry and costs what the registry costs.
//! With either one, spans become stages with their fields, events become marks, and events of target `gpu_sync` become
//! sync marks.
//!
//! ```
//! # use laptime_probe as probe;
//! let mut recorder = probe::Recorder::new(probe::Config::default());
//! let _entered = recorder.handle().enter();
//! tracing::subscriber::with_default(probe::tracing::Subscriber::new(), || {
//!     let _span = tracing::info_span!("my_new_stage").entered();
//! });
//! let mut batches = Vec::new();
//! recorder.drain(&mut batches);
//! assert_eq!(probe::events(&batches[0]).count(), 2);
//! ```

mod callsite;
mod entered;
mod fields;
mod layer;
mod slots;
mod subscriber;

pub use self::{layer::Layer, subscriber::Subscriber};
