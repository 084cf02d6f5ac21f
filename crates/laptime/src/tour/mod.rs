//! The pipeline that the tour records.

pub mod generator;
mod matrix;
