//! What all commands share: workloads, devices, the build, and whether the user pressed Ctrl-C.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};

use laptime_bench::{Device, Interrupt, NoDevice, OpenOnce, Registry, Workload};
use laptime_pipelines::BuiltInDevices;
use laptime_pipelines::extras::{Extras, NoExtras};
use laptime_trace::run::{Build, Environment, Gpu};

use crate::failure::{Hinted, refusal};
use crate::output::{Terminal, say};
use crate::{estimate, near::did_you_mean};

/// What all commands share.
pub struct App {
    pub registry: Registry,
    /// What workloads add to the commands.
    pub extras: Vec<Box<dyn Extras>>,
    /// Whether the program has workloads or extras of its own.
    pub is_extended: bool,
    pub interrupt: Interrupt,
    /// FLOP/s of the CPU, once measured.
    rate: OnceLock<Option<f64>>,
    /// The folder of the current run, if it can be resumed.
    resumable: Arc<Mutex<Option<PathBuf>>>,
}

impl App {
    /// The built-in workloads and those of the program, which replace built-in ones of the same name.
    pub fn new(workloads: Vec<Box<dyn Workload>>, extras: Vec<Box<dyn Extras>>) -> Self {
        let is_extended = !(workloads.is_empty() && extras.is_empty());
        let is_replaced = |name: &str| workloads.iter().any(|workload| workload.name() == name);
        let interrupt = Interrupt::new();
        let built_in = laptime_pipelines::built_in(&interrupt, Arc::new(Terminal::default()));
        let (mut all, mut of_all) = (built_in.workloads, built_in.extras);
        all.retain(|built_in| !is_replaced(built_in.name()));
        of_all.retain(|built_in| !is_replaced(built_in.workload()));
        all.extend(workloads);
        of_all.extend(extras);
        let registry = Registry { workloads: all, devices: Box::new(OpenOnce::new(BuiltInDevices)) };
        Self { registry, extras: of_all, is_extended, interrupt, rate: OnceLock::new(), resumable: Arc::default() }
    }

    pub fn extras(&self, workload: &str) -> &dyn Extras {
        let found = self.extras.iter().find(|extras| extras.workload() == workload);
        found.map_or(&NoExtras as &dyn Extras, |extras| &**extras)
    }

    /// FLOP/s of the CPU, measured once; none for other devices.
    pub fn cpu_rate(&self, device: &str) -> Option<f64> {
        *self.rate.get_or_init(|| estimate::cpu_rate(self, &*self.device(device).ok()?))
    }

    /// Sets the folder that a second Ctrl-C reports; none if the run cannot be resumed.
    pub fn measure_in(&self, folder: Option<PathBuf>) {
        *self.resumable.lock().unwrap_or_else(PoisonError::into_inner) = folder;
    }

    /// The workload of this name; the error suggests the nearest one.
    pub fn workload(&self, name: &str) -> anyhow::Result<&dyn Workload> {
        self.registry.workload(name).ok_or_else(|| {
            let known: Vec<&str> = self.registry.workloads.iter().map(|workload| workload.name()).collect();
            let near = did_you_mean(name, known.iter().copied());
            refusal(format!("unknown workload `{name}`"), format!("{near}known workloads: {}", known.join(", ")))
        })
    }

    pub fn device(&self, name: &str) -> anyhow::Result<Arc<dyn Device>> {
        let opened = self.registry.devices.open(name);
        opened.map_err(|error| {
            let general = "run with `--device cpu`; `laptime doctor` shows the devices";
            let hint = error.downcast_ref::<NoDevice>().map_or_else(|| general.to_owned(), |none| none.hint.clone());
            Hinted::wrap(error, hint)
        })
    }

    /// Prints the device that `auto` selects, if the machine has a GPU.
    pub fn say_device(&self, request: &str, device: &dyn Device) {
        let is_cpu = device.name() == "cpu";
        if request == "auto" && !is_cpu {
            say(&format!("device: `{}`; `--device cpu` measures on the CPU", device.name()));
        }
        let expects_gpu = laptime_pipelines::HAS_CUDA && laptime_bench::environment::nvidia_driver().is_some();
        if request == "auto"
            && is_cpu
            && expects_gpu
            && let Err(none) = laptime_pipelines::gpus()
        {
            say(&format!("device: `cpu`, because no GPU is usable: {}", none.reason));
        }
    }

    pub fn environment(&self) -> Environment {
        let mut environment = laptime_bench::environment::gather(build());
        // A container may hide the files of the driver; ask the GPUs instead.
        if environment.machine.gpus.is_empty() {
            let known = |gpu: laptime_pipelines::GpuFound| Gpu { name: gpu.health.name, driver: gpu.driver };
            environment.machine.gpus = laptime_pipelines::gpus().unwrap_or_default().into_iter().map(known).collect();
        }
        environment
    }

    /// From here on Ctrl-C stops after the current iteration, and a second Ctrl-C at once.
    pub fn listen_for_interrupts(&self) {
        static ONCE: Once = Once::new();
        let (interrupt, resumable) = (self.interrupt.clone(), Arc::clone(&self.resumable));
        ONCE.call_once(|| {
            let set = ctrlc::set_handler(move || {
                if interrupt.is_requested() {
                    if let Some(folder) = &*resumable.lock().unwrap_or_else(PoisonError::into_inner) {
                        let folder = folder.display();
                        say(&format!("\nSaved to {folder}. `laptime bench --resume {folder}` continues it."));
                    }
                    #[allow(clippy::exit, reason = "the second Ctrl-C asks for exactly this")]
                    std::process::exit(130);
                }
                interrupt.ask();
                say("\nStopping after the current iteration. Press Ctrl-C again to stop now.");
            });
            // Without a handler Ctrl-C ends the program; finished cases are on disk.
            drop(set);
        });
    }
}

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
