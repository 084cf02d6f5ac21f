//! Presentation of answers: tables in six formats, charts, and flame graphs.
//!
//! This crate computes nothing: numbers arrive unrounded, are rounded here
//! for people, and are written in full for programs. It writes to the given
//! output and never prints.
//!
//! ```
//! use laptime_report::{Cell, Column, Format, Table, TextStyle, write};
//!
//! let mut stages = Table::new("stages", [
//!     Column::new("path", "stage"),
//!     Column::new("host_ms", "host"),
//! ]);
//! stages.push([Cell::tree(0, "generate", "generate"), Cell::Nanos(84_123_456)]);
//! stages.push([Cell::tree(1, "prefill", "generate/prefill"), Cell::Nanos(9_000_000)]);
//!
//! let mut out = Vec::new();
//! write(&stages, Format::Text, TextStyle::plain(80), &mut out)?;
//! assert_eq!(String::from_utf8_lossy(&out), "\
//! stage        host (ms)
//! ──────────────────────
//! generate        84.12
//! └── prefill      9.000
//! ");
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod chart;
mod curve;
mod figures;
pub mod flamegraph;
pub mod format;
mod kernel_name;
mod layout;
mod machine;
pub mod offload_text;
pub mod profiling;
pub mod table;
pub mod tables;
mod tree;
mod visible;
mod wrap;

pub use figures::thousands;
pub use flamegraph::{FlameError, FlameOptions, Weights, flamegraph};
pub use format::{Format, TextStyle, UnknownFormat, html, write};
pub use kernel_name::short;
pub use layout::single;
pub use table::{Cell, Column, Fact, Keep, Name, Show, Table};
pub use visible::{visible, visible_lines};
pub use wrap::wrap;
