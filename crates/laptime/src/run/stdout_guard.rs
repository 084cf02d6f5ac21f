//! Redirects standard output to standard error while workloads run in this process, so that what they print does not end
//! up in the answer.

use std::io::{self, Write};

/// While this lives, standard output is redirected to standard error.
pub struct StdoutGuard {
    #[cfg(unix)]
    saved: Option<std::os::fd::OwnedFd>,
}

impl StdoutGuard {
    /// Starts to redirect standard output. If that fails, nothing changes.
    pub fn begin() -> Self {
        let _ = io::stdout().flush();
        #[cfg(unix)]
        {
            let saved = rustix::io::dup(rustix::stdio::stdout()).ok();
            let saved = saved.filter(|_| rustix::stdio::dup2_stdout(rustix::stdio::stderr()).is_ok());
            Self { saved }
        }
        #[cfg(not(unix))]
        Self {}
    }
}

impl Drop for StdoutGuard {
    fn drop(&mut self) {
        let _ = io::stdout().flush();
        #[cfg(unix)]
        if let Some(saved) = &self.saved {
            let _ = rustix::stdio::dup2_stdout(saved);
        }
    }
}
