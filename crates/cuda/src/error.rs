//! CUDA errors, grouped by what the caller has to do.
//!
//! Out of memory is an outcome of a case. A [sticky](CudaError::Sticky) error destroys the context, so the process must
//! be replaced. A kernel that does not compile is shown with its source lines. Everything else is reported as it is.

use cudarc::driver::sys::CUresult;
use thiserror::Error;

use crate::compile_error::CompileError;

/// Why a CUDA operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the words of a variant say what its fields are")]
pub enum CudaError {
    /// No device could be opened.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// Out of device memory.
    #[error("out of memory on the device{}", memory_words(*wanted, *free, *total))]
    OutOfMemory {
        wanted: Option<u64>,
        /// Free bytes, after everything that can be freed was freed.
        free: Option<u64>,
        total: Option<u64>,
    },
    /// The context is lost: every further call in this process fails.
    #[error("the device context was lost while {}: {}", .0.doing, .0.reason)]
    Sticky(Failure),
    /// A kernel does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A library was not found.
    #[error("cannot load `{library}`")]
    Missing { library: String, searched: Vec<String> },
    /// A call failed, and the context is still valid.
    #[error("{} failed: {}", .0.doing, .0.reason)]
    Refused(Failure),
}

/// The outcome of a call that returns nothing.
pub type Done = Result<(), CudaError>;

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The operation, such as `copying to the device`.
    pub doing: String,
    /// The library's error code.
    pub code: i64,
    /// The library's name of the error, or a description.
    pub reason: String,
}

/// Why no device can be opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the words of a variant say what its fields are")]
pub enum Unavailable {
    /// No driver is installed.
    #[error("no NVIDIA driver: cannot load `libcuda.so.1`")]
    NoDriver,
    /// The library is a link-time stub and not a driver.
    #[error("`libcuda.so.1` is the toolkit's stub, not a driver")]
    StubDriver,
    /// The driver reports no device.
    #[error("the NVIDIA driver reports no GPU")]
    NoGpu {
        /// The value of `CUDA_VISIBLE_DEVICES`, if set: it can hide devices.
        visible: Option<String>,
    },
    /// The driver is older than required.
    #[error("the NVIDIA driver supports CUDA {}, but CUDA {} is required", version_words(*found), version_words(*needed))]
    DriverTooOld {
        /// Its version: 12040 is 12.4.
        found: u32,
        needed: u32,
    },
    /// There is no device with this number.
    #[error("there is no GPU {index}: {}", count_words(*count))]
    NoSuchDevice { index: u32, count: u32 },
    /// The driver cannot be initialised.
    #[error("cannot initialise the NVIDIA driver: {}", .0.reason)]
    Broken(Failure),
}

impl CudaError {
    /// A hint for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unavailable(why) => Some(why.hint()),
            Self::OutOfMemory { .. } => Some("use a smaller batch, a shorter sequence or a smaller dtype".to_owned()),
            Self::Sticky(_) => Some("use `--isolate` to run each case in a new process".to_owned()),
            Self::Missing { library, searched } => Some(missing_hint(library, searched)),
            Self::Compile(_) | Self::Refused(_) => None,
        }
    }

    /// Whether every further call of this process will fail too.
    pub fn is_sticky(&self) -> bool {
        matches!(self, Self::Sticky(_))
    }

    /// Whether the device is out of memory.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. })
    }

    /// An argument error found before the driver was called.
    pub fn refused(doing: &str, code: i64, reason: impl Into<String>) -> Self {
        Self::Refused(Failure { doing: doing.to_owned(), code, reason: reason.into() })
    }
}

impl Unavailable {
    /// A hint for the user.
    pub fn hint(&self) -> String {
        match self {
            Self::NoDriver | Self::StubDriver => {
                "install the NVIDIA driver (580 or newer), or use `--device cpu`".to_owned()
            }
            Self::NoGpu { visible: Some(visible) } => {
                format!("`CUDA_VISIBLE_DEVICES` is `{visible}`; unset it to use all devices")
            }
            Self::NoGpu { visible: None } | Self::Broken(_) => "run `nvidia-smi` to check the driver".to_owned(),
            Self::DriverTooOld { .. } => "update the NVIDIA driver to 580 or newer".to_owned(),
            Self::NoSuchDevice { count, .. } => match count {
                1 => "use `--device cuda:0`".to_owned(),
                _ => format!("use one of `cuda:0` to `cuda:{}`", count.saturating_sub(1)),
            },
        }
    }
}

pub(crate) fn check(doing: &str, result: CUresult) -> Done {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    // The enumeration has the driver's names, so no further call is needed.
    Err(classify(doing, result as u32, &format!("{result:?}")))
}

pub(crate) fn classify(doing: &str, code: u32, name: &str) -> CudaError {
    let failure = |reason: String| Failure { doing: doing.to_owned(), code: i64::from(code), reason };
    if code == CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32 {
        return CudaError::OutOfMemory { wanted: None, free: None, total: None };
    }
    match sticky_words(code) {
        Some(words) => CudaError::Sticky(failure(format!("{words} ({name})"))),
        None => CudaError::Refused(failure(name.to_owned())),
    }
}

/// The meaning of a sticky error code; none if the context survives it.
fn sticky_words(code: u32) -> Option<&'static str> {
    Some(match code {
        214 => "uncorrectable memory error",
        220 => "uncorrectable NVLink error",
        226 => "contained memory error",
        700 => "illegal memory access in a kernel",
        702 => "kernel timeout",
        709 => "context destroyed",
        710 => "a kernel assertion failed",
        714 => "kernel stack error",
        715 => "illegal instruction in a kernel",
        716 => "misaligned address in a kernel",
        717 => "invalid address space in a kernel",
        718 => "invalid program counter in a kernel",
        719 => "kernel launch failure",
        721 => "a kernel leaked tensor memory",
        // The cause is unknown, and later calls usually fail.
        999 => "unknown driver error",
        _ => return None,
    })
}

fn memory_words(wanted: Option<u64>, free: Option<u64>, total: Option<u64>) -> String {
    let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let mut words = wanted.map_or(String::new(), |wanted| format!(": {} requested", mebibytes(wanted)));
    if let (Some(free), Some(total)) = (free, total) {
        words += if words.is_empty() { ": " } else { ", " };
        words += &format!("{} of {} free", mebibytes(free), mebibytes(total));
    }
    words
}

fn version_words(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn count_words(count: u32) -> String {
    match count {
        1 => "the only GPU is 0".to_owned(),
        _ => format!("found {count}, numbered from 0"),
    }
}

fn missing_hint(library: &str, searched: &[String]) -> String {
    let looked = if searched.is_empty() { String::new() } else { format!("; looked in {}", searched.join(", ")) };
    format!("put the folder of `{library}` on `LD_LIBRARY_PATH`, or set `CUDA_HOME`{looked}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_illegal_address_destroys_the_context() {
        let error = classify("synchronising", 700, "CUDA_ERROR_ILLEGAL_ADDRESS");
        assert!(error.is_sticky());
        assert_eq!(
            error.to_string(),
            "the device context was lost while synchronising: \
             illegal memory access in a kernel (CUDA_ERROR_ILLEGAL_ADDRESS)"
        );
    }

    #[test]
    fn every_code_that_the_driver_calls_sticky_is_sticky() {
        let sticky = [214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999];
        for code in 1..1_000 {
            assert_eq!(classify("testing", code, "X").is_sticky(), sticky.contains(&code), "code {code}");
        }
    }

    #[test]
    fn out_of_memory_does_not_destroy_the_context() {
        let error = classify("allocating", 2, "CUDA_ERROR_OUT_OF_MEMORY");
        assert!(error.is_out_of_memory() && !error.is_sticky());
        assert_eq!(error.to_string(), "out of memory on the device");
    }

    #[test]
    fn out_of_memory_says_what_was_requested_and_what_was_free() {
        let error = CudaError::OutOfMemory { wanted: Some(3 << 20), free: Some(1 << 19), total: Some(2 << 20) };
        assert_eq!(error.to_string(), "out of memory on the device: 3.0 MiB requested, 0.5 MiB of 2.0 MiB free");
    }

    #[test]
    fn a_refused_call_says_what_was_being_done() {
        let error = classify("launching `fill`", 1, "CUDA_ERROR_INVALID_VALUE");
        assert_eq!(error.to_string(), "launching `fill` failed: CUDA_ERROR_INVALID_VALUE");
    }

    #[test]
    fn an_old_driver_is_reported_by_both_versions() {
        let why = Unavailable::DriverTooOld { found: 12_040, needed: 13_000 };
        assert_eq!(why.to_string(), "the NVIDIA driver supports CUDA 12.4, but CUDA 13.0 is required");
    }

    #[test]
    fn a_hint_mentions_hidden_devices() {
        let why = Unavailable::NoGpu { visible: Some(String::new()) };
        assert_eq!(why.hint(), "`CUDA_VISIBLE_DEVICES` is ``; unset it to use all devices");
    }

    #[test]
    fn a_missing_device_lists_the_available_ones() {
        let why = Unavailable::NoSuchDevice { index: 3, count: 2 };
        assert_eq!(why.to_string(), "there is no GPU 3: found 2, numbered from 0");
        assert_eq!(why.hint(), "use one of `cuda:0` to `cuda:1`");
    }
}
