//! Devices that are opened once as long as somebody holds them: a GPU takes a while to open, and half a gigabyte each time.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::workload::{Device, Devices};

/// Gives the device that is open already to whoever asks for it again, by the same name or by its own.
pub struct OpenOnce<D> {
    devices: D,
    last: Mutex<Option<(String, Weak<dyn Device>)>>,
}

impl<D> OpenOnce<D> {
    /// Opens what these devices open.
    pub fn new(devices: D) -> Self {
        Self { devices, last: Mutex::new(None) }
    }
}

impl<D: Devices> Devices for OpenOnce<D> {
    fn open(&self, name: &str) -> anyhow::Result<Arc<dyn Device>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let open = last.as_ref().and_then(|(asked, device)| Some((asked, device.upgrade()?)));
        // One that is lost is of no use to anybody.
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
    fn a_device_is_opened_once_as_long_as_somebody_holds_it() {
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
        assert_eq!(counted.0.load(Relaxed), 3, "a device that nobody holds is closed");
    }
}
