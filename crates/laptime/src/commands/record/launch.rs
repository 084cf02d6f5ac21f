//! Starts the program, forwards signals, and returns its exit status.

use std::process::{Child, Command, ExitStatus};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::{ffi::OsString, io, os::unix::process::ExitStatusExt, path::Path, thread};

use laptime_capture::FOLDER_VARIABLE;
use laptime_capture::process::{self, HeldSignals};

use crate::failure::{Hinted, refuse};

const CUDA_VARIABLE: &str = "CUDA_INJECTION64_PATH";
const NVTX_VARIABLE: &str = "NVTX_INJECTION64_PATH";

/// Refuses to start if another tool injects its library.
pub fn refuse_other_tools() -> anyhow::Result<()> {
    if std::env::var_os(FOLDER_VARIABLE).is_some() {
        let reason = "this program is already being recorded by another `laptime record`";
        return refuse(reason, "leave the inner `laptime record` out: the outer one follows child processes");
    }
    for variable in [CUDA_VARIABLE, NVTX_VARIABLE] {
        if let Some(path) = std::env::var_os(variable).filter(|path| !path.is_empty()) {
            let reason = format!("{variable} is set to `{}` by another profiler", path.display());
            return refuse(reason, format!("run without the other profiler, or `unset {variable}`"));
        }
    }
    Ok(())
}

/// The recorded program.
#[derive(Debug)]
pub struct Program {
    child: Child,
    has_ended: Arc<AtomicBool>,
}

impl Program {
    pub fn start(words: &[OsString], library: &Path, folder: &Path, signals: HeldSignals) -> anyhow::Result<Self> {
        let (program, arguments) = words.split_first().ok_or_else(|| anyhow::anyhow!("no command given"))?;
        let mut command = Command::new(program);
        command.args(arguments).env(CUDA_VARIABLE, library).env(NVTX_VARIABLE, library).env(FOLDER_VARIABLE, folder);
        signals.restore_in(&mut command);
        let child = command.spawn().map_err(|source| {
            let hint = match source.kind() {
                io::ErrorKind::NotFound => "check the name; the command comes after `--`",
                io::ErrorKind::PermissionDenied => "the file is not executable; `chmod +x` makes it so",
                _ => "run the command without `laptime record` first",
            };
            let error = anyhow::Error::new(source).context(format!("cannot start `{}`", program.display()));
            Hinted::wrap(error, hint)
        })?;
        let program = Self { child, has_ended: Arc::default() };
        program.forward(signals);
        Ok(program)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Forwards signals to the program; after its end, the second signal stops the recorder.
    fn forward(&self, signals: HeldSignals) {
        let (pid, has_ended) = (self.pid(), Arc::clone(&self.has_ended));
        thread::spawn(move || {
            let mut is_warned = false;
            while let Some(received) = signals.wait() {
                if !has_ended.load(Ordering::Acquire) {
                    if !received.is_of_terminal {
                        process::send(pid, received.signal);
                    }
                } else if is_warned {
                    #[allow(clippy::exit, reason = "the user does not want to wait for the trace")]
                    std::process::exit(128 + received.signal);
                } else {
                    // The first one may be the signal that ended the program.
                    is_warned = true;
                }
            }
        });
    }

    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait();
        self.has_ended.store(true, Ordering::Release);
        status
    }
}

/// The exit status: the program's own, or 128 plus its signal, as in shells.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    u8::try_from(code & 0xFF).unwrap_or(1)
}
