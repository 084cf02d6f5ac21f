//! Recording a running program, from the marks to the file.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed; a child tells its parent"
)]

mod alone;
mod devices;
mod ends;
mod failures;
mod killed;
mod shapes;
mod tracing;
