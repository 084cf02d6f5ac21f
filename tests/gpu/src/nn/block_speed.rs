//! The speed of block attention: timed by events, with a cold L2 cache.

use std::{fmt::Write as _, sync::Arc};

use half::bf16;
use laptime_cuda::nn::{Attention, BlockAttention, BlockLayout, Engine, HeadSizes, TILING};
use laptime_cuda::{Buffer, Cache, CudaError, EventClock};

use super::speed::{peak, random_buffer};
use super::{Answer, Bench, Failed, Lab, Number, block_layouts::HostLayout};
use crate::clock::{FLUSHED_BYTES, cold_nanos};

/// The pairs of a causal dense layout that are computed, for one head.
fn dense_pairs(tokens: u32) -> f64 {
    let blocks = (0..tokens).step_by(TILING.rows as usize);
    blocks.map(|first| f64::from((first + TILING.rows).min(tokens).next_multiple_of(TILING.keys) * TILING.rows)).sum()
}

/// Inputs of one size, and what times them.
struct Stand<'a, T> {
    bench: &'a Bench,
    clock: EventClock,
    flush: Buffer<u32>,
    inputs: [Buffer<T>; 3],
    out: Buffer<T>,
    sizes: HeadSizes,
    words: String,
}

impl<'a, T: Number> Stand<'a, T> {
    fn new(bench: &'a Bench, sizes: HeadSizes) -> Result<Self, CudaError> {
        let lab = Lab::<T>::new(bench)?;
        let inputs = [
            random_buffer(&lab, sizes.query_elements())?,
            random_buffer(&lab, sizes.cache_elements())?,
            random_buffer(&lab, sizes.cache_elements())?,
        ];
        Ok(Self {
            bench,
            clock: EventClock::new(Arc::clone(bench.device.stream()))?,
            flush: bench.device.allocate(FLUSHED_BYTES / 4)?,
            inputs,
            out: random_buffer(&lab, sizes.query_elements())?,
            sizes,
            words: String::new(),
        })
    }

    fn row(&mut self, what: &str, pairs: f64, nanos: f64) {
        let HeadSizes { batch, tokens, heads, kv_heads, head_dim, .. } = self.sizes;
        let name = format!("{} {batch} x {heads}/{kv_heads} x {tokens} x {head_dim} {what}", T::NAME);
        let operations = 4.0 * pairs * f64::from(batch * heads * head_dim);
        let (rate, share) = (operations / nanos / 1e3, operations / nanos * 1e9 / peak::<T>());
        let _ = write!(self.words, "\n{name:<58} {:>9.1} {rate:>7.0} {:>5.0} %", nanos / 1e3, share * 100.0);
    }

    fn blocks(&mut self, what: &str, layout: &BlockLayout, pairs: f64, engine: Engine) -> Result<f64, Failed> {
        let bench = self.bench;
        if !engine.serves(self.sizes.head_dim, size_of::<T>(), bench.device.facts().capability) {
            return Ok(f64::INFINITY);
        }
        let attention = BlockAttention::<T>::load_with(&bench.device, &Cache::of_user(), self.sizes.head_dim, engine)?;
        let [q, k, v] = &self.inputs;
        let (inputs, sizes, out) = ([q.all(), k.all(), v.all()], self.sizes, &mut self.out);
        let nanos = cold_nanos(bench, &self.clock, &mut self.flush, || {
            attention.attend(bench.device.stream(), &sizes, inputs, layout, &mut *out)
        })?;
        self.row(&format!("{what} {engine:?}"), pairs, nanos);
        Ok(nanos)
    }

    /// The kernel that the decoder uses, for comparison with dense blocks.
    fn present(&mut self) -> Result<f64, Failed> {
        let bench = self.bench;
        let attention = Attention::<T>::load(&bench.device, &Cache::of_user(), self.sizes.head_dim, None)?;
        let start = bench.device.upload(&[0_u32])?;
        let scale = 1.0 / (self.sizes.head_dim as f32).sqrt();
        let [q, k, v] = &self.inputs;
        let (inputs, sizes, out) = ([q.all(), k.all(), v.all()], self.sizes, &mut self.out);
        let nanos = cold_nanos(bench, &self.clock, &mut self.flush, || {
            attention.attend(bench.device.stream(), inputs, &start, (out.all_mut(), None), &sizes, scale)
        })?;
        self.row("fused", dense_pairs(sizes.tokens), nanos);
        Ok(nanos)
    }

    fn dense(&mut self, engines: &[Engine]) -> Result<(), Failed> {
        let tokens = self.sizes.tokens;
        let layout = BlockLayout::dense(&self.bench.device, tokens, TILING, true)?;
        for engine in engines {
            self.blocks("dense", &layout, dense_pairs(tokens), *engine)?;
        }
        Ok(())
    }

    fn windowed(&mut self, what: &str, half_window: u32, random: u32, engines: &[Engine]) -> Result<(), Failed> {
        let host = HostLayout::windowed(self.sizes.tokens, half_window, 64, random);
        let layout = BlockLayout::new(&self.bench.device, host.length, host.rule, TILING, &host.parts())?;
        for engine in engines {
            self.blocks(what, &layout, host.executed(), *engine)?;
        }
        Ok(())
    }
}

fn heading() -> String {
    format!(
        "{:<58} {:>9} {:>7}  of peak; operations are those of pairs that are computed",
        "cold L2, events", "us", "TF/s"
    )
}

pub fn speed(bench: &Bench) -> Answer {
    let mut words = heading();
    let both = [Engine::Warpgroups, Engine::TensorCores];
    for tokens in [1024, 2048, 4096, 8192, 16_384, 32_768] {
        let sizes = HeadSizes { batch: 1, tokens, heads: 16, kv_heads: 16, head_dim: 64, capacity: tokens };
        let mut stand = Stand::<bf16>::new(bench, sizes)?;
        stand.present()?;
        stand.dense(&both)?;
        stand.windowed("small", 256, 32, &both)?;
        stand.windowed("window 256, global", 256, 0, &both[..1])?;
        stand.windowed("window 512, global", 512, 0, &both[..1])?;
        words += &stand.words;
    }
    let sizes = HeadSizes { batch: 1, tokens: 4096, heads: 16, kv_heads: 16, head_dim: 64, capacity: 4096 };
    let mut stand = Stand::<f32>::new(bench, sizes)?;
    stand.dense(&[Engine::Plain])?;
    stand.windowed("small", 256, 32, &[Engine::Plain])?;
    Ok(words + &stand.words)
}

/// The setting of a decoder's prefill, next to the kernel that it uses.
pub fn prefill(bench: &Bench) -> Answer {
    let mut words = heading();
    for [batch, heads, kv_heads, tokens, head_dim] in [
        [1, 16, 8, 512, 128],
        [1, 32, 8, 512, 128],
        [4, 12, 12, 512, 64],
        [4, 20, 20, 512, 64],
        [1, 16, 8, 4096, 128],
        [1, 16, 16, 16_384, 128],
    ] {
        let mut stand =
            Stand::<bf16>::new(bench, HeadSizes { batch, tokens, heads, kv_heads, head_dim, capacity: tokens })?;
        stand.present()?;
        stand.dense(&[Engine::Warpgroups, Engine::TensorCores])?;
        words += &stand.words;
    }
    Ok(words)
}
