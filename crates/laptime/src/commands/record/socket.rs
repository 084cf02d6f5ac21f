//! The control socket between `laptime record start|stop|dump` and a recorder.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::{fs, thread, time::Duration};

use anyhow::Context;
use laptime_capture::process;

use super::conduct::Message;
use super::library::{private_folder, runtime_folder};
use crate::failure::{Hinted, refusal};

/// Maximum size of a request.
const LONGEST_REQUEST: u64 = 64;
const PATIENCE: Duration = Duration::from_secs(120);

laptime_trace::words! {
    /// A request to a recorder.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Request: word {
        Start = "start",
        Stop = "stop",
        /// Write a trace of what was recorded so far.
        Dump = "dump",
    }
}

impl Request {
    const ALL: [Self; 3] = [Self::Start, Self::Stop, Self::Dump];
}

/// A request, and the channel for its answer.
pub type Asked = (Request, Sender<String>);

/// The folder of one recording: its control page and its socket.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn create() -> anyhow::Result<Self> {
        let base = runtime_folder();
        private_folder(&base).map_err(|error| {
            Hinted::wrap(error, "set XDG_RUNTIME_DIR to a folder that only you can enter, such as a new one in /tmp")
        })?;
        remove_stale(&base);
        let folder = base.join(std::process::id().to_string());
        let _ = fs::remove_dir_all(&folder);
        private_folder(&folder)?;
        Ok(Self(folder))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Listens for requests on a thread.
    pub fn listen(&self, to: Sender<Message>) -> anyhow::Result<()> {
        let path = self.0.join("socket");
        let listener = UnixListener::bind(&path).with_context(|| format!("cannot listen on `{}`", path.display()))?;
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let to = to.clone();
                thread::spawn(move || serve(stream, &to));
            }
        });
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Removes the folders of recorders that were killed.
fn remove_stale(base: &Path) {
    for pid in recorders(base) {
        if !Path::new("/proc").join(pid.to_string()).exists() {
            let _ = fs::remove_dir_all(base.join(pid.to_string()));
        }
    }
}

fn recorders(base: &Path) -> Vec<u32> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let mut found: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    found.sort_unstable();
    found
}

fn serve(mut stream: UnixStream, to: &Sender<Message>) {
    // Should the folder have been opened to other users.
    let peer = rustix::net::sockopt::socket_peercred(&stream);
    if !peer.is_ok_and(|peer| peer.uid.as_raw() == process::user()) {
        return;
    }
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let mut line = String::new();
    let Ok(reading) = stream.try_clone() else { return };
    if BufReader::new(reading.take(LONGEST_REQUEST)).read_line(&mut line).is_err() {
        return;
    }
    let (answer, answered) = channel();
    let asked = Request::ALL.into_iter().find(|request| request.word() == line.trim());
    let shown = match asked {
        Some(request) if to.send(Message::Asked((request, answer))).is_ok() => answered.recv_timeout(PATIENCE).ok(),
        _ => None,
    };
    let shown = shown.unwrap_or_else(|| "error: the recorder does not answer".to_owned());
    let _ = writeln!(stream, "{shown}");
}

/// Sends a request to the only recorder, or to the one that records a process.
pub fn ask(request: Request, pid: Option<u32>) -> anyhow::Result<String> {
    let folder = find(&runtime_folder(), pid)?;
    let path = folder.join("socket");
    let mut stream =
        UnixStream::connect(&path).with_context(|| format!("cannot reach the recorder at `{}`", path.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{}", request.word())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let answer = answer.trim().to_owned();
    match answer.strip_prefix("error: ") {
        Some(problem) => anyhow::bail!("{problem}"),
        None => Ok(answer),
    }
}

fn find(base: &Path, pid: Option<u32>) -> anyhow::Result<PathBuf> {
    let found: Vec<u32> =
        recorders(base).into_iter().filter(|pid| base.join(pid.to_string()).join("socket").exists()).collect();
    let chosen = match pid {
        Some(pid) => found.iter().copied().find(|&recorder| recorder == pid || is_descendant(pid, recorder)),
        None if found.len() == 1 => found.first().copied(),
        None => None,
    };
    if let Some(chosen) = chosen {
        return Ok(base.join(chosen.to_string()));
    }
    let listed: Vec<String> = found.iter().map(ToString::to_string).collect();
    Err(match (pid, found.is_empty()) {
        (_, true) => refusal("nothing is being recorded", "start a program with `laptime record --paused -- COMMAND`"),
        (Some(pid), false) => {
            refusal(format!("process {pid} is not being recorded"), format!("running recorders: {}", listed.join(", ")))
        }
        (None, false) => refusal(
            format!("{} recordings are running", found.len()),
            format!("name one by its process: {}", listed.join(", ")),
        ),
    })
}

/// Whether a process is a descendant of another.
fn is_descendant(pid: u32, of: u32) -> bool {
    const DEEPEST: usize = 64;
    let parents = std::iter::successors(Some(pid), |&pid| parent(pid).filter(|&parent| parent > 1));
    parents.take(DEEPEST).any(|pid| pid == of)
}

/// The parent of a process, from `/proc`.
pub fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain spaces and parentheses itself.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorder_is_found_by_its_pid_or_that_of_a_child() {
        let base = tempfile::tempdir().unwrap();
        let own = std::process::id();
        let error = find(base.path(), None).unwrap_err();
        assert_eq!(error.to_string(), "nothing is being recorded");
        let folder = base.path().join(own.to_string());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("socket"), b"").unwrap();
        assert_eq!(find(base.path(), None).unwrap(), folder);
        assert_eq!(find(base.path(), Some(own)).unwrap(), folder);
        assert!(is_descendant(own, parent(own).unwrap()));
        let error = find(base.path(), Some(1)).unwrap_err();
        assert_eq!(error.to_string(), "process 1 is not being recorded");
    }

    #[test]
    fn folders_of_dead_recorders_are_removed() {
        let base = tempfile::tempdir().unwrap();
        // Larger than any pid.
        let gone = base.path().join("4294967295");
        fs::create_dir(&gone).unwrap();
        fs::create_dir(base.path().join("inject")).unwrap();
        remove_stale(base.path());
        assert!(!gone.exists() && base.path().join("inject").exists());
    }
}
