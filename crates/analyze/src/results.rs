//! Analyses of the results of runs: figures per case, doubts, comparisons, growth, warm-up.

pub(crate) mod ab;
pub(crate) mod against;
pub(crate) mod by_case;
pub(crate) mod cases;
pub(crate) mod cold_start;
pub(crate) mod compare;
pub(crate) mod crossover;
pub(crate) mod differences;
pub(crate) mod doubt;
pub(crate) mod doubts;
pub(crate) mod figures;
pub(crate) mod overhead;
pub(crate) mod profiling;
pub(crate) mod scaling;
pub(crate) mod series;
pub(crate) mod timings;
pub(crate) mod warmup;
pub(crate) mod warmup_rows;
