//! The subcommands, one file each.

pub mod convert;
pub mod stages;
pub mod top;
pub mod tour;
