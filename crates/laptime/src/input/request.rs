//! Requests to measure a workload, from flags and plan files.

use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, FromArgMatches, builder::TypedValueParser};
use laptime_bench::{
    Depth, Device, Given, GivenSettings, L2, NoQuantity, Plan, PlanFile, Seconds, Settings, Share, Timing, WarmUp,
    Workload, axis_of, parse_warm_up, settle_l2, settle_timing,
};
use laptime_pipelines::extras::{Command, Context, Flags};
use laptime_trace::run::Run;

use crate::output::{FormatArgs, Terminal};
use crate::{
    app::App,
    commands::slurm::SlurmArgs,
    failure::{refusal, refuse},
};

/// The flags of all commands that measure.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Measurement")]
pub struct RunArgs {
    /// Warm-up iterations: a number, or `auto` to detect the steady state [default: auto]
    #[arg(long, global = true, value_name = "COUNT", alias = "warmup-steps", value_parser = warm_up())]
    pub warmup: Option<WarmUp>,
    /// Stop after this many iterations
    #[arg(long, global = true, value_name = "COUNT", aliases = ["measure-steps", "takes"])]
    pub iterations: Option<usize>,
    /// Stop when the 95 % interval of the median is this narrow [default: 2%]
    #[arg(long, global = true, value_name = "SHARE", value_parser = str::parse::<Share>)]
    pub within: Option<Share>,
    /// Minimum measuring time per case [default: 100ms]
    #[arg(long, global = true, value_name = "TIME", value_parser = str::parse::<Seconds>)]
    pub min_time: Option<Seconds>,
    /// Maximum measuring time per case [default: 10s]
    #[arg(long, global = true, value_name = "TIME", value_parser = str::parse::<Seconds>)]
    pub max_time: Option<Seconds>,
    /// Repeat each case in this many fresh processes
    #[arg(long, global = true, value_name = "COUNT")]
    pub runs: Option<u32>,
    /// Run each case in its own process, so that the sweep survives a crash
    #[arg(long, global = true)]
    pub isolate: bool,
    /// Time limit per case; runs it in its own process
    #[arg(long, global = true, value_name = "TIME", value_parser = str::parse::<Seconds>)]
    pub timeout: Option<Seconds>,
    /// How to time the device: `host`, `events`, `sync` or `kernels`; `profile` compares several [default: `events` on a
    /// GPU, else `host`]
    #[arg(long, global = true, value_name = "TIMING", value_delimiter = ',', value_parser = str::parse::<Timing>)]
    pub timing: Vec<Timing>,
    /// L2 cache at the start of an iteration: `cold` or `warm` [default: cold, on a GPU]
    #[arg(long, global = true, value_name = "STATE", value_parser = str::parse::<L2>)]
    pub l2: Option<L2>,
    /// Detail of the stages: `pipeline`, `layer` or `ops`; more detail costs more [default: pipeline]
    #[arg(long, global = true, value_name = "DEPTH", value_parser = str::parse::<Depth>)]
    pub depth: Option<Depth>,
    /// Device to run on: `auto`, `cpu`, `cuda`, `cuda:N` [default: auto]
    #[arg(long, global = true, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Read workload, axes and settings from this TOML file; flags override it
    #[arg(long, global = true, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Show the cases and measure nothing
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
            iterations: self.iterations,
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

/// The flags of `bench` only.
#[derive(Debug, Clone, Default, Args)]
pub struct BenchArgs {
    #[command(flatten)]
    slurm: SlurmArgs,
    /// Continue the run in this folder, with the same program and plan
    #[arg(long, global = true, value_name = "DIR", help_heading = "Output")]
    resume: Option<PathBuf>,
    /// Find the largest value of this axis that fits into memory, and measure it: `batch` or `context`
    #[arg(long, global = true, value_name = "AXIS", help_heading = "Measurement")]
    fit: Option<String>,
}

/// The flags of `warmup` only.
#[derive(Debug, Clone, Default, Args)]
pub struct WarmupArgs {
    /// Compare these numbers of warm-up iterations, each in fresh processes [default with `--model-size`: 0,1,2,5,10]
    #[arg(long, global = true, value_name = "COUNTS", value_delimiter = ',', num_args = 1.., help_heading = "Measurement")]
    warmups: Vec<usize>,
}

/// The flags of a single command; defaults for other commands.
fn own<T: FromArgMatches + Default>(is_own: bool, matches: &ArgMatches) -> Result<T, clap::Error> {
    if is_own { T::from_arg_matches(matches) } else { Ok(T::default()) }
}

/// Where a run is saved, and the format of its tables.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
pub struct PlaceArgs {
    /// Folder for the run [default: runs/WORKLOAD-TIME]
    #[arg(long, global = true, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub format: FormatArgs,
}

#[derive(Debug, Clone)]
pub struct Request {
    pub command: Command,
    pub workload: Option<String>,
    /// Axis flags as written, with their values.
    axes: Vec<Given>,
    pub run: RunArgs,
    pub place: PlaceArgs,
    pub resume: Option<PathBuf>,
    pub fit: Option<String>,
    pub flags: Flags,
    pub warmups: Vec<usize>,
    pub slurm: SlurmArgs,
}

impl Request {
    pub fn from_matches(matches: &ArgMatches, app: &App, command: Command) -> Result<Self, clap::Error> {
        let (workload, matches) = match matches.subcommand() {
            Some((name, matches)) => (Some(name.to_owned()), matches),
            None => (None, matches),
        };
        let known = workload.as_deref().and_then(|name| app.registry.workload(name));
        let given = |name: &str| Some((name.to_owned(), matches.get_many::<String>(name)?.cloned().collect()));
        let axes = known.map(flags).unwrap_or_default().into_iter().filter_map(given).collect();
        let (run, place) = (RunArgs::from_arg_matches(matches)?, PlaceArgs::from_arg_matches(matches)?);
        let BenchArgs { slurm, resume, fit } = own(command == Command::Bench, matches)?;
        let WarmupArgs { warmups } = own(command == Command::Warmup, matches)?;
        let flags = read_flags(matches, app, command);
        Ok(Self { command, workload, axes, run, place, resume, fit, flags, warmups, slurm })
    }

    /// The given axis flags, as written.
    pub fn written_axes(&self) -> Vec<&str> {
        self.axes.iter().map(|(written, _)| written.as_str()).collect()
    }

    /// Refuses flags that only other workloads have.
    pub fn check_flags(&self, app: &App, workload: &str) -> anyhow::Result<()> {
        let own = app.extras(workload).flags(self.command);
        let is_own = |name: &str| own.iter().any(|flag| flag.name == name);
        if let Some(name) = self.flags.names().find(|name| !is_own(name) && *name != OUTPUT) {
            return Err(foreign_flag(app, self.command, workload, name));
        }
        let Some(path) = self.flags.path(OUTPUT) else { return Ok(()) };
        let endings: &[&str] = if is_own(OUTPUT) { &["csv", "json"] } else { &["csv"] };
        if endings.iter().any(|ending| self.flags.path_ending_in(OUTPUT, ending).is_some()) {
            return Ok(());
        }
        let endings = endings.iter().map(|ending| format!("`.{ending}`")).collect::<Vec<_>>().join(" or ");
        let reason = format!("`{workload}` cannot write `--output {}`", path.display());
        refuse(reason, format!("the name must end in {endings}; `--out` sets the run's folder"))
    }

    pub fn context<'a>(
        &'a self,
        app: &'a App,
        (run, folder): (&'a Run, &'a Path),
        screen: &'a Terminal,
    ) -> anyhow::Result<Context<'a>> {
        Ok(Context {
            command: self.command,
            run,
            folder,
            workload: app.workload(&run.workload)?,
            devices: &*app.registry.devices,
            flags: &self.flags,
            is_for_people: self.place.format.is_for_people(),
            is_quiet: self.run.quiet,
            screen,
        })
    }

    pub fn screen(&self) -> Terminal {
        Terminal { format: self.place.format.format() }
    }

    /// Whether a workload, plan, setting or device was given.
    pub fn is_specific(&self) -> bool {
        self.workload.is_some() || self.has_settings() || self.run.device.is_some()
    }

    /// Adds this workload if neither a workload nor a plan was given.
    pub fn named(&self, workload: &str) -> Self {
        let workload = self.workload.clone().or_else(|| self.run.plan.is_none().then(|| workload.to_owned()));
        Self { workload, ..self.clone() }
    }

    pub fn has_axes(&self) -> bool {
        self.workload.is_some() || self.run.plan.is_some()
    }

    /// Whether one of these axes was given, by a flag or by a plan.
    pub fn names_any(&self, workload: &dyn Workload, axes: &[&str]) -> bool {
        let aliases = workload.aliases();
        let is_one = |(name, _): &Given| axes.contains(&axis_of(&aliases, name));
        self.run.plan.is_some() || self.axes.iter().any(is_one)
    }

    pub fn has_settings(&self) -> bool {
        self.run.settings() != GivenSettings::default() || self.run.plan.is_some()
    }

    /// Resolves the request. Precedence: flags, plan, defaults of the command, defaults of the workload.
    pub fn settle<'a>(&self, app: &'a App, defaults: GivenSettings) -> anyhow::Result<Order<'a>> {
        let file = self.run.plan.as_deref().map(PlanFile::read).transpose()?.unwrap_or_default();
        let name = match (&self.workload, &file.workload) {
            (Some(request), Some(planned)) if request != planned => {
                let reason = format!("the plan is for workload `{planned}`, not for `{request}`");
                return refuse(reason, "leave the workload out, or name another plan");
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

/// `--output FILE` writes a copy of the table.
pub const OUTPUT: &str = "output";

fn read_flags(matches: &ArgMatches, app: &App, command: Command) -> Flags {
    let mut flags = Flags::default();
    let all = app.extras.iter().flat_map(|extras| extras.flags(command));
    let names = all.map(|flag| (flag.name, flag.value.is_none())).chain([(OUTPUT, false)]);
    for (name, is_switch) in names {
        if is_switch && matches.try_get_one::<bool>(name).ok().flatten().copied().unwrap_or(false) {
            flags.insert(name, PathBuf::new());
        }
        if let Some(path) = matches.try_get_one::<PathBuf>(name).ok().flatten() {
            flags.insert(name, path.clone());
        }
    }
    flags
}

fn foreign_flag(app: &App, command: Command, workload: &str, name: &str) -> anyhow::Error {
    let has = |flags: Vec<laptime_pipelines::extras::FlagSpec>| flags.iter().any(|flag| flag.name == name);
    let owners = app.extras.iter().filter(|extras| has(extras.flags(command)));
    let owners: Vec<String> = owners.map(|extras| format!("`{}`", extras.workload())).collect();
    let reason = format!("`--{name}` is a flag of {}, not of `{workload}`", owners.join(", "));
    let command = command.word();
    let hint = format!("`laptime {command} {workload} --help` shows its flags; `--format json` works everywhere");
    refusal(reason, hint)
}

/// The flags of a workload: its axes and their aliases.
pub fn flags(workload: &dyn Workload) -> Vec<&'static str> {
    let aliases = workload.aliases().into_iter().filter(|alias| alias.is_flag()).map(|alias| alias.name);
    workload.axes().iter().map(|axis| axis.name).chain(aliases).collect()
}

fn no_workload(app: &App, has_plan: bool) -> anyhow::Error {
    let names: Vec<&str> = app.registry.workloads.iter().map(|workload| workload.name()).collect();
    let reason = if has_plan { "the plan names no workload" } else { "no workload given" };
    let example = names.first().copied().unwrap_or("matmul");
    refusal(reason, format!("name one of {}, as in `laptime bench {example}`", names.join(", ")))
}

impl Order<'_> {
    /// Resolves values such as `auto` for a device.
    pub fn on(self, device: &dyn Device) -> Self {
        let plan = self.plan.map(|case| self.workload.on_device(case, device));
        Self { plan, ..self }
    }

    /// The requested timings, or the default of the device.
    pub fn timings_on(&self, device: &dyn Device) -> anyhow::Result<Vec<Timing>> {
        let request = |timing: &Timing| Ok(settle_timing(device, Some(*timing))?);
        match self.timings.as_slice() {
            [] => Ok(vec![settle_timing(device, None)?]),
            several => several.iter().map(request).collect(),
        }
    }

    /// The settings for a device, for commands that use one timing.
    pub fn settings_on(&self, device: &dyn Device) -> anyhow::Result<Settings> {
        Ok(Settings { timing: self.timing_on(device)?, l2: settle_l2(device, self.settings.l2)?, ..self.settings })
    }

    fn timing_on(&self, device: &dyn Device) -> anyhow::Result<Timing> {
        let timings = self.timings_on(device)?;
        if timings.len() > 1 {
            let reason = format!("`--timing` takes one value here, and {} were given", timings.len());
            return refuse(reason, format!("`laptime profile {} --timing …` compares several", self.workload.name()));
        }
        Ok(timings[0])
    }
}

/// A resolved request; only `auto` is left to [`Order::on`].
pub struct Order<'a> {
    pub workload: &'a dyn Workload,
    pub plan: Plan,
    pub settings: Settings,
    /// The requested timings; empty for the default of the device.
    pub timings: Vec<Timing>,
    pub device: String,
}
