//! What every command knows: the workloads and devices, the build, and whether somebody wants to stop.

use std::sync::{Arc, Once};

use laptime_bench::{Device, Interrupt, NoDevice, OpenOnce, Registry, Workload};
use laptime_pipelines::{BuiltInDevices, OffloadedLayers};
use laptime_trace::run::{Build, Environment, Gpu};

use crate::{failure::Hinted, near::nearest, offload_live::Live, output::say};

/// The workload whose tokens are looked at while they are made.
const OFFLOAD: &str = crate::offload_files::WORKLOAD;

/// What every command knows.
pub struct App {
    /// The workloads and devices.
    pub registry: Registry,
    /// Whether somebody wants to stop.
    pub interrupt: Interrupt,
    /// Who looks on while tokens are made with layers that do not stay.
    pub live: Arc<Live>,
}

impl App {
    /// The built-in workloads and those of the program, which take the place of built-in ones of the same name.
    pub fn new(workloads: Vec<Box<dyn Workload>>) -> Self {
        let is_replaced = |name: &str| workloads.iter().any(|workload| workload.name() == name);
        let interrupt = Interrupt::new();
        let live = Arc::new(Live::new(interrupt.clone()));
        let mut all = laptime_pipelines::workloads();
        if let Some(offload) = all.iter_mut().find(|workload| workload.name() == OFFLOAD) {
            *offload = Box::new(OffloadedLayers::watched(Arc::clone(&live) as _));
        }
        all.retain(|built_in| !is_replaced(built_in.name()));
        all.extend(workloads);
        let workloads = all;
        let registry = Registry { workloads, devices: Box::new(OpenOnce::new(BuiltInDevices)) };
        Self { registry, interrupt, live }
    }

    /// The workload of this name, or an error with the nearest one.
    pub fn workload(&self, name: &str) -> anyhow::Result<&dyn Workload> {
        self.registry.workload(name).ok_or_else(|| {
            let known: Vec<&str> = self.registry.workloads.iter().map(|workload| workload.name()).collect();
            let near = nearest(name, known.iter().copied())
                .map_or_else(String::new, |near| format!("did you mean `{near}`? "));
            let hint = format!("{near}`laptime list` shows them: {}", known.join(", "));
            Hinted::wrap(anyhow::anyhow!("there is no workload `{name}`"), hint)
        })
    }

    /// Opens a device, or gives the one that is open; else says what can be had instead.
    pub fn device(&self, name: &str) -> anyhow::Result<Arc<dyn Device>> {
        let opened = self.registry.devices.open(name);
        opened.map_err(|error| {
            let general = "`--device cpu` measures on the CPU; `laptime doctor` says what there is";
            let hint = error.downcast_ref::<NoDevice>().map_or_else(|| general.to_owned(), |none| none.hint.clone());
            Hinted::wrap(error, hint)
        })
    }

    /// Says what `auto` stands for, where it could be a GPU.
    pub fn say_device(&self, asked: &str, device: &dyn Device) {
        let is_cpu = device.name() == "cpu";
        if asked == "auto" && !is_cpu {
            say(&format!("device: `{}`; `--device cpu` measures on the CPU", device.name()));
        }
        let expects_gpu = laptime_pipelines::HAS_CUDA && laptime_bench::environment::nvidia_driver().is_some();
        if asked == "auto"
            && is_cpu
            && expects_gpu
            && let Err(none) = laptime_pipelines::gpus()
        {
            say(&format!("device: `cpu`, for no GPU can be used: {}", none.reason));
        }
    }

    /// Gathers the environment.
    pub fn environment(&self) -> Environment {
        let mut environment = laptime_bench::environment::gather(build());
        // A container may hide what the driver tells; the GPUs themselves know it too.
        if environment.machine.gpus.is_empty() {
            let known = |gpu: laptime_pipelines::GpuFound| Gpu { name: gpu.name, driver: gpu.driver };
            environment.machine.gpus = laptime_pipelines::gpus().unwrap_or_default().into_iter().map(known).collect();
        }
        environment
    }

    /// From here on Ctrl-C asks to stop after the current take; a second one stops at once.
    pub fn listen_for_interrupts(&self) {
        static ONCE: Once = Once::new();
        let interrupt = self.interrupt.clone();
        ONCE.call_once(|| {
            let listening = ctrlc::set_handler(move || {
                if interrupt.is_asked() {
                    #[allow(clippy::exit, reason = "the second Ctrl-C asks for just this")]
                    std::process::exit(130);
                }
                interrupt.ask();
                crate::output::say("\nstopping after the current take; Ctrl-C again stops at once");
            });
            // Without a handler Ctrl-C ends the program as it always did; finished cases are on the disk.
            drop(listening);
        });
    }
}

/// How this program was built.
pub fn build() -> Build {
    Build {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("LAPTIME_COMMIT").to_owned(),
        profile: env!("LAPTIME_PROFILE").to_owned(),
        opt_level: env!("LAPTIME_OPT_LEVEL").to_owned(),
        debug_assertions: cfg!(debug_assertions),
        target: env!("LAPTIME_TARGET").to_owned(),
        binary: laptime_bench::environment::binary_fingerprint(),
    }
}
