//! Times a shell command. At a time limit or an interrupt, its whole process group is killed.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use laptime_bench::Interrupt;
use laptime_bench::process::{FOREVER, LastLines, ask_group_to_end, in_own_group, kill_group};

#[derive(Debug)]
pub enum Ended {
    /// With status 0, after this many nanoseconds.
    Success(u64),
    /// With another status; the text is the last line on its standard error.
    Failure(ExitStatus, Option<String>),
    TimedOut,
    Interrupted,
}

/// Time between SIGTERM and SIGKILL.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

enum Event {
    /// The command ended, at this time if known.
    Ended(Option<Instant>),
    Interrupt,
}

/// Runs a command in a shell. The time ends with the shell; background processes are not waited for.
pub fn run(text: &str, limit: Option<Duration>, interrupt: &Interrupt) -> anyhow::Result<Ended> {
    anyhow::ensure!(cfg!(unix) || limit.is_none(), "a time limit for commands needs a Unix system");
    let mut command = Command::new("sh");
    command.arg("-c").arg(text).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    in_own_group(&mut command);
    let (events, ended) = channel();
    let start = Instant::now();
    let mut child = command.spawn().context("cannot start a shell")?;
    let complaints = child.stderr.take().map(|errors| LastLines::of(errors, 1));
    watch(&child, events.clone());
    // Sending fails once the command has ended.
    interrupt.on_ask(move || drop(events.send(Event::Interrupt)));
    let event = ended.recv_timeout(limit.unwrap_or(FOREVER));
    match event {
        Ok(Event::Ended(end)) => {
            let status = child.wait().context("cannot wait for a shell")?;
            let end = end.unwrap_or_else(Instant::now);
            if status.success() {
                return Ok(Ended::Success(u64::try_from((end - start).as_nanos()).unwrap_or(u64::MAX)));
            }
            Ok(Ended::Failure(status, complaints.and_then(|lines| lines.take().pop())))
        }
        Ok(Event::Interrupt) | Err(RecvTimeoutError::Disconnected) => stop(child, &ended).map(|()| Ended::Interrupted),
        Err(RecvTimeoutError::Timeout) => stop(child, &ended).map(|()| Ended::TimedOut),
    }
}

/// Sends SIGTERM to the process group, then SIGKILL.
fn stop(mut child: Child, ended: &Receiver<Event>) -> anyhow::Result<()> {
    ask_group_to_end(&child);
    let until = Instant::now() + GRACE_PERIOD;
    while let Ok(Event::Interrupt) = ended.recv_timeout(until.saturating_duration_since(Instant::now())) {}
    // The shell may have ended before its children. Its pid is not reused until `wait`.
    kill_group(&mut child);
    child.wait().context("cannot wait for a shell")?;
    Ok(())
}

/// Reports the end of a child from a thread; the caller still has to `wait`.
#[cfg(unix)]
fn watch(child: &Child, events: Sender<Event>) {
    use rustix::io::Errno;
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    std::thread::spawn(move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while pid.is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), options), Err(Errno::INTR))) {}
        drop(events.send(Event::Ended(Some(Instant::now()))));
    });
}

/// Without `WNOWAIT`, the caller waits for the child.
#[cfg(not(unix))]
fn watch(_: &Child, events: Sender<Event>) {
    drop(events.send(Event::Ended(None)));
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a background process; both ignore SIGTERM.
    const STUBBORN: &str = "trap '' TERM; (trap '' TERM; echo $$ > pid; while true; do sleep 0.05; done) & wait";

    #[test]
    fn a_command_returns_its_time_or_its_last_line_of_stderr() {
        let interrupt = Interrupt::new();
        assert!(matches!(run("true", None, &interrupt).unwrap(), Ended::Success(nanos) if nanos > 0));
        let badly = run("echo one >&2; echo two >&2; exit 3", None, &interrupt).unwrap();
        assert!(matches!(badly, Ended::Failure(status, Some(last)) if status.code() == Some(3) && last == "two"));
    }

    #[test]
    fn a_time_limit_ends_a_command() {
        let limit = Some(Duration::from_millis(1));
        assert!(matches!(run("sleep 1000", limit, &Interrupt::new()).unwrap(), Ended::TimedOut));
    }

    #[test]
    fn an_interrupt_ends_a_command_and_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("cd '{}'; {STUBBORN}", folder.path().display());
        let interrupt = Interrupt::new();
        let asker = interrupt.clone();
        let pid = folder.path().join("pid");
        std::thread::spawn(move || {
            while std::fs::read_to_string(&pid).unwrap_or_default().is_empty() {
                std::thread::yield_now();
            }
            asker.ask();
        });
        assert!(matches!(run(&text, None, &interrupt).unwrap(), Ended::Interrupted));
        assert_group_is_gone(folder.path());
    }

    /// The shell leads the group; `$$` is its pid in subshells too.
    fn assert_group_is_gone(folder: &std::path::Path) {
        let pid: i32 = std::fs::read_to_string(folder.join("pid")).unwrap().trim().parse().unwrap();
        // A killed process may take a moment to end, and is then a zombie until its new parent waits for it.
        let is_alive = || members(pid).iter().any(|state| state != "Z");
        assert!((0..20_000).any(|_| !is_alive()), "a process of the group is still running");
    }

    /// The states of the processes of a group; `Z` is a zombie.
    fn members(group: i32) -> Vec<String> {
        let stats = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let stats = stats.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        let fields = |stat: String| stat.rsplit(") ").next().unwrap_or("").split(' ').map(str::to_owned).collect();
        let stats: Vec<Vec<String>> = stats.map(fields).collect();
        let is_member = |fields: &&Vec<String>| fields.get(2).is_some_and(|own| *own == group.to_string());
        stats.iter().filter(is_member).map(|fields| fields[0].clone()).collect()
    }
}
