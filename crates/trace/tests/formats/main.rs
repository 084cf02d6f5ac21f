//! Every format: what is read, what is written, and what survives.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod any_trace;
mod bytes_a_frame;
mod chrome;
mod complete_trace;
mod foreign;
mod golden;
mod kineto;
#[cfg(feature = "nsys")]
mod nsys;
mod parallel;
mod pftrace;
mod round_trip;
