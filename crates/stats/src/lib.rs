//! Statistics of measured samples: numbers in, numbers out.
//!
//! Nothing here knows what a number stands for, reads a clock or does I/O.
//! What has no answer (the median of nothing) is `None`, never `0`.

pub mod quantile;

pub use quantile::{NotFinite, Sorted, Value, quantile_of_sorted};
