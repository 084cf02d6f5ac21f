//! What `model` adds to the commands: the tables of CS336 assignment 2 and the profile of Nano XYZ.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use laptime_analyze::{CaseFigures, Cases};
use laptime_bench::{AxisValue, Case, CaseResult, Workload};
use laptime_report::{
    Format, Table,
    tables::{self, AskedSteps, with_pass},
};
use laptime_trace::run::{Settings, Stop, WarmUp};
use serde_json::{Map, Value, json};

use super::course;
use crate::extras::{
    COMPAT, COMPAT_FILES, Command, Context, Extras, FlagSpec, Flags,
    files::{axis, fact, folders, json_of, median_ms, mib, text, write_nano_profile, write_table},
    nano,
};

/// Where CS336 assignment 2 keeps its tables.
const COURSE_FOLDER: &str = "results";

/// Forward and backward passes in separate columns.
const SEPARATE_FILE: &str = "profiling_benchmarking_separate.csv";

/// The comparison of warm-ups.
const WARMUP_FILE: &str = "profiling_benchmarking_warmup_comparison.csv";

/// The flags by which CS336 assignment 2 names models.
const COURSE_FLAGS: [&str; 2] = ["model_size", "model_sizes"];

/// A flag of Nano XYZ that has no effect here.
pub(crate) const NO_SYNC: FlagSpec = FlagSpec { name: "no-sync", alias: None, value: None, help: None };

/// The note about it.
pub(crate) const NO_SYNC_NOTE: &str = "note: `--no-sync` has no effect: iterations are synchronised at both ends, or their \
                                       times would be wrong; `laptime profile … --timing host,sync` shows the difference";

/// The flags of workloads that write a profile of Nano XYZ.
pub(crate) const PROFILE_FLAGS: [FlagSpec; 5] = [
    COMPAT,
    COMPAT_FILES,
    FlagSpec::path(
        "output",
        "FILE",
        "Also write the table (`.csv`) or the profile in the format of Nano XYZ (`.json`) to this file",
    ),
    FlagSpec::path("output-dir", "DIR", "Also write the profile in the format of Nano XYZ into this folder"),
    NO_SYNC,
];

/// The extras of `model`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ModelExtras;

impl Extras for ModelExtras {
    fn workload(&self) -> &'static str {
        "model"
    }

    fn flags(&self, command: Command) -> Vec<FlagSpec> {
        match command {
            Command::Bench => PROFILE_FLAGS.to_vec(),
            Command::Profile => Vec::new(),
            Command::Warmup => vec![COMPAT_FILES, NO_SYNC],
        }
    }

    fn begin(&self, context: &Context<'_>, _: &[Case], _: &mut dyn Write) -> anyhow::Result<()> {
        if context.flags.has(NO_SYNC.name) {
            context.screen.say(NO_SYNC_NOTE);
        }
        Ok(())
    }

    fn finish_bench(
        &self,
        context: &Context<'_>,
        results: &[CaseResult],
        out: &mut dyn Write,
    ) -> anyhow::Result<Vec<PathBuf>> {
        let answer = laptime_analyze::cases(results, context.run.peaks.as_ref());
        if context.is_for_people && context.flags.is_compat() {
            course::write(&answer, out)?;
        }
        let parameters = |case: &Case| known(context.workload, case, "parameters");
        let of_course = tables::course(&answer, &parameters, asked_steps(&context.run.settings));
        let mut outside = Vec::new();
        if let Some(table) = &of_course {
            outside.extend(write_course(table, context, &answer)?);
            let (profile, run) = (profile(&answer, context.workload), (context.run, results));
            outside.extend(write_nano_profile(profile, nano::MODEL_FILE, run, context.folder, context.flags)?);
        }
        if let Some(path) = context.flags.path_ending_in("output", "csv") {
            write_table(&of_course.unwrap_or_else(|| tables::cases(&answer, &[])), Format::Csv, path)?;
            outside.push(path.to_owned());
        }
        Ok(outside)
    }

    fn finish_warmups(&self, flags: &Flags, folder: &Path, table: &Table) -> anyhow::Result<Vec<PathBuf>> {
        let folders = folders(folder, COURSE_FOLDER, flags);
        folders.iter().try_for_each(|folder| write_table(table, Format::Csv, &folder.join(WARMUP_FILE)))?;
        Ok(folders.into_iter().skip(1).map(|folder| folder.join(WARMUP_FILE)).collect())
    }

    fn compares_warmups(&self, written: &[&str]) -> bool {
        written.iter().any(|flag| COURSE_FLAGS.contains(flag))
    }

    fn profile_file(&self) -> Option<&'static str> {
        Some(nano::MODEL_FILE)
    }

    fn read_profile(&self, profile: &Value) -> Vec<CaseResult> {
        nano::models(profile)
    }
}

/// A fact that a workload knows about a case before it is measured.
fn known(workload: &dyn Workload, case: &Case, name: &str) -> Option<AxisValue> {
    workload.known(case).into_iter().find(|fact| fact.name == name).map(|fact| fact.value)
}

/// The numbers of steps in the settings, where they are fixed.
fn asked_steps(settings: &Settings) -> AskedSteps {
    let warmup = if let WarmUp::Iterations(iterations) = settings.warmup { Some(iterations) } else { None };
    let measure = if let Stop::Iterations(iterations) = settings.stop { Some(iterations) } else { None };
    AskedSteps { warmup, measure }
}

/// Writes the tables of CS336 assignment 2. Returns the files outside of the run's folder.
fn write_course(table: &Table, context: &Context<'_>, answer: &Cases) -> anyhow::Result<Vec<PathBuf>> {
    let settings = &context.run.settings;
    let is_isolated = settings.isolate || settings.runs > 1;
    let name = if is_isolated { "profiling_benchmarking_run_benchmarks" } else { "profiling_benchmarking_direct" };
    let separate = tables::course_separate(answer);
    let folders = folders(context.folder, COURSE_FOLDER, context.flags);
    for folder in &folders {
        write_table(table, Format::Csv, &folder.join(format!("{name}.csv")))?;
        if let Some(summary) = tables::course_summary(answer) {
            write_table(&summary, Format::Md, &folder.join(format!("{name}.md")))?;
        }
        if let Some(separate) = &separate {
            write_table(separate, Format::Csv, &folder.join(SEPARATE_FILE))?;
        }
    }
    let files = [Some(format!("{name}.csv")), separate.map(|_| SEPARATE_FILE.to_owned())];
    let files: Vec<String> = files.into_iter().flatten().collect();
    Ok(folders.iter().skip(1).flat_map(|folder| files.iter().map(|file| folder.join(file))).collect())
}

/// The profile in the format of Nano XYZ: sizes of models, and a record for each length and mode.
fn profile(answer: &Cases, workload: &dyn Workload) -> Value {
    let measured = |case: &CaseFigures| axis(case, "pass_type").as_str() != Some("step") || !has_both(answer, case);
    let results: Vec<Value> =
        answer.cases.iter().filter(|case| measured(case)).filter_map(|case| record(answer, case)).collect();
    let is_training = results.iter().any(|record| record["mode"] == "training");
    let first = answer.cases.first();
    let device = first.map_or("", |case| &case.id.device);
    let batch_size = first.map_or(Value::Null, |case| axis(case, "batch_size"));
    json!({
        "metadata": { "device": device, "batch_size": batch_size, "profile_training": is_training },
        "model_sizes": sizes(answer, workload),
        "results": results,
    })
}

fn sizes(answer: &Cases, workload: &dyn Workload) -> Map<String, Value> {
    let mut sizes = Map::new();
    for case in &answer.cases {
        let fact = |name: &str| {
            let measured = case.measured.as_ref().and_then(|measured| measured.fact(name)).cloned();
            measured.or_else(|| known(workload, &case.id.case, name)).as_ref().map_or(Value::Null, json_of)
        };
        let parameters = fact("parameters");
        let memory = fact("weight_bytes").as_i64().map(|bytes| mib(bytes as f64));
        let size = json!({
            "total_parameters": parameters, "trainable_parameters": parameters, "parameter_memory_mb": memory,
        });
        sizes.entry(text(case, "model")).or_insert(size);
    }
    sizes
}

/// A record of the profile; none for passes that Nano XYZ does not have.
fn record(answer: &Cases, case: &CaseFigures) -> Option<Value> {
    let pass = text(case, "pass_type");
    let mode = match pass.as_str() {
        "forward" => "inference",
        "forward_backward" | "step" => "training",
        _ => return None,
    };
    let mut record = Map::new();
    let mut add = |key: &str, value: Value| drop(record.insert(key.to_owned(), value));
    match &case.measured {
        Some(measured) => {
            let is_step = pass == "step";
            let step =
                if is_step { Some(case) } else { with_pass(answer, case, "step").filter(|_| mode == "training") };
            // A step is forward, backward and update: Nano XYZ times this as training.
            add("latency_ms", median_ms(measured));
            if mode == "training" {
                add("step_ms", step.and_then(|step| step.measured.as_ref()).map_or(Value::Null, median_ms));
                let loss = measured.metric("loss").map(|loss| loss.median);
                add("loss", json!(loss));
                add("total_loss", json!(loss));
            } else {
                add("output_shape", json!([axis(case, "batch_size"), axis(case, "seq_len"), fact(measured, "vocab")]));
            }
            add("peak_memory_mb", json!(measured.peak_bytes.map(|bytes| mib(bytes as f64))));
        }
        None => add("error", json!(case.outcome())),
    }
    add("mode", json!(mode));
    add("preset", axis(case, "model"));
    add("seq_len", axis(case, "seq_len"));
    add("batch_size", axis(case, "batch_size"));
    Some(Value::Object(record))
}

/// Whether there is also a forward and backward pass of the same case; its record includes the step.
fn has_both(answer: &Cases, step: &CaseFigures) -> bool {
    with_pass(answer, step, "forward_backward").is_some()
}
