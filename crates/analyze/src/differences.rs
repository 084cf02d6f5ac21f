//! What differs between the machines, devices, builds and settings of two runs.
//!
//! The commit and the program's file are no differences: to compare them is the point.

use laptime_trace::run::{Machine, Run, Stop, WarmUp};

use crate::units::{per_cent, time};

/// Memory that differs by less than this share is the same: the kernel keeps some for itself.
const MEMORY_SLACK: f64 = 0.05;

/// Something that differs between two runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// What differs, such as `cpu`.
    pub what: &'static str,
    /// What it is in the first run.
    pub a: String,
    /// What it is in the second.
    pub b: String,
    /// Whether it decides the times, so that a verdict would be of it and not of the program: another processor,
    /// another number of them, another device, GPU, timing or cache, a build without optimisation or with assertions. What is left
    /// (memory, clocks, kernel, driver, warm-up, stop rule) is to be told and no more.
    pub is_decisive: bool,
}

/// Says what differs between two runs. What a machine does not say is not held against it.
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
        let names = |run: &Run| run.environment.machine.gpus.iter().map(|gpu| gpu.name.clone()).collect::<Vec<_>>();
        self.decisive("gpus", Some(&or_none(&names(a))), Some(&or_none(&names(b))));
        let driver = |run: &Run| run.environment.machine.gpus.iter().find_map(|gpu| gpu.driver.clone());
        self.told("driver", driver(a), driver(b));
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
            self.told("memory", Some(gib(one)), Some(gib(other)));
        }
        self.told("governor", a.governor.as_ref(), b.governor.as_ref());
        self.told("boost", a.boost.map(on_or_off), b.boost.map(on_or_off));
        let kind = |machine: &Machine| machine.virtual_machine.clone().unwrap_or_else(|| "none".to_owned());
        self.told("virtual machine", Some(kind(a)), Some(kind(b)));
        self.told("system", Some(&a.os), Some(&b.os));
        self.told("kernel", a.kernel.as_ref(), b.kernel.as_ref());
        self.told("clock source", a.clock_source.as_ref(), b.clock_source.as_ref());
    }

    fn build(&mut self, a: &Run, b: &Run) {
        let (a, b) = (&a.environment.build, &b.environment.build);
        let checked = |is_checked: bool| if is_checked { "checked" } else { "not checked" };
        self.decisive("optimisation", Some(&a.opt_level), Some(&b.opt_level));
        self.decisive("assertions", Some(&checked(a.debug_assertions)), Some(&checked(b.debug_assertions)));
        self.told("build profile", Some(&a.profile), Some(&b.profile));
        self.told("target", Some(&a.target), Some(&b.target));
    }

    fn settings(&mut self, a: &Run, b: &Run) {
        let (a, b) = (&a.settings, &b.settings);
        let isolated = |isolate: bool| if isolate { "each case" } else { "all cases" };
        self.decisive("timing", Some(&a.timing), Some(&b.timing));
        self.decisive("L2", a.l2.as_ref(), b.l2.as_ref());
        self.told("warm-up", Some(warm_up(a.warmup)), Some(warm_up(b.warmup)));
        self.told("stop rule", Some(stop(a.stop)), Some(stop(b.stop)));
        self.told("a process for", Some(isolated(a.isolate)), Some(isolated(b.isolate)));
    }

    fn decisive<T: ToString + PartialEq>(&mut self, what: &'static str, a: Option<&T>, b: Option<&T>) {
        self.add(what, a, b, true);
    }

    fn told<T: ToString + PartialEq>(&mut self, what: &'static str, a: Option<T>, b: Option<T>) {
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

fn or_none(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

fn warm_up(warmup: WarmUp) -> String {
    match warmup {
        WarmUp::Iterations(1) => "1 iteration".to_owned(),
        WarmUp::Iterations(iterations) => format!("{iterations} iterations"),
        WarmUp::Auto => "found".to_owned(),
    }
}

fn stop(stop: Stop) -> String {
    match stop {
        Stop::Iterations(iterations) => format!("{iterations} iterations"),
        Stop::Interval { within, at_least, least_ns, at_most_ns } => {
            let (least, most) = (time(least_ns as f64), time(at_most_ns as f64));
            format!("within {}, at least {at_least} takes and {least}, at most {most}", per_cent(within))
        }
    }
}
