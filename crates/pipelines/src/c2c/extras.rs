//! What `c2c` adds to a profile: the files of the C2C profiler and a summary.

use std::{io::Write, path::Path};

use anyhow::{Context as _, bail};
use laptime_bench::{Case, CaseResult, Depth, Prepared, Timing};
use laptime_probe::{lap, pause};
use laptime_trace::{KernelRecords, Trace};

use super::{CacheToCache, files::Recording};
use crate::extras::{COMPAT, COMPAT_FILES, Command, Context, Extras, FlagSpec, Written};

/// The device on which work is done when a call returns.
const CPU: &str = "cpu";

/// The recording of single operations, until it is written in the format of the C2C profiler.
const RECORDING: &str = "operations.pftrace";

#[derive(Debug, Clone, Copy, Default)]
pub struct C2cExtras;

impl Extras for C2cExtras {
    fn workload(&self) -> &'static str {
        "c2c"
    }

    fn flags(&self, command: Command) -> Vec<FlagSpec> {
        if command == Command::Profile { vec![COMPAT, COMPAT_FILES] } else { Vec::new() }
    }

    fn finish_profile(
        &self,
        context: &Context<'_>,
        results: &[&CaseResult],
        trace: Option<&Trace>,
        out: &mut dyn Write,
    ) -> Written {
        let (Some(result), Some(trace)) = (results.first(), trace) else { return Ok(Vec::new()) };
        // A comparison with text generates no answer to summarise.
        let Some(measured) = result.measured().filter(|_| result.case.get("against").is_none()) else {
            return Ok(Vec::new());
        };
        let (case, iterations, run) = (&result.case, laptime_analyze::joined_stages(trace), context.run);
        let (work, peaks) = (CacheToCache::stage_work(case), run.peaks.as_ref());
        let is_queued = result.device != CPU && matches!(run.settings.timing, Timing::Host | Timing::Kernels);
        let recording = Recording { case, measured, iterations, work, peaks, is_queued };
        let operations = record_operations(context, case, &context.folder.join(RECORDING))?;
        recording.write(&operations, context.folder)?;
        if context.is_for_people {
            let lines = if context.flags.is_compat() { recording.compat_lines() } else { recording.lines() };
            writeln!(out)?;
            lines.iter().try_for_each(|line| context.screen.prose(line, out))?;
        }
        if context.flags.has_compat_files() { recording.write(&operations, Path::new(".")) } else { Ok(Vec::new()) }
    }
}

/// Records one more iteration at the depth of single operations.
fn record_operations(context: &Context<'_>, case: &Case, path: &Path) -> anyhow::Result<Trace> {
    let recording = laptime_trace::record_to(path)?;
    let kernels = run_once(context, case);
    let recorded = recording.finish().context("cannot save the recording of operations")?;
    let kernels = kernels?;
    let trace = laptime_trace::read(path)?;
    std::fs::remove_file(path).with_context(|| format!("cannot remove `{}`", path.display()))?;
    match kernels {
        Some(records) => Ok(trace.with_kernels(&records, recorded.start_ns)?),
        None => Ok(trace),
    }
}

fn run_once(context: &Context<'_>, case: &Case) -> anyhow::Result<Option<KernelRecords>> {
    let paused = pause();
    let device = context.device()?;
    device.set_depth(Depth::Ops);
    let Prepared::Ready(mut iteration) = context.workload.prepare(case, &*device)? else {
        bail!("cannot prepare the case again to record its operations")
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
