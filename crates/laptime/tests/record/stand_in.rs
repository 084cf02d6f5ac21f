//! A stand-in for CUDA and CUPTI, compiled once, and programs recorded with it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    rc::Rc,
    sync::OnceLock,
};

use laptime_trace::{Activity, Trace};

/// The folders of the stand-in.
pub struct StandIn {
    /// The driver and CUPTI.
    pub libraries: PathBuf,
    /// The driver alone.
    pub driver: PathBuf,
    /// The driver and a CUPTI that cannot record single calls.
    pub old: PathBuf,
    /// A program that does what its arguments say.
    pub program: PathBuf,
    /// A library that registers CUPTI callbacks of its own.
    pub kineto: PathBuf,
    /// The same, but it looks CUPTI's functions up with `dlsym`, as JAX does.
    pub jax: PathBuf,
}

/// Compiles the stand-in, once per run of the tests.
pub fn stand_in() -> &'static StandIn {
    static MADE: OnceLock<StandIn> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stand-in-{}", std::process::id()));
        let [libraries, driver, old] = ["all", "driver", "old"].map(|name| folder.join(name));
        fs::create_dir_all(&libraries).unwrap();
        fs::create_dir_all(&driver).unwrap();
        fs::create_dir_all(&old).unwrap();
        compile("cuda.c", &libraries.join("libcuda.so.1"), &["-shared", "-Wl,-soname,libcuda.so.1"]);
        for folder in [&driver, &old] {
            fs::copy(libraries.join("libcuda.so.1"), folder.join("libcuda.so.1")).unwrap();
        }
        let flags = ["-shared", "-Wl,-soname,libcupti.so.13"];
        compile("cupti.c", &old.join("libcupti.so.13"), &[&flags[..], &["-DOLD_CUPTI"]].concat());
        compile("cupti.c", &libraries.join("libcupti.so.13"), &flags);
        let program = folder.join("program");
        compile("program.c", &program, &[]);
        let kineto = folder.join("libkineto.so");
        let cupti = libraries.join("libcupti.so.13");
        compile("kineto.c", &kineto, &["-shared", cupti.to_str().unwrap()]);
        let jax = folder.join("libjax.so");
        compile("kineto.c", &jax, &["-shared", "-DBY_DLSYM", cupti.to_str().unwrap()]);
        StandIn { libraries, driver, old, program, kineto, jax }
    })
}

fn compile(source: &str, to: &Path, flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/stand-in-cuda").join(source);
    let mut command = Command::new("cc");
    command.args(["-O1", "-fPIC", "-Wall", "-o"]).arg(to).arg(source).args(flags).args(["-ldl", "-lpthread"]);
    assert!(command.status().unwrap().success(), "{command:?}");
}

/// A fresh folder to record in.
#[derive(Clone)]
pub struct Place {
    folder: Rc<tempfile::TempDir>,
}

/// What a recording left behind.
pub struct Recorded {
    pub out: String,
    pub err: String,
    pub status: Option<i32>,
    place: Place,
}

impl Place {
    pub fn new() -> Self {
        // Short: the address of a socket has at most 108 bytes.
        Self { folder: Rc::new(tempfile::Builder::new().prefix("lt").tempdir_in("/tmp").unwrap()) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The path as text, for arguments.
    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Laptime with the stand-in.
    pub fn laptime(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_laptime"));
        command
            .current_dir(self.folder.path())
            .env("LAPTIME_HOME", self.path("home"))
            .env("XDG_RUNTIME_DIR", self.path("runtime"))
            .env("LD_LIBRARY_PATH", &stand_in().libraries);
        for name in ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "LAPTIME_RECORD", "RANK", "LOCAL_RANK"] {
            command.env_remove(name);
        }
        command
    }

    /// `laptime record FLAGS -- program WORDS`, to be started.
    pub fn command(&self, flags: &[&str], words: &[&str]) -> Command {
        let mut command = self.laptime();
        command.arg("record").args(flags).args(["--out", "run", "--"]).arg(&stand_in().program).args(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Records the program to its end.
    pub fn record(&self, flags: &[&str], words: &[&str]) -> Recorded {
        self.recorded(self.command(flags, words).output().unwrap())
    }

    pub fn recorded(&self, output: Output) -> Recorded {
        Recorded {
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            status: output.status.code(),
            place: self.clone(),
        }
    }

    pub fn finished(&self, child: Child) -> Recorded {
        self.recorded(child.wait_with_output().unwrap())
    }

    /// Waits until the program has come to `touch NAME`.
    pub fn await_file(&self, name: &str) {
        while !self.path(name).exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    pub fn touch(&self, name: &str) {
        fs::write(self.path(name), b"").unwrap();
    }

    /// Asks the recorder from another process.
    pub fn ask(&self, words: &[impl AsRef<OsStr>]) -> String {
        let output = self.laptime().arg("record").args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

impl Recorded {
    pub fn trace(&self) -> Trace {
        laptime_trace::read(self.place.path("run/trace.pftrace"))
            .unwrap_or_else(|error| panic!("{error}: {}", self.err))
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.place.path("run/record.json")).unwrap()).unwrap()
    }

    /// How many spans of this kind there are.
    pub fn count(&self, activity: Activity) -> usize {
        count(&self.trace(), activity)
    }

    /// The program ended with status 0.
    pub fn good(self) -> Self {
        assert_eq!(self.status, Some(0), "{}", self.err);
        self
    }
}

pub fn count(trace: &Trace, activity: Activity) -> usize {
    trace.spans().filter(|span| span.activity() == activity).count()
}
