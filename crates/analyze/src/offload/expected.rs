//! The expected time of a token, from sizes and hardware rates.

use super::replay::{Minimum, Step};

/// The work of a token.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sizes {
    /// Layers.
    pub layers: u64,
    /// Layers on the device.
    pub gpu_layers: u64,
    /// The bytes of a layer.
    pub layer_bytes: u64,
    /// The FLOPs of a layer in one forward pass.
    pub layer_flops: u64,
    /// Forward passes per token.
    pub forwards: u64,
    /// Whether the copies of the next pass start at the end of this one.
    pub wraps: bool,
    /// Whether layers are prefetched.
    pub prefetches: bool,
    /// Whether weights are copied back.
    pub copies_back: bool,
    /// Bytes that the diffusion head reads per token, all steps together.
    pub diffusion_bytes: u64,
    /// Its FLOPs per token.
    pub diffusion_flops: u64,
    /// Bytes that everything else reads per token.
    pub other_bytes: u64,
    /// The FLOPs of everything else.
    pub other_flops: u64,
}

/// The rates of the hardware, per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Bytes over the link.
    pub link: f64,
    /// Bytes of device memory.
    pub memory: f64,
    /// FLOPs.
    pub flops: f64,
}

/// The expected time of a token, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// Layers on the device.
    pub resident_compute: f64,
    /// Waits for copies.
    pub offloaded_wait: f64,
    /// Offloaded layers, without the wait.
    pub offloaded_compute: f64,
    /// Copies back.
    pub release: f64,
    /// The sum of these.
    pub transformer: f64,
    /// The diffusion head.
    pub diffusion: f64,
    /// Everything else.
    pub other: f64,
    /// The token.
    pub total: f64,
}

/// Computes the expected time of a token; none if a rate is missing.
pub fn expected(sizes: &Sizes, rates: &Rates) -> Option<Expected> {
    if ![rates.link, rates.memory, rates.flops].iter().all(|&rate| rate.is_finite() && rate > 0.0) {
        return None;
    }
    let work = |bytes: u64, flops: u64| (1e9 * bytes as f64 / rates.memory).max(1e9 * flops as f64 / rates.flops);
    let (forwards, offloaded) = (sizes.forwards as f64, sizes.layers.saturating_sub(sizes.gpu_layers));
    let (layer, copy) = (work(sizes.layer_bytes, sizes.layer_flops), 1e9 * sizes.layer_bytes as f64 / rates.link);
    let resident = layer * sizes.gpu_layers.min(sizes.layers) as f64;
    let diffusion = work(sizes.diffusion_bytes, sizes.diffusion_flops);
    let other = work(sizes.other_bytes, sizes.other_flops);
    let release = if sizes.copies_back { forwards * offloaded as f64 * copy } else { 0.0 };
    let resident_compute = forwards * resident;
    let offloaded_compute = forwards * offloaded as f64 * layer;
    let offloaded_wait = wait(sizes, offloaded, [layer, copy, resident, diffusion + other]);
    let transformer = resident_compute + offloaded_wait + offloaded_compute + release;
    let total = transformer + diffusion + other;
    Some(Expected {
        resident_compute,
        offloaded_wait,
        offloaded_compute,
        release,
        transformer,
        diffusion,
        other,
        total,
    })
}

/// Larger models than this are not simulated layer by layer.
const MOST: u64 = 4096;

/// How long compute waits for copies in a token: from the times of a layer, its copy, the resident layers, and what follows.
fn wait(sizes: &Sizes, offloaded: u64, [layer, copy, resident, after]: [f64; 4]) -> f64 {
    let (forwards, offloaded) = (sizes.forwards.min(MOST), offloaded.min(MOST));
    if !sizes.prefetches {
        return copy * (forwards * offloaded) as f64;
    }
    let layer = Step::Layer { copy: copy as u64, compute: layer as u64 };
    let mut steps = Vec::new();
    for _ in 0..forwards {
        steps.push(Step::Forward);
        steps.extend(std::iter::repeat_n(layer, offloaded as usize));
        steps.push(Step::Compute(resident as u64));
    }
    steps.push(Step::Compute(after as u64));
    let least = Minimum::of(0, &steps);
    least.least(sizes.wraps).saturating_sub(least.compute) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 28 layers of 300 MB, 20 of them resident; a link of 10 GB/s, memory of 60 GB/s: an copy iterations 30 ms, a layer 5.
    fn sizes() -> Sizes {
        Sizes {
            layers: 28,
            gpu_layers: 20,
            layer_bytes: 300_000_000,
            layer_flops: 1,
            forwards: 1,
            prefetches: true,
            diffusion_bytes: 600_000_000,
            ..Sizes::default()
        }
    }

    const RATES: Rates = Rates { link: 10e9, memory: 60e9, flops: 1e12 };

    #[test]
    fn the_example_of_the_vibevoice_guide_is_reproduced() {
        let times = expected(&sizes(), &RATES).unwrap();
        assert_eq!((times.resident_compute, times.offloaded_compute), (100e6, 40e6));
        // All copies, less the seven layers that compute meanwhile.
        assert_eq!(times.offloaded_wait, 240e6 - 35e6);
        assert_eq!((times.release, times.transformer, times.diffusion), (0.0, 345e6, 10e6));
        assert_eq!(times.total, 355e6);
    }

    #[test]
    fn without_prefetch_every_copy_is_waited_for() {
        let times = expected(&Sizes { prefetches: false, copies_back: true, ..sizes() }, &RATES).unwrap();
        assert_eq!((times.offloaded_wait, times.release), (240e6, 240e6));
    }

    #[test]
    fn with_wrap_resident_compute_hides_copies_too() {
        let times = expected(&Sizes { wraps: true, ..sizes() }, &RATES).unwrap();
        assert_eq!(times.transformer + times.diffusion, 110e6 + 5e6 + 6.0 * 30e6 + 5e6);
    }

    #[test]
    fn arithmetic_counts_if_it_takes_longer_than_memory() {
        let times = expected(&Sizes { layer_flops: 10_000_000_000, ..sizes() }, &RATES).unwrap();
        assert_eq!(times.resident_compute, 200e6);
    }

    #[test]
    fn without_a_link_there_is_no_expectation() {
        assert_eq!(expected(&sizes(), &Rates { link: 0.0, ..RATES }), None);
        assert_eq!(expected(&sizes(), &Rates { memory: f64::NAN, ..RATES }), None);
    }
}
