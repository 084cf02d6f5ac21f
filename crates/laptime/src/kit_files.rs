//! The files of older kits, written from the results of a run: the course's tables and the Nano kit's profile.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Arg, ArgAction};
use laptime_analyze::{CaseFigures, Cases, MeasuredFigures};
use laptime_report::{Format, Table};
use laptime_trace::{format::write_whole, run::AxisValue};
use serde_json::{Map, Value, json};

use crate::{asked::Asked, attention_profile, failure::Hinted, output::write_file, session::Finished};

/// Where the course keeps its tables.
const COURSE_FOLDER: &str = "results";

/// Where the Nano kit keeps its profiles.
const NANO_FOLDER: &str = "profiling/results";

/// The flag that asks for them where the kits keep them.
pub fn flag() -> Arg {
    Arg::new("kit-files")
        .long("kit-files")
        .action(ArgAction::SetTrue)
        .global(true)
        .help("Write the files of older kits where these keep them, too: under `results/` and `profiling/results/`")
        .help_heading("Where it goes")
}

/// The flags by which the Nano kit is told where its profile goes.
pub fn places() -> [Arg; 2] {
    let place = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .value_parser(clap::value_parser!(PathBuf))
            .global(true)
            .help(help)
            .help_heading("Where it goes")
    };
    [
        place("output", "FILE", "Write the Nano kit's profile of models or of attention to this file, too"),
        place("output-dir", "DIR", "Write it into this folder, under its name"),
    ]
}

/// Where the profile of the Nano kit goes, beside the run's folder.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// Whether it goes where the kits keep it.
    pub is_asked: bool,
    /// A file.
    pub output: Option<PathBuf>,
    /// A folder.
    pub output_dir: Option<PathBuf>,
}

/// Refuses a place for a profile that there will not be.
pub fn refuse_unused(asked: &Asked, workload: &str) -> anyhow::Result<()> {
    let Places { output, output_dir, .. } = &asked.kit_files;
    if ["model", "attention"].contains(&workload) || output.is_none() && output_dir.is_none() {
        return Ok(());
    }
    let error = anyhow::anyhow!("`--output` and `--output-dir` are for a kit's profile, and `{workload}` has none");
    Err(Hinted::wrap(error, "`--out` says where the run is kept"))
}

/// Writes the files of a benchmark of models or of attention into its folder and, if asked for, where the kits keep them.
/// Returns those outside of the run's folder.
pub fn write(finished: &Finished, places: &Places) -> anyhow::Result<Vec<PathBuf>> {
    let answer = laptime_analyze::cases(&finished.results, finished.run.peaks.as_ref());
    if let Some(profile) = attention_profile::profile(&answer) {
        return write_profile(&profile, "attention_profile.json", &finished.folder, places);
    }
    let mut outside = write_course(finished, &answer, places.is_asked)?;
    if laptime_report::tables::course(&answer).is_some() {
        outside.extend(write_profile(&profile(&answer), "model_profile.json", &finished.folder, places)?);
    }
    Ok(outside)
}

/// Writes a profile of the Nano kit wherever it is wanted.
fn write_profile(profile: &Value, name: &str, run: &Path, places: &Places) -> anyhow::Result<Vec<PathBuf>> {
    let mut outside = Vec::new();
    for folder in folders(run, NANO_FOLDER, places.is_asked)? {
        write_json(profile, &folder.join(name))?;
    }
    if places.is_asked {
        outside.push(Path::new(NANO_FOLDER).join(name));
    }
    let named = places.output.clone().into_iter().chain(places.output_dir.as_ref().map(|folder| folder.join(name)));
    for file in named {
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
        }
        write_json(profile, &file)?;
        outside.push(file);
    }
    Ok(outside)
}

/// Writes the course's tables of a benchmark of models.
fn write_course(finished: &Finished, answer: &Cases, is_asked: bool) -> anyhow::Result<Vec<PathBuf>> {
    let Some(table) = laptime_report::tables::course(answer) else { return Ok(Vec::new()) };
    let settings = &finished.run.settings;
    let is_isolated = settings.isolate || settings.runs > 1;
    let name = if is_isolated { "profiling_benchmarking_run_benchmarks" } else { "profiling_benchmarking_direct" };
    let course_folders = folders(&finished.folder, COURSE_FOLDER, is_asked)?;
    for folder in &course_folders {
        write_file(&table, Format::Csv, &folder.join(format!("{name}.csv")))?;
        if let Some(summary) = laptime_report::tables::course_summary(answer) {
            write_file(&summary, Format::Md, &folder.join(format!("{name}.md")))?;
        }
    }
    Ok(is_asked.then(|| Path::new(COURSE_FOLDER).join(format!("{name}.csv"))).into_iter().collect())
}

/// Writes the course's table of a study of warm-ups likewise.
pub fn write_study(table: &Table, folder: &Path, is_asked: bool) -> anyhow::Result<Option<PathBuf>> {
    let name = "profiling_benchmarking_warmup_comparison.csv";
    for folder in folders(folder, COURSE_FOLDER, is_asked)? {
        write_file(table, Format::Csv, &folder.join(name))?;
    }
    Ok(is_asked.then(|| Path::new(COURSE_FOLDER).join(name)))
}

/// The run's folder and, if asked for, that of the kit, which is made.
fn folders(run: &Path, kit: &str, is_asked: bool) -> anyhow::Result<Vec<PathBuf>> {
    let mut folders = vec![run.to_owned()];
    if is_asked {
        fs::create_dir_all(kit).with_context(|| format!("cannot make the folder `{kit}`"))?;
        folders.push(PathBuf::from(kit));
    }
    Ok(folders)
}

fn write_json(value: &Value, path: &Path) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    write_whole(path, |file| writeln!(file, "{text}")).map_err(Into::into)
}

/// The profile of the Nano kit: sizes of models, and a record for each length and mode.
fn profile(answer: &Cases) -> Value {
    let measured = |case: &CaseFigures| axis(case, "pass_type").as_str() != Some("step") || !has_both(answer, case);
    let results: Vec<Value> =
        answer.cases.iter().filter(|case| measured(case)).filter_map(|case| record(answer, case)).collect();
    let is_training = results.iter().any(|record| record["mode"] == "training");
    let first = answer.cases.first();
    let device = first.map_or("", |case| &case.id.device);
    let batch_size = first.map_or(Value::Null, |case| axis(case, "batch_size"));
    json!({
        "metadata": { "device": device, "batch_size": batch_size, "profile_training": is_training },
        "model_sizes": sizes(answer),
        "results": results,
    })
}

fn sizes(answer: &Cases) -> Map<String, Value> {
    let mut sizes = Map::new();
    for (case, measured) in answer.cases.iter().filter_map(|case| Some((case, case.measured.as_ref()?))) {
        let parameters = fact(measured, "parameters");
        let memory = fact(measured, "weight_bytes").as_i64().map(|bytes| mib(bytes as f64));
        let size = json!({
            "total_parameters": parameters, "trainable_parameters": parameters, "parameter_memory_mb": memory,
        });
        sizes.entry(text(case, "model")).or_insert(size);
    }
    sizes
}

/// A record of the profile; none for passes that the kit does not know.
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
            let step = if is_step { Some(case) } else { twin(answer, case, "step").filter(|_| mode == "training") };
            add("latency_ms", if is_step { Value::Null } else { median_ms(measured) });
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

/// Whether a step stands beside a forward and backward of the same case, whose record tells it.
fn has_both(answer: &Cases, step: &CaseFigures) -> bool {
    twin(answer, step, "forward_backward").is_some()
}

/// The case that differs in its pass alone.
pub fn twin<'a>(answer: &'a Cases, case: &CaseFigures, pass: &str) -> Option<&'a CaseFigures> {
    let of_pass = ["test", "pass_type"];
    let is_same = |other: &&CaseFigures| {
        let others = other.id.case.values().zip(case.id.case.values());
        let is_equal = others.into_iter().all(|(other, own)| of_pass.contains(&own.0) || other == own);
        is_equal && text(other, "pass_type") == pass
    };
    answer.cases.iter().find(is_same)
}

pub fn median_ms(measured: &MeasuredFigures) -> Value {
    json!(measured.wall.median / 1e6)
}

pub fn mib(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

pub fn text(case: &CaseFigures, name: &str) -> String {
    case.id.case.get(name).map(ToString::to_string).unwrap_or_default()
}

pub fn axis(case: &CaseFigures, name: &str) -> Value {
    case.id.case.get(name).map_or(Value::Null, json_of)
}

pub fn fact(measured: &MeasuredFigures, name: &str) -> Value {
    measured.fact(name).map_or(Value::Null, json_of)
}

fn json_of(value: &AxisValue) -> Value {
    match value {
        AxisValue::Int(whole) => json!(whole),
        AxisValue::Float(number) => json!(number),
        AxisValue::Bool(yes) => json!(yes),
        AxisValue::Text(text) => json!(text),
    }
}
