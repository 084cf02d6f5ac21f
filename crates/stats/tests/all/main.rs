//! Statistics compared with numpy and scipy, with synthetic recordings, and with what holds for any samples.

#[path = "../common/mod.rs"]
mod common;
mod power;
mod properties;
mod quantile;
mod reference;
mod steady;
