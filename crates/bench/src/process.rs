//! Child processes: groups that end together, and the tail of their output.

use std::io::{ErrorKind, Read};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A timeout that means no limit: a century.
pub const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How long to wait for the rest of a stream whose process has ended.
const PATIENCE: Duration = Duration::from_secs(1);

/// The maximum number of bytes kept per stream.
const KEPT_BYTES: usize = 64 << 10;

/// Puts a command into a new process group, so that [`kill_group`] reaches everything it starts and Ctrl-C does not.
pub fn in_own_group(command: &mut Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    #[cfg(not(unix))]
    let _ = command;
}

/// Kills a process that has not been waited for, together with its group.
pub fn kill_group(child: &mut Child) {
    #[cfg(unix)]
    if let Some(group) = group_of(child) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    // It may have exited at this moment.
    let _ = child.kill();
}

/// Asks a process group to terminate; does nothing on systems without groups.
pub fn ask_group_to_end(child: &Child) {
    #[cfg(unix)]
    if let Some(group) = group_of(child) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
    }
    #[cfg(not(unix))]
    let _ = child;
}

#[cfg(unix)]
fn group_of(child: &Child) -> Option<rustix::process::Pid> {
    i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw)
}

/// The last lines of a stream. A separate thread reads it to its end, so that its writers never block.
#[derive(Debug)]
pub struct LastLines(Receiver<Vec<String>>);

impl LastLines {
    /// Begins to read; at most `most` lines and 64 KiB are kept.
    pub fn of(stream: impl Read + Send + 'static, most: usize) -> Self {
        let (sender, lines) = channel();
        // Nobody receives this if the process succeeded or was given up.
        std::thread::spawn(move || drop(sender.send(last_lines(stream, most))));
        Self(lines)
    }

    /// The lines of a process that has ended. Its orphaned children may keep the stream open forever.
    pub fn take(self) -> Vec<String> {
        self.0.recv_timeout(PATIENCE).unwrap_or_default()
    }
}

/// Reads a stream to its end and returns its last non-blank lines, at most `count` lines and 64 KiB. A truncated line
/// begins with `…`.
fn last_lines(stream: impl Read, most: usize) -> Vec<String> {
    let (bytes, was_cut) = tail(stream);
    let text = String::from_utf8_lossy(&bytes);
    let text = if was_cut { format!("…{text}") } else { text.into_owned() };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(most)..].iter().map(|line| (*line).to_owned()).collect()
}

/// The last bytes of a stream, and whether earlier bytes were dropped.
fn tail(mut stream: impl Read) -> (Vec<u8>, bool) {
    let (mut kept, mut chunk, mut was_cut) = (Vec::new(), [0; 8 << 10], false);
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => kept.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        // Rarely, so that each byte is moved about once.
        if kept.len() > 2 * KEPT_BYTES {
            kept.drain(..kept.len() - KEPT_BYTES);
            was_cut = true;
        }
    }
    was_cut |= kept.len() > KEPT_BYTES;
    kept.drain(..kept.len().saturating_sub(KEPT_BYTES));
    (kept, was_cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_nonblank_lines_are_kept() {
        assert_eq!(last_lines(&b"a\nb\n\n  \nc"[..], 2), ["b", "c"]);
        assert!(last_lines(&b"\n \n"[..], 2).is_empty());
    }

    #[test]
    fn a_very_long_line_is_cut_to_its_end() {
        let endless = std::io::repeat(b'x').take(10 << 20).chain(&b"end"[..]);
        let lines = last_lines(endless, 5);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("…x") && lines[0].ends_with("xend"));
        assert_eq!(lines[0].len(), KEPT_BYTES + '…'.len_utf8());
    }
}
