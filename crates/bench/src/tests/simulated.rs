//! A simulated device: its clock moves only when a test advances it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laptime_probe::{DeviceClock, Lane, SimulatedDevice};
use laptime_trace::kernels::{DeviceWork, Stretch, WorkKind};
use laptime_trace::run::{Depth, DeviceState, L2, Timing};
use laptime_trace::{KernelRecords, Nanos};

use crate::depth::AtomicDepth;
use crate::timing::SwitchableClock;
use crate::workload::{Device, IterationState, KernelRecording};

/// A device for tests with exact times and sizes.
#[derive(Debug, Default)]
pub struct Simulated {
    clock: Arc<AtomicU64>,
    memory: Mutex<Memory>,
    is_lost: AtomicBool,
    depth: AtomicDepth,
    stream: Option<Stream>,
}

#[derive(Debug, Default)]
struct Memory {
    used: u64,
    peak: u64,
    size: Option<u64>,
}

/// A stream that runs concurrently with the host.
#[derive(Debug)]
struct Stream {
    device: Arc<SimulatedDevice>,
    clock: Arc<SwitchableClock>,
    lane: Lane,
    state: Mutex<DeviceState>,
    kernels: Arc<Mutex<Kernels>>,
    is_cold: AtomicBool,
    chills: AtomicU64,
}

#[derive(Debug, Default)]
struct Kernels {
    is_recording: bool,
    records: KernelRecords,
}

impl Simulated {
    /// A device at time zero with unlimited memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// A device with this much memory.
    pub fn with_memory(bytes: u64) -> Self {
        let device = Self::default();
        device.memory().size = Some(bytes);
        device
    }

    /// A device with a stream and a device clock, concurrent with the host.
    pub fn with_clock() -> Self {
        let device = Arc::new(SimulatedDevice::anchored_at(laptime_probe::now()));
        let host = Arc::<AtomicU64>::default();
        let wait = {
            let (host, device) = (Arc::clone(&host), Arc::clone(&device));
            move || _ = host.fetch_max(device.synchronise(), Relaxed)
        };
        let clock = Arc::new(SwitchableClock::new(Arc::clone(&device) as Arc<dyn DeviceClock>, wait));
        let lane = Lane::device("simulated", Arc::clone(&clock) as Arc<dyn DeviceClock>);
        let (state, kernels) = (Mutex::default(), Arc::default());
        let (is_cold, chills) = (AtomicBool::new(false), AtomicU64::new(0));
        let stream = Some(Stream { device, clock, lane, state, kernels, is_cold, chills });
        Self { clock: host, stream, ..Self::default() }
    }

    /// Advances the clock.
    pub fn advance(&self, length: Nanos) {
        self.clock.fetch_add(length.0, Relaxed);
        if let Some(stream) = &self.stream {
            stream.device.advance(length.0);
        }
    }

    /// Puts work on the stream, if there is one, without waiting for it.
    pub fn submit(&self, length: Nanos) {
        let Some(stream) = &self.stream else { return self.advance(length) };
        let start_ns = stream.device.busy_until();
        stream.device.submit(length.0);
        let mut kernels = locked(&stream.kernels);
        if kernels.is_recording {
            let kind = WorkKind::Kernel {
                name: "work".into(),
                grid: [1; 3],
                block: [1; 3],
                registers: None,
                shared_bytes: None,
                graph: None,
                node: None,
            };
            let time = Stretch { start_ns, end_ns: stream.device.busy_until() };
            kernels.records.work.push(DeviceWork { time, device: 0, stream: Some(7), correlation: 0, kind });
        }
    }

    /// Sets the state that the device reports.
    pub fn set_state(&self, state: DeviceState) {
        if let Some(stream) = &self.stream {
            *locked(&stream.state) = state;
        }
    }

    /// Loses the device, as after an illegal memory access.
    pub fn lose(&self) {
        self.is_lost.store(true, Relaxed);
    }

    /// How often its L2 cache was emptied.
    pub fn chills(&self) -> u64 {
        self.stream.as_ref().map_or(0, |stream| stream.chills.load(Relaxed))
    }

    /// Allocates memory and frees it again.
    pub fn use_bytes(&self, bytes: u64) {
        let mut memory = self.memory();
        memory.used += bytes;
        memory.peak = memory.peak.max(memory.used);
        memory.used -= bytes;
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        locked(&self.memory)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device for Simulated {
    fn name(&self) -> &str {
        "simulated"
    }

    fn synchronise(&self) -> anyhow::Result<()> {
        if let Some(stream) = &self.stream {
            let done = stream.device.synchronise();
            self.clock.fetch_max(done, Relaxed);
        }
        Ok(())
    }

    fn now(&self) -> Nanos {
        Nanos(self.clock.load(Relaxed))
    }

    fn reset_peak(&self) {
        let mut memory = self.memory();
        memory.peak = memory.used;
    }

    fn peak_bytes(&self) -> Option<u64> {
        Some(self.memory().peak)
    }

    fn available_bytes(&self) -> Option<u64> {
        let memory = self.memory();
        memory.size.map(|size| size - memory.used)
    }

    fn timings(&self) -> &[Timing] {
        match &self.stream {
            Some(_) => &[Timing::Events, Timing::Host, Timing::Sync, Timing::Kernels],
            None => &[Timing::Host],
        }
    }

    fn set_timing(&self, timing: Timing) {
        if let Some(stream) = &self.stream {
            stream.clock.set(timing);
        }
    }

    fn set_depth(&self, depth: Depth) {
        self.depth.set(depth);
    }

    fn depth(&self) -> Depth {
        self.depth.get()
    }

    fn lane(&self) -> Option<&Lane> {
        self.stream.as_ref().map(|stream| &stream.lane)
    }

    fn begin_iteration(&self) -> anyhow::Result<()> {
        if let Some(stream) = &self.stream {
            stream.clock.begin_iteration();
        }
        Ok(())
    }

    fn end_iteration(&self) -> anyhow::Result<()> {
        if let Some(stream) = &self.stream {
            stream.clock.end_iteration();
        }
        Ok(())
    }

    fn last_iteration(&self) -> IterationState {
        let Some(stream) = &self.stream else { return IterationState::default() };
        IterationState { device_ns: stream.clock.last_iteration(), state: locked(&stream.state).clone() }
    }

    fn has_l2(&self) -> bool {
        self.stream.is_some()
    }

    fn set_l2(&self, l2: Option<L2>) {
        if let Some(stream) = &self.stream {
            stream.is_cold.store(l2 == Some(L2::Cold), Relaxed);
        }
    }

    fn chill(&self) -> anyhow::Result<()> {
        if let Some(stream) = self.stream.as_ref().filter(|stream| stream.is_cold.load(Relaxed)) {
            stream.chills.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    fn is_lost(&self) -> bool {
        self.is_lost.load(Relaxed)
    }

    fn record_kernels(&self) -> anyhow::Result<Option<Box<dyn KernelRecording>>> {
        let Some(stream) = &self.stream else { return Ok(None) };
        let recording = SimulatedRecording(Arc::clone(&stream.kernels));
        recording.set_paused(false)?;
        Ok(Some(Box::new(recording)))
    }
}

struct SimulatedRecording(Arc<Mutex<Kernels>>);

impl KernelRecording for SimulatedRecording {
    fn set_paused(&self, is_paused: bool) -> anyhow::Result<()> {
        locked(&self.0).is_recording = !is_paused;
        Ok(())
    }

    fn finish(self: Box<Self>) -> anyhow::Result<KernelRecords> {
        let mut kernels = locked(&self.0);
        kernels.is_recording = false;
        Ok(std::mem::take(&mut kernels.records))
    }
}
