//! `laptime record`: profiles an unmodified CUDA program.

mod append;
mod assemble;
mod clocks;
mod conduct;
mod folder;
pub mod in_process;
mod lap_window;
mod launch;
mod library;
mod observer;
mod overhead;
mod parts;
mod python;
mod redact;
mod socket;
mod summary;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{ffi::OsString, fs, thread};

use anyhow::Context;
use laptime_bench::Seconds;
use laptime_capture::control::{Control, LapSettings, Settings};
use laptime_capture::process::{self, HeldSignals};
use laptime_capture::{CONTROL_FILE, monotonic_nanos};

use self::assemble::{Observations, Start};
use self::conduct::{Conductor, Plan};
use self::folder::{End, Known, PARTS_FOLDER, Recording};
use self::{lap_window::LapWindow, launch::Program, observer::Observer, overhead::Overhead, socket::Request};
use crate::choice::first_given;
use crate::output::{say, warn};
use crate::{cli::Status, failure::refuse, run_folder};

/// With `--keep`, a process keeps at most this many bytes.
const RING_BYTES: u64 = 64 << 20;
/// The size of one part of them.
const RING_PART_BYTES: u32 = 4 << 20;
/// Time for processes to write their records.
const WRITING_TIME: Duration = Duration::from_millis(300);

/// Profile any CUDA program: where its GPU time goes, and the main bottleneck
///
/// Starts the command with a small library that CUDA itself loads, and records kernels, copies, syncs, launches and
/// NVTX ranges of the program and its child processes. Needs neither root nor changes to the program. The exit status is
/// that of the program.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_value_name = "start|stop|dump|merge",
    subcommand_help_heading = "From another terminal",
    after_help = "Examples:\n  laptime record -- python train.py\n  laptime record --after 30s --for 10s -- python train.py\n  laptime record --paused -- python serve.py     # then: laptime record start, laptime record stop\n  laptime record --keep 30s -- python serve.py   # then: laptime record dump"
)]
pub struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    /// Start recording after this time: `30s`
    #[arg(long, value_name = "TIME")]
    after: Option<Seconds>,
    /// Record for this long, then stop; the program continues
    #[arg(long = "for", value_name = "TIME")]
    during: Option<Seconds>,
    /// Keep only what comes after this many laps; a lap is an NVTX range or a detected step that repeats
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["keep", "paused"])]
    after_laps: Option<usize>,
    /// Keep this many laps
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["keep", "paused"], value_parser = clap::value_parser!(u32).range(1..))]
    for_laps: Option<u32>,
    /// The NVTX range that is a lap, so that only the window is recorded [default: detected at the end]
    #[arg(long, value_name = "NAME")]
    lap: Option<String>,
    /// Record nothing until `laptime record start`
    #[arg(long, conflicts_with = "after")]
    paused: bool,
    /// Keep only the last TIME in memory; written by `laptime record dump` and when the program ends or crashes
    #[arg(long, value_name = "TIME", conflicts_with_all = ["after", "during"])]
    keep: Option<Seconds>,
    /// Record allocations, and show device memory as a counter
    #[arg(long)]
    memory: bool,
    /// Record a CUDA graph kernel by kernel, or as one span per launch
    #[arg(long, value_enum, default_value_t = Graphs::Nodes)]
    graphs: Graphs,
    /// Do not sample Python stacks
    #[arg(long)]
    no_python: bool,
    /// Record without pauses; the overhead is then not measured
    #[arg(long)]
    no_overhead: bool,
    /// The folder for the trace [default: runs/record-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND", required = true)]
    command: Vec<OsString>,
}

/// How CUDA graphs are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Graphs {
    /// Every kernel of a graph
    Nodes,
    /// One span per launch of a graph
    Whole,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Start recording
    Start(Target),
    /// Stop recording; the program continues
    Stop(Target),
    /// Write a trace of what was recorded so far
    Dump(Target),
    /// Assemble the trace from the parts if the recorder was killed
    Merge {
        /// The folder of the recording
        #[arg(value_name = "DIR")]
        run: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
struct Target {
    /// A recorded process, or the recorder; may be left out if there is one recording
    #[arg(value_name = "PID")]
    pid: Option<u32>,
}

pub fn run(args: &Args) -> anyhow::Result<Status> {
    match &args.action {
        Some(Action::Start(target)) => ask(Request::Start, target),
        Some(Action::Stop(target)) => ask(Request::Stop, target),
        Some(Action::Dump(target)) => ask(Request::Dump, target),
        Some(Action::Merge { run }) => merge(run),
        None => record(args),
    }
}

fn ask(request: Request, target: &Target) -> anyhow::Result<Status> {
    say(&socket::ask(request, target.pid)?);
    Ok(Status::Done)
}

fn merge(run: &Path) -> anyhow::Result<Status> {
    let parts = run.join(PARTS_FOLDER);
    if !parts.is_dir() {
        let reason = format!("`{}` contains no parts of a recording", run.display());
        return refuse(reason, "name a folder written by `laptime record`, such as runs/record-…");
    }
    let recording = Recording::read(&parts, &Observations::default(), folder::read_start(run)?)?;
    summary::show(&recording, run)?;
    Ok(Status::Done)
}

fn record(args: &Args) -> anyhow::Result<Status> {
    launch::refuse_other_tools()?;
    // Before any thread starts, since all must block signals.
    let signals = HeldSignals::hold();
    let place = folder::of_rank(args.out.as_deref(), |name| std::env::var(name).ok());
    let run = std::path::absolute(run_folder::make(place.as_deref(), "record")?)?;
    let control_folder = socket::Folder::create()?;
    let parts = parts_folder(&run, args.keep.is_some())?;
    let library = library::unpack(&run)?;
    let plan = args.plan();
    let settings = Settings {
        parts: parts.path.clone(),
        whole_graphs: args.graphs == Graphs::Whole,
        memory: args.memory,
        keep: args.keep.map(|keep| Duration::from_nanos(keep.nanos())),
        part_bytes: RING_PART_BYTES,
        ring_bytes: RING_BYTES,
        laps: args.laps_to_record(),
    };
    let control = Control::create(&control_folder.path().join(CONTROL_FILE), &settings, plan.first())
        .context("cannot create the control page of the recording")?;
    let known = Known { command: args.redacted(), start: start(), run: run.clone() };
    folder::write_known(&known)?;
    let mut program = Program::start(&args.command, &library, control_folder.path(), signals)?;
    let conductor = Conductor::start(plan, control, dump(&known, &parts.path));
    if let Err(error) = control_folder.listen(conductor.sender()) {
        warn(&format!("the recording cannot be controlled from another terminal: {error:#}"));
    }
    let sampler = (!args.no_python).then(|| python::start(program.pid(), control, settings.keep));
    let clocks = clocks::start(control);
    let status = program.wait().context("cannot wait for the program")?;
    let end = End { status, unix_ns: unix_nanos() };
    conductor.finish();
    let mut observations = Observations {
        samples: sampler.map(Observer::finish).unwrap_or_default(),
        clocks: clocks.finish(),
        own: append::announced(control_folder.path()),
    };
    if let Some(keep) = settings.keep {
        observations.forget_before(monotonic_nanos().saturating_sub(keep.as_nanos() as u64));
    }
    let finished = finish(&known, parts, &observations, control, end, args);
    if let Err(error) = finished {
        // The exit status stays that of the program.
        crate::failure::print(&error, &mut anstream::stderr().lock());
    }
    Ok(Status::Exit(launch::exit_code(status)))
}

/// Assembles and writes the trace after the program has ended.
fn finish(
    known: &Known,
    parts: Parts,
    observations: &Observations,
    control: Control,
    end: End,
    args: &Args,
) -> anyhow::Result<()> {
    // Give processes that outlive the program time to write their records.
    if parts::pids(&parts.path).iter().any(|pid| Path::new("/proc").join(pid.to_string()).exists()) {
        control.wake();
        thread::sleep(WRITING_TIME);
    }
    let mut recording = Recording::read(&parts.path, observations, known.start)?;
    if let Some(flag) = args.flag_against_pauses() {
        recording.overhead = Overhead::NotMeasured { flag };
    }
    if let Some(laps) = args.lap_window() {
        recording = recording.cut_to_laps(&laps)?;
    }
    folder::write_record(known, &recording, end)?;
    thread::scope(|scope| {
        scope.spawn(|| parts.keep_in(&known.run));
        summary::show_with_status(&recording, &known.run, end.status, control.attached())
    })
}

/// Writes what was recorded so far to a new folder; returns a message.
fn dump(known: &Known, parts: &Path) -> impl Fn() -> String + Send + 'static {
    let (known, parts) = (known.clone(), parts.to_owned());
    let count = std::sync::atomic::AtomicU32::new(0);
    move || {
        // Processes write as soon as they are woken.
        thread::sleep(WRITING_TIME);
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let folder = known.run.join(format!("dump-{number}"));
        let written = run_folder::create(&folder)
            .and_then(|()| Recording::read(&parts, &Observations::default(), known.start))
            .and_then(|recording| recording.write_trace(&folder).map(|()| recording.kernels()));
        match written {
            Ok(kernels) => format!("{kernels} kernels written to {}", folder.join(run_folder::TRACE_FILE).display()),
            Err(error) => format!("error: {error:#}"),
        }
    }
}

struct Parts {
    path: PathBuf,
    /// On a file system in memory; removed at the end.
    is_in_memory: bool,
}

impl Parts {
    /// Moves the parts to the folder of the run, compressed.
    fn keep_in(&self, run: &Path) {
        let kept = run.join(PARTS_FOLDER);
        let _ = fs::create_dir_all(&kept);
        for path in parts::files(&self.path) {
            // A part that cannot be compressed stays as it is.
            if parts::compress(&path, &kept).is_ok() {
                let _ = fs::remove_file(&path);
            }
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if self.is_in_memory {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn parts_folder(run: &Path, is_in_memory: bool) -> anyhow::Result<Parts> {
    if is_in_memory {
        let memory = PathBuf::from(format!("/dev/shm/laptime-{}-{}", process::user(), std::process::id()));
        if library::private_folder(&memory).is_ok() {
            return Ok(Parts { path: memory, is_in_memory });
        }
    }
    let path = run.join(PARTS_FOLDER);
    library::private_folder(&path)?;
    Ok(Parts { path, is_in_memory: false })
}

fn start() -> Start {
    Start { host_ns: monotonic_nanos(), unix_ns: unix_nanos() }
}

fn unix_nanos() -> i64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    i64::try_from(unix).unwrap_or(0)
}

impl Args {
    fn plan(&self) -> Plan {
        let duration = |seconds: Option<Seconds>| seconds.map(|seconds| Duration::from_nanos(seconds.nanos()));
        Plan {
            after: duration(self.after),
            during: duration(self.during),
            is_paused: self.paused,
            measures_overhead: self.flag_against_pauses().is_none(),
        }
    }

    /// The flag that forbids pauses to measure the overhead: `--keep` must not miss the moment of interest, and the laps of a
    /// window should be complete.
    fn flag_against_pauses(&self) -> Option<&'static str> {
        first_given([
            ("--no-overhead", self.no_overhead),
            ("--keep", self.keep.is_some()),
            ("--after-laps", self.after_laps.is_some()),
            ("--for-laps", self.for_laps.is_some()),
        ])
    }

    fn lap_window(&self) -> Option<LapWindow> {
        let is_on = self.after_laps.is_some() || self.for_laps.is_some();
        is_on.then(|| LapWindow {
            after: self.after_laps.unwrap_or(0),
            during: self.for_laps.map(|laps| laps as usize),
            lap: self.lap.clone(),
        })
    }

    /// The window of laps for the processes. Without a name, laps are detected at the end.
    fn laps_to_record(&self) -> Option<LapSettings> {
        let window = self.lap_window()?;
        let number = |laps: usize| u32::try_from(laps).unwrap_or(u32::MAX);
        Some(LapSettings { name: window.lap?, after: number(window.after), during: window.during.map(number) })
    }

    fn redacted(&self) -> Vec<String> {
        redact::arguments(self.command.iter().map(|word| word.to_string_lossy().into_owned()))
    }
}
