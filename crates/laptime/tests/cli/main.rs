//! The program, run in fresh folders.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod attention;
mod audit;
mod bad_input;
mod bench;
mod c2c;
mod common;
mod compare;
mod compare_traces;
mod convert;
mod course;
mod critical_path;
mod diagnose;
mod docs;
mod export;
mod gaps;
mod hostile;
mod laps;
mod measuring;
mod model;
mod offload;
mod overlap;
mod ranks;
mod report;
mod several;
mod stages;
mod suite;
mod syncs;
mod top;
mod tour;
mod tts;
mod view;
