//! Iterations of attention.

use anyhow::ensure;
use laptime_bench::{AxisValue, Device, Fact, Iteration, Nanos, Work};
use laptime_models::attention::{Accuracy, Kind, Reference, tolerance};
use laptime_probe::{Lane, stage};

use super::engine::{Built, Engine, make};
use super::plan::Spec;
use crate::request::fact;

/// The pattern is rebuilt before iterations until builds have taken this long in total, so that `build_ms` has a spread.
const BUILDING_NS: u64 = 300_000_000;

pub struct AttentionIteration<'a> {
    spec: Spec,
    engine: Box<dyn Engine + 'a>,
    device: &'a dyn Device,
    lane: Option<&'a Lane>,
    built: Built,
    build_ns: u64,
    building_ns: u64,
    judged: Option<Accuracy>,
}

impl<'a> AttentionIteration<'a> {
    /// Creates the inputs and builds the pattern.
    pub fn new(spec: Spec, device: &'a dyn Device) -> anyhow::Result<Self> {
        let engine = {
            let _stage = stage!("prepare_inputs", tokens = spec.inputs.sizes.length);
            make(&spec, device)?
        };
        Self::with(spec, engine, device)
    }

    /// The same with a prepared engine.
    pub fn with(spec: Spec, engine: Box<dyn Engine + 'a>, device: &'a dyn Device) -> anyhow::Result<Self> {
        let (lane, built) = (device.lane(), Built::default());
        let mut iteration = Self { spec, engine, device, lane, built, build_ns: 0, building_ns: 0, judged: None };
        iteration.build()?;
        Ok(iteration)
    }

    fn build(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("build_pattern", tokens = self.spec.inputs.sizes.length);
        let start = self.device.now();
        self.built = self.engine.build(&self.spec.kept)?;
        self.device.synchronise()?;
        self.build_ns = self.device.now().saturating_sub(start).0;
        self.building_ns = self.building_ns.saturating_add(self.build_ns);
        Ok(())
    }

    fn has_pattern(&self) -> bool {
        self.spec.kind != Kind::Naive
    }

    fn allowed(&self) -> u64 {
        self.spec.kept.allowed(self.spec.inputs.sizes.length)
    }

    fn sparsity(&self) -> f64 {
        1.0 - self.built.connections as f64 / self.allowed().max(1) as f64
    }
}

impl Iteration for AttentionIteration<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        self.run()?;
        let reference = Reference::new(self.spec.inputs, self.spec.kept.clone());
        let judged = reference.judge(self.engine.result()?);
        let most = tolerance(self.spec.inputs.dtype);
        let at = judged.worst;
        ensure!(
            judged.error <= most,
            "the result is wrong: sequence {}, head {}, token {} is off by {:.2} % of it, at most {:.2} % is rounding",
            at.batch,
            at.head,
            at.row,
            100.0 * judged.error,
            100.0 * most,
        );
        self.judged = Some(judged);
        Ok(())
    }

    fn ready(&mut self) -> anyhow::Result<()> {
        if self.has_pattern() && self.building_ns < BUILDING_NS { self.build() } else { Ok(()) }
    }

    fn run(&mut self) -> anyhow::Result<()> {
        let _stage = stage!("compute", on = self.lane, tokens = self.spec.inputs.sizes.length);
        self.engine.attend()
    }

    fn readings(&mut self, wall: Nanos) -> Vec<Option<f64>> {
        let build_ms = self.has_pattern().then(|| self.build_ns as f64 / 1e6);
        let flops = self.spec.inputs.sizes.flops(self.built.executed) as f64;
        let rate = (wall.0 > 0).then(|| flops / wall.0 as f64 / 1e3);
        let judged = |of: fn(&Accuracy) -> f64| self.judged.as_ref().map(of);
        vec![Some(self.sparsity()), judged(|it| it.mass_kept), judged(|it| it.output_error), rate, build_ms]
    }

    fn work(&self) -> Option<Work> {
        Some(self.spec.work(self.built.connections))
    }

    fn facts(&self) -> Vec<Fact> {
        let sizes = self.spec.inputs.sizes;
        let length = sizes.length as f64;
        let Built { connections, executed, bytes } = self.built;
        vec![
            fact("connections", connections),
            fact("executed_pairs", executed),
            fact("allowed_pairs", self.allowed()),
            Fact::new("density", AxisValue::Float(connections as f64 / (length * length))),
            fact("flops", sizes.flops(executed)),
            fact("dense_flops", sizes.flops(self.allowed())),
            fact("pattern_bytes", bytes),
            Fact::new("kernel", self.engine.kernel()),
            Fact::new("inputs", "synthetic"),
        ]
    }
}
