//! How this program was started, and how it starts itself again.

use std::{ffi::OsString, path::PathBuf, sync::OnceLock};

/// The parts of a command that starts this program.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The executable: this program, or the interpreter that it is a module of.
    pub program: PathBuf,
    /// Arguments that make the executable run this program, such as a script; the words of the user follow.
    pub arguments: Vec<OsString>,
    /// The file that holds our code.
    pub binary: PathBuf,
    /// The words of the user, the name of the command first.
    pub words: Vec<OsString>,
}

static LAUNCH: OnceLock<Launch> = OnceLock::new();

impl Launch {
    /// This executable and its arguments. It is found even if its file was replaced in the meantime.
    fn of_executable() -> Self {
        let binary = std::env::current_exe().unwrap_or_default();
        let linux = cfg!(target_os = "linux").then(|| PathBuf::from("/proc/self/exe"));
        Self {
            program: linux.unwrap_or_else(|| binary.clone()),
            arguments: Vec::new(),
            binary,
            words: std::env::args_os().collect(),
        }
    }

    /// How this program was started.
    pub fn of_this_program() -> Self {
        LAUNCH.get().cloned().unwrap_or_else(Self::of_executable)
    }

    /// Sets how this program was started, for a module of an interpreter. Only the first call has an effect.
    pub fn set(self) {
        let _ = LAUNCH.set(self);
    }
}
