//! Tables, charts and flame graphs, compared with the files in `tests/data` and with what holds for any data.

mod answers;
mod any_results;
mod blessed;
mod charts;
mod figures;
mod fixture;
mod flamegraph;
#[path = "../../../../tests/generated/offload.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod generated;
mod golden;
mod offload;
mod properties;
mod sample_tables;
mod seen;
