//! Converts CUPTI's records to those of a trace.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use laptime_bench::{KernelRecording, KernelRecords};
use laptime_cuda::cupti::{self, Call, CuptiAnchor, Record, Recorded, Session, device_wait, device_work};
use laptime_probe::{Anchor, TickMap, Ticks};
use laptime_trace::kernels::{HostCall, Stretch};

/// Records a device in CUPTI sessions; a pause ends a session.
pub struct Listening {
    first: Anchor,
    session: RefCell<Option<Session>>,
    recorded: RefCell<Vec<Recorded>>,
}

impl Listening {
    pub fn begin() -> anyhow::Result<Self> {
        let session = RefCell::new(Some(Session::start()?));
        Ok(Self { first: Anchor::take(), session, recorded: RefCell::default() })
    }
}

impl KernelRecording for Listening {
    fn set_paused(&self, is_paused: bool) -> anyhow::Result<()> {
        let mut session = self.session.borrow_mut();
        match (session.take(), is_paused) {
            (Some(on), true) => self.recorded.borrow_mut().push(on.finish()?),
            (None, false) => *session = Some(Session::start()?),
            (same, _) => *session = same,
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> anyhow::Result<KernelRecords> {
        self.set_paused(true)?;
        let clock = HostClock { first: self.first, map: TickMap::new(self.first, Anchor::take()) };
        let mut names = HashMap::new();
        let mut records = KernelRecords::default();
        for recorded in self.recorded.take() {
            add(&mut records, &recorded, &clock, &mut |call| {
                let named = || cupti::function_name(call).unwrap_or_else(|| format!("function {}", call.function));
                Arc::clone(names.entry((call.is_driver, call.function)).or_insert_with(|| named().into()))
            });
        }
        Ok(records)
    }
}

/// The host's clock: ticks as nanoseconds of the monotonic clock.
struct HostClock {
    first: Anchor,
    map: Option<TickMap>,
}

impl HostClock {
    fn nanos(&self, ticks: Ticks) -> u64 {
        let since = |map: &TickMap| {
            let after = map.nanos(ticks);
            if ticks >= self.first.ticks {
                return self.first.nanos.saturating_add(after);
            }
            let before = (self.first.ticks.0 - ticks.0) as f64 * map.nanos_per_tick();
            self.first.nanos.saturating_sub(before.round() as u64)
        };
        self.map.as_ref().map_or(self.first.nanos, since)
    }

    fn window(&self, anchor: &CuptiAnchor) -> u64 {
        self.nanos(anchor.host.after).saturating_sub(self.nanos(anchor.host.before))
    }
}

/// The mapping of one session to the host's clock.
struct OnHost {
    anchors: Vec<(u64, u64)>,
}

impl OnHost {
    fn new(recorded: &Recorded, clock: &HostClock) -> Self {
        let anchor = |anchor: &CuptiAnchor| (anchor.nanos, clock.nanos(anchor.host.middle()));
        Self { anchors: recorded.anchors.iter().map(anchor).collect() }
    }

    /// Converts a time of CUPTI's clock, relative to the nearest anchor.
    fn nanos(&self, cupti: u64) -> u64 {
        let nearest = self.anchors.iter().min_by_key(|(theirs, _)| theirs.abs_diff(cupti));
        nearest.map_or(0, |(theirs, host)| host.saturating_add_signed(cupti.wrapping_sub(*theirs) as i64))
    }

    fn stretch(&self, start: u64, end: u64) -> Stretch {
        Stretch { start_ns: self.nanos(start), end_ns: self.nanos(end) }
    }
}

fn add(records: &mut KernelRecords, recorded: &Recorded, clock: &HostClock, name: &mut dyn FnMut(&Call) -> Arc<str>) {
    let to_host = OnHost::new(recorded, clock);
    for record in &recorded.records {
        match record {
            Record::Work(work) => {
                records.work.push(device_work(work, Arc::clone, |start, end| to_host.stretch(start, end)))
            }
            Record::Wait(wait) => records.work.push(device_wait(wait, |start, end| to_host.stretch(start, end))),
            Record::Call(call) => records.calls.push(host_call(call, name(call), &to_host)),
            // Calls are assigned to our stages by their times; allocations are not recorded here.
            Record::Tie(_) | Record::Memory(_) => {}
        }
    }
    records.lost = records.lost.saturating_add(recorded.lost);
    let window = recorded.anchors.iter().map(|anchor| clock.window(anchor) / 2).max();
    records.uncertainty_ns = records.uncertainty_ns.max(window);
}

fn host_call(call: &Call, name: Arc<str>, to_host: &OnHost) -> HostCall {
    HostCall {
        time: to_host.stretch(call.start_nanos, call.end_nanos),
        thread: i64::from(call.thread),
        name,
        is_driver: call.is_driver,
        correlation: u64::from(call.correlation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_probe::DeviceAnchor;

    fn anchor(ticks: u64, nanos: u64) -> Anchor {
        Anchor { ticks: Ticks(ticks), nanos, spread: 0 }
    }

    fn cupti_anchor(before: u64, after: u64, nanos: u64) -> CuptiAnchor {
        CuptiAnchor { host: DeviceAnchor { before: Ticks(before), after: Ticks(after) }, nanos }
    }

    /// A clock with two ticks per nanosecond, whose first anchor is at 10 ms.
    fn clock() -> HostClock {
        let first = anchor(20_000_000, 10_000_000);
        HostClock { first, map: TickMap::new(first, anchor(40_000_000, 20_000_000)) }
    }

    #[test]
    fn ticks_before_and_after_the_first_anchor_are_nanoseconds() {
        assert_eq!(clock().nanos(Ticks(20_000_100)), 10_000_050);
        assert_eq!(clock().nanos(Ticks(19_999_900)), 9_999_950);
    }

    #[test]
    fn records_are_converted_to_the_host_clock_at_the_nearest_anchor() {
        let work = cupti::Work {
            kind: cupti::WorkKind::Fill { memory: cupti::MemoryKind::Device, bytes: 8 },
            start_nanos: 1_100,
            end_nanos: 1_300,
            device: 0,
            stream: 7,
            correlation: 3,
            graph: None,
        };
        let call =
            Call { is_driver: true, function: 1, start_nanos: 9_000, end_nanos: 9_010, thread: 4, correlation: 3 };
        let recorded = Recorded {
            records: vec![Record::Work(work), Record::Call(call)],
            lost: 2,
            anchors: vec![cupti_anchor(19_999_980, 20_000_020, 1_000), cupti_anchor(20_020_000, 20_020_000, 9_500)],
        };
        let mut records = KernelRecords::default();
        add(&mut records, &recorded, &clock(), &mut |_| "cuMemsetD8Async".into());
        assert_eq!(records.work[0].time, Stretch { start_ns: 10_000_100, end_ns: 10_000_300 });
        assert_eq!(records.calls[0].time, Stretch { start_ns: 10_009_500, end_ns: 10_009_510 });
        assert_eq!((records.lost, records.uncertainty_ns), (2, Some(10)));
        assert_eq!((&*records.calls[0].name, records.work[0].correlation), ("cuMemsetD8Async", 3));
    }
}
