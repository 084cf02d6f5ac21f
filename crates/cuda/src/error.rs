//! CUDA errors, grouped by what the caller has to do.
//!
//! Out of memory is an outcome of a case. A [sticky](CudaError::Sticky) error destroys the context, so the process must
//! be replaced. A kernel that does not compile is shown with its source lines. Everything else is reported as it is.

use cudarc::driver::sys::CUresult;
use thiserror::Error;

use crate::compile_error::CompileError;

/// Why a CUDA operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CudaError {
    /// No device could be opened.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),

    /// Out of device memory.
    #[error("out of memory on the device{}", memory_words(*wanted, *free, *total))]
    OutOfMemory {
        /// Requested bytes.
        wanted: Option<u64>,
        /// Free bytes, after everything that can be freed was freed.
        free: Option<u64>,
        /// Total bytes of the device.
        total: Option<u64>,
    },

    /// The context is lost: every further call in this process fails.
    #[error("the device's context is lost, noticed while {}: {}", .0.doing, .0.reason)]
    Sticky(Failure),

    /// A kernel does not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),

    /// A library was not found.
    #[error("cannot load `{library}`")]
    Missing {
        /// Its name.
        library: String,
        /// The searched folders.
        searched: Vec<String>,
    },

    /// A call failed, and the context is still valid.
    #[error("{} failed: {}", .0.doing, .0.reason)]
    Refused(Failure),
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The operation, such as `copying to the device`.
    pub doing: String,
    /// The library's error code.
    pub code: i64,
    /// The library's name for the error, or our description.
    pub reason: String,
}

/// Why no device can be opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unavailable {
    /// No driver is installed.
    #[error("there is no NVIDIA driver: `libcuda.so.1` cannot be loaded")]
    NoDriver,

    /// The library is a link-time stub and not a driver.
    #[error("`libcuda.so.1` is the toolkit's stub and no driver")]
    StubDriver,

    /// The driver reports no device.
    #[error("the NVIDIA driver is there, and shows no GPU")]
    NoGpu {
        /// The value of `CUDA_VISIBLE_DEVICES`, if set: it can hide devices.
        visible: Option<String>,
    },

    /// The driver is older than required.
    #[error("the NVIDIA driver knows CUDA {}, and CUDA {} is needed", version_words(*found), version_words(*needed))]
    DriverTooOld {
        /// Its version: 12040 is 12.4.
        found: u32,
        /// The required version.
        needed: u32,
    },

    /// There is no device with this number.
    #[error("there is no GPU {index}: {}", count_words(*count))]
    NoSuchDevice {
        /// The requested number.
        index: u32,
        /// The number of devices.
        count: u32,
    },

    /// The driver cannot be initialised.
    #[error("the NVIDIA driver does not start: {}", .0.reason)]
    Broken(Failure),
}

impl CudaError {
    /// A hint for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unavailable(why) => Some(why.hint()),
            Self::OutOfMemory { .. } => Some("take a smaller batch, a shorter sequence or a narrower type".to_owned()),
            Self::Sticky(_) => Some("cases that follow need a new process: `--isolate` gives each case one".to_owned()),
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
                "install the NVIDIA driver (580 or newer), or take `--device cpu`".to_owned()
            }
            Self::NoGpu { visible: Some(visible) } => {
                format!("`CUDA_VISIBLE_DEVICES` is `{visible}`; unset it to see every device")
            }
            Self::NoGpu { visible: None } | Self::Broken(_) => "`nvidia-smi` shows what the driver sees".to_owned(),
            Self::DriverTooOld { .. } => "update the NVIDIA driver to 580 or newer".to_owned(),
            Self::NoSuchDevice { count, .. } => match count {
                1 => "take `--device cuda:0`".to_owned(),
                _ => format!("take one of `cuda:0` to `cuda:{}`", count.saturating_sub(1)),
            },
        }
    }
}

/// Converts a driver result.
pub(crate) fn check(doing: &str, result: CUresult) -> Result<(), CudaError> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    // The names of the enumeration are the driver's, so no further call is needed.
    Err(classify(doing, result as u32, &format!("{result:?}")))
}

/// Classifies a driver error code.
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
        214 => "the memory has an error that could not be corrected",
        220 => "the link between devices has an error that could not be corrected",
        226 => "the device contained a memory error and ended the work",
        700 => "a kernel used an address that is not its own",
        702 => "a kernel ran longer than the system allows",
        709 => "the context was destroyed",
        710 => "an assertion in a kernel failed",
        714 => "a kernel damaged its stack",
        715 => "a kernel met an instruction that does not exist",
        716 => "a kernel used an address that is not aligned",
        717 => "a kernel used an address in the wrong kind of memory",
        718 => "a kernel jumped to where no code is",
        719 => "a kernel failed",
        721 => "a kernel left tensor memory allocated",
        // The cause is unknown, and later calls usually fail.
        999 => "the driver met an error it has no name for",
        _ => return None,
    })
}

fn memory_words(wanted: Option<u64>, free: Option<u64>, total: Option<u64>) -> String {
    let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let mut words = wanted.map_or(String::new(), |wanted| format!(": {} wanted", mebibytes(wanted)));
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
        1 => "one is there, number 0".to_owned(),
        _ => format!("{count} are there, from 0 on"),
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
    fn an_illegal_address_ends_the_context() {
        let error = classify("synchronising", 700, "CUDA_ERROR_ILLEGAL_ADDRESS");
        assert!(error.is_sticky());
        assert_eq!(
            error.to_string(),
            "the device's context is lost, noticed while synchronising: \
             a kernel used an address that is not its own (CUDA_ERROR_ILLEGAL_ADDRESS)"
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
    fn out_of_memory_is_no_failure_of_the_context() {
        let error = classify("allocating", 2, "CUDA_ERROR_OUT_OF_MEMORY");
        assert!(error.is_out_of_memory() && !error.is_sticky());
        assert_eq!(error.to_string(), "out of memory on the device");
    }

    #[test]
    fn out_of_memory_says_what_was_requested_and_what_was_free() {
        let error = CudaError::OutOfMemory { wanted: Some(3 << 20), free: Some(1 << 19), total: Some(2 << 20) };
        assert_eq!(error.to_string(), "out of memory on the device: 3.0 MiB wanted, 0.5 MiB of 2.0 MiB free");
    }

    #[test]
    fn a_refused_call_says_what_was_being_done() {
        let error = classify("launching `fill`", 1, "CUDA_ERROR_INVALID_VALUE");
        assert_eq!(error.to_string(), "launching `fill` failed: CUDA_ERROR_INVALID_VALUE");
    }

    #[test]
    fn an_old_driver_is_reported_by_both_versions() {
        let why = Unavailable::DriverTooOld { found: 12_040, needed: 13_000 };
        assert_eq!(why.to_string(), "the NVIDIA driver knows CUDA 12.4, and CUDA 13.0 is needed");
    }

    #[test]
    fn hidden_devices_are_hinted_at() {
        let why = Unavailable::NoGpu { visible: Some(String::new()) };
        assert_eq!(why.hint(), "`CUDA_VISIBLE_DEVICES` is ``; unset it to see every device");
    }

    #[test]
    fn a_missing_device_offers_those_that_are_there() {
        let why = Unavailable::NoSuchDevice { index: 3, count: 2 };
        assert_eq!(why.to_string(), "there is no GPU 3: 2 are there, from 0 on");
        assert_eq!(why.hint(), "take one of `cuda:0` to `cuda:1`");
    }
}
