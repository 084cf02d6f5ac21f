//! The files of older kits, written from the results of a run: the course's tables and the Nano kit's profile.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Arg, ArgAction};
use laptime_analyze::{CaseFigures, Cases, MeasuredFigures};
use laptime_report::{
    Format, Table,
    tables::{AskedSteps, with_pass},
};
use laptime_trace::{
    format::write_whole,
    run::{AxisValue, Case, Settings, Stop, WarmUp},
};
use serde_json::{Map, Value, json};

use crate::{
    app::App,
    asked::Asked,
    attention_profile,
    failure::Hinted,
    kit_input::{ATTENTION_FILE, MODEL_FILE, OWN_KEY},
    output::write_file,
    session::Finished,
};

/// Where the course keeps its tables.
const COURSE_FOLDER: &str = "results";

/// Where the Nano kit keeps its profiles.
const NANO_FOLDER: &str = "profiling/results";

/// Forward and backward apart.
const SEPARATE_FILE: &str = "profiling_benchmarking_separate.csv";

/// The flags of older kits: for their files where they keep them, for a file or a folder that they name, and for a take
/// without synchronisation.
pub fn flags() -> [Arg; 4] {
    let kit_files = Arg::new("kit-files")
        .long("kit-files")
        .action(ArgAction::SetTrue)
        .help("Write the files of older kits where these keep them, too: under `results/` and `profiling/results/`");
    let place = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).value_parser(clap::value_parser!(PathBuf)).help(help)
    };
    let output = place("output", "FILE", "Write the table (`.csv`) or a kit's profile (`.json`) to this file, too");
    let folder = place(
        "output-dir",
        "DIR",
        "Write a kit's profile into this folder, too, under its name; of `offload` the audio",
    );
    let no_sync = Arg::new("no-sync").long("no-sync").action(ArgAction::SetTrue).hide(true);
    [kit_files, output, folder, no_sync].map(|flag| flag.global(true).help_heading("Where it goes"))
}

/// What a run without synchronisation is told.
pub const NO_SYNC: &str = "note: `--no-sync` changes nothing: takes are synchronised at both ends, since their time is true only then; `laptime profile … --timing host,sync` shows what the host alone would have said";

/// Where files of older kits go, beside the run's folder.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// Whether they go where the kits keep them.
    pub is_asked: bool,
    /// A file: a table or a profile, as its name ends.
    pub output: Option<PathBuf>,
    /// A folder for a profile.
    pub output_dir: Option<PathBuf>,
}

impl Places {
    fn output_of(&self, extension: &str) -> Option<&Path> {
        let is_one = |path: &&Path| path.extension().is_some_and(|own| own.eq_ignore_ascii_case(extension));
        self.output.as_deref().filter(is_one)
    }
}

/// Refuses a place for what there will not be.
pub fn refuse_unused(asked: &Asked, workload: &str) -> anyhow::Result<()> {
    let Places { output, output_dir, .. } = &asked.kit_files;
    let refuse = |reason: String, hint: &'static str| Err(Hinted::wrap(anyhow::anyhow!(reason), hint));
    let is_table = asked.kit_files.output_of("csv").is_some();
    if let Some(path) = output.as_ref().filter(|_| !is_table && asked.kit_files.output_of("json").is_none()) {
        let reason = format!("`--output {}` names neither a table nor a profile", path.display());
        return refuse(reason, "end it in `.csv` for the table, in `.json` for a kit's profile");
    }
    if ["model", "attention", "offload"].contains(&workload) || (is_table || output.is_none()) && output_dir.is_none() {
        return Ok(());
    }
    let reason = format!("`--output` and `--output-dir` are for a kit's profile, and `{workload}` has none");
    refuse(reason, "`--output` with `.csv` writes the table; `--out` says where the run is kept")
}

/// Writes the files of a benchmark of models or of attention into its folder and, if asked for, where the kits keep them.
/// Returns those outside of the run's folder.
pub fn write(app: &App, finished: &Finished, places: &Places) -> anyhow::Result<Vec<PathBuf>> {
    let answer = laptime_analyze::cases(&finished.results, finished.run.peaks.as_ref());
    let known = Known { app, workload: &finished.run.workload };
    let parameters = |case: &Case| known.fact(case, "parameters");
    let of_course = laptime_report::tables::course(&answer, &parameters, asked_steps(&finished.run.settings));
    let mut outside = Vec::new();
    if let Some(profile) = attention_profile::profile(&answer) {
        outside.extend(write_profile(with_run(profile, finished)?, ATTENTION_FILE, &finished.folder, places)?);
    } else if let Some(table) = &of_course {
        outside.extend(write_course(table, finished, &answer, places.is_asked)?);
        let profile = with_run(profile(&answer, &known), finished)?;
        outside.extend(write_profile(profile, MODEL_FILE, &finished.folder, places)?);
    }
    let table = || of_course.unwrap_or_else(|| laptime_report::tables::cases(&answer, &[]));
    if let Some(path) = places.output_of("csv") {
        outside.push(write_table(&table(), path)?);
    }
    Ok(outside)
}

/// Steps that were asked for, where the settings say how many.
fn asked_steps(settings: &Settings) -> AskedSteps {
    let warmup = if let WarmUp::Takes(takes) = settings.warmup { Some(takes) } else { None };
    let measure = if let Stop::Takes(takes) = settings.stop { Some(takes) } else { None };
    AskedSteps { warmup, measure }
}

/// Adds the run itself to a profile, so that a report says the same of it as of the run's folder.
fn with_run(mut profile: Value, finished: &Finished) -> anyhow::Result<Value> {
    let (run, results) = (serde_json::to_value(&finished.run)?, serde_json::to_value(&finished.results)?);
    profile[OWN_KEY] = json!({ "run": run, "results": results });
    Ok(profile)
}

/// Writes a profile of the Nano kit wherever it is wanted.
fn write_profile(profile: Value, name: &str, run: &Path, places: &Places) -> anyhow::Result<Vec<PathBuf>> {
    let profile = &profile;
    for folder in folders(run, NANO_FOLDER, places.is_asked)? {
        write_json(profile, &folder.join(name))?;
    }
    let mut outside: Vec<PathBuf> = places.is_asked.then(|| Path::new(NANO_FOLDER).join(name)).into_iter().collect();
    let named = places.output_of("json").map(Path::to_owned);
    for file in named.into_iter().chain(places.output_dir.as_ref().map(|folder| folder.join(name))) {
        make_folder_of(&file)?;
        write_json(profile, &file)?;
        outside.push(file);
    }
    Ok(outside)
}

/// Writes the course's tables of a benchmark of models.
fn write_course(table: &Table, finished: &Finished, answer: &Cases, is_asked: bool) -> anyhow::Result<Vec<PathBuf>> {
    let settings = &finished.run.settings;
    let is_isolated = settings.isolate || settings.runs > 1;
    let name = if is_isolated { "profiling_benchmarking_run_benchmarks" } else { "profiling_benchmarking_direct" };
    let separate = laptime_report::tables::course_separate(answer);
    for folder in folders(&finished.folder, COURSE_FOLDER, is_asked)? {
        write_file(table, Format::Csv, &folder.join(format!("{name}.csv")))?;
        if let Some(summary) = laptime_report::tables::course_summary(answer) {
            write_file(&summary, Format::Md, &folder.join(format!("{name}.md")))?;
        }
        if let Some(separate) = &separate {
            write_file(separate, Format::Csv, &folder.join(SEPARATE_FILE))?;
        }
    }
    let files = [Some(format!("{name}.csv")), separate.map(|_| SEPARATE_FILE.to_owned())];
    Ok(files.into_iter().flatten().filter(|_| is_asked).map(|file| Path::new(COURSE_FOLDER).join(file)).collect())
}

/// Writes a table to the file that `--output` named, if it named one for a table.
pub fn write_output(table: &Table, places: &Places) -> anyhow::Result<Option<PathBuf>> {
    places.output_of("csv").map(|path| write_table(table, path)).transpose()
}

fn write_table(table: &Table, path: &Path) -> anyhow::Result<PathBuf> {
    make_folder_of(path)?;
    write_file(table, Format::Csv, path)?;
    Ok(path.to_owned())
}

/// Makes the folder of a file, if it names one.
pub fn make_folder_of(path: &Path) -> anyhow::Result<()> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder `{}`", folder.display()))
}

/// What a workload knows of cases, measured or not.
struct Known<'a> {
    app: &'a App,
    workload: &'a str,
}

impl Known<'_> {
    fn fact(&self, case: &Case, name: &str) -> Option<AxisValue> {
        let facts = self.app.registry.workload(self.workload)?.known(case);
        facts.into_iter().find(|fact| fact.name == name).map(|fact| fact.value)
    }
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
fn profile(answer: &Cases, known: &Known<'_>) -> Value {
    let measured = |case: &CaseFigures| axis(case, "pass_type").as_str() != Some("step") || !has_both(answer, case);
    let results: Vec<Value> =
        answer.cases.iter().filter(|case| measured(case)).filter_map(|case| record(answer, case)).collect();
    let is_training = results.iter().any(|record| record["mode"] == "training");
    let first = answer.cases.first();
    let device = first.map_or("", |case| &case.id.device);
    let batch_size = first.map_or(Value::Null, |case| axis(case, "batch_size"));
    json!({
        "metadata": { "device": device, "batch_size": batch_size, "profile_training": is_training },
        "model_sizes": sizes(answer, known),
        "results": results,
    })
}

fn sizes(answer: &Cases, known: &Known<'_>) -> Map<String, Value> {
    let mut sizes = Map::new();
    for case in &answer.cases {
        let fact = |name: &str| {
            let measured = case.measured.as_ref().and_then(|measured| measured.fact(name)).cloned();
            measured.or_else(|| known.fact(&case.id.case, name)).as_ref().map_or(Value::Null, json_of)
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
            let step =
                if is_step { Some(case) } else { with_pass(answer, case, "step").filter(|_| mode == "training") };
            // A step is forward, backward and update: what the kit times as training.
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

/// Whether a step stands beside a forward and backward of the same case, whose record tells it.
fn has_both(answer: &Cases, step: &CaseFigures) -> bool {
    with_pass(answer, step, "forward_backward").is_some()
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
