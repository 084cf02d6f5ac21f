//! Stores measured peaks in the user's data folder, one file per device. A CPU is identified by its machine, a GPU by its
//! UUID, driver and power limit.

use std::path::{Path, PathBuf};

use anyhow::Context;
use laptime_bench::Device;
use laptime_trace::run::{Machine, PeakGpu, Peaks, SCHEMA};
use laptime_trace::{format::write_whole, small_file};

/// `LAPTIME_HOME`, else the user's data folder; none without a home folder.
fn folder() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    of("LAPTIME_HOME")
        .or_else(|| of("XDG_DATA_HOME").map(|data| data.join("laptime")))
        .or_else(|| of("HOME").map(|home| home.join(".local/share/laptime")))
}

/// The file of a device. Does not depend on the index of a GPU, which changes with the other GPUs.
fn file(folder: &Path, machine: &Machine, device: &str, gpu: Option<&PeakGpu>) -> PathBuf {
    let name = match gpu {
        Some(gpu) => format!("peaks-gpu-{}.json", gpu.fingerprint()),
        None => format!("peaks-{device}-{}.json", machine.fingerprint()),
    };
    folder.join(name)
}

/// The stored peaks of a device.
pub fn read(machine: &Machine, device: &dyn Device) -> Option<Peaks> {
    let gpu = laptime_pipelines::peak_gpu(device);
    read_file(&file(&folder()?, machine, device.name(), gpu.as_ref()), device.name())
}

fn read_file(path: &Path, device: &str) -> Option<Peaks> {
    let text = small_file::read_bytes(path, small_file::LARGEST_SMALL_FILE).ok()?;
    let peaks: Peaks = serde_json::from_slice(&text).ok()?;
    (peaks.schema <= SCHEMA).then(|| Peaks { device: device.to_owned(), ..peaks })
}

/// Stores peaks: the better of the new and the stored value of each quantity, or the new ones if `is_reset`. Returns what
/// was stored, and where.
pub fn keep(peaks: Peaks, machine: &Machine, is_reset: bool) -> anyhow::Result<(Peaks, PathBuf)> {
    let folder = folder().context("no home folder was found; set `LAPTIME_HOME`")?;
    keep_in(&folder, peaks, machine, is_reset)
}

fn keep_in(folder: &Path, peaks: Peaks, machine: &Machine, is_reset: bool) -> anyhow::Result<(Peaks, PathBuf)> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create the folder `{}`", folder.display()))?;
    let path = file(folder, machine, &peaks.device, peaks.gpu.as_ref());
    let earlier = if is_reset { None } else { read_file(&path, &peaks.device) };
    let kept = match earlier {
        Some(earlier) => peaks.better_of(earlier),
        None => peaks,
    };
    let mut text = serde_json::to_string_pretty(&kept)?;
    text.push('\n');
    write_whole(&path, |out| out.write_all(text.as_bytes()))?;
    Ok((kept, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::run::PeakFlops;

    fn peaks(flops_s: f64, gpu: Option<PeakGpu>) -> Peaks {
        let flops = PeakFlops { dtype: "f32".into(), flops_s, median: None, size: 8, threads: 1 };
        let (machine, measured) = (String::new(), String::new());
        Peaks { schema: SCHEMA, machine, device: "cpu".into(), measured, flops: vec![flops], bandwidth: vec![], gpu }
    }

    #[test]
    fn lower_peaks_replace_stored_ones_only_with_a_reset() {
        let (folder, machine) = (tempfile::tempdir().unwrap(), Machine::default());
        let kept = |flops_s, is_reset| {
            let (kept, path) = keep_in(folder.path(), peaks(flops_s, None), &machine, is_reset).unwrap();
            assert_eq!(read_file(&path, "cpu"), Some(kept.clone()));
            kept.flops_s("f32").unwrap()
        };
        assert_eq!(
            [kept(100.0, false), kept(30.0, false), kept(120.0, false), kept(30.0, true)],
            [100.0, 100.0, 120.0, 30.0]
        );
    }

    #[test]
    fn peaks_of_a_gpu_depend_on_driver_and_power_limit() {
        let gpu = |uuid: &str, driver: &str, watts| PeakGpu {
            uuid: uuid.to_owned(),
            driver: Some(driver.to_owned()),
            power_limit_watts: Some(watts),
        };
        let file = |gpu: &PeakGpu, device: &str| file(Path::new(""), &Machine::default(), device, Some(gpu));
        let one = file(&gpu("GPU-1", "580", 700.0), "cuda:0");
        assert_eq!(one, file(&gpu("GPU-1", "580", 700.0), "cuda:1"));
        for other in [gpu("GPU-2", "580", 700.0), gpu("GPU-1", "590", 700.0), gpu("GPU-1", "580", 500.0)] {
            assert_ne!(one, file(&other, "cuda:0"));
        }
    }
}
