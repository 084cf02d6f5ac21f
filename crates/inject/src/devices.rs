//! Describes the GPUs of the process, as the driver knows them.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::Ordering;

use laptime_capture::{dl::Library, part::Device};

use crate::state::State;

const MULTIPROCESSORS: c_int = 16;
const MAJOR: c_int = 75;
const MINOR: c_int = 76;
const MOST_DEVICES: c_int = 64;

/// Describes the devices once, as soon as the driver answers.
pub fn describe(state: &State) {
    if state.has_devices.load(Ordering::Acquire) || state.session.get().is_none() {
        return;
    }
    let Some(devices) = Library::loaded("libcuda.so.1").and_then(devices) else { return };
    if state.has_devices.swap(true, Ordering::AcqRel) {
        return;
    }
    let mut output = state.output();
    devices.into_iter().for_each(|device| output.device(device));
}

/// Whether this process has used a GPU before: CUPTI then no longer lets single calls be switched on.
pub fn have_context() -> bool {
    Library::loaded("libcuda.so.1").and_then(count_contexts).is_some_and(|count| count > 0)
}

fn count_contexts(driver: Library) -> Option<usize> {
    // SAFETY: the types are those of the driver's header, and every place is valid. Before `cuInit` both report an error.
    unsafe {
        let count: unsafe extern "C" fn(*mut c_int) -> c_int = driver.function(c"cuDeviceGetCount")?;
        let state: unsafe extern "C" fn(c_int, *mut u32, *mut c_int) -> c_int =
            driver.function(c"cuDevicePrimaryCtxGetState")?;
        let mut found = 0;
        if count(&mut found) != 0 {
            return None;
        }
        let is_active = |device: &c_int| {
            let (mut flags, mut active) = (0, 0);
            state(*device, &mut flags, &mut active) == 0 && active != 0
        };
        Some((0..found.min(MOST_DEVICES)).filter(is_active).count())
    }
}

fn devices(driver: Library) -> Option<Vec<Device>> {
    // SAFETY: the types are those of the driver's header; every place is valid and large enough.
    unsafe {
        let count: unsafe extern "C" fn(*mut c_int) -> c_int = driver.function(c"cuDeviceGetCount")?;
        let mut found = 0;
        if count(&mut found) != 0 {
            return None;
        }
        Some((0..found.min(MOST_DEVICES)).filter_map(|number| device(driver, number)).collect())
    }
}

fn device(driver: Library, number: c_int) -> Option<Device> {
    // SAFETY: as above.
    unsafe {
        let get: unsafe extern "C" fn(*mut c_int, c_int) -> c_int = driver.function(c"cuDeviceGet")?;
        let name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int = driver.function(c"cuDeviceGetName")?;
        let bus: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int = driver.function(c"cuDeviceGetPCIBusId")?;
        let memory: unsafe extern "C" fn(*mut usize, c_int) -> c_int = driver.function(c"cuDeviceTotalMem_v2")?;
        let attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int =
            driver.function(c"cuDeviceGetAttribute")?;
        let mut handle = 0;
        if get(&mut handle, number) != 0 {
            return None;
        }
        let text = |ask: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int| {
            let mut text = [0_u8; 256];
            ask(text.as_mut_ptr().cast(), text.len() as c_int - 1, handle);
            CStr::from_bytes_until_nul(&text).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let asked = |which: c_int| {
            let mut value = 0;
            attribute(&mut value, which, handle);
            u32::try_from(value).unwrap_or(0)
        };
        let mut bytes = 0;
        memory(&mut bytes, handle);
        Some(Device {
            number: number as u32,
            name: text(name),
            bus: text(bus),
            memory_bytes: bytes as u64,
            multiprocessors: asked(MULTIPROCESSORS),
            capability: (asked(MAJOR), asked(MINOR)),
        })
    }
}
