//! The extras of `model`: the tables of CS336 assignment 2 and the profile of Nano XYZ.

use std::{io::Write, path::Path};

use laptime_analyze::{CaseFigures, Cases, MeasuredFigures, with_pass};
use laptime_bench::{AxisValue, Case, CaseResult, Workload};
use laptime_report::tables::{self, RequestedSteps};
use laptime_report::{Format, Table, thousands};
use laptime_trace::run::{Settings, Stop, WarmUp};
use serde_json::{Map, Value, json};

use super::axes::COURSE_FLAGS;
use crate::extras::files::{axis, fact, folders, median_ms, mib, text, write_csv, write_nano_profile, write_table};
use crate::extras::{COMPAT_FILES, Command, Context, Extras, FlagSpec, Flags, Written, nano};

/// The folder in which CS336 assignment 2 writes its tables.
const COURSE_FOLDER: &str = "results";

/// Forward and backward passes in separate columns.
const SEPARATE_FILE: &str = "profiling_benchmarking_separate.csv";
const WARMUP_FILE: &str = "profiling_benchmarking_warmup_comparison.csv";

pub struct ModelExtras;

impl Extras for ModelExtras {
    fn workload(&self) -> &'static str {
        "model"
    }

    fn flags(&self, command: Command) -> Vec<FlagSpec> {
        match command {
            Command::Bench => nano::FLAGS.to_vec(),
            Command::Profile => Vec::new(),
            Command::Warmup => vec![COMPAT_FILES, nano::NO_SYNC],
        }
    }

    fn begin(&self, context: &Context<'_>, _: &[Case], _: &mut dyn Write) -> anyhow::Result<()> {
        nano::note_no_sync(context);
        Ok(())
    }

    fn finish_bench(&self, context: &Context<'_>, results: &[CaseResult], out: &mut dyn Write) -> Written {
        let answer = laptime_analyze::cases(results, context.run.peaks.as_ref());
        if context.is_for_people && context.flags.is_compat() {
            print_course(&answer, out)?;
        }
        let parameters = |case: &Case| known(context.workload, case, "parameters");
        let of_course = tables::course(&answer, &parameters, asked_steps(&context.run.settings));
        let mut outside = Vec::new();
        if let Some(table) = &of_course {
            outside.extend(write_course(table, context, &answer)?);
            let (profile, run) = (profile(&answer, context.workload), (context.run, results));
            outside.extend(write_nano_profile(profile, nano::MODEL_FILE, run, context.folder, context.flags)?);
        }
        outside.extend(write_csv(&of_course.unwrap_or_else(|| tables::cases(&answer, &[])), context.flags)?);
        Ok(outside)
    }

    fn finish_warmups(&self, flags: &Flags, folder: &Path, table: &Table) -> Written {
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

fn asked_steps(settings: &Settings) -> RequestedSteps {
    let warmup = if let WarmUp::Iterations(iterations) = settings.warmup { Some(iterations) } else { None };
    let measure = if let Stop::Iterations(iterations) = settings.stop { Some(iterations) } else { None };
    RequestedSteps { warmup, measure }
}

/// Writes the tables of CS336 assignment 2. Returns the files outside of the run's folder.
fn write_course(table: &Table, context: &Context<'_>, answer: &Cases) -> Written {
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
            json!(measured.or_else(|| known(workload, &case.id.case, name)))
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
            let step = if is_step {
                Some(case)
            } else {
                with_pass(&answer.cases, case, "step").filter(|_| mode == "training")
            };
            // Nano XYZ measures training as forward, backward and update.
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

/// Whether there is also a forward and backward pass of the case, whose record includes the step.
fn has_both(answer: &Cases, step: &CaseFigures) -> bool {
    with_pass(&answer.cases, step, "forward_backward").is_some()
}

/// Prints mean, standard deviation and coefficient of variation of a single case; for several cases the ratio of backward
/// to forward, where both were measured.
pub fn print_course(answer: &Cases, out: &mut dyn Write) -> anyhow::Result<()> {
    let lines = match answer.cases.as_slice() {
        [case] => of_one(case),
        several => several.iter().filter_map(|case| ratio(answer, case)).collect(),
    };
    if !lines.is_empty() {
        writeln!(out)?;
    }
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    Ok(out.flush()?)
}

fn of_one(case: &CaseFigures) -> Vec<String> {
    let of_model = case.measured.as_ref().filter(|measured| measured.fact("parameters").is_some());
    of_model.map(|measured| lines(case, measured)).unwrap_or_default()
}

/// The ratio of backward to forward of the same case, from their medians.
fn ratio(answer: &Cases, case: &CaseFigures) -> Option<String> {
    let axis = |name: &str| text(case, name);
    if axis("pass_type") != "backward" {
        return None;
    }
    let forward = with_pass(&answer.cases, case, "forward")?.measured.as_ref()?.wall.median;
    let backward = case.measured.as_ref()?.wall.median;
    let (model, tokens, batch) = (axis("model"), axis("seq_len"), axis("batch_size"));
    let ratio = Some(backward / forward).filter(|ratio| ratio.is_finite())?;
    Some(format!("Backward over forward: {ratio:.2} ({model}, context length {tokens}, batch size {batch})"))
}

fn lines(case: &CaseFigures, measured: &MeasuredFigures) -> Vec<String> {
    let fact = |name: &str| measured.fact(name).map_or_else(String::new, AxisValue::to_string);
    let axis = |name: &str| text(case, name);
    let mut lines = vec![
        format!(
            "Model: {} (d_model {}, d_ff {}, num_layers {}, num_heads {}, vocab_size {})",
            axis("model"),
            fact("hidden"),
            fact("ffn"),
            fact("layers"),
            fact("heads"),
            fact("vocab"),
        ),
        format!(
            "Batch size: {}, context length: {}, pass type: {}, dtype: {}, attention: {}{}",
            axis("batch_size"),
            axis("seq_len"),
            axis("pass_type"),
            axis("dtype"),
            axis("attention"),
            if axis("reduced") == "true" { ", reduced" } else { "" },
        ),
        format!("Parameters: {}", thousands(&fact("parameters"))),
    ];
    lines.extend(times(measured.wall.all.mean, measured.wall.all.std, measured.wall.all.n));
    lines
}

/// The times. CS336 prints the standard deviation of the population; ours is that of the sample, so both are printed.
fn times(mean_ns: f64, std_ns: Option<f64>, iterations: usize) -> Vec<String> {
    let both = |nanos: f64| format!("{:.2} ms ({:.4} s)", nanos / 1e6, nanos / 1e9);
    let mut lines = vec![format!("Mean time: {}", both(mean_ns))];
    if let Some(std) = std_ns {
        let population = std * ((iterations.saturating_sub(1)) as f64 / iterations.max(1) as f64).sqrt();
        let both_kinds = format!("sample (n - 1); population {:.2} ms", population / 1e6);
        lines.push(format!("Std dev: {}, {both_kinds}", both(std)));
        lines.push(format!("Coefficient of variation: {:.2}%", 100.0 * std / mean_ns));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_as_in_cs336() {
        let lines = times(308_120_000.0, Some(17_900_000.0), 10);
        assert_eq!(
            lines,
            [
                "Mean time: 308.12 ms (0.3081 s)",
                "Std dev: 17.90 ms (0.0179 s), sample (n - 1); population 16.98 ms",
                "Coefficient of variation: 5.81%",
            ]
        );
        assert_eq!(times(1e6, None, 1), ["Mean time: 1.00 ms (0.0010 s)"], "one iteration has no spread");
    }

    #[test]
    fn parameters_are_printed_in_groups_of_three() {
        assert_eq!(["7", "128625408", "1000"].map(thousands), ["7", "128,625,408", "1,000"]);
    }
}
