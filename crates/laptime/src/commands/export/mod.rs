//! `laptime export`: writes traces and runs as Parquet tables.

mod inputs;
mod nodes;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use laptime_report::{Cell, Table, table};
use laptime_trace::format::parquet::Part;
use laptime_trace::{Trace, run::RESULTS_FILE, run::fingerprint};

use self::inputs::{Input, inputs, rank_in};
use crate::output::{FormatArgs, warn, write_to_screen};
use crate::{cli::Status, failure::refuse, run_input};

/// Export traces and runs as Parquet tables, for DuckDB, Spark and other query engines
///
/// The dataset has one folder per table: spans, flows, marks, values, laps, findings, summary, results, samples. Files
/// are in `TABLE/run=RUN/rank=RANK/`. Exporting more adds to the dataset; exporting a trace again replaces its rows.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  laptime export runs/train-1/rank*.json.gz --to dataset\n  duckdb -c \"SELECT * FROM 'dataset/summary/**/*.parquet'\""
)]
pub struct Args {
    /// Trace, folder of a run, or folder of traces with one file per rank
    #[arg(required = true, value_name = "TRACE|RUN")]
    pub inputs: Vec<PathBuf>,
    /// Folder of the dataset; it is created or added to
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Name of the run [default: the folder of a run or of ranks, the file name of a single trace]
    #[arg(long, value_name = "NAME")]
    pub run: Option<String>,
    /// Replace rows of the same run and rank that came from another trace
    #[arg(long)]
    pub replace: bool,
    /// Convert on the nodes of a Slurm job: each node converts the files that it has, into a dataset that all of them see
    #[arg(long)]
    pub slurm: bool,
    /// Nodes for `--slurm` [default: those of the current job]
    #[arg(long, value_name = "NODES", requires = "slurm")]
    pub nodelist: Option<String>,
    /// This is the task of one node
    #[arg(long, hide = true)]
    on_node: bool,
    #[command(flatten)]
    format: FormatArgs,
}

/// The rows written for one input.
struct Written {
    run: String,
    rank: u64,
    source: String,
    spans: Option<u64>,
    results: Option<u64>,
    world_size: Option<u64>,
}

pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Status> {
    if args.run.as_deref().is_some_and(str::is_empty) {
        return refuse("the name of the run is empty", "`--run NAME` needs a name");
    }
    if args.to.exists() && !args.to.is_dir() {
        let reason = format!("`{}` is not a folder", args.to.display());
        return refuse(reason, "`--to DIR` names the folder of the dataset");
    }
    if args.slurm {
        return nodes::run(args, out);
    }
    let inputs = if args.on_node { inputs(&nodes::present(&args.inputs))? } else { inputs(&args.inputs)? };
    let mut export = Export { args, done: BTreeSet::new(), written: Vec::new() };
    let mut failed = 0;
    for input in &inputs {
        if args.on_node && !nodes::claim(&args.to, input.path())? {
            continue;
        }
        if let Err(error) = export.add(input) {
            if inputs.len() == 1 {
                return Err(error.context(format!("cannot export `{}`", input.path().display())));
            }
            failed += 1;
            warn(&format!("`{}`: {error:#}; it is left out", input.path().display()));
        }
    }
    if !args.on_node {
        export.warn_about_ranks();
    }
    if !export.written.is_empty() {
        write_to_screen(&export.table(), args.format.format(), out)?;
    }
    if failed == 0 {
        return Ok(Status::Done);
    }
    let reason = format!("{failed} of {} inputs could not be exported", inputs.len());
    refuse(reason, "the warnings above give the reasons; the others are in the dataset")
}

struct Export<'a> {
    args: &'a Args,
    /// The runs and ranks so far, to refuse a second trace of a rank.
    done: BTreeSet<(String, u64, bool)>,
    written: Vec<Written>,
}

impl Export<'_> {
    fn add(&mut self, input: &Input) -> anyhow::Result<()> {
        match input {
            Input::Trace { path, run } => self.add_trace(path, run.as_deref()),
            Input::Results { folder, run } => self.add_results(folder, run),
        }
    }

    /// Adds a trace, or each rank of a recording of several ranks.
    fn add_trace(&mut self, path: &Path, folder_run: Option<&str>) -> anyhow::Result<()> {
        let mut trace = crate::trace_input::read(path).context("cannot read it")?;
        std::mem::take(&mut trace.warnings)
            .iter()
            .for_each(|warning| warn(&format!("`{}`: {warning}", path.display())));
        let Some(ranks) = trace.ranks() else { return self.add_rank(&trace, path, folder_run) };
        for (rank, processes) in ranks {
            let part = trace
                .clone()
                .of_rank(rank, &processes)
                .with_context(|| format!("cannot divide it by rank ({rank})"))?;
            self.add_rank(&part, path, folder_run)?;
        }
        Ok(())
    }

    fn add_rank(&mut self, trace: &Trace, path: &Path, folder_run: Option<&str>) -> anyhow::Result<()> {
        let in_name = rank_in(path);
        let rank = trace.metadata.rank().or(in_name);
        if let (Some(rank), Some(other)) = (trace.metadata.rank(), in_name.filter(|_| rank != in_name)) {
            warn(&format!("`{}` contains rank {rank}, although its name says {other}", path.display()));
        }
        let run = self.args.run.clone().or(folder_run.map(str::to_owned));
        let is_one_of_several = rank.is_some() && trace.metadata.world_size() != Some(1);
        let run = run.unwrap_or_else(|| inputs::run_of(path, is_one_of_several));
        let part = self.part(&run, rank.unwrap_or(0), false, identity(trace), metadata(trace, path))?;
        tables::write_trace(trace, &source(path), &part)?;
        let (spans, world_size) = (Some(trace.span_count() as u64), trace.metadata.world_size());
        self.written.push(Written { run, rank: part.rank, source: source(path), spans, results: None, world_size });
        Ok(())
    }

    fn add_results(&mut self, folder: &Path, run: &str) -> anyhow::Result<()> {
        let results = run_input::results(&folder.join(RESULTS_FILE), folder)?;
        let manifest = run_input::manifest(folder)?;
        let run = self.args.run.clone().unwrap_or_else(|| run.to_owned());
        let identity = fingerprint(&serde_json::to_vec(&manifest).unwrap_or_default());
        let part = self.part(&run, 0, true, identity, vec![])?;
        tables::write_results(manifest.as_ref(), &results, &part)?;
        let (source, results) = (source(folder), Some(results.len() as u64));
        self.written.push(Written { run, rank: 0, source, spans: None, results, world_size: None });
        Ok(())
    }

    /// The part of a run and rank; refuses to replace the rows of another trace.
    fn part(
        &mut self,
        run: &str,
        rank: u64,
        is_results: bool,
        identity: String,
        mut metadata: Vec<(String, String)>,
    ) -> anyhow::Result<Part> {
        if !self.done.insert((run.to_owned(), rank, is_results)) {
            let reason = format!("run `{run}` already has a trace of rank {rank}");
            return refuse(reason, "`--run NAME` exports this one as another run");
        }
        metadata.push((IDENTITY.to_owned(), identity.clone()));
        let part = Part { dataset: self.args.to.clone(), run: run.to_owned(), rank, metadata };
        let table = if is_results { "results" } else { "spans" };
        let known = part.stored(table, IDENTITY);
        if known.is_some_and(|known| known != identity) && !self.args.replace {
            let reason = format!("the dataset already has rank {rank} of run `{run}` from something else");
            return refuse(reason, "`--run NAME` adds this as another run, `--replace` replaces the old one");
        }
        Ok(part)
    }

    /// Warns about missing ranks, and about traces of different jobs in one run.
    fn warn_about_ranks(&self) {
        let mut runs: BTreeMap<&str, Vec<&Written>> = BTreeMap::new();
        self.written.iter().for_each(|written| runs.entry(&written.run).or_default().push(written));
        for (run, ranks) in runs {
            let sizes: BTreeSet<u64> = ranks.iter().filter_map(|rank| rank.world_size).collect();
            if sizes.len() > 1 {
                warn(&format!("run `{run}` has traces of jobs with different numbers of ranks: {}", listed(&sizes)));
            }
            let Some(&size) = sizes.last() else { continue };
            let beyond: BTreeSet<u64> = ranks.iter().map(|rank| rank.rank).filter(|&rank| rank >= size).collect();
            if !beyond.is_empty() {
                warn(&format!("run `{run}` has {size} ranks, but there are traces of rank {}", listed(&beyond)));
            }
            let missing: BTreeSet<u64> = (0..size.min(1 << 20)).filter(|&rank| !self.has(run, rank)).collect();
            if !missing.is_empty() {
                let count = missing.len();
                warn(&format!("run `{run}`: {count} of {size} ranks are not in the dataset: {}", listed(&missing)));
            }
        }
    }

    fn has(&self, run: &str, rank: u64) -> bool {
        let part = Part { dataset: self.args.to.clone(), run: run.to_owned(), rank, metadata: vec![] };
        part.folder(tables::LAST).join("part-0.parquet").is_file()
    }

    fn table(&self) -> Table {
        let mut table = table!("export", &self.written, written: &Written => [
            ("run") => Cell::text(&written.run),
            ("rank") => Cell::Whole(i64::try_from(written.rank).unwrap_or(i64::MAX)),
            ("source") => Cell::text(&written.source),
            ("spans") => Cell::from(written.spans.map(Cell::Count)),
            ("results") => Cell::from(written.results.map(Cell::Count)),
        ]);
        table.note(format!("The dataset is in `{}`.", self.args.to.display()));
        table
    }
}

/// The metadata key for the identity of a trace.
const IDENTITY: &str = "laptime.identity";

/// Identifies a trace independently of its path.
fn identity(trace: &Trace) -> String {
    let Trace { origin, lost, .. } = trace;
    let counts = (trace.span_count(), trace.mark_count(), trace.flows().len());
    fingerprint(format!("{origin:?} {:?} {counts:?} {lost} {:?}", trace.bounds(), trace.metadata.rank()).as_bytes())
}

fn metadata(trace: &Trace, path: &Path) -> Vec<(String, String)> {
    let entries = [
        ("laptime.version", Some(env!("CARGO_PKG_VERSION").to_owned())),
        ("laptime.source", Some(source(path))),
        ("laptime.clock_origin", Some(trace.origin.name.clone())),
        ("laptime.clock_origin_unix_ns", trace.origin.unix_nanos.map(|nanos| nanos.to_string())),
        ("laptime.clock_uncertainty_ns", trace.clock_uncertainty.map(|nanos| nanos.0.to_string())),
    ];
    entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn source(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The maximum number of ranks in a warning.
const LISTED: usize = 8;

fn listed(numbers: &BTreeSet<u64>) -> String {
    let mut words: Vec<String> = numbers.iter().take(LISTED).map(u64::to_string).collect();
    if numbers.len() > LISTED {
        words.push("…".to_owned());
    }
    words.join(", ")
}
