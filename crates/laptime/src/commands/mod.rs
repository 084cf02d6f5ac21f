//! The subcommands, one file each.

pub mod ab;
pub mod bench;
pub mod compare;
pub mod completions;
pub mod convert;
pub mod doctor;
pub mod fleet;
pub mod laps;
pub mod list;
pub mod man;
pub mod peaks;
pub mod profile;
pub mod stages;
pub mod top;
pub mod tour;
pub mod warmup;
