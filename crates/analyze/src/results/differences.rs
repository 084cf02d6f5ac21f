//! Differences between the machines, devices, builds and settings of two runs.
//!
//! A different commit or binary does not count: comparing them is the purpose.

use laptime_trace::run::{Machine, Run, Stop, WarmUp};

use crate::{
    note::plural,
    units::{per_cent, time},
};

/// Memory sizes that differ by less than this share count as equal: the kernel reserves some.
const MEMORY_SLACK: f64 = 0.05;

/// Something that differs between two runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What differs, such as `cpu`.
    pub what: &'static str,
    /// Its value in the first run.
    pub a: String,
    /// Its value in the second run.
    pub b: String,
    /// Whether it affects the timings so much that a verdict would not be about the program: another CPU, another number
    /// of CPUs, another device, GPU, timing or cache setting, a build without optimisation or with assertions. Other
    /// differences (memory, clocks, kernel, driver, warm-up, stop rule) are only listed.
    pub is_decisive: bool,
}

/// Lists the differences between two runs. Unknown values do not count as differences.
pub fn differences(a: &Run, b: &Run) -> Vec<Difference> {
    let mut found = Found(Vec::new());
    found.device(a, b);
    found.machine(&a.environment.machine, &b.environment.machine);
    found.build(a, b);
    found.settings(a, b);
    found.0
}

struct Found(Vec<Difference>);

impl Found {
    fn device(&mut self, a: &Run, b: &Run) {
        self.decisive("device", Some(&a.device), Some(&b.device));
        let gpus = |run: &Run| {
            let names: Vec<&str> = run.environment.machine.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        self.decisive("gpus", Some(&gpus(a)), Some(&gpus(b)));
        let driver = |run: &Run| run.environment.machine.gpus.iter().find_map(|gpu| gpu.driver.clone());
        self.minor("driver", driver(a), driver(b));
    }

    fn machine(&mut self, a: &Machine, b: &Machine) {
        self.decisive("cpu", a.cpu.as_ref(), b.cpu.as_ref());
        self.decisive("cpus", Some(&a.cpus), Some(&b.cpus));
        self.decisive("cores", a.cores.as_ref(), b.cores.as_ref());
        let quota = |machine: &Machine| machine.cpu_quota.map_or_else(|| "none".to_owned(), |quota| quota.to_string());
        self.decisive("cpu quota", Some(&quota(a)), Some(&quota(b)));
        if let (Some(one), Some(other)) = (a.memory_bytes, b.memory_bytes)
            && one.abs_diff(other) as f64 > MEMORY_SLACK * one.max(other) as f64
        {
            let gib = |bytes: u64| Some(format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)));
            self.minor("memory", gib(one), gib(other));
        }
        self.minor("governor", a.governor.as_ref(), b.governor.as_ref());
        let boost = |machine: &Machine| machine.boost.map(|is_on| if is_on { "on" } else { "off" });
        self.minor("boost", boost(a), boost(b));
        let kind = |machine: &Machine| machine.virtual_machine.clone().unwrap_or_else(|| "none".to_owned());
        self.minor("virtual machine", Some(kind(a)), Some(kind(b)));
        self.minor("system", Some(&a.os), Some(&b.os));
        self.minor("kernel", a.kernel.as_ref(), b.kernel.as_ref());
        self.minor("clock source", a.clock_source.as_ref(), b.clock_source.as_ref());
    }

    fn build(&mut self, a: &Run, b: &Run) {
        let (a, b) = (&a.environment.build, &b.environment.build);
        let checked = |is_checked: bool| if is_checked { "checked" } else { "not checked" };
        self.decisive("optimisation", Some(&a.opt_level), Some(&b.opt_level));
        self.decisive("assertions", Some(&checked(a.debug_assertions)), Some(&checked(b.debug_assertions)));
        self.minor("build profile", Some(&a.profile), Some(&b.profile));
        self.minor("target", Some(&a.target), Some(&b.target));
    }

    fn settings(&mut self, a: &Run, b: &Run) {
        let (a, b) = (&a.settings, &b.settings);
        let isolated = |isolate: bool| if isolate { "case" } else { "run" };
        self.decisive("timing", Some(&a.timing), Some(&b.timing));
        self.decisive("L2", a.l2.as_ref(), b.l2.as_ref());
        self.minor("warm-up", Some(warm_up(a.warmup)), Some(warm_up(b.warmup)));
        self.minor("stop rule", Some(stop(a.stop)), Some(stop(b.stop)));
        self.minor("one process per", Some(isolated(a.isolate)), Some(isolated(b.isolate)));
    }

    fn decisive<T: ToString + PartialEq>(&mut self, what: &'static str, a: Option<&T>, b: Option<&T>) {
        self.add(what, a, b, true);
    }

    fn minor<T: ToString + PartialEq>(&mut self, what: &'static str, a: Option<T>, b: Option<T>) {
        self.add(what, a.as_ref(), b.as_ref(), false);
    }

    fn add<T: ToString + PartialEq>(&mut self, what: &'static str, a: Option<&T>, b: Option<&T>, is_decisive: bool) {
        if let (Some(a), Some(b)) = (a, b)
            && a != b
        {
            self.0.push(Difference { what, a: a.to_string(), b: b.to_string(), is_decisive });
        }
    }
}

fn warm_up(warmup: WarmUp) -> String {
    match warmup {
        WarmUp::Iterations(iterations) => plural(iterations, "iteration", "iterations"),
        WarmUp::Auto => "automatic".to_owned(),
    }
}

fn stop(stop: Stop) -> String {
    match stop {
        Stop::Iterations(iterations) => format!("{iterations} iterations"),
        Stop::Interval { within, at_least, least_ns, at_most_ns } => {
            let (least, most) = (time(least_ns as f64), time(at_most_ns as f64));
            format!("within {}, at least {at_least} iterations and {least}, at most {most}", per_cent(within))
        }
    }
}
