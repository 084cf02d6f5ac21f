use std::collections::BTreeMap;

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::{Field, Row};

use super::*;
use crate::{Nanos, Number, Trace, TraceBuilder};

fn part(dataset: &Path) -> Part {
    let metadata = vec![("laptime.source".to_owned(), "a.json".to_owned())];
    Part { dataset: dataset.to_owned(), run: "a run/50%".to_owned(), rank: 3, metadata }
}

/// The rows of a file, each as text by column.
fn rows(path: &Path) -> Vec<BTreeMap<String, String>> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let text = |field: Field| if let Field::Str(text) = field { text } else { field.to_string() };
    let cells = |row: Row| row.into_columns().into_iter().map(|(name, field)| (name, text(field))).collect();
    reader.get_row_iter(None).unwrap().map(|row| cells(row.unwrap())).collect()
}

fn cells<'a>(rows: &'a [BTreeMap<String, String>], column: &str) -> Vec<&'a str> {
    rows.iter().map(|row| row[column].as_str()).collect()
}

/// A host thread with two nested spans and a mark, a stream with the kernel that the inner one launched, and a curve.
fn small_trace() -> Trace {
    let mut builder = TraceBuilder::default();
    let (thread, stream) = (builder.thread(7, 1, "main"), builder.stream(7, 9, "stream 9"));
    builder.track_mut(stream).device = Some(2);
    let memory = builder.counter(7, "memory", "MiB");
    builder.span(thread, Nanos(10), Nanos(100), "step", "");
    let launch = builder.span(thread, Nanos(20), Nanos(5), "cudaLaunchKernel", "cuda_runtime");
    let kernel = builder.span(stream, Nanos(40), Nanos(60), "gemm", "kernel");
    builder.flow(launch, kernel);
    builder.mark(thread, Nanos(15), "epoch", "");
    builder.value(memory, Nanos(50), Number::Int(12));
    builder.build().unwrap()
}

#[test]
fn the_tables_of_a_trace_contain_all_of_its_events() {
    let (folder, trace) = (tempfile::tempdir().unwrap(), small_trace());
    let part = part(folder.path());
    for write in [spans, flows, marks, values] {
        write(&trace, &part).unwrap();
    }
    let file = |table: &str| rows(&folder.path().join(table).join("run=a%20run%2F50%25/rank=3/part-0.parquet"));
    let spans = file("spans");
    assert_eq!(cells(&spans, "id"), ["0", "1", "2"]);
    assert_eq!(cells(&spans, "start_ns"), ["10", "20", "40"]);
    assert_eq!(cells(&spans, "duration_ns"), ["100", "5", "60"]);
    assert_eq!(cells(&spans, "name"), ["step", "cudaLaunchKernel", "gemm"]);
    assert_eq!(cells(&spans, "category"), ["", "cuda_runtime", "kernel"]);
    assert_eq!(cells(&spans, "parent"), ["null", "0", "null"]);
    assert_eq!(cells(&spans, "track_name"), ["main", "main", "stream 9"]);
    assert_eq!(cells(&spans, "track_kind"), ["host thread", "host thread", "device stream"]);
    assert_eq!(cells(&spans, "process"), ["7", "7", "7"]);
    assert_eq!(cells(&spans, "device"), ["null", "null", "2"]);
    assert!(!spans[0].contains_key("rank") && !spans[0].contains_key("run"), "partition columns are in the path alone");
    let (flows, marks, values) = (file("flows"), file("marks"), file("values"));
    assert_eq!((cells(&flows, "from_span"), cells(&flows, "to_span")), (vec!["1"], vec!["2"]));
    assert_eq!((cells(&marks, "time_ns"), cells(&marks, "name")), (vec!["15"], vec!["epoch"]));
    assert_eq!((cells(&values, "value"), cells(&values, "unit")), (vec!["12.0"], vec!["MiB"]));
    assert_eq!(part.stored("spans", "laptime.schema").as_deref(), Some("1"));
    assert_eq!(part.stored("spans", "laptime.source").as_deref(), Some("a.json"));
    assert_eq!(part.stored("laps", "laptime.schema"), None);
}

#[test]
fn a_table_replaces_its_own_older_files_and_those_that_a_kill_left_unfinished() {
    let folder = tempfile::tempdir().unwrap();
    let part = part(folder.path());
    let write =
        |rows: usize| part.write_in_files_of("laps", rows, &[Column::delta("id", |row| row as u64)], 10).unwrap();
    let names = || -> Vec<String> {
        let entries = fs::read_dir(part.folder("laps")).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    write(25);
    assert_eq!(names(), ["part-0.parquet", "part-1.parquet", "part-2.parquet"]);
    let last = rows(&part.folder("laps").join("part-2.parquet"));
    assert_eq!(cells(&last, "id"), ["20", "21", "22", "23", "24"]);
    fs::write(part.folder("laps").join(".part-7.parquet.123.tmp"), "unfinished").unwrap();
    write(5);
    assert_eq!(names(), ["part-0.parquet"]);
    write(0);
    assert!(names().is_empty());
}

#[test]
fn an_export_that_fails_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let part = part(folder.path());
    fs::create_dir_all(part.folder("laps").join("part-0.parquet/in-the-way")).unwrap();
    let error = part.write("laps", 3, &[Column::delta("id", |row| row as u64)]).unwrap_err();
    assert!(error.to_string().contains("part-0.parquet"), "{error}");
    assert_eq!(fs::read_dir(part.folder("laps")).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn maps_and_missing_values_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let part = part(folder.path());
    let axes = [vec![("size", "512".to_owned()), ("dtype", "f32".to_owned())], vec![]];
    let metrics = [vec![], vec![("tok_s", Some(1.5)), ("rtf", None)]];
    let columns = [
        Column::text_map("axes", |row| axes[row].clone()),
        Column::number_map("metrics", |row| metrics[row].clone()),
        Column::optional_text("reason", |row| (row == 1).then_some("no")),
        Column::flag("is_cold", |row| row == 0),
        Column::number("share", |row| (row == 0).then_some(0.5)),
    ];
    part.write("results", 2, &columns).unwrap();
    let found = rows(&part.folder("results").join("part-0.parquet"));
    let expected = [["{size -> 512, dtype -> f32}", "{}"], ["{}", "{tok_s -> 1.5, rtf -> null}"]];
    assert_eq!(
        ["axes", "metrics"]
            .map(|column| cells(&found, column).iter().map(|cell| cell.replace('"', "")).collect::<Vec<_>>()),
        expected
    );
    assert_eq!(cells(&found, "reason"), ["null", "no"]);
    assert_eq!((cells(&found, "is_cold"), cells(&found, "share")), (vec!["true", "false"], vec!["0.5", "null"]));
}

/// Spans as torch.profiler writes them: operations with nested calls on a thread, kernels on a stream, times in
/// nanoseconds without a pattern.
fn torch_like(kernels: u64) -> Trace {
    let mut builder = TraceBuilder::default();
    let (thread, stream) = (builder.thread(1, 1, "thread 1"), builder.stream(1, 7, "stream 7"));
    let mut seed = 1_u64;
    let mut random = |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % most
    };
    let mut now = 1_000_000;
    for _ in 0..kernels {
        let (wait, length, name) = (random(4_000), 6_000 + random(12_000), random(40));
        builder.span(thread, Nanos(now + wait), Nanos(length), &format!("aten::operation_{name}"), "cpu_op");
        let launch = builder.span(
            thread,
            Nanos(now + wait + 2_000),
            Nanos(2_000 + random(1_500)),
            "cudaLaunchKernel",
            "cuda_runtime",
        );
        let name = format!("void at::native::kernel_{name}<float, 4>(at::native::Argument)");
        let kernel = builder.span(stream, Nanos(now + 12_000), Nanos(1_000 + random(8_000)), &name, "kernel");
        builder.flow(launch, kernel);
        now += 20_000;
    }
    builder.build().unwrap()
}

#[test]
fn a_span_takes_at_most_eight_bytes() {
    let (folder, trace) = (tempfile::tempdir().unwrap(), torch_like(20_000));
    let part = part(folder.path());
    spans(&trace, &part).unwrap();
    let bytes = fs::metadata(part.folder("spans").join("part-0.parquet")).unwrap().len();
    let per_span = bytes as f64 / trace.span_count() as f64;
    assert!(per_span <= 8.0, "{per_span:.2} bytes per span");
}
