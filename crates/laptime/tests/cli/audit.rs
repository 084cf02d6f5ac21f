//! `laptime audit syncs`, through the program, on source with known waits.

use laptime_trace::{LAP, Nanos, SYNC, Trace, TraceBuilder, activity::category};

use crate::common::{Place, Printed, assert_golden};

const SAMPLER: &str = "\
use laptime_probe::{lap, sync_point};

impl Sampler {
    /// Draws the next token of every row.
    fn sample(&mut self, logits: &Tensor) -> Result<Vec<u32>> {
        let mut tokens = Vec::new();
        for row in logits.chunk(self.rows, 0)? {
            let best = row.argmax(0)?;
            tokens.push(best.to_scalar::<u32>()?);
        }
        Ok(tokens)
    }

    fn generate(&mut self, most: usize) -> Result<Vec<u32>> {
        let mut tokens = Vec::new();
        for token in 0..most {
            let _lap = lap!(\"token\", token = token);
            let logits = self.model.step()?;
            tokens.push(sync_point!(\"read_token\", self.pick(&logits)?.to_scalar()?));
        }
        // sync: allowed, once at the end
        self.device.synchronize()?;
        Ok(tokens)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_first_token_is_the_best() {
        assert_eq!(sampler().sample(&logits()).unwrap()[0].to_vec1::<u32>().unwrap(), [1]);
    }
}
";

const TRAIN: &str = "\
import torch


class Trainer:
    def step(self, batches):
        for batch in batches:
            loss = self.loss(batch)
            if torch.isnan(loss).any():
                raise ValueError(loss.item())
            self.history.append(loss.detach().cpu().numpy())
        torch.cuda.synchronize()
        return self.history.to(self.device)

    def read(self, steps):
        return [step.item() for step in steps]
";

/// Source with seven sites that count, one that is allowed and one in a test.
fn with_source() -> Place {
    let place = Place::new();
    for folder in ["src", "target", "src/.hidden", "venv"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    place.write("src/sampler.rs", SAMPLER);
    place.write("src/train.py", TRAIN);
    place.write("src/notes.txt", "x.item()");
    for passed_over in ["target/x.rs", "src/.hidden/x.py", "venv/x.py"] {
        place.write(passed_over, "fn f() { x.to_vec1(); }");
    }
    place
}

fn audit_at(place: &Place, width: &str, arguments: &[&str]) -> Printed {
    let mut command = place.command();
    command.env("COLUMNS", width).args(["audit", "syncs"]).args(arguments);
    Printed::from(command.output().unwrap())
}

fn json(place: &Place, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&audit_at(place, "80", &[arguments, &["--format", "json"]].concat()).done()).unwrap()
}

/// A run of this source: three tokens of `generate`, and two steps of the trainer, each with a wait in `step`, where
/// `cpu` was called, and one at the end that no source has.
fn run() -> Trace {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    for token in 0..3 {
        let start = 10_000_000 * token;
        builder.span(main, Nanos(start), Nanos(9_000_000), "token", LAP);
        let wait = builder.span(main, Nanos(start + 1_000_000), Nanos(7_500_000), "read_token", SYNC);
        builder.span_field(wait, "file", "/build/src/sampler.rs");
        builder.span_field(wait, "line", 19_i64);
    }
    for step in 0..2 {
        let start = 40_000_000 + 10_000_000 * step;
        builder.span(main, Nanos(start), Nanos(9_000_000), "src/train.py(5): step", category::PYTHON);
        let called = "<built-in method cpu of Tensor object at 0x7f00>";
        builder.span(main, Nanos(start + 1_000_000), Nanos(5_000_000), called, category::PYTHON);
        let call = "cudaStreamSynchronize";
        builder.span(main, Nanos(start + 2_000_000), Nanos(3_000_000), call, category::RUNTIME);
    }
    builder.span(main, Nanos(70_000_000), Nanos(500_000), "cudaDeviceSynchronize", category::RUNTIME);
    builder.build().unwrap()
}

#[test]
fn sites_look_right_at_80_and_at_140_columns() {
    let place = with_source();
    for width in ["80", "140"] {
        let printed = audit_at(&place, width, &["."]).done();
        let limit = width.parse().unwrap();
        assert!(printed.lines().all(|line| line.chars().count() <= limit), "{printed}");
        assert_golden(&format!("audit/sites_{width}.txt"), &printed);
    }
    let all = audit_at(&place, "140", &["src", "--tests", "--allowed"]).done();
    assert_golden("audit/all_140.txt", &all);
}

#[test]
fn machines_get_flat_rows_and_every_column() {
    let place = with_source();
    for format in ["csv", "json"] {
        assert_golden(&format!("audit/sites.{format}"), &audit_at(&place, "80", &["src", "--format", format]).done());
    }
    for format in ["md", "tsv", "jsonl"] {
        assert!(audit_at(&place, "80", &["src", "--format", format]).done().contains("to_scalar"), "{format}");
    }
}

#[test]
fn a_site_stays_whole_however_narrow_the_terminal_is() {
    let place = with_source();
    let printed = audit_at(&place, "24", &["src"]).done();
    assert!(printed.contains("\nsrc/sampler.rs:9   to_scalar "), "{printed}");
}

#[test]
fn a_broken_limit_exits_with_1() {
    let place = with_source();
    for (arguments, status, note) in [
        (&["--budget", "7"][..], 0, "Within the budget of 7: 7 sites."),
        (&["--budget", "6"][..], 1, "Over the budget of 6 by 1: 7 sites."),
        (&["--max-loop-depth", "1"][..], 0, "No site is inside more than 1 loop."),
        (&["--max-loop-depth", "0"][..], 1, "Inside more than 0 loops: `src/sampler.rs:9`"),
        (&["--budget", "5", "--certain"][..], 1, "Over the budget of 5 by 1: 6 sites."),
    ] {
        let printed = audit_at(&place, "2000", &[&["src"], arguments].concat());
        assert_eq!((printed.err.as_str(), printed.status), ("", Some(status)), "{arguments:?}");
        assert!(printed.out.contains(note), "{note}: {}", printed.out);
    }
}

#[test]
fn rules_add_calls_allow_sites_and_skip_files() {
    let place = with_source();
    let rules = "skip = [\"train.py\"]\n[[call]]\nname = \"pick\"\n[[call]]\nname = \"step\"\nlikely = true\n\
                 [[allow]]\npath = \"src/sampler.rs\"\nfunction = \"Sampler::sample\"\nreason = \"few rows\"\n\
                 [[allow]]\ncall = \"to_vec9\"\nreason = \"old\"\n";
    place.write("src/laptime-audit.toml", rules);
    let printed = audit_at(&place, "140", &["src", "--allowed", "--call", "chunk"]);
    assert_eq!(printed.err, "warning: an `allow` rule matches no site: its reason is `old`\n");
    assert_golden("audit/rules_140.txt", &printed.out);
    place.write("other.toml", "");
    assert_eq!(json(&place, &["src", "--rules", "other.toml"])["site_count"], 7);
}

#[test]
fn a_run_shows_the_cost_of_sites_and_syncs_outside_of_them() {
    let place = with_source();
    std::fs::create_dir(place.path("run")).unwrap();
    laptime_trace::write(&run(), place.path("run/trace.json")).unwrap();
    for width in ["80", "140"] {
        let printed = audit_at(&place, width, &["src", "--run", "run"]).done();
        assert_golden(&format!("audit/run_{width}.txt"), &printed);
    }
    let rows = json(&place, &["src", "--run", "run/trace.json"])["sites"].as_array().unwrap().clone();
    let message = |at: usize| (rows[at]["call"].clone(), rows[at]["recorded"].clone(), rows[at]["run"].clone());
    assert_eq!(message(0), ("sync_point! read_token".into(), 3.into(), "seen".into()));
    assert_eq!(rows[0]["waited_ms"], 22.5);
    assert_eq!(rows[0]["waits_per_lap"], 1.0);
    assert_eq!(message(1), ("cpu".into(), 2.into(), "seen".into()));
    assert_eq!(rows[2]["recorded"], serde_json::Value::Null, "never is empty, not 0");
    assert_eq!(message(rows.len() - 1), ("cudaDeviceSynchronize".into(), 1.into(), "no site".into()));
}

#[test]
fn a_run_without_source_lines_gives_a_warning() {
    let place = with_source();
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    builder.span(main, Nanos(0), Nanos(500_000), "cudaDeviceSynchronize", category::RUNTIME);
    laptime_trace::write(&builder.build().unwrap(), place.path("bare.json")).unwrap();
    let printed = audit_at(&place, "140", &["src", "--run", "bare.json"]);
    assert!(printed.err.contains("no sync in the run has a source line"), "{}", printed.err);
    assert_eq!(printed.status, Some(0));
}

#[test]
fn invalid_audit_input_is_an_error_with_a_hint() {
    let place = with_source();
    std::fs::create_dir(place.path("empty")).unwrap();
    place.write("bad.toml", "[[allow]]\npath = \"x\"\ncall = 3\n");
    for (arguments, expected) in [
        (&["missing"][..], "cannot read `missing`"),
        (&["empty"][..], "there are no Rust or Python files in `empty`"),
        (&["src/notes.txt"][..], "`src/notes.txt` is not a Rust or Python file"),
        (&["src", "--rules", "bad.toml"][..], "the rules `bad.toml`, line 3:"),
        (&["src", "--rules", "none.toml"][..], "cannot read the rules `none.toml`"),
        (&["src", "--run", "empty"][..], "`empty` is not a run folder with a trace"),
        (&["src", "--run", "none"][..], "cannot read trace `none`"),
        (&["src", "--call", "()"][..], "`--call ()` is not a name of a call"),
    ] {
        let message = audit_at(&place, "80", arguments).failed();
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn files_that_do_not_parse_are_named_and_stop_nothing() {
    let place = with_source();
    place.write("src/broken.rs", "fn f() {\n    let = x.to_vec1();\n}\n");
    place.write("src/broken.py", "def f(:\n    x.item()\n");
    place.write("src/latin.py", b"# caf\xe9\nx.item()\n");
    place.write("src/deep.rs", format!("fn f() {{ {}x.to_vec1(){} }}", "(".repeat(100_000), ")".repeat(100_000)));
    place.write("src/empty.py", "");
    let printed = audit_at(&place, "2000", &["src"]).done();
    assert!(printed.contains("not read 3"), "{printed}");
    assert!(printed.contains("`src/broken.rs:2` ("), "{printed}");
    assert!(printed.contains("`src/broken.py:1` ("), "{printed}");
    assert!(printed.contains("`src/deep.rs` (nesting is deeper than"), "{printed}");
    assert!(printed.contains("\nsrc/latin.py:2"), "{printed}");
    let rows = audit_at(&place, "80", &["src", "--format", "csv"]);
    assert!(rows.err.contains("warning: `src/broken.rs:2` was only partly read"), "{}", rows.err);
}

#[cfg(unix)]
#[test]
fn links_are_not_followed_so_that_a_circle_ends() {
    let place = with_source();
    std::os::unix::fs::symlink(place.path("src"), place.path("src/again")).unwrap();
    std::os::unix::fs::symlink(place.path("src/train.py"), place.path("src/other.py")).unwrap();
    assert_eq!(json(&place, &["src"])["site_count"], 7);
}

#[test]
fn a_test_module_in_its_own_file_is_recognised() {
    let place = with_source();
    place.write("src/lib.rs", "#[cfg(test)]\nmod cases;\n");
    place.write("src/cases.rs", "fn f() { x.to_vec1(); }\n");
    let answer = json(&place, &["src"]);
    assert_eq!((&answer["site_count"], &answer["test_sites"]), (&7.into(), &2.into()));
}

#[test]
fn syncs_of_our_own_recordings_are_found_in_the_source() {
    let place = Place::new();
    let words =
        "profile chain --device cpu --small 4 --large 4 --threads 1 --iterations 2 --warmup 1 --out run --quiet";
    assert_eq!(place.laptime(words.split(' ')).status, Some(0));
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../pipelines/src/chain.rs");
    let arguments = ["audit", "syncs", source.to_str().unwrap(), "--run", "run", "--format", "json"];
    let answer: serde_json::Value = serde_json::from_str(&place.laptime(arguments).done()).unwrap();
    let first = &answer["sites"][0];
    assert_eq!((&first["call"], &first["run"]), (&"sync_point! read_result".into(), &"seen".into()));
    assert!(first["file"].as_str().unwrap().ends_with("chain.rs"), "{first}");
    assert!(first["recorded"].as_u64().unwrap() >= 2 && first["waited_ms"].as_f64().is_some(), "{first}");
    assert_eq!(answer["waits_without_site"], 0);
}
