//! The extras of `c2c`: the files of the C2C profiler and a summary of a profile.

use std::path::{Path, PathBuf};
use std::{fmt::Write as _, fs::OpenOptions, io::Write};

use anyhow::{Context as _, bail};
use laptime_analyze::{JoinedStages, Operation, Top};
use laptime_bench::{Case, Depth, Prepared, Timing};
use laptime_probe::{lap, pause};
use laptime_trace::run::{Measured, Peaks, Work};
use laptime_trace::{KernelRecords, Nanos, Trace, format::write_whole};
use serde_json::{Value, json};

use super::CacheToCache;
use crate::cpu::CPU;
use crate::extras::files::count;
use crate::extras::{COMPAT, COMPAT_FILES, Command, Context, Extras, FlagSpec, ProfiledCase, Written};

pub const TABLE_FILE: &str = "demo_timing_data.tsv";
pub const RECORDS_FILE: &str = "demo_timing_data.jsonl";

/// The trace of an iteration with all operations.
pub const TRACE_FILE: &str = "demo_profiler_trace.json";

/// The longest operations of that trace.
pub const STATS_FILE: &str = "demo_profiler_stats.json";
const MOST_OPERATIONS: usize = 10;

/// The input of the files and the summary.
pub struct Recording<'a> {
    pub case: &'a Case,
    pub measured: &'a Measured,
    pub iterations: Vec<JoinedStages>,
    /// The work of each stage; all decode steps count as one stage.
    pub work: Vec<(&'static str, Work)>,
    pub peaks: Option<&'a Peaks>,
    /// Whether stages have host times without syncs, which are not times of the work.
    pub is_queued: bool,
}

impl Recording<'_> {
    pub fn write(&self, operations: &Trace, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let Some(first) = self.iterations.first() else { return Ok(Vec::new()) };
        let at = |name: &str| folder.join(name);
        let calls = self.projector_calls();
        let table = table(first, calls);
        write_whole(&at(TABLE_FILE), |file| file.write_all(table.as_bytes()))?;
        append(&at(RECORDS_FILE), &self.record(first, calls))?;
        laptime_trace::write(operations, at(TRACE_FILE))?;
        let text = serde_json::to_string_pretty(&stats(&laptime_analyze::top(operations)))?;
        write_whole(&at(STATS_FILE), |file| writeln!(file, "{text}"))?;
        Ok([TABLE_FILE, RECORDS_FILE, TRACE_FILE, STATS_FILE].map(at).to_vec())
    }

    pub fn projector_calls(&self) -> u64 {
        count(self.measured, "projector_calls").unwrap_or(0)
    }

    pub fn fact_text(&self, name: &str) -> String {
        self.measured.fact(name).map(ToString::to_string).unwrap_or_default()
    }

    pub fn axis(&self, name: &str) -> String {
        self.case.get(name).map(ToString::to_string).unwrap_or_default()
    }

    fn record(&self, iteration: &JoinedStages, calls: u64) -> Value {
        let total = |times: &[Nanos]| json!((!times.is_empty()).then(|| rounded(ms(sum(times)))));
        let projector = sum(&iteration.projector);
        // The C2C profiler writes steps twice: in seconds and in milliseconds.
        let seconds: Vec<f64> = iteration.steps.iter().map(|step| (step.0 as f64 / 100.0).round() / 1e7).collect();
        let steps: Vec<f64> = iteration.steps.iter().map(|step| rounded(ms(*step))).collect();
        json!({
            "prompt": self.fact_text("prompt_text"),
            "response": self.fact_text("response"),
            "model_config": { "base_model": self.axis("base_model"), "teacher_model": self.axis("teacher_model") },
            "timing": {
                "base_embedding_ms": total(&iteration.base_embedding),
                "base_prefill_ms": total(&iteration.base_prefill),
                "teacher_embedding_ms": total(&iteration.teacher_embedding),
                "teacher_prefill_ms": total(&iteration.teacher_prefill),
                "projector_total_ms": total(&iteration.projector),
                "projector_avg_ms": (calls > 0).then(|| rounded(ms(projector) / calls as f64)),
                "projector_calls": calls,
                "decode_total_ms": total(&iteration.steps),
                "decode_avg_ms": average(&iteration.steps).map(rounded),
                "decode_steps": seconds,
                "num_generated_tokens": count(self.measured, "new_tokens"),
            },
            "timing_breakdown_ms": steps,
        })
    }
}

/// The table of the C2C profiler: its six rows in its order, then our additional ones, then every decode step.
fn table(iteration: &JoinedStages, calls: u64) -> String {
    let mut text = "Stage\tTime(ms)\tCount\tAvg(ms)\tTotal(ms)\n".to_owned();
    let row = |text: &mut String, name: &str, first: f64, count: u64, total: f64| {
        let _ = writeln!(text, "{name}\t{first:.4}\t{count}\t{:.4}\t{total:.4}", total / count as f64);
    };
    let stage = |text: &mut String, name: &str, times: &[Nanos]| {
        if let Some(first) = times.first() {
            row(text, name, ms(*first), times.len() as u64, ms(sum(times)));
        }
    };
    stage(&mut text, "Base Model Embedding", &iteration.base_embedding);
    stage(&mut text, "Base Model Prefill (computation)", &iteration.base_prefill);
    stage(&mut text, "Teacher Model Embedding", &iteration.teacher_embedding);
    stage(&mut text, "Teacher Model Prefill (computation)", &iteration.teacher_prefill);
    if calls > 0 && !iteration.projector.is_empty() {
        let total = ms(sum(&iteration.projector));
        // Batched layers have no separate times.
        let of_first = &iteration.paths[..iteration.paths.len().min(2)];
        let first = if of_first.is_empty() { total / calls as f64 } else { ms(sum(of_first)) };
        row(&mut text, "Projector (KV projection)", first, calls, total);
    }
    stage(&mut text, "Decode Step (per token)", &iteration.steps);
    stage(&mut text, "Last Token Prefill", &iteration.last_token_prefill);
    stage(&mut text, "Sampling (per token)", &iteration.sampling);
    text.push_str("\nDecode Step Details\tStep #\tTime(ms)\t\t\n");
    for (at, step) in iteration.steps.iter().enumerate() {
        let _ = writeln!(text, "\t{}\t{:.4}\t\t", at + 1, ms(*step));
    }
    text
}

/// The longest operations on the host and on the device.
fn stats(top: &Top) -> Value {
    let time = |nanos: Nanos| rounded(ms(nanos));
    let host = |one: &Operation| json!({ "name": one.name, "cpu_time_ms": time(one.own), "cuda_time_ms": one.launched_own.map(time), "count": one.count });
    let device = |one: &Operation| json!({ "name": one.name, "cpu_time_ms": null, "cuda_time_ms": time(one.own), "count": one.count });
    let longest = |is_on_device: bool, record: &dyn Fn(&Operation) -> Value| -> Vec<Value> {
        let mut of: Vec<&Operation> =
            top.operations.iter().filter(|one| one.kind.is_on_device() == is_on_device).collect();
        of.sort_by(|a, b| b.own.cmp(&a.own).then_with(|| a.name.cmp(&b.name)));
        of.into_iter().take(MOST_OPERATIONS).map(record).collect()
    };
    json!({
        "total_operations": top.operations.len(),
        "top_10_cpu_ops": longest(false, &host),
        "top_10_cuda_ops": longest(true, &device),
    })
}

fn append(path: &Path, record: &Value) -> anyhow::Result<()> {
    let failed = || format!("cannot write to `{}`", path.display());
    let mut file = OpenOptions::new().create(true).append(true).open(path).with_context(failed)?;
    writeln!(file, "{record}").with_context(failed)
}

pub fn sum(times: &[Nanos]) -> Nanos {
    JoinedStages::sum(times)
}

pub fn ms(nanos: Nanos) -> f64 {
    nanos.0 as f64 / 1e6
}

/// Rounds to a tenth of a microsecond, as the table does.
fn rounded(ms: f64) -> f64 {
    (ms * 1e4).round() / 1e4
}

pub fn total(times: &[Nanos]) -> Option<f64> {
    (!times.is_empty()).then(|| ms(sum(times)))
}

pub fn average(times: &[Nanos]) -> Option<f64> {
    total(times).map(|total| total / times.len() as f64)
}

/// The temporary recording of single operations.
const RECORDING: &str = "operations.pftrace";

pub struct C2cExtras;

impl Extras for C2cExtras {
    fn workload(&self) -> &'static str {
        "c2c"
    }

    fn flags(&self, command: Command) -> Vec<FlagSpec> {
        if command == Command::Profile { vec![COMPAT, COMPAT_FILES] } else { Vec::new() }
    }

    fn finish_profile(&self, context: &Context<'_>, profiled: ProfiledCase<'_>, out: &mut dyn Write) -> Written {
        let ProfiledCase { results, trace } = profiled;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn iteration() -> JoinedStages {
        let times = |times: &[u64]| times.iter().map(|micros| Nanos(micros * 1_000)).collect();
        JoinedStages {
            total: Nanos(9_000_000),
            first_token: Some(Nanos(5_800_000)),
            response_projector: Vec::new(),
            base_embedding: times(&[12]),
            base_prefill: times(&[1500]),
            teacher_embedding: Vec::new(),
            teacher_prefill: times(&[2500]),
            projector: times(&[1400]),
            paths: Vec::new(),
            last_token_prefill: times(&[300]),
            steps: times(&[310, 290]),
            sampling: times(&[2, 1, 1]),
        }
    }

    #[test]
    fn the_table_matches_the_c2c_profiler_without_stages_that_did_not_run() {
        let expected = "Stage\tTime(ms)\tCount\tAvg(ms)\tTotal(ms)\n\
            Base Model Embedding\t0.0120\t1\t0.0120\t0.0120\n\
            Base Model Prefill (computation)\t1.5000\t1\t1.5000\t1.5000\n\
            Teacher Model Prefill (computation)\t2.5000\t1\t2.5000\t2.5000\n\
            Projector (KV projection)\t0.0500\t28\t0.0500\t1.4000\n\
            Decode Step (per token)\t0.3100\t2\t0.3000\t0.6000\n\
            Last Token Prefill\t0.3000\t1\t0.3000\t0.3000\n\
            Sampling (per token)\t0.0020\t3\t0.0013\t0.0040\n\
            \nDecode Step Details\tStep #\tTime(ms)\t\t\n\
            \t1\t0.3100\t\t\n\
            \t2\t0.2900\t\t\n";
        assert_eq!(table(&iteration(), 28), expected);
    }

    #[test]
    fn steps_are_written_in_seconds_and_in_milliseconds_as_the_c2c_profiler_does() {
        let recording = Recording {
            case: &Case::default(),
            measured: &Measured::default(),
            iterations: Vec::new(),
            work: Vec::new(),
            peaks: None,
            is_queued: false,
        };
        let record = recording.record(&iteration(), 28);
        assert_eq!(record["timing"]["decode_steps"], json!([0.00031, 0.00029]));
        assert_eq!(record["timing_breakdown_ms"], json!([0.31, 0.29]));
        assert_eq!(record["timing"]["projector_avg_ms"], json!(0.05));
        assert_eq!(record["timing"]["teacher_embedding_ms"], Value::Null);
    }

    #[test]
    fn by_layer_the_first_projection_has_keys_and_values_of_the_first_layer() {
        let paths = [30, 40, 50, 60].map(|micros| Nanos(micros * 1_000)).to_vec();
        let table = table(&JoinedStages { paths, ..iteration() }, 2);
        assert!(table.contains("Projector (KV projection)\t0.0700\t2\t0.7000\t1.4000\n"), "{table}");
    }
}
