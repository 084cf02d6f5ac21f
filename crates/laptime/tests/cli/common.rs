//! Runs the program in a fresh folder, and compares its output.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use laptime_trace::{LAP, Nanos, Trace, TraceBuilder};

/// A fresh folder to run in.
pub struct Place {
    folder: tempfile::TempDir,
}

/// The output of a run of the program.
#[derive(Debug, PartialEq, Eq)]
pub struct Printed {
    pub out: String,
    pub err: String,
    pub status: Option<i32>,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The program, to be run in this folder, 140 columns wide.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_laptime"));
        command
            .current_dir(self.folder.path())
            .env("COLUMNS", "140")
            .env("LAPTIME_HOME", self.folder.path())
            .env_remove("CARGO")
            .env_remove("NO_COLOR");
        command
    }

    pub fn laptime(&self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Printed {
        Printed::from(self.command().args(arguments).output().unwrap())
    }
}

impl From<Output> for Printed {
    fn from(output: Output) -> Self {
        Self {
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            status: output.status.code(),
        }
    }
}

impl Printed {
    /// The program succeeded without a message on standard error.
    pub fn done(self) -> String {
        assert_eq!((self.err.as_str(), self.status), ("", Some(0)), "{}", self.out);
        self.out
    }

    /// The program failed: exit status 2, nothing on standard output, one error with a hint.
    pub fn failed(self) -> String {
        assert_eq!((self.out.as_str(), self.status), ("", Some(2)), "{}", self.err);
        // Warnings, such as that of a debug build, come first.
        let errors = self.err.lines().skip_while(|line| line.starts_with("warning: "));
        assert!(errors.clone().next().is_some_and(|line| line.starts_with("error: ")), "{}", self.err);
        assert_eq!(self.err.matches("error: ").count(), 1, "{}", self.err);
        assert!(self.err.contains("\nhint: "), "{}", self.err);
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self.err
    }
}

/// A trace with everything that tables show: laps, a sync, a device, threads, an open span, dropped events.
pub fn small_trace() -> Trace {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 10, "main");
    let stream = builder.stream(1, 7, "stream 7");
    let span = |builder: &mut TraceBuilder, start, length, name, category| {
        builder.span(main, Nanos(start), Nanos(length), name, category)
    };
    span(&mut builder, 0, 90_000, "generate", "");
    span(&mut builder, 1_000, 9_000, "prefill", "");
    for token in 0..3 {
        let start = 12_000 + 25_000 * token;
        span(&mut builder, start, 24_000, "decode", LAP);
        let forward = span(&mut builder, start + 500, 4_000, "forward", "");
        span(&mut builder, start + 5_000, 18_000 + 200 * token, "read_token", laptime_trace::SYNC);
        let on_device = builder.span(stream, Nanos(start + 900), Nanos(21_000), "forward", "");
        builder.flow(forward, on_device);
    }
    let open = builder.span(main, Nanos(95_000), Nanos(5_000), "unload", "");
    builder.leave_open(open);
    builder.lost = 4;
    builder.clock_uncertainty = Some(Nanos(1_500));
    builder.build().unwrap()
}

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name)
}

/// Compares with a golden file, or writes it if `LAPTIME_BLESS` is set.
pub fn assert_golden(name: &str, printed: &str) {
    let path = data(name);
    if std::env::var_os("LAPTIME_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, printed).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(expected == printed, "{name} differs.\nexpected:\n{expected}\nprinted:\n{printed}");
}
