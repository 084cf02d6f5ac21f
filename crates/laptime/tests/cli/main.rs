//! The program, run in fresh folders.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad_input;
mod bench;
mod common;
mod compare;
mod convert;
mod laps;
mod measuring;
mod stages;
mod top;
mod tour;
