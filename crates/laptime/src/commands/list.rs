//! `laptime list`: workloads, axes, metrics and models.

use std::{ffi::OsStr, io::Write};

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use laptime_bench::{Alias, AliasTarget, Better, ValueKind, Workload};
use laptime_report::{Cell, Column, Table, table};

use super::list_models;
use crate::{app::App, cli::Status, output::OutputArgs};

/// List the workloads, the axes and metrics of one, or the models
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  laptime list\n  laptime list matmul\n  laptime list models")]
pub struct Args {
    /// A workload, or `models`
    workload: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Completions of the name after `list`. Other names are accepted, because our own error suggests the nearest name.
#[derive(Debug, Clone)]
pub struct Names(Vec<String>);

impl Names {
    pub fn of(app: &App) -> Self {
        let workloads = app.registry.workloads.iter().map(|workload| workload.name());
        Self(workloads.chain([MODELS]).map(str::to_owned).collect())
    }
}

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(PossibleValue::new)))
    }
}

const MODELS: &str = "models";

pub fn run(app: &App, args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    let table = match args.workload.as_deref() {
        Some(MODELS) => list_models::table(),
        Some(name) => one(app.workload(name)?),
        None => all(app),
    };
    args.output.write(&table, out)
}

fn all(app: &App) -> Table {
    let workloads = app.registry.workloads.iter().map(|workload| -> &dyn Workload { &**workload });
    let mut table = table!("workloads", workloads, workload: &dyn Workload => {
        let axes: Vec<&str> = workload.axes().iter().map(|axis| axis.name).collect();
    } [
        ("workload") => Cell::text(workload.name()),
        ("axes") => Cell::text(axes.join(", ")),
        ("about").machine_only() => Cell::text(workload.about()),
    ]);
    for workload in &app.registry.workloads {
        table.note(format!("`{}`: {}.", workload.name(), workload.about()));
    }
    table.note(devices());
    table.note("`laptime list WORKLOAD` shows axes and metrics, `laptime bench WORKLOAD` measures.");
    table.note("`laptime list models` shows the built-in models.");
    table
}

/// The devices of this machine.
fn devices() -> String {
    match laptime_pipelines::gpus() {
        Ok(gpus) if !gpus.is_empty() => {
            let gpus: Vec<String> =
                gpus.iter().map(|gpu| format!("`{}` ({})", gpu.health.device, gpu.health.name)).collect();
            format!("Devices: `cpu`, {}.", gpus.join(", "))
        }
        Err(none) if laptime_bench::environment::nvidia_driver().is_some() => {
            format!("Devices: `cpu`; no GPU: {}.", none.reason)
        }
        _ => "Devices: `cpu`.".to_owned(),
    }
}

/// The values of an axis, if they are too long for the table.
fn long_list(kind: ValueKind) -> String {
    match kind {
        ValueKind::OneOf(names) if kind.words().len() > MOST_LISTED => format!(" ({})", names.join(", ")),
        _ => String::new(),
    }
}

/// The longest list of values in the table, to fit into 80 columns.
const MOST_LISTED: usize = 44;

/// The aliases of an axis, in words.
fn others(workload: &dyn Workload, axis: &str) -> String {
    let is_name = |alias: &Alias| matches!(alias.target, AliasTarget::Axis(of) if of == axis);
    let names: Vec<String> =
        workload.aliases().into_iter().filter(is_name).map(|alias| format!("`{}`", alias.name)).collect();
    if names.is_empty() { String::new() } else { format!("; also called {}", names.join(", ")) }
}

fn one(workload: &dyn Workload) -> Table {
    let columns = [
        Column::new("name", "name"),
        Column::new("kind", "kind"),
        Column::new("takes", "values"),
        Column::new("default", "default"),
        Column::new("about", "meaning").machine_only(),
    ];
    let mut table = Table::new("axes", columns);
    table.note(format!("`{}`: {}.", workload.name(), workload.about()));
    for axis in workload.axes() {
        let others = others(workload, axis.name);
        table.note(format!("`{}`: {}{}{others}.", axis.name, axis.about, long_list(axis.kind)));
        let default: Vec<String> = axis.default.iter().map(ToString::to_string).collect();
        table.push([
            Cell::text(axis.name),
            Cell::text("axis"),
            Cell::text(axis.kind.words()),
            Cell::text(default.join(",")),
            Cell::text(axis.about),
        ]);
    }
    for metric in workload.metrics() {
        table.note(format!("`{}`: {}.", metric.name, metric.about));
        let better = match metric.better {
            Better::Lower => "lower is better",
            Better::Higher => "higher is better",
        };
        let (name, about) = (Cell::text(metric.name), Cell::text(metric.about));
        table.push([name, Cell::text("metric"), Cell::text(better), Cell::Empty, about]);
    }
    table
}
