//! `laptime syncs`, through the program, on a trace with known waits.

use laptime_trace::{Nanos, SpanEntry, Trace, TraceBuilder, TrackId, activity::category};

use crate::common::{Place, Printed, assert_golden, data, small_trace};

/// A decoder in PyTorch that reads each token back through pageable memory, and now and then logs a loss.
///
/// An token iterations 10 ms. Its forward pass is launched at once and computes for 7 ms; `sample` then copies the token to the
/// host, which holds the host up, and synchronises. Every third token `log` synchronises the whole device again.
fn decoder() -> Trace {
    let mut made = Decoder::new();
    for token in 0..6 {
        made.token(token);
    }
    made.builder.build().unwrap()
}

struct Decoder {
    builder: TraceBuilder,
    main: TrackId,
    stream: TrackId,
}

impl Decoder {
    fn new() -> Self {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let stream = builder.stream(1, 7, "stream 7");
        builder.track_mut(stream).device = Some(0);
        Self { builder, main, stream }
    }

    /// A span of the host, in microseconds.
    fn host(&mut self, start: u64, length: u64, name: &str, category: &str) -> SpanEntry {
        self.builder.span(self.main, Nanos(1000 * start), Nanos(1000 * length), name, category)
    }

    fn device(&mut self, launch: SpanEntry, start: u64, length: u64, name: &str, category: &str) -> SpanEntry {
        let work = self.builder.span(self.stream, Nanos(1000 * start), Nanos(1000 * length), name, category);
        self.builder.flow(launch, work);
        work
    }

    fn token(&mut self, token: u64) {
        let at = 10_000 * token;
        self.host(at, 10_000, &format!("ProfilerStep#{token}"), category::USER);
        self.host(at + 10, 400, "model.py(88): forward", category::PYTHON);
        self.host(at + 20, 300, "aten::linear", category::OPERATION);
        let launch = self.host(at + 100, 10, "cudaLaunchKernel", category::RUNTIME);
        self.device(launch, at + 150, 7000, "sm90_xmma_gemm_bf16bf16", category::KERNEL);
        self.host(at + 500, 6900, "sampler.py(41): sample", category::PYTHON);
        self.host(at + 510, 6880, "aten::item", category::OPERATION);
        self.host(at + 515, 6870, "aten::_local_scalar_dense", category::OPERATION);
        let launch = self.host(at + 520, 6680, "cudaMemcpyAsync", category::RUNTIME);
        let copy = self.device(launch, at + 7160, 4, "Memcpy DtoH (Device -> Pageable)", category::COPY);
        self.builder.span_field(copy, "bytes", 8_i64);
        self.host(at + 7210, 12, "cudaStreamSynchronize", category::RUNTIME);
        if token % 3 == 2 {
            self.host(at + 8000, 500, "train.py(120): log", category::PYTHON);
            self.host(at + 8010, 480, "torch/cuda/__init__.py(783): synchronize", category::PYTHON);
            self.host(at + 8020, 450, "cudaDeviceSynchronize", category::RUNTIME);
        }
    }
}

fn with_decoder() -> Place {
    let place = Place::new();
    laptime_trace::write(&decoder(), place.path("decode.json")).unwrap();
    place
}

fn syncs_at(place: &Place, width: &str, arguments: &[&str]) -> Printed {
    let mut command = place.command();
    command.env("COLUMNS", width).args(["syncs", "decode.json"]).args(arguments);
    Printed::from(command.output().unwrap())
}

#[test]
fn the_trace_of_the_page_is_the_one_of_these_tests() {
    let place = with_decoder();
    assert_golden("syncs/decode.json", &String::from_utf8(place.read("decode.json")).unwrap());
}

#[test]
fn waits_look_right_at_80_and_at_140_columns() {
    let place = with_decoder();
    for width in ["80", "140"] {
        for (name, arguments) in [("syncs", &[][..]), ("each", &["--each"][..])] {
            let printed = syncs_at(&place, width, arguments).done();
            let limit = width.parse().unwrap();
            assert!(printed.lines().all(|line| line.chars().count() <= limit), "{printed}");
            assert_golden(&format!("syncs/{name}_{width}.txt"), &printed);
        }
    }
}

#[test]
fn machines_get_every_column() {
    let place = with_decoder();
    for format in ["json", "csv"] {
        assert_golden(&format!("syncs/syncs.{format}"), &syncs_at(&place, "80", &["--format", format]).done());
    }
    let each: serde_json::Value =
        serde_json::from_str(&syncs_at(&place, "80", &["--each", "--format", "json"]).done()).unwrap();
    let waits = each["waits"].as_array().unwrap().clone();
    assert_eq!((waits.len(), &waits[4]["kind"], &waits[4]["lap"]), (14, &"implicit".into(), &"ProfilerStep#2".into()));
}

#[test]
fn a_broken_budget_names_laps_and_sites_and_exits_with_1() {
    let place = with_decoder();
    let printed = syncs_at(&place, "80", &["--budget", "2/lap"]);
    assert_eq!((printed.err.as_str(), printed.status), ("", Some(1)));
    assert_golden("syncs/over_80.txt", &printed.out);
    for (budget, status) in [("3/lap", 0), ("14", 0), ("13", 1), ("8ms/lap", 0), ("7ms/lap", 1), ("20ms", 1)] {
        assert_eq!(syncs_at(&place, "80", &["--budget", budget]).status, Some(status), "{budget}");
    }
}

#[test]
fn allowed_sites_do_not_count_and_unused_rules_give_a_warning() {
    let place = with_decoder();
    let printed = syncs_at(&place, "80", &["--budget", "2/lap", "--allow", "train.py*", "--allow", "hip*"]);
    assert_eq!(
        (printed.err.as_str(), printed.status),
        ("warning: `--allow hip*` matches no call and no site\n", Some(0))
    );
    assert!(printed.out.contains("2 syncs are allowed by `--allow` and do not count."), "{}", printed.out);
    assert!(printed.out.contains("Within the budget `2/lap`: no lap has more than 2 syncs."), "{}", printed.out);
}

#[test]
fn an_invalid_budget_is_an_error_with_examples() {
    let place = with_decoder();
    for budget in ["1/token", "two", "-1", "1.5"] {
        let printed = syncs_at(&place, "80", &["--budget", budget]);
        assert_eq!((printed.out.as_str(), printed.status), ("", Some(2)), "{budget}");
        assert!(
            printed.err.contains("is not a budget") && printed.err.contains("`1/lap`, `64`, `2ms/lap`"),
            "{}",
            printed.err
        );
    }
    assert_eq!(syncs_at(&place, "80", &["--allow", "x"]).status, Some(2), "nothing is allowed without a budget");
}

#[test]
fn a_budget_per_lap_without_laps_lists_the_names_that_repeat() {
    let place = Place::new();
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    for start in [0, 20] {
        builder.span(main, Nanos(start), Nanos(10), "load", "");
    }
    builder.span(main, Nanos(40), Nanos(1000), "cudaDeviceSynchronize", category::RUNTIME);
    laptime_trace::write(&builder.build().unwrap(), place.path("load.json")).unwrap();
    let message = place.laptime(["syncs", "load.json", "--budget", "1/lap"]).failed();
    assert!(message.contains("no laps were found") && message.contains("`--lap NAME`"), "{message}");
    assert!(message.contains("`load` (2 spans)"), "{message}");
    let message = place.laptime(["syncs", "load.json", "--lap", "laod"]).failed();
    assert!(
        message.contains("nothing in the trace is named `laod`") && message.contains("did you mean `load`?"),
        "{message}"
    );
    place.laptime(["syncs", "load.json", "--budget", "1/lap", "--lap", "load"]).done();
}

#[test]
fn a_trace_without_devices_and_syncs_is_an_error_with_a_hint() {
    let place = Place::new();
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    builder.span(main, Nanos(0), Nanos(10), "load", "");
    laptime_trace::write(&builder.build().unwrap(), place.path("host.json")).unwrap();
    let message = place.laptime(["syncs", "host.json"]).failed();
    assert!(message.contains("no GPU work") && message.contains("ProfilerActivity.CUDA"), "{message}");
}

#[test]
fn sync_points_are_found() {
    let place = Place::new();
    laptime_trace::write(&small_trace(), place.path("small.pftrace")).unwrap();
    let printed = place.laptime(["syncs", "small.pftrace", "--budget", "1/lap"]).done();
    assert!(printed.contains("generate/decode/read_token"), "{printed}");
    let recorded = place.laptime([std::ffi::OsStr::new("syncs"), data("kineto/two_streams.json").as_os_str()]);
    assert_eq!(recorded.status, Some(0), "{}", recorded.err);
}

#[test]
fn one_of_several_traces_over_its_budget_fails_the_command() {
    let place = with_decoder();
    laptime_trace::write(&small_trace(), place.path("small.json")).unwrap();
    let printed = place.laptime(["syncs", "decode.json", "small.json", "--budget", "2/lap"]);
    assert_eq!((printed.err.as_str(), printed.status), ("", Some(1)));
    assert_golden("syncs/several.txt", &printed.out);
    place.laptime(["syncs", "decode.json", "small.json", "--budget", "3/lap"]).done();
    let message = place.laptime(["syncs", "decode.json", "small.json", "--each"]).failed();
    assert!(message.contains("one trace"), "{message}");
}
