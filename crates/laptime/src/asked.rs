//! What somebody asked to be measured: a workload, values on its axes and settings, by flags and in a plan.

use std::path::PathBuf;

use clap::{ArgMatches, Args, FromArgMatches, builder::TypedValueParser};
use laptime_bench::{
    Depth, Device, Given, GivenSettings, L2, NoQuantity, Plan, PlanFile, Registry, Seconds, Settings, Share, Timing,
    WarmUp, Workload, axis_of, parse_warm_up, settle_l2, settle_timing,
};

use crate::{
    app::App,
    failure::Hinted,
    kit_files::{NO_SYNC, Places},
    output::{FormatArgs, say},
    tts_files,
};

/// The flags of every command that measures.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "How to measure")]
pub struct RunArgs {
    /// Takes that do not count: a number, or `auto` to find where the takes become steady [default: auto]
    #[arg(long, global = true, value_name = "TAKES", alias = "warmup-steps", value_parser = warm_up())]
    pub warmup: Option<WarmUp>,

    /// Stop after this many takes
    #[arg(long, global = true, value_name = "COUNT", aliases = ["measure-steps", "iterations"])]
    pub takes: Option<usize>,

    /// Stop when the 95 % interval of the median lies within this share of it [default: 2%]
    #[arg(long, global = true, value_name = "SHARE", value_parser = str::parse::<Share>)]
    pub within: Option<Share>,

    /// Do not stop before this time of takes [default: 100ms]
    #[arg(long, global = true, value_name = "TIME", value_parser = str::parse::<Seconds>)]
    pub min_time: Option<Seconds>,

    /// Stop after this time of takes in any case [default: 10s]
    #[arg(long, global = true, value_name = "TIME", value_parser = str::parse::<Seconds>)]
    pub max_time: Option<Seconds>,

    /// Repeat each case in this many fresh processes
    #[arg(long, global = true, value_name = "COUNT")]
    pub runs: Option<u32>,

    /// Give each case a process of its own, so that a crash is a row and the sweep goes on
    #[arg(long, global = true)]
    pub isolate: bool,

    /// Give a case up after this time, in a fresh process
    #[arg(long, global = true, value_name = "TIME", value_parser = str::parse::<Seconds>)]
    pub timeout: Option<Seconds>,

    /// How to time the device: `host`, `events`, `sync` or `kernels`; `profile` compares several [default: `events` where
    /// the device has a clock of its own, else `host`]
    #[arg(long, global = true, value_name = "TIMING", value_delimiter = ',', value_parser = str::parse::<Timing>)]
    pub timing: Vec<Timing>,

    /// What the device's second-level cache holds when a take begins: `cold` or `warm` [default: cold, on a GPU]
    #[arg(long, global = true, value_name = "STATE", value_parser = str::parse::<L2>)]
    pub l2: Option<L2>,

    /// How deep to mark stages: `pipeline`, `layer` or `ops`; deeper ones cost more [default: pipeline]
    #[arg(long, global = true, value_name = "DEPTH", value_parser = str::parse::<Depth>)]
    pub depth: Option<Depth>,

    /// Device to run on: `auto`, `cpu`, `cuda`, `cuda:N` [default: auto]
    #[arg(long, global = true, value_name = "DEVICE")]
    pub device: Option<String>,

    /// Take workload, axes and settings from this TOML file; flags override it
    #[arg(long, global = true, value_name = "FILE")]
    pub plan: Option<PathBuf>,

    /// Show the settled cases and measure nothing
    #[arg(long, global = true)]
    pub dry_run: bool,

    /// Show the setup in the stage tree of a profile too
    #[arg(long, global = true, hide = true)]
    pub all: bool,

    /// Show no progress bar
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

fn warm_up() -> impl TypedValueParser<Value = WarmUp> {
    clap::builder::StringValueParser::new().try_map(|text| parse_warm_up(&text) as Result<WarmUp, NoQuantity>)
}

impl RunArgs {
    fn settings(&self) -> GivenSettings {
        GivenSettings {
            warmup: self.warmup,
            takes: self.takes,
            within: self.within,
            min_time: self.min_time,
            max_time: self.max_time,
            runs: self.runs,
            isolate: self.isolate.then_some(true),
            timeout: self.timeout,
            timing: self.timing.first().copied(),
            l2: self.l2,
            depth: self.depth,
        }
    }
}

/// Where a run is kept.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Where it goes")]
pub struct PlaceArgs {
    /// Folder for the run [default: `runs/`, the workload and the time]
    #[arg(long, global = true, value_name = "DIR")]
    pub out: Option<PathBuf>,

    #[command(flatten)]
    pub format: FormatArgs,
}

/// What somebody asked to be measured.
#[derive(Debug, Clone)]
pub struct Asked {
    pub workload: Option<String>,
    /// By the names that were written.
    axes: Vec<Given>,
    pub run: RunArgs,
    pub place: PlaceArgs,
    /// The folder of a run to go on with.
    pub resume: Option<PathBuf>,
    /// The axis whose largest value is looked for.
    pub fit: Option<String>,
    /// Where the files of older kits are written, beside the run's folder.
    pub kit_files: Places,
    /// Where audio and its record are written, beside the run's folder.
    pub tts: tts_files::Places,
    /// Numbers of warm-up takes to compare.
    pub warmups: Vec<usize>,
}

impl Asked {
    /// Reads the matches of a command that measures.
    pub fn from_matches(matches: &ArgMatches, registry: &Registry) -> Result<Self, clap::Error> {
        let (workload, matches) = match matches.subcommand() {
            Some((name, matches)) => (Some(name.to_owned()), matches),
            None => (None, matches),
        };
        let known = workload.as_deref().and_then(|name| registry.workload(name));
        let given = |name: &str| Some((name.to_owned(), matches.get_many::<String>(name)?.cloned().collect()));
        let axes = known.map(flags).unwrap_or_default().into_iter().filter_map(given).collect();
        let (run, place) = (RunArgs::from_arg_matches(matches)?, PlaceArgs::from_arg_matches(matches)?);
        let resume = matches.try_get_one::<PathBuf>("resume").ok().flatten().cloned();
        let fit = matches.try_get_one::<String>("fit").ok().flatten().cloned();
        let path = |name: &str| matches.try_get_one::<PathBuf>(name).ok().flatten().cloned();
        let is_asked = matches.try_get_one::<bool>("kit-files").ok().flatten().copied().unwrap_or(false);
        let kit_files = Places { is_asked, output: path("output"), output_dir: path("output-dir") };
        let tts = tts_files::Places { json: path("json-output"), wav: path("wav"), stream: path("stream-to") };
        let warmups = matches.try_get_many::<usize>("warmups").ok().flatten().into_iter().flatten().copied().collect();
        if matches.try_get_one::<bool>("no-sync").ok().flatten().copied().unwrap_or(false) {
            say(NO_SYNC);
        }
        Ok(Self { workload, axes, run, place, resume, fit, kit_files, tts, warmups })
    }

    /// Whether a flag of this name was written.
    pub fn has_flag(&self, name: &str) -> bool {
        self.axes.iter().any(|(written, _)| written == name)
    }

    /// Whether anything but how to show the run was asked for.
    pub fn is_specific(&self) -> bool {
        let is_set = self.run.settings() != GivenSettings::default() || self.run.device.is_some();
        self.workload.is_some() || self.run.plan.is_some() || is_set
    }

    /// The same, of this workload if none was named.
    pub fn named(&self, workload: &str) -> Self {
        let workload = self.workload.clone().or_else(|| self.run.plan.is_none().then(|| workload.to_owned()));
        Self { workload, ..self.clone() }
    }

    /// Whether a workload with its axes, or a plan, was asked for.
    pub fn has_axes(&self) -> bool {
        self.workload.is_some() || self.run.plan.is_some()
    }

    /// Whether somebody gave values on one of some axes, by a flag or in a plan.
    pub fn names_any(&self, workload: &dyn Workload, axes: &[&str]) -> bool {
        let aliases = workload.aliases();
        let is_one = |(name, _): &Given| axes.contains(&axis_of(&aliases, name));
        self.run.plan.is_some() || self.axes.iter().any(is_one)
    }

    /// Whether settings were asked for.
    pub fn has_settings(&self) -> bool {
        self.run.settings() != GivenSettings::default() || self.run.plan.is_some()
    }

    /// Settles everything: flags before the plan, the plan before the command's own defaults, these before the workload's.
    pub fn settle<'a>(&self, app: &'a App, defaults: GivenSettings) -> anyhow::Result<Order<'a>> {
        let file = self.run.plan.as_deref().map(PlanFile::read).transpose()?.unwrap_or_default();
        let name = match (&self.workload, &file.workload) {
            (Some(asked), Some(planned)) if asked != planned => {
                let error = anyhow::anyhow!("the plan is for workload `{planned}`, not for `{asked}`");
                return Err(Hinted::wrap(error, "leave the workload out, or name another plan"));
            }
            (Some(name), _) | (None, Some(name)) => name,
            (None, None) => return Err(no_workload(app, self.run.plan.is_some())),
        };
        let workload = app.workload(name)?;
        let aliases = workload.aliases();
        let is_flagged = |axis: &str| self.axes.iter().any(|(flagged, _)| axis_of(&aliases, flagged) == axis);
        let planned = file.axes.into_iter().map(|(axis, words)| (axis.replace('-', "_"), words));
        let axes = planned.filter(|(axis, _)| !is_flagged(axis_of(&aliases, axis))).chain(self.axes.clone());
        let plan = workload.plan(&axes.collect::<Vec<_>>())?;
        let given = self.run.settings().or(file.settings).or(defaults).or(workload.usual_settings());
        let settings = given.settle()?;
        let timings =
            if self.run.timing.is_empty() { given.timing.into_iter().collect() } else { self.run.timing.clone() };
        let device = self.run.device.clone().or(file.device).unwrap_or_else(|| "auto".to_owned());
        Ok(Order { workload, plan, settings, timings, device })
    }
}

/// The names of a workload's flags: its axes, and other names of them.
pub fn flags(workload: &dyn Workload) -> Vec<&'static str> {
    let aliases = workload.aliases().into_iter().filter(|alias| alias.is_flag()).map(|alias| alias.name);
    workload.axes().iter().map(|axis| axis.name).chain(aliases).collect()
}

fn no_workload(app: &App, has_plan: bool) -> anyhow::Error {
    let names: Vec<&str> = app.registry.workloads.iter().map(|workload| workload.name()).collect();
    let error = anyhow::anyhow!(if has_plan { "the plan names no workload" } else { "no workload was named" });
    let example = names.first().copied().unwrap_or("matmul");
    Hinted::wrap(error, format!("name one of {}, as in `laptime bench {example}`", names.join(", ")))
}

impl Order<'_> {
    /// The same with what words such as `auto` on its axes stand for on a device.
    pub fn on(self, device: &dyn Device) -> Self {
        let plan = self.plan.map(|case| self.workload.on_device(case, device));
        Self { plan, ..self }
    }

    /// The timings settled for a device: those asked for, or its own.
    pub fn timings_on(&self, device: &dyn Device) -> anyhow::Result<Vec<Timing>> {
        let asked = |timing: &Timing| Ok(settle_timing(device, Some(*timing))?);
        match self.timings.as_slice() {
            [] => Ok(vec![settle_timing(device, None)?]),
            several => several.iter().map(asked).collect(),
        }
    }

    /// The settings settled for a device, of a command that times in one way.
    pub fn settings_on(&self, device: &dyn Device) -> anyhow::Result<Settings> {
        Ok(Settings { timing: self.timing_on(device)?, l2: settle_l2(device, self.settings.l2)?, ..self.settings })
    }

    fn timing_on(&self, device: &dyn Device) -> anyhow::Result<Timing> {
        let timings = self.timings_on(device)?;
        if timings.len() > 1 {
            let error = anyhow::anyhow!("takes are timed in one way, and {} were asked for", timings.len());
            let hint = format!("`laptime profile {} --timing …` compares several", self.workload.name());
            return Err(Hinted::wrap(error, hint));
        }
        Ok(timings[0])
    }
}

/// What is to be measured, with nothing left open but what `auto` stands for.
pub struct Order<'a> {
    /// The workload.
    pub workload: &'a dyn Workload,
    /// Its axes with their values.
    pub plan: Plan,
    /// How cases are measured.
    pub settings: Settings,
    /// The timings that were asked for; none for the device's own.
    pub timings: Vec<Timing>,
    /// The device, by the name that was given.
    pub device: String,
}
