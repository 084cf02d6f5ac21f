//! The devices of this build, by the names that users give.

use anyhow::bail;
use laptime_bench::{Device, Devices};

use crate::cpu::{CPU, CpuDevice};

/// The devices that this build has: the CPU.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltInDevices;

impl Devices for BuiltInDevices {
    fn open(&self, name: &str) -> anyhow::Result<Box<dyn Device>> {
        match name {
            "auto" | CPU => Ok(Box::new(CpuDevice::new())),
            _ if is_cuda(name) => {
                bail!("device `{name}` is not there: this build has no CUDA")
            }
            _ => bail!("there is no device `{name}`, expected `auto`, `cpu`, `cuda` or `cuda:N`"),
        }
    }
}

fn is_cuda(name: &str) -> bool {
    name == "cuda" || name.strip_prefix("cuda:").is_some_and(|number| number.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(name: &str) -> String {
        BuiltInDevices.open(name).err().expect("there is no such device").to_string()
    }

    #[test]
    fn the_cpu_is_there_and_is_what_auto_gives() {
        for name in ["auto", "cpu"] {
            assert_eq!(BuiltInDevices.open(name).unwrap().name(), "cpu");
        }
    }

    #[test]
    fn a_gpu_is_refused_with_the_reason_and_a_way_on() {
        let text = "device `cuda:1` is not there: this build has no CUDA";
        assert_eq!(refusal("cuda:1"), text);
        assert!(refusal("cuda").starts_with("device `cuda` is not there"));
    }

    #[test]
    fn an_unknown_device_is_refused_with_those_that_there_are() {
        for name in ["gpu", "cuda:", "cuda:x", "CPU", ""] {
            let text = format!("there is no device `{name}`, expected `auto`, `cpu`, `cuda` or `cuda:N`");
            assert_eq!(refusal(name), text);
        }
    }
}
