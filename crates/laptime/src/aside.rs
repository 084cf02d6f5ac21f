//! Standard output set aside while workloads run in this process: what they print goes to standard error, so that the
//! answer on standard output stays whole.

use std::io::{self, Write};

/// While this lives, standard output is standard error.
pub struct Aside {
    #[cfg(unix)]
    saved: Option<std::os::fd::OwnedFd>,
}

impl Aside {
    /// Sets standard output aside. Where that cannot be done, nothing changes.
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

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = io::stdout().flush();
        #[cfg(unix)]
        if let Some(saved) = &self.saved {
            let _ = rustix::stdio::dup2_stdout(saved);
        }
    }
}
