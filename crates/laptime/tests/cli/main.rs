//! The program, run in fresh folders.

mod bad_input;
mod common;
mod convert;
mod stages;
mod tour;
