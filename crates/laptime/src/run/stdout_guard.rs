//! Redirects standard output to standard error while workloads run in this process, to keep their prints out of tables.

use std::io::{self, Write};

/// Redirects until dropped.
pub struct StdoutGuard {
    #[cfg(unix)]
    saved: Option<std::os::fd::OwnedFd>,
}

impl StdoutGuard {
    /// Does nothing if redirecting fails.
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
