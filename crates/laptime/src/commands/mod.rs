//! The subcommands, one file each.

pub mod ab;
pub mod audit;
pub mod bench;
pub mod compare;
pub mod compare_traces;
pub mod completions;
pub mod convert;
pub mod critical_path;
pub mod diagnose;
pub mod doctor;
pub mod experiment;
pub mod explain;
pub mod export;
pub mod finding_gate;
pub mod fit;
pub mod fleet;
pub mod gaps;
pub mod laps;
pub mod list;
mod list_models;
pub mod man;
pub mod overlap;
pub mod page;
pub mod peaks;
pub mod profile;
#[cfg(target_os = "linux")]
pub mod record;
pub mod report;
pub mod slurm;
pub mod stages;
pub mod suite;
pub mod syncs;
pub mod top;
pub mod tour;
pub mod warmup;
pub mod warmup_study;
