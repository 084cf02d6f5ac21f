//! Answers about traces and results with known content.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod any_trace;
mod cases;
mod compare;
mod diagnosed;
mod doubts;
mod fixture;
mod known;
mod overlap;
mod planted;
mod syncs;
mod warmup;
