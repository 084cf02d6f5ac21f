//! Temporary.
use crate::devices::{DeviceWork, Devices};
use laptime_trace::Trace;
pub(crate) struct Gap {
    pub from: u64,
    pub to: u64,
    pub cause: Cause,
}
pub(crate) struct Cause;
impl Cause {
    pub fn words(&self) -> &'static str {
        "unexplained"
    }
}
pub(crate) fn device_gaps(_: &Trace, _: &Devices, device: &DeviceWork) -> Vec<Gap> {
    let Some((from, to)) = device.window() else { return Vec::new() };
    device.busy().gaps_in(from, to).parts().iter().map(|&(from, to)| Gap { from, to, cause: Cause }).collect()
}
