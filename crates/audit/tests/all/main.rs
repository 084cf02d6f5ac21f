//! Sites in Rust and Python source.

mod any_text;
mod join;
mod python;
mod rust;
