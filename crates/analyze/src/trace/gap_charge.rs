//! The cost of a sync: the idle time that would disappear without it.
//!
//! The launches are replayed. Without a sync, everything that the host did after it happens earlier by the length of the
//! sync: this is the lead of the host. The next late launch comes earlier by the lead, which removes as much of the gap.
//! The rest of the gap is caused by what the host did after the sync.

use hashbrown::{HashMap, HashSet};

use laptime_trace::{SpanId, Trace, TrackId, activity::category};

use crate::devices::{DeviceWork, Devices};
use crate::host::Host;
use crate::waits::Found;

/// Idle time charged to a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charge {
    /// The index of the sync.
    pub(crate) wait: usize,
    /// When the idle time began.
    pub(crate) from: u64,
    /// When it ended.
    pub(crate) to: u64,
}

/// How much earlier a thread would be without a sync, and which sync.
#[derive(Debug, Clone, Copy)]
struct Lead {
    time: u64,
    wait: usize,
    /// When the last wait ended.
    since: u64,
}

/// The lead of each launching thread of one device, queried in order of time.
pub(crate) struct Leads<'a> {
    trace: &'a Trace,
    waits: &'a [Found],
    /// The indices of blocking syncs, by end.
    order: Vec<usize>,
    next: usize,
    /// When anything was launched, in order.
    launches: Vec<u64>,
    threads: Vec<TrackId>,
    leads: HashMap<TrackId, Lead>,
}

impl<'a> Leads<'a> {
    pub(crate) fn of(trace: &'a Trace, devices: &Devices, device: &DeviceWork, waits: &'a [Found]) -> Self {
        // A launch that waits because the queue is full is no sync: the host is as far ahead of the device as possible.
        let is_full = |wait: &Found| wait.span().is_some_and(|id| trace.span(id).category == category::OVERHEAD);
        let mut order: Vec<usize> =
            (0..waits.len()).filter(|at| waits[*at].end.is_some() && !is_full(&waits[*at])).collect();
        order.sort_by_key(|at| (waits[*at].end, waits[*at].start));
        let started: HashSet<SpanId> = devices.work().filter_map(|work| work.launch).collect();
        let mut launches: Vec<u64> = started.into_iter().map(|launch| trace.span_start(launch).0).collect();
        launches.sort_unstable();
        let mut threads: Vec<TrackId> =
            device.work.iter().filter_map(|work| Some(trace.span_track(work.launch?))).collect();
        threads.sort_unstable();
        threads.dedup();
        Self { trace, waits, order, next: 0, launches, threads, leads: HashMap::new() }
    }

    /// The threads that launch work of the device.
    pub(crate) fn threads(&self) -> &[TrackId] {
        &self.threads
    }

    /// How much earlier a launch could have come, and the sync that delayed it.
    pub(crate) fn before(&mut self, launch: SpanId, host: &Host<'_>) -> Option<(usize, u64)> {
        let moment = self.trace.span_start(launch).0;
        while let Some(&at) = self.order.get(self.next) {
            let Some(end) = self.waits[at].end.filter(|end| *end <= moment) else { break };
            self.next += 1;
            self.add(at, end, host);
        }
        let lead = self.leads.get(&self.trace.span_track(launch))?;
        (lead.time > 0).then_some((lead.wait, lead.time))
    }

    /// Removes what a gap used up of a lead.
    pub(crate) fn spend(&mut self, launch: SpanId, time: u64) {
        if let Some(lead) = self.leads.get_mut(&self.trace.span_track(launch)) {
            lead.time = lead.time.saturating_sub(time);
        }
    }

    /// A sync gives a lead to its own thread, and to launching threads of its process that were blocked meanwhile: they
    /// waited for that thread, like the thread of `backward`.
    fn add(&mut self, at: usize, end: u64, host: &Host<'_>) {
        let wait = &self.waits[at];
        let length = end - wait.start;
        let process = |track: TrackId| self.trace.track(track).process;
        let stands_still = |track: TrackId| {
            process(track) == process(wait.track) && host.doing_within(track, wait.start, end).len() <= 1
        };
        let threads = self.threads.iter().copied();
        let held: Vec<TrackId> = threads.filter(|track| *track == wait.track || stands_still(*track)).collect();
        for track in held {
            let lead = self.leads.entry(track).or_insert(Lead { time: 0, wait: at, since: wait.start });
            let between = self.launches.partition_point(|launch| *launch < lead.since)
                ..self.launches.partition_point(|launch| *launch < wait.start);
            if between.is_empty() {
                // Two syncs for the same work: the host would be early only without both.
                if length > lead.time {
                    lead.wait = at;
                }
                lead.time = lead.time.saturating_add(length);
            } else if length > lead.time {
                // The later sync would have blocked the host anyway, so leads do not add up.
                (lead.time, lead.wait) = (length, at);
            }
            lead.since = lead.since.max(end);
        }
    }
}
