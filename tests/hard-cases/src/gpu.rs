//! A workload on a GPU that loses its context or asks for more memory than there is.

use laptime::bench::{
    AxisSpec, Better, Case, Cost, Device, Iteration, MetricSpec, Nanos, Prepared, ValueKind, Workload,
};
use laptime_pipelines::gpu::{CudaDevice, gpu};

/// A GPU workload that ends in a chosen way.
pub struct HardGpu;

impl Workload for HardGpu {
    fn name(&self) -> &'static str {
        "hard-gpu"
    }

    fn about(&self) -> &'static str {
        "loses the context of its GPU, or asks for more memory than it has"
    }

    fn axes(&self) -> Vec<AxisSpec> {
        let number = ValueKind::Int { least: 0, most: i64::MAX };
        let ends = ValueKind::OneOf(&["well", "illegal_access", "too_much_memory"]);
        let axis = |name, about, kind, default| AxisSpec { name, about, kind, default: vec![default], cost: Cost::Low };
        vec![
            axis("number", "distinguishes cases", number, 0.into()),
            axis("end", "how an iteration ends", ends, "well".into()),
        ]
    }

    fn metrics(&self) -> Vec<MetricSpec> {
        let about = "memory of the GPU that nobody uses after the iteration";
        vec![MetricSpec { name: "free_mib", about, better: Better::Higher }]
    }

    fn prepare<'a>(&'a self, case: &Case, device: &'a dyn Device) -> anyhow::Result<Prepared<'a>> {
        let Some(gpu) = gpu(device) else { return Ok(Prepared::DoesNotApply("it needs a GPU".to_owned())) };
        Ok(Prepared::Ready(Box::new(HardGpuIteration { gpu, end: case.text("end")?.to_owned() })))
    }
}

struct HardGpuIteration<'a> {
    gpu: &'a CudaDevice,
    end: String,
}

impl Iteration for HardGpuIteration<'_> {
    fn check(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    #[allow(unsafe_code, reason = "the case is meant to lose the context")]
    fn run(&mut self) -> anyhow::Result<()> {
        let cuda = self.gpu.cuda();
        match self.end.as_str() {
            // SAFETY: everything on the device is given up with the context, and the process ends.
            "illegal_access" => unsafe { self.gpu.kernels()?.lose_context(cuda.stream()) }?,
            "too_much_memory" => {
                // Half of the free memory fits once, not three times.
                let half = usize::try_from(cuda.free_memory()?.free / 2)?;
                drop((0..3).map(|_| cuda.allocate::<u8>(half)).collect::<Result<Vec<_>, _>>()?);
            }
            _ => drop(cuda.allocate::<u8>(1 << 20)?),
        }
        Ok(())
    }

    fn readings(&mut self, _: Nanos) -> Vec<Option<f64>> {
        // Freed memory that the pool keeps does not count.
        let free = self.gpu.cuda().give_back_memory().and_then(|()| self.gpu.cuda().free_memory());
        vec![free.ok().map(|memory| memory.free as f64 / f64::from(1 << 20))]
    }
}
