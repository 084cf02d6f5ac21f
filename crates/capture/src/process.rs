//! Signals and memory of processes, for the recorder.
#![allow(unsafe_code)]

use std::os::{fd::AsRawFd, unix::process::CommandExt};
use std::{fs::File, io, mem::MaybeUninit, process::Command, ptr};

/// Signals that are meant for the program, not for its recorder.
const FORWARDED: [i32; 6] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// Signals that are blocked in this process, so that they can be waited for.
#[derive(Clone, Copy)]
pub struct HeldSignals {
    held: libc::sigset_t,
    before: libc::sigset_t,
}

/// A signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// The terminal sent it, to every process of the group: the program has got it too.
    pub is_of_terminal: bool,
}

impl HeldSignals {
    /// Blocks signals in this thread and in the threads that it starts from now on.
    pub fn hold() -> Self {
        // SAFETY: the sets are valid places, and each is filled before it is read.
        unsafe {
            let mut held = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(held.as_mut_ptr());
            for signal in FORWARDED {
                libc::sigaddset(held.as_mut_ptr(), signal);
            }
            let held = held.assume_init();
            let mut before = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(before.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, &held, before.as_mut_ptr());
            Self { held, before: before.assume_init() }
        }
    }

    /// Waits for the next signal.
    pub fn wait(&self) -> Option<Received> {
        // SAFETY: the places are valid.
        unsafe {
            let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
            let signal = libc::sigwaitinfo(&self.held, info.as_mut_ptr());
            let is_of_terminal = info.assume_init().si_code == libc::SI_KERNEL;
            (signal > 0).then_some(Received { signal, is_of_terminal })
        }
    }

    /// Makes a child start with the original signal mask.
    pub fn restore_in(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: setting the mask is safe between `fork` and `exec`.
        unsafe {
            command.pre_exec(move || {
                libc::sigprocmask(libc::SIG_SETMASK, &before, ptr::null_mut());
                Ok(())
            });
        }
    }
}

impl std::fmt::Debug for HeldSignals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldSignals").finish_non_exhaustive()
    }
}

/// Sends a signal to a process.
pub fn send(pid: u32, signal: i32) {
    if let Ok(pid) = i32::try_from(pid) {
        // SAFETY: only integers are passed.
        unsafe { libc::kill(pid, signal) };
    }
}

/// The number of the user that this process runs as.
pub fn user() -> u32 {
    // SAFETY: the call takes no arguments.
    unsafe { libc::geteuid() }
}

/// Whether code of this file may be run: not on a file system that is mounted `noexec`.
pub fn is_executable(file: &File) -> bool {
    // SAFETY: a new mapping of one byte, which is removed at once.
    unsafe {
        let found =
            libc::mmap(ptr::null_mut(), 1, libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        if found == libc::MAP_FAILED {
            return false;
        }
        libc::munmap(found, 1);
    }
    true
}

/// Reads memory of another process into `into`, whole or not at all.
pub fn read_memory(pid: u32, address: u64, into: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: into.len() };
    // SAFETY: the local place is valid for so many bytes; the kernel checks the remote one.
    let read = unsafe { libc::process_vm_readv(pid as libc::pid_t, &local, 1, &remote, 1, 0) };
    match usize::try_from(read) {
        Ok(read) if read == into.len() => Ok(()),
        Ok(_) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}
