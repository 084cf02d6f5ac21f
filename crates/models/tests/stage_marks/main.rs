//! The stages that the models mark, recorded.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../all/common/mod.rs"]
mod common;
mod decoder;
mod devices;
mod fuser;
mod offload;
mod speech;
mod train;
mod trees;
mod tts;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for the other tests: a program has one recording at a time, and it contains the stages of every thread.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
