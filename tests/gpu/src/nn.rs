//! The operations of a transformer compared with the CPU in three dtypes, and their speed.

mod attention;
mod backward;
mod backward_heads;
mod backward_speed;
mod block_layouts;
mod block_speed;
mod blocks;
mod conv;
mod fuse;
mod layer;
mod rows;
mod speed;
mod stream;

use std::fmt::Write as _;

use half::{bf16, f16};
use laptime_cuda::{Buffer, Cache, CudaError, Element, nn::Operations};

pub use self::{
    attention::{fused, heads, naive},
    backward::{adamw, gates_backward, losses, norms_backward, rows_backward, softmax_backward},
    backward_heads::{fused_backward, heads_backward, naive_backward},
    backward_speed::{adamw as adamw_speed, attention as attention_backward_speed, gradients as gradient_speed},
    block_speed::{prefill as block_prefill_speed, speed as block_speed},
    blocks::{dense as block_dense, layouts as block_layouts, refused as block_refused},
    conv::{channels as conv_channels, convolutions, rows as conv_rows, speed as conv_speed},
    fuse::{
        additions as fuse_additions, gelu as fuse_gelu, joins as fuse_joins, norms as fuse_norms, speed as fuse_speed,
    },
    layer::captured,
    rows::{argmax, embedding, gating, memory, norms, random, softmax},
    speed::{attention as attention_speed, models as model_speed, rows as row_speed},
    stream::{convolutions as stream_convolutions, rows as stream_rows},
};
use crate::{Answer, Bench, Failed, expect, reference};

/// A type that everything is tested in.
trait Number: Element {
    const NAME: &'static str;
    /// The largest acceptable error, relative to the largest value: from rounding once or twice, and for f32 from the
    /// fast exponential.
    const TOLERANCE: f64;
}

impl Number for f32 {
    const NAME: &'static str = "f32";
    const TOLERANCE: f64 = 1e-5;
}
impl Number for bf16 {
    const NAME: &'static str = "bf16";
    const TOLERANCE: f64 = 8e-3;
}
impl Number for f16 {
    const NAME: &'static str = "f16";
    const TOLERANCE: f64 = 1e-3;
}

/// What a test of one type is given.
struct Lab<'a, T> {
    bench: &'a Bench,
    operations: Operations<T>,
    /// The multiple of the tolerance that is acceptable: more if intermediate results are rounded.
    roundings: f64,
    worst: f64,
    cases: usize,
}

impl<'a, T: Number> Lab<'a, T> {
    fn new(bench: &'a Bench) -> Result<Self, CudaError> {
        let operations = Operations::load(&bench.device, &Cache::of_user())?;
        Ok(Self { bench, operations, roundings: 1.0, worst: 0.0, cases: 0 })
    }

    /// Noise that the dtype can represent, so that only the operation can be wrong.
    fn noise(&self, length: usize, seed: u64) -> Vec<f32> {
        reference::noise(length, seed).into_iter().map(|value| T::narrowed(value).widened()).collect()
    }

    fn upload(&self, values: &[f32]) -> Result<Buffer<T>, CudaError> {
        let narrowed: Vec<T> = values.iter().map(|value| T::narrowed(*value)).collect();
        self.bench.device.upload(&narrowed)
    }

    /// Memory whose content must not be mistaken for a result.
    fn spoiled(&self, length: usize) -> Result<Buffer<T>, CudaError> {
        self.upload(&vec![f32::NAN; length])
    }

    fn judge(&mut self, what: &str, found: &Buffer<T>, expected: &[f32]) -> Result<(), Failed> {
        let found: Vec<f32> = found.read()?.into_iter().map(T::widened).collect();
        self.judge_values(what, &found, expected)
    }

    fn judge_values(&mut self, what: &str, found: &[f32], expected: &[f32]) -> Result<(), Failed> {
        let error = reference::worst_error(found, expected);
        let most = T::TOLERANCE * self.roundings;
        expect(error <= most, || format!("{} {what}: worst error {error:.1e}, at most {most:.0e}", T::NAME))?;
        self.worst = self.worst.max(error);
        self.cases += 1;
        Ok(())
    }
}

/// Runs a test in each dtype, and reports the worst errors.
macro_rules! in_each_type {
    ($bench:expr, $test:ident) => {{
        let mut words = String::new();
        in_each_type!($bench, $test, words, f32);
        in_each_type!($bench, $test, words, half::bf16);
        in_each_type!($bench, $test, words, half::f16);
        Ok(words)
    }};
    ($bench:expr, $test:ident, $words:ident, $type:ty) => {{
        let mut lab = crate::nn::Lab::<$type>::new($bench)?;
        $test(&mut lab)?;
        crate::nn::append_summary(&mut $words, &lab);
    }};
}
use in_each_type;

fn append_summary<T: Number>(words: &mut String, lab: &Lab<'_, T>) {
    let between = if words.is_empty() { "" } else { ", " };
    let _ = write!(words, "{between}{} {:.1e} of {} cases", T::NAME, lab.worst, lab.cases);
}
