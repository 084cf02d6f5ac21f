//! Reports the path of the trace to `laptime record`, if that started this process, so that it is merged with the records of
//! the injected library.

// The standard library does not say what its monotonic clock counts from; the recorder uses the system's.
#![allow(unsafe_code)]

use std::path::Path;

/// Names the folder of the recording for the processes that `laptime record` started.
const RECORDER: &str = "LAPTIME_RECORD";

/// How the names of files begin that announce a trace in that folder.
pub const ANNOUNCED: &str = "probe-";

/// Announces a trace. The file holds its path; its name holds the process and the time zero on the system's clock.
pub(super) fn announce(path: &Path, start_ns: u64) {
    let Some(folder) = std::env::var_os(RECORDER) else { return };
    let Ok(path) = std::path::absolute(path) else { return };
    let Some(origin) = origin() else { return };
    let name = format!("{ANNOUNCED}{}-{}", std::process::id(), origin + start_ns);
    // Without it there are two traces instead of one.
    let _ = std::fs::write(Path::new(&folder).join(name), path.as_os_str().as_encoded_bytes());
}

/// The time zero of [`laptime_probe::monotonic_nanos`] on the system's clock. Of several readings the one counts that was
/// interrupted the least.
fn origin() -> Option<u64> {
    const READINGS: usize = 16;
    let reading = || {
        let before = laptime_probe::monotonic_nanos();
        let system = system_nanos()?;
        let after = laptime_probe::monotonic_nanos();
        Some((after - before, system.saturating_sub(before + (after - before) / 2)))
    };
    (0..READINGS).filter_map(|_| reading()).min().map(|(_, origin)| origin)
}

/// The system's monotonic clock; none where programs are not recorded from outside.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn system_nanos() -> Option<u64> {
    #[repr(C)]
    struct Time {
        seconds: i64,
        nanos: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: std::ffi::c_int, time: *mut Time) -> std::ffi::c_int;
    }
    const MONOTONIC: std::ffi::c_int = 1;
    let mut time = Time { seconds: 0, nanos: 0 };
    // SAFETY: the place is valid and has the layout of the system's structure.
    let status = unsafe { clock_gettime(MONOTONIC, &mut time) };
    (status == 0).then_some(time.seconds as u64 * 1_000_000_000 + time.nanos as u64)
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn system_nanos() -> Option<u64> {
    None
}
