//! Opens each device once while it is in use: opening a GPU is slow and costs half a gigabyte each time.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::workload::{Device, Devices};

/// Returns the device that is already open if it is requested again, by the same name or by its own name.
pub struct OpenOnce<D> {
    devices: D,
    last: Mutex<Option<(String, Weak<dyn Device>)>>,
}

impl<D> OpenOnce<D> {
    /// Opens devices through `inner`.
    pub fn new(devices: D) -> Self {
        Self { devices, last: Mutex::new(None) }
    }
}

impl<D: Devices> Devices for OpenOnce<D> {
    fn open(&self, name: &str) -> anyhow::Result<Arc<dyn Device>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let open = last.as_ref().and_then(|(asked, device)| Some((asked, device.upgrade()?)));
        // A lost device cannot be used again.
        let is_it =
            |asked: &str, device: &Arc<dyn Device>| (asked == name || device.name() == name) && !device.is_lost();
        if let Some((_, device)) = open.filter(|(asked, device)| is_it(asked, device)) {
            return Ok(device);
        }
        let device = self.devices.open(name)?;
        *last = Some((name.to_owned(), Arc::downgrade(&device)));
        Ok(device)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;
    use crate::Simulated;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Devices for &Counted {
        fn open(&self, _: &str) -> anyhow::Result<Arc<dyn Device>> {
            self.0.fetch_add(1, Relaxed);
            Ok(Arc::new(Simulated::new()))
        }
    }

    #[test]
    fn a_device_is_opened_once_while_it_is_in_use() {
        let counted = Counted::default();
        let devices = OpenOnce::new(&counted);
        let first = devices.open("auto").unwrap();
        let again = ["auto", first.name()].map(|name| devices.open(name).unwrap());
        assert_eq!(counted.0.load(Relaxed), 1);
        assert!(again.iter().all(|device| Arc::ptr_eq(device, &first)));
        let other = devices.open("other").unwrap();
        assert!(!Arc::ptr_eq(&other, &first) && counted.0.load(Relaxed) == 2);
        drop((first, again, other));
        devices.open("other").unwrap();
        assert_eq!(counted.0.load(Relaxed), 3, "an unused device is closed");
    }
}
