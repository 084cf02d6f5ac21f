//! The event clock: compared with kernels of known length and with the host, and its cost.

use std::{sync::Arc, time::Instant};

use laptime_cuda::{Buffer, CudaError, DRIFT_ONE_IN, Device, EVENT_RESOLUTION_NANOS, EventClock, Kernels};
use laptime_probe::{Anchor, DeviceAnchor, DeviceClock, DeviceMoment, Resolved, Stamp, TickMap};

use crate::{Answer, Bench, Failed, expect, median};

/// Long enough for the host to submit a whole measurement before the device starts it.
const PLUG_NANOS: u64 = 2_000_000;
const TIMES: usize = 21;

/// A reading of the device's global timer with its host time range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerAnchor {
    /// Host clock before and after.
    pub host: DeviceAnchor,
    /// The timer, in nanoseconds.
    pub nanos: u64,
}

impl TimerAnchor {
    /// Reads the timer on an idle device. Waits for it.
    pub fn take(device: &Device, kernels: &Kernels) -> Result<Self, CudaError> {
        let stream = device.stream();
        let mut reading = device.allocate(1)?;
        stream.synchronise()?;
        let before = laptime_probe::now();
        kernels.timer_readings(stream, &mut reading)?;
        stream.synchronise()?;
        let after = laptime_probe::now();
        let nanos = reading.read()?.first().copied().unwrap_or(0);
        Ok(Self { host: DeviceAnchor { before, after }, nanos })
    }

    /// A time of the timer relative to this anchor.
    pub fn moment(&self, nanos: u64) -> DeviceMoment {
        DeviceMoment { anchor: self.host, nanos: nanos.wrapping_sub(self.nanos) as i64 }
    }
}

/// Polls until the mark is reached.
pub fn moment(clock: &EventClock, stamp: Stamp) -> Result<DeviceMoment, Failed> {
    let began = Instant::now();
    while began.elapsed().as_secs() < 10 {
        match clock.resolve(stamp) {
            Resolved::At(moment) => return Ok(moment),
            Resolved::Never => return Err(Failed::Wrong("a mark will never be resolved".to_owned())),
            Resolved::Pending => std::hint::spin_loop(),
        }
    }
    Err(Failed::Wrong("a mark was pending for ten seconds".to_owned()))
}

fn mark(clock: &EventClock) -> Result<Stamp, Failed> {
    clock.mark().ok_or_else(|| Failed::Wrong("the stream takes no mark".to_owned()))
}

fn new_clock(bench: &Bench) -> Result<EventClock, Failed> {
    Ok(EventClock::new(Arc::clone(bench.device.stream()))?)
}

/// Nanoseconds between two moments of one clock, whatever their anchors.
fn between(begin: DeviceMoment, end: DeviceMoment) -> Result<i64, Failed> {
    expect(begin.anchor == end.anchor, || "two marks of one stage have different anchors".to_owned())?;
    Ok(end.nanos - begin.nanos)
}

/// Stream time of `work`, put between two marks behind a plug; the median in nanoseconds.
pub fn stream_nanos(bench: &Bench, clock: &EventClock, work: impl Fn() -> Result<(), Failed>) -> Result<f64, Failed> {
    let mut lengths = Vec::new();
    for _ in 0..TIMES {
        bench.device.synchronise()?;
        clock.anchor();
        bench.kernels.spin_nanos(bench.device.stream(), PLUG_NANOS)?;
        let begin = mark(clock)?;
        work()?;
        let end = mark(clock)?;
        lengths.push(between(moment(clock, begin)?, moment(clock, end)?)? as f64);
    }
    Ok(median(lengths))
}

/// Bytes written before an iteration, so that the L2 cache contains nothing of its data.
pub const FLUSHED_BYTES: usize = 512 << 20;

/// Stream time of `work` with a cold L2 cache; the median in nanoseconds. Writing `flush` is not timed, and takes
/// longer than the host needs to submit all work.
pub fn cold_nanos(
    bench: &Bench,
    clock: &EventClock,
    flush: &mut Buffer<u32>,
    mut work: impl FnMut() -> Result<(), CudaError>,
) -> Result<f64, Failed> {
    let mut lengths = Vec::new();
    for _ in 0..TIMES {
        bench.device.synchronise()?;
        clock.anchor();
        flush.set_all(bench.device.stream(), 1)?;
        let begin = mark(clock)?;
        work()?;
        let end = mark(clock)?;
        lengths.push(between(moment(clock, begin)?, moment(clock, end)?)? as f64);
    }
    Ok(median(lengths))
}

pub fn known_lengths(bench: &Bench) -> Answer {
    let clock = new_clock(bench)?;
    let spin = |nanos| stream_nanos(bench, &clock, || Ok(bench.kernels.spin_nanos(bench.device.stream(), nanos)?));
    let empty = spin(0)?;
    let mut words = format!("a kernel of no length {:.2} us", empty / 1e3);
    let mut wrong = Vec::new();
    for nanos in [1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000, 100_000_000_u64] {
        let off = spin(nanos)? - empty - nanos as f64;
        let allowed = if nanos >= 100_000 { nanos as f64 * 0.02 } else { clock.uncertainty_nanos() as f64 };
        words +=
            &format!("\n{:>9.0} us: off by {:+.2} us, allowed {:.2}", nanos as f64 / 1e3, off / 1e3, allowed / 1e3);
        if off.abs() > allowed {
            wrong.push(nanos);
        }
    }
    words += &format!("\nuncertainty {:.2} us", clock.uncertainty_nanos() as f64 / 1e3);
    expect(wrong.is_empty(), || format!("off at {wrong:?} ns: {words}"))?;
    Ok(words)
}

pub fn timer_resolution(bench: &Bench) -> Answer {
    let mut readings = bench.device.allocate::<u64>(100_000)?;
    bench.kernels.timer_readings(bench.device.stream(), &mut readings)?;
    let readings = readings.read()?;
    let steps: Vec<u64> = readings.windows(2).map(|two| two[1].wrapping_sub(two[0])).filter(|step| *step > 0).collect();
    expect(readings.is_sorted(), || "the timer runs backwards".to_owned())?;
    let (least, most) = (steps.iter().min().copied().unwrap_or(0), steps.iter().max().copied().unwrap_or(0));
    expect(least > 0, || "the timer does not move".to_owned())?;
    let usual = median(steps.iter().map(|step| *step as f64).collect());
    Ok(format!("moves by {least} ns at least, {usual:.0} ns usually, {most} ns at most"))
}

pub fn event_cost(bench: &Bench) -> Answer {
    const MARKS: u32 = 1_000;
    let clock = new_clock(bench)?;
    let mut costs = Vec::new();
    for _ in 0..TIMES {
        bench.device.synchronise()?;
        clock.anchor();
        let began = Instant::now();
        let stamps: Vec<Stamp> = (0..MARKS).map(|_| mark(&clock)).collect::<Result<_, _>>()?;
        costs.push(began.elapsed().as_nanos() as f64 / f64::from(MARKS));
        bench.device.synchronise()?;
        for stamp in stamps {
            moment(&clock, stamp)?;
        }
    }
    let host = median(costs);
    let on_device = stream_nanos(bench, &clock, || (0..100).try_for_each(|_| mark(&clock).map(drop)))? / 101.0;
    Ok(format!("{host:.0} ns on the host, {on_device:.0} ns on the device"))
}

pub fn event_resolution(bench: &Bench) -> Answer {
    let clock = new_clock(bench)?;
    bench.kernels.spin_nanos(bench.device.stream(), PLUG_NANOS)?;
    let stamps: Vec<Stamp> = (0..400).map(|_| mark(&clock)).collect::<Result<_, _>>()?;
    let times: Vec<i64> =
        stamps.into_iter().map(|stamp| Ok(moment(&clock, stamp)?.nanos)).collect::<Result<_, Failed>>()?;
    expect(times.is_sorted(), || "events run backwards".to_owned())?;
    let steps = times.windows(2).map(|two| two[1] - two[0]).filter(|step| *step > 0);
    let mut distinct: Vec<i64> = steps.collect();
    distinct.sort_unstable();
    distinct.dedup();
    let least = distinct.first().copied().unwrap_or(0);
    let grain = distinct.windows(2).map(|two| two[1] - two[0]).filter(|gap| *gap > 1).min().unwrap_or(least);
    expect(least.unsigned_abs() <= 10_000, || format!("{least} ns from event to event"))?;
    Ok(format!("least step {least} ns, steps differ by {grain} ns, assumed {EVENT_RESOLUTION_NANOS} ns"))
}

/// A stage between two host synchronisations lies inside the time that the host measured, within the uncertainty.
pub fn against_host(bench: &Bench) -> Answer {
    let first = Anchor::take();
    let clock = new_clock(bench)?;
    let mut seen = Vec::new();
    for _ in 0..TIMES {
        bench.device.synchronise()?;
        clock.anchor();
        let before = laptime_probe::now();
        let begin = mark(&clock)?;
        bench.kernels.spin_nanos(bench.device.stream(), 20_000_000)?;
        let end = mark(&clock)?;
        bench.device.synchronise()?;
        let after = laptime_probe::now();
        seen.push((before, moment(&clock, begin)?, moment(&clock, end)?, after));
    }
    let map = TickMap::new(first, Anchor::take()).ok_or_else(|| Failed::Wrong("no tick map".to_owned()))?;
    let allowed = clock.uncertainty_nanos() as f64;
    let host = |moment: DeviceMoment| map.nanos(moment.anchor.middle()) as f64 + moment.nanos as f64;
    let mut least = f64::INFINITY;
    for (before, begin, end, after) in seen {
        least = least.min(host(begin) - map.nanos(before) as f64).min(map.nanos(after) as f64 - host(end));
    }
    expect(least >= -allowed, || format!("{least:.0} ns outside of what the host saw, allowed {allowed:.0}"))?;
    Ok(format!("least slack {:.2} us, uncertainty {:.2} us", least / 1e3, allowed / 1e3))
}

pub fn no_wait(bench: &Bench) -> Answer {
    let clock = new_clock(bench)?;
    bench.kernels.spin_nanos(bench.device.stream(), 200_000_000)?;
    let began = Instant::now();
    let stamp = mark(&clock)?;
    clock.anchor();
    let pending = clock.resolve(stamp);
    let micros = began.elapsed().as_secs_f64() * 1e6;
    expect(pending == Resolved::Pending, || format!("{pending:?}"))?;
    expect(micros < 100_000.0, || format!("took {micros:.0} us behind 200 ms of work"))?;
    moment(&clock, stamp)?;
    Ok(format!("mark, anchor and resolve took {micros:.1} us behind 200 ms of work"))
}

/// The global timer compared with the host clock over several seconds. A window of microseconds then gives parts per
/// million.
pub fn drift(bench: &Bench) -> Answer {
    let take = || TimerAnchor::take(&bench.device, &bench.kernels);
    let first = Anchor::take();
    let begin = take()?;
    bench.kernels.spin_nanos(bench.device.stream(), 4_000_000_000)?;
    bench.device.synchronise()?;
    let end = take()?;
    let map = TickMap::new(first, Anchor::take()).ok_or_else(|| Failed::Wrong("no tick map".to_owned()))?;
    let nanos = |ticks| map.nanos(ticks) as f64;
    let host = nanos(end.host.middle()) - nanos(begin.host.middle());
    let device = end.nanos.wrapping_sub(begin.nanos) as f64;
    let window = |anchor: &TimerAnchor| nanos(anchor.host.after) - nanos(anchor.host.before);
    let unsure = (window(&begin) + window(&end)) / 2.0 / host * 1e6;
    let parts = (device - host) / host * 1e6;
    let allowed = 1e6 / DRIFT_ONE_IN as f64;
    let words = format!("{parts:+.2} in a million, give or take {unsure:.2}; {allowed:.0} assumed");
    expect(parts.abs() <= allowed + unsure, || words.clone())?;
    Ok(words)
}
