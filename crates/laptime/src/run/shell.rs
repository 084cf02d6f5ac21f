//! A shell command that is timed: it ends by itself, at a time limit or when somebody asks to stop, and then all that it
//! started ends with it.

use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use laptime_bench::Interrupt;
use laptime_bench::process::{FOREVER, LastLines, ask_group_to_end, in_own_group, kill_group};

/// How a command ended.
#[derive(Debug)]
pub enum Ended {
    /// Successfully, after this many nanoseconds.
    Well(u64),
    /// By itself, with an error and the last line on its standard error.
    Badly(ExitStatus, Option<String>),
    /// It ran into the time limit and was killed.
    TimedOut,
    /// Somebody asked to stop, and it was killed.
    Interrupted,
}

/// How long a command that was asked to end may take.
const PATIENCE: Duration = Duration::from_secs(1);

enum Event {
    /// It has ended, at this moment if that is known.
    Ended(Option<Instant>),
    Request,
}

/// Runs a command in a shell. Its time ends with the shell: what it left running in the background is not waited for.
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
    // The receiver is gone when the command is: nobody to wake.
    interrupt.on_ask(move || drop(events.send(Event::Request)));
    let event = ended.recv_timeout(limit.unwrap_or(FOREVER));
    match event {
        Ok(Event::Ended(end)) => {
            let status = child.wait().context("cannot wait for a shell")?;
            let end = end.unwrap_or_else(Instant::now);
            if status.success() {
                return Ok(Ended::Well(u64::try_from((end - start).as_nanos()).unwrap_or(u64::MAX)));
            }
            Ok(Ended::Badly(status, complaints.and_then(|lines| lines.take().pop())))
        }
        Ok(Event::Request) | Err(RecvTimeoutError::Disconnected) => stop(child, &ended).map(|()| Ended::Interrupted),
        Err(RecvTimeoutError::Timeout) => stop(child, &ended).map(|()| Ended::TimedOut),
    }
}

/// Asks the command and all that it started to end, and kills what does not.
fn stop(mut child: Child, ended: &Receiver<Event>) -> anyhow::Result<()> {
    ask_group_to_end(&child);
    let until = Instant::now() + PATIENCE;
    while let Ok(Event::Request) = ended.recv_timeout(until.saturating_duration_since(Instant::now())) {}
    // The shell may have ended before what it started. Its number is not given to others until it is waited for.
    kill_group(&mut child);
    child.wait().context("cannot wait for a shell")?;
    Ok(())
}

/// Reports from a separate thread when a child has ended; the caller still has to wait for it.
#[cfg(unix)]
fn watch(child: &Child, events: Sender<Event>) {
    use rustix::io::Errno;
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    std::thread::spawn(move || {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        // A signal may end the call before the child has ended.
        while pid.is_some_and(|pid| matches!(waitid(WaitId::Pid(pid), options), Err(Errno::INTR))) {}
        // After the command was given up, nobody receives this.
        drop(events.send(Event::Ended(Some(Instant::now()))));
    });
}

/// Where a process cannot be watched without waiting for it, it is simply waited for.
#[cfg(not(unix))]
fn watch(_: &Child, events: Sender<Event>) {
    drop(events.send(Event::Ended(None)));
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;

    /// A command that starts another one and goes on; `trap` makes it deaf to the wish to end.
    const STUBBORN: &str = "trap '' TERM; (trap '' TERM; echo $$ > pid; while true; do sleep 0.05; done) & wait";

    #[test]
    fn a_command_gives_its_time_or_its_last_words() {
        let interrupt = Interrupt::new();
        assert!(matches!(run("true", None, &interrupt).unwrap(), Ended::Well(nanos) if nanos > 0));
        let badly = run("echo one >&2; echo two >&2; exit 3", None, &interrupt).unwrap();
        assert!(matches!(badly, Ended::Badly(status, Some(last)) if status.code() == Some(3) && last == "two"));
    }

    #[test]
    fn a_time_limit_ends_a_command() {
        let limit = Some(Duration::from_millis(1));
        assert!(matches!(run("sleep 1000", limit, &Interrupt::new()).unwrap(), Ended::TimedOut));
    }

    #[test]
    fn an_interrupt_ends_a_command_and_all_that_it_started() {
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

    /// The shell leads the group, and `$$` is its number in a part in parentheses too.
    fn assert_group_is_gone(folder: &std::path::Path) {
        let pid: i32 = std::fs::read_to_string(folder.join("pid")).unwrap().trim().parse().unwrap();
        // What was killed may still be about to end, and then waits for its new parent to look at it.
        let is_alive = || members(pid).iter().any(|state| state != "Z");
        assert!((0..20_000).any(|_| !is_alive()), "a process of the group goes on");
    }

    /// The states of the processes of a group: `Z` has ended and was not waited for.
    fn members(group: i32) -> Vec<String> {
        let stats = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let stats = stats.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
        let fields = |stat: String| stat.rsplit(") ").next().unwrap_or("").split(' ').map(str::to_owned).collect();
        let stats: Vec<Vec<String>> = stats.map(fields).collect();
        let is_member = |fields: &&Vec<String>| fields.get(2).is_some_and(|own| *own == group.to_string());
        stats.iter().filter(is_member).map(|fields| fields[0].clone()).collect()
    }
}
