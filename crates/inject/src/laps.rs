//! A window of laps, followed while the program runs: laps are NVTX ranges of one name.

use std::sync::atomic::{AtomicU32, Ordering};

use laptime_capture::control::{Control, LapSettings, RecordingMode};

/// Counts laps, and switches recording off and on.
#[derive(Debug)]
pub struct Laps {
    settings: LapSettings,
    count: AtomicU32,
}

impl Laps {
    pub fn new(settings: LapSettings) -> Self {
        Self { settings, count: AtomicU32::new(0) }
    }

    /// Whether a range of this name is a lap.
    pub fn matches(&self, name: &[u8]) -> bool {
        let mode = self.settings.name.as_bytes();
        match mode.strip_suffix(b"*") {
            Some(start) => name.starts_with(start),
            None => name == mode,
        }
    }

    /// A lap begins; says whether that changes the mode. Recording lasts from one lap before the window to one lap after it:
    /// switching takes a moment, and the surplus is cut off at the end. Until the first lap everything is recorded.
    pub fn begin(&self, control: &Control) -> bool {
        let number = self.count.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let LapSettings { after, during, .. } = self.settings;
        let end = during.map(|during| after.saturating_add(during).saturating_add(2));
        let mode = if Some(number) == end {
            RecordingMode::Rest
        } else if number == after.max(1) {
            RecordingMode::Everything
        } else if number == 1 {
            RecordingMode::Nothing
        } else {
            return false;
        };
        control.request_mode(mode);
        true
    }
}
