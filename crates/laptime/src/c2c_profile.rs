//! What a profile of two models joined through their caches has beside other profiles: the kit's files and its summary.

use std::{io::Write, path::Path};

use anyhow::{Context, bail};
use laptime_bench::{Case, CaseResult, Depth, Prepared, Timing};
use laptime_pipelines::CacheToCache;
use laptime_probe::{lap, pause};
use laptime_trace::Trace;

use crate::{
    app::App,
    aside::Aside,
    asked::{Asked, Order},
    c2c_files::Kit,
    output::{read_trace, say},
    session::Session,
};

/// The workload that has them.
const WORKLOAD: &str = "c2c";

/// The device whose work is done when a call returns.
const CPU: &str = "cpu";

/// The recording of the pass that shows every operation, until it is written as the kit has it.
const RECORDING: &str = "operations.pftrace";

/// Writes the kit's files into the run's folder and, if asked for, into the working folder; tells people the summary.
pub fn write(
    app: &App,
    order: &Order<'_>,
    trace: &Trace,
    result: &CaseResult,
    session: &Session,
    asked: &Asked,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    // What is held against a text has no answer to tell of.
    let is_kit = result.workload == WORKLOAD && result.case.get("against").is_none();
    let Some(measured) = result.measured().filter(|_| is_kit) else { return Ok(()) };
    let (case, iterations) = (&result.case, laptime_analyze::joined_stages(trace));
    let run = &session.run;
    let (work, peaks) = (CacheToCache::stage_work(case), run.peaks.as_ref());
    let is_queued = result.device != CPU && matches!(run.settings.timing, Timing::Host | Timing::Kernels);
    let kit = Kit { case, measured, iterations, work, peaks, is_queued };
    let folder = &session.folder;
    let operations = record_operations(app, order, &result.case, &result.device, &folder.join(RECORDING))?;
    let in_folder = kit.write(&operations, folder)?;
    if asked.place.format.is_for_people() {
        let names = in_folder.iter().filter_map(|file| Some(file.file_name()?.to_string_lossy().into_owned()));
        writeln!(out, "  {}: as the kit has them\n", names.collect::<Vec<_>>().join(", "))?;
        kit.summary().iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    if asked.kit_files.is_asked {
        for file in kit.write(&operations, Path::new("."))? {
            say(&format!("Written: {}", file.display()));
        }
    }
    Ok(())
}

/// Records one warm iteration with every operation a stage, behind the iterations that count.
fn record_operations(app: &App, order: &Order<'_>, case: &Case, device: &str, path: &Path) -> anyhow::Result<Trace> {
    let aside = Aside::begin();
    let recording = laptime_trace::record_to(path)?;
    let taken = run_once(app, order, case, device);
    drop(aside);
    let recorded = recording.finish().context("the recording of operations was not kept")?;
    let kernels = taken?;
    let trace = read_trace(path)?;
    std::fs::remove_file(path).with_context(|| format!("cannot remove `{}`", path.display()))?;
    match kernels {
        Some(records) => Ok(trace.with_kernels(&records, recorded.start_ns)?),
        None => Ok(trace),
    }
}

fn run_once(
    app: &App,
    order: &Order<'_>,
    case: &Case,
    device: &str,
) -> anyhow::Result<Option<laptime_trace::KernelRecords>> {
    let paused = pause();
    let device = app.device(device)?;
    device.set_depth(Depth::Ops);
    let Prepared::Ready(mut iteration) = order.workload.prepare(case, &*device)? else {
        bail!("the case cannot be prepared again to show its operations")
    };
    iteration.ready()?;
    iteration.run()?;
    iteration.ready()?;
    device.synchronise()?;
    let kernels = device.record_kernels()?;
    drop(paused);
    {
        let _lap = lap!("iteration", on = device.lane(), iteration = 0_usize);
        iteration.run()?;
        device.synchronise()?;
    }
    kernels.map(|kernels| kernels.finish()).transpose()
}
