//! A CUDA GPU as a device.

pub(crate) mod attention;
mod listen;
pub(crate) mod models;
pub(crate) mod workloads;

use std::any::Any;
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};
use std::time::{Duration, Instant};

use laptime_analyze::GpuHealth;
use laptime_bench::{
    AtomicDepth, Depth, Device, DeviceState, GraphReplays, IterationState, KernelRecording, L2, Nanos, NoDevice,
    OutOfMemory, SwitchableClock, Timing,
};
use laptime_cuda::{Buffer, Cache, CudaError, EventClock, Kernels, Stream, nvml::Card};
use laptime_probe::{DeviceClock, Lane, monotonic_nanos};
use laptime_trace::run::PeakGpu;

use crate::devices::GpuFound;

/// How long a reading of the GPU's state is reused: a reading takes longer than many iterations.
const READING_HOLDS: Duration = Duration::from_millis(50);

/// The workspace of cuBLAS, in bytes.
const WORKSPACE_BYTES: u64 = 32 << 20;

/// The size of the smallest allocation.
const SMALLEST_BYTES: u64 = 512;

/// The L2 cache is emptied by writing this many times its size.
const CACHE_TIMES: u64 = 2;

/// A GPU with its stream and its memory.
pub struct CudaDevice {
    name: String,
    device: laptime_cuda::Device,
    clock: Arc<SwitchableClock>,
    lane: Lane,
    card: Option<Card>,
    reading: Mutex<Option<(Instant, DeviceState)>>,
    kernels: OnceLock<Kernels>,
    /// A second stream, created on first use.
    side_stream: OnceLock<SecondStream>,
    is_cold: AtomicBool,
    /// The buffer that is written to empty the L2 cache.
    flushed: Mutex<Option<Buffer<u8>>>,
    /// Bytes in use when the peak was last reset.
    used_before: AtomicU64,
    depth: AtomicDepth,
}

impl CudaDevice {
    /// Opens the GPU with this number.
    pub fn open(index: u32) -> Result<Self, NoDevice> {
        Self::try_open(index).map_err(|error| no_device(index, &error))
    }

    fn try_open(index: u32) -> Result<Self, CudaError> {
        let device = laptime_cuda::Device::open(index)?;
        let clock = clock(device.stream())?;
        let name = format!("cuda:{index}");
        let lane = Lane::device(&name, Arc::clone(&clock) as Arc<dyn DeviceClock>);
        let card = Card::open(&device.facts().bus).ok();
        Ok(Self {
            name,
            device,
            clock,
            lane,
            card,
            reading: Mutex::default(),
            kernels: OnceLock::new(),
            side_stream: OnceLock::new(),
            is_cold: AtomicBool::new(false),
            flushed: Mutex::default(),
            used_before: AtomicU64::new(0),
            depth: AtomicDepth::default(),
        })
    }

    /// The GPU itself.
    pub fn cuda(&self) -> &laptime_cuda::Device {
        &self.device
    }

    /// Our own kernels, compiled on first use.
    pub fn kernels(&self) -> Result<&Kernels, CudaError> {
        once(&self.kernels, || Kernels::load(&self.device, &Cache::of_user()))
    }

    /// The same GPU with a second stream and a lane for it.
    pub fn side_stream(&self) -> Result<&SecondStream, CudaError> {
        once(&self.side_stream, || SecondStream::new(&self.name, &self.device, self.clock.timing()))
    }

    fn flush_buffer(&self) -> anyhow::Result<Buffer<u8>> {
        let bytes = self.device.facts().l2_bytes.saturating_mul(CACHE_TIMES);
        Ok(self.device.allocate(usize::try_from(bytes)?)?)
    }

    fn state(&self) -> DeviceState {
        let Some(card) = &self.card else { return DeviceState::default() };
        let mut reading = locked(&self.reading);
        match &*reading {
            Some((read, state)) if read.elapsed() < READING_HOLDS => state.clone(),
            _ => {
                let state = state_of(&card.read());
                *reading = Some((Instant::now(), state.clone()));
                state
            }
        }
    }
}

/// A second stream of a GPU, with its own clock and lane.
pub struct SecondStream {
    device: laptime_cuda::Device,
    clock: Arc<SwitchableClock>,
    lane: Lane,
}

impl SecondStream {
    /// Creates the stream with the timing of the first one.
    fn new(name: &str, first: &laptime_cuda::Device, timing: Timing) -> Result<Self, CudaError> {
        let device = first.with_new_stream()?;
        let clock = clock(device.stream())?;
        clock.set(timing);
        let lane = Lane::device(&format!("{name} stream 2"), Arc::clone(&clock) as Arc<dyn DeviceClock>);
        Ok(Self { device, clock, lane })
    }

    /// The GPU, whose stream is the second one.
    pub fn cuda(&self) -> &laptime_cuda::Device {
        &self.device
    }

    /// The lane of its stages.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }
}

/// The clock of a stream under every timing.
fn clock(stream: &Arc<Stream>) -> Result<Arc<SwitchableClock>, CudaError> {
    let events: Arc<dyn DeviceClock> = Arc::new(EventClock::new(Arc::clone(stream))?);
    let stream = Arc::clone(stream);
    // A failed stream reports its error at the next call that can return one.
    let wait = move || drop(stream.synchronise());
    Ok(Arc::new(SwitchableClock::new(events, wait)))
}

fn state_of(reading: &laptime_cuda::nvml::Reading) -> DeviceState {
    DeviceState {
        clock_mhz: reading.sm_mhz.map(f64::from),
        power_watts: reading.power_mw.map(|milliwatts| f64::from(milliwatts) / 1000.0),
        temperature_c: reading.celsius.map(f64::from),
        throttled: reading.throttled().iter().map(ToString::to_string).collect(),
    }
}

/// The content of the cell, which is created on first use.
fn once<T>(cell: &OnceLock<T>, new: impl FnOnce() -> Result<T, CudaError>) -> Result<&T, CudaError> {
    if let Some(known) = cell.get() {
        return Ok(known);
    }
    // If another thread was first, its value is equal.
    let value = new()?;
    Ok(cell.get_or_init(|| value))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a GPU cannot be used, with a hint.
fn no_device(index: u32, error: &CudaError) -> NoDevice {
    let hint = error.hint().unwrap_or_else(|| "`laptime doctor` shows the devices".to_owned());
    NoDevice { device: format!("cuda:{index}"), reason: error.to_string(), hint }
}

/// The GPUs, or why there are none.
pub fn found() -> Result<Vec<GpuFound>, NoDevice> {
    let count = laptime_cuda::device_count().map_err(|why| no_device(0, &why.into()))?;
    (0..count).map(|index| CudaDevice::open(index).map(|gpu| gpu.found())).collect()
}

impl CudaDevice {
    /// Its identity and power limit, which determine its peaks; none if NVML does not know the GPU.
    pub(crate) fn peak_gpu(&self) -> Option<PeakGpu> {
        let facts = self.card.as_ref()?.facts().ok()?;
        let limit = self.card.as_ref()?.read().power_limit_mw;
        Some(PeakGpu {
            uuid: facts.uuid?,
            driver: Some(facts.driver),
            power_limit_watts: limit.map(|milliwatts| f64::from(milliwatts) / 1000.0),
        })
    }

    fn found(&self) -> GpuFound {
        let facts = self.device.facts();
        let reading = self.card.as_ref().map(Card::read).unwrap_or_default();
        let health = GpuHealth {
            device: self.name.clone(),
            name: facts.name.clone(),
            cuda: Some(format!("{}.{}", facts.driver_cuda / 1000, facts.driver_cuda % 1000 / 10)),
            clock_limit_mhz: reading.sm_limit_mhz.map(f64::from),
            power_limit_watts: reading.power_limit_mw.map(|milliwatts| f64::from(milliwatts) / 1000.0),
            state: state_of(&reading),
            no_kernels: laptime_cuda::cupti::version().err().map(|error| error.to_string()),
        };
        GpuFound { health, driver: self.card.as_ref().and_then(|card| card.facts().ok()).map(|facts| facts.driver) }
    }
}

pub(crate) fn out_of_memory(error: &CudaError) -> Option<OutOfMemory> {
    match error {
        CudaError::OutOfMemory { wanted, free, .. } => {
            Some(OutOfMemory { needed_bytes: *wanted, available_bytes: *free })
        }
        _ => None,
    }
}

/// The GPU of a device, if it is one.
pub fn gpu(device: &dyn Device) -> Option<&CudaDevice> {
    device.as_any()?.downcast_ref()
}

impl Device for CudaDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn synchronise(&self) -> anyhow::Result<()> {
        Ok(self.device.synchronise()?)
    }

    fn now(&self) -> Nanos {
        Nanos(monotonic_nanos())
    }

    /// Memory cached in the pool is released, so that each case starts with the same memory.
    fn reset_peak(&self) {
        // The next case reports a lost context.
        let _ = self.device.give_back_memory();
        let _ = self.device.reset_peak();
        self.used_before.store(self.device.used_memory().unwrap_or(0), Relaxed);
    }

    fn peak_bytes(&self) -> Option<u64> {
        let peak = self.device.peak_memory().ok()?.bytes();
        Some(peak.saturating_sub(self.used_before.load(Relaxed)))
    }

    fn available_bytes(&self) -> Option<u64> {
        Some(self.device.free_memory().ok()?.free)
    }

    fn timings(&self) -> &[Timing] {
        &[Timing::Events, Timing::Host, Timing::Sync, Timing::Kernels]
    }

    fn set_timing(&self, timing: Timing) {
        self.clock.set(timing);
        if let Some(side_stream) = self.side_stream.get() {
            side_stream.clock.set(timing);
        }
    }

    fn set_depth(&self, depth: Depth) {
        self.depth.set(depth);
    }

    fn depth(&self) -> Depth {
        self.depth.get()
    }

    fn lane(&self) -> Option<&Lane> {
        Some(&self.lane)
    }

    fn begin_iteration(&self) -> anyhow::Result<()> {
        self.clock.begin_iteration();
        Ok(())
    }

    fn end_iteration(&self) -> anyhow::Result<()> {
        self.clock.end_iteration();
        Ok(())
    }

    fn last_iteration(&self) -> IterationState {
        let device_ns = self.clock.last_iteration();
        if self.clock.timing() == Timing::Events {
            // Host and device were just synchronised, so this is a good anchor.
            self.clock.anchor();
            if let Some(side_stream) = self.side_stream.get() {
                side_stream.clock.anchor();
            }
        }
        IterationState { device_ns, state: self.state() }
    }

    fn record_kernels(&self) -> anyhow::Result<Option<Box<dyn KernelRecording>>> {
        Ok(Some(Box::new(listen::Listening::begin()?)))
    }

    fn take_replays(&self) -> GraphReplays {
        self.device.take_replays()
    }

    fn has_l2(&self) -> bool {
        true
    }

    fn set_l2(&self, l2: Option<L2>) {
        let is_cold = l2 == Some(L2::Cold);
        self.is_cold.store(is_cold, Relaxed);
        let mut flushed = locked(&self.flushed);
        match (is_cold, &*flushed) {
            // Before the case begins, so that it does not count as its memory. If it fails, `chill` tries again.
            (true, None) => *flushed = self.flush_buffer().ok(),
            (true, Some(_)) => {}
            (false, _) => *flushed = None,
        }
    }

    fn chill(&self) -> anyhow::Result<()> {
        if !self.is_cold.load(Relaxed) {
            return Ok(());
        }
        let mut flushed = locked(&self.flushed);
        if flushed.is_none() {
            *flushed = Some(self.flush_buffer()?);
        }
        if let Some(buffer) = &mut *flushed {
            buffer.zero()?;
        }
        Ok(())
    }

    fn out_of_memory(&self, error: &anyhow::Error) -> Option<OutOfMemory> {
        crate::backend::out_of_memory(error)
    }

    fn is_lost(&self) -> bool {
        self.device.synchronise().is_err_and(|error| error.is_sticky())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_cuda::{Unavailable, nvml::Reading};

    #[test]
    fn a_missing_gpu_is_reported_with_a_hint() {
        let gone = no_device(1, &CudaError::Unavailable(Unavailable::NoSuchDevice { index: 1, count: 1 }));
        assert_eq!(gone.to_string(), "device `cuda:1` is not available: there is no GPU 1: the only GPU is 0");
        assert_eq!(gone.hint, "use `--device cuda:0`");
    }

    #[test]
    fn a_failed_allocation_is_out_of_memory_with_its_sizes() {
        let error = || CudaError::OutOfMemory { wanted: Some(7), free: Some(3), total: Some(9) };
        let expected = Some(OutOfMemory { needed_bytes: Some(7), available_bytes: Some(3) });
        let in_model = laptime_models::ModelError::from(error());
        for error in [anyhow::Error::new(error()).context("a case"), in_model.into()] {
            assert_eq!(crate::backend::out_of_memory(&error), expected);
        }
        assert_eq!(crate::backend::out_of_memory(&anyhow::anyhow!("another error")), None);
    }

    #[test]
    fn a_reading_of_the_card_has_the_units_of_results() {
        let reading = Reading { sm_mhz: Some(1980), power_mw: Some(612_500), celsius: Some(54), ..Reading::default() };
        let state = state_of(&reading);
        assert_eq!((state.clock_mhz, state.power_watts, state.temperature_c), (Some(1980.0), Some(612.5), Some(54.0)));
        assert!(state.throttled.is_empty());
    }
}
