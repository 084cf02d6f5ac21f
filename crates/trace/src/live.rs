//! Converts batches of recorded words to packets while a program runs.

mod device;
mod host_lane;
mod thread;
mod timeline;

use std::io::{self, Write};
use std::{collections::HashMap, sync::Arc};

use laptime_probe::{
    Batch, FieldValue, Fields, LaneId, LaneStamp, RawEvent, RawKind, Site, SiteKind, ThreadIdentity, TickMap, Ticks,
    events,
};

use self::timeline::{FlowEnd, Opening, Timeline};
use self::{device::DeviceLane, host_lane::HostLane, thread::Thread};
use crate::format::pftrace::{Sequence, TrackPlace, TrackText, Writer};
use crate::time::{Nanos, Origin};
use crate::value::{Number, Value};
use crate::{LAP, SYNC, track::TrackKind};

/// Fields that are stored until a span ends.
pub type OwnFields = Vec<(&'static str, FieldValue)>;

/// Writes a recording.
pub struct LiveWriter<W: Write> {
    writer: Writer<W>,
    map: TickMap,
    process: TrackPlace,
    pid: i64,
    threads: HashMap<u32, Thread>,
    lanes: HashMap<LaneId, Lane>,
    /// The curves by site, and by name and unit.
    counters: HashMap<usize, Sequence>,
    curves: HashMap<(&'static str, &'static str), Sequence>,
    lost: HashMap<u32, u64>,
    lost_written: u64,
    uncertainty_written: Option<u64>,
    last_time: Nanos,
    spans: u64,
}

enum Lane {
    Host(HostLane),
    Device(DeviceLane),
}

impl<W: Write> LiveWriter<W> {
    pub fn new(out: W, map: TickMap, origin: &Origin) -> io::Result<Self> {
        let mut writer = Writer::new(out);
        writer.origin(origin)?;
        let pid = i64::from(std::process::id());
        let name = std::env::args_os().next().unwrap_or_default();
        let name = std::path::Path::new(&name).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let process = writer.process(pid, &name)?;
        Ok(Self {
            writer,
            map,
            process,
            pid,
            threads: HashMap::new(),
            lanes: HashMap::new(),
            counters: HashMap::new(),
            curves: HashMap::new(),
            lost: HashMap::new(),
            lost_written: 0,
            uncertainty_written: None,
            last_time: Nanos(0),
            spans: 0,
        })
    }

    /// The map from ticks to time, which is corrected regularly.
    pub fn map_mut(&mut self) -> &mut TickMap {
        &mut self.map
    }

    /// Spans started so far.
    pub fn spans(&self) -> u64 {
        self.spans
    }

    /// Dropped events so far: those without buffer space, and marks that a device never reached.
    pub fn lost(&self) -> u64 {
        let on_devices = self.lanes.values().map(|lane| match lane {
            Lane::Device(lane) => lane.lost(),
            Lane::Host(_) => 0,
        });
        self.lost.values().copied().chain(on_devices).sum()
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.writer.written()
    }

    /// Writes one batch. `meanwhile` is called regularly, so that the buffers are drained during a long batch.
    pub fn batch(&mut self, batch: &Batch, mut meanwhile: impl FnMut()) -> io::Result<()> {
        self.lost.insert(batch.source, batch.lost);
        let mut thread = match self.threads.remove(&batch.source) {
            Some(thread) => thread,
            None => self.begin_thread(batch.source, &batch.thread)?,
        };
        for (at, event) in events(batch).enumerate() {
            self.event(&mut thread, event)?;
            if at % 512 == 511 {
                meanwhile();
            }
        }
        if batch.finished {
            return self.close(&mut thread, self.last_time);
        }
        self.threads.insert(batch.source, thread);
        Ok(())
    }

    fn begin_thread(&mut self, source: u32, thread: &Arc<ThreadIdentity>) -> io::Result<Thread> {
        let number = i64::try_from(thread.tid).ok();
        let text =
            TrackText { kind: TrackKind::Thread, pid: self.pid, name: &thread.name, number, device: None, unit: "" };
        let place = self.writer.track(self.process, text)?;
        let timeline = Timeline::begin(place, &thread.name, &mut self.writer)?;
        Ok(Thread { source, timeline, around: Vec::new() })
    }

    fn event(&mut self, thread: &mut Thread, event: RawEvent<'_>) -> io::Result<()> {
        let time = self.time(event.ticks);
        match event.kind {
            RawKind::Enter { site, lane, fields } => self.enter(thread, time, site, lane, fields),
            RawKind::Exit { site, lane } => self.exit(thread, time, site, lane),
            RawKind::Record { site, fields } => {
                thread.timeline.add_fields(thread.key(site), fields);
                Ok(())
            }
            RawKind::Point { site, fields } if site.kind == SiteKind::Value => self.value(time, site, fields),
            RawKind::Point { site, fields } => self.mark(thread, time, site, fields),
            RawKind::Detach => self.close(thread, time),
        }
    }

    /// Closes and flags the open spans of a thread.
    fn close(&mut self, thread: &mut Thread, time: Nanos) -> io::Result<()> {
        thread.close(time, &mut self.writer)?;
        for lane in self.lanes.values_mut() {
            if let Lane::Host(lane) = lane {
                lane.close(Some(thread.source), time, &mut self.writer)?;
            }
        }
        Ok(())
    }

    fn time(&mut self, ticks: Ticks) -> Nanos {
        let time = Nanos(self.map.nanos(ticks));
        self.last_time = self.last_time.max(time);
        time
    }

    fn enter(
        &mut self,
        thread: &mut Thread,
        time: Nanos,
        site: &'static Site,
        lane: Option<LaneStamp>,
        values: Fields<'_>,
    ) -> io::Result<()> {
        self.spans += 1;
        let mut fields = thread.timeline.empty_fields();
        fields.extend(values);
        let lap = (site.kind == SiteKind::Lap).then(|| fields.first().map(|(_, value)| value.clone())).flatten();
        if site.kind == SiteKind::Sync {
            thread.say_where(site, &mut fields);
        }
        let opening = Opening { key: thread.key(site), name: site.name, category: category(site.kind), fields };
        if let Some(LaneStamp { lane, stamp }) = lane {
            self.know_lane(lane, stamp.is_some())?;
            if let Some(Lane::Host(lane)) = self.lanes.get_mut(&lane) {
                return lane.enter(thread.source, time, opening, &mut self.writer);
            }
        }
        // The device provided no mark: the stage has no device time.
        let device = lane.and_then(|lane| Some((lane.lane, lane.stamp?)));
        let flow = device.map(|(lane, stamp)| device::flow_number(lane, stamp));
        if let (Some((lane, stamp)), Some(flow)) = (device, flow)
            && let Some(Lane::Device(lane)) = self.lanes.get_mut(&lane)
        {
            lane.begin(stamp, time, opening.clone(), flow);
        }
        thread.around.push((site, lap));
        thread.timeline.enter(time, opening, flow.map(FlowEnd::Out), &mut self.writer)
    }

    fn exit(
        &mut self,
        thread: &mut Thread,
        time: Nanos,
        site: &'static Site,
        lane: Option<LaneStamp>,
    ) -> io::Result<()> {
        let key = thread.key(site);
        if let Some(LaneStamp { lane, stamp }) = lane {
            self.know_lane(lane, stamp.is_some())?;
            match (self.lanes.get_mut(&lane), stamp) {
                (Some(Lane::Host(lane)), _) => return lane.exit(thread.source, time, key, &mut self.writer),
                (Some(Lane::Device(device)), Some(stamp)) => device.end(stamp, time, key),
                _ => {}
            }
        }
        if let Some(at) = thread.around.iter().rposition(|(known, _)| std::ptr::eq(*known, site)) {
            thread.around.remove(at);
        }
        thread.timeline.exit(time, key, &mut self.writer)
    }

    fn mark(&mut self, thread: &mut Thread, time: Nanos, site: &'static Site, values: Fields<'_>) -> io::Result<()> {
        let mut fields: OwnFields = values.collect();
        if site.kind == SiteKind::SyncMark {
            thread.say_where(site, &mut fields);
        }
        let message = fields.iter().find_map(|(name, value)| match value {
            // A `tracing` event is named after its line; its message is a better name.
            FieldValue::Str(text) if *name == "message" && site.name.starts_with("event ") => Some(text.clone()),
            _ => None,
        });
        let name = message.as_deref().unwrap_or(site.name);
        self.writer.mark(thread.timeline.sequence(), time, name, category(site.kind), shown(&fields))
    }

    fn value(&mut self, time: Nanos, site: &'static Site, mut fields: Fields<'_>) -> io::Result<()> {
        let number = match fields.next() {
            Some((_, FieldValue::Int(value))) => Number::Int(value),
            Some((_, FieldValue::Uint(value))) => i64::try_from(value).map_or(Number::Float(value as f64), Number::Int),
            Some((_, FieldValue::Float(value))) => Number::Float(value),
            Some((_, FieldValue::Bool(value))) => Number::Int(i64::from(value)),
            Some((_, FieldValue::Str(_))) | None => return Ok(()),
        };
        let sequence = self.counter(site)?;
        self.writer.value(sequence, time, number)
    }

    /// The curve of a site; sites with the same name and unit share one.
    fn counter(&mut self, site: &'static Site) -> io::Result<Sequence> {
        let address = std::ptr::from_ref(site) as usize;
        if let Some(&sequence) = self.counters.get(&address) {
            return Ok(sequence);
        }
        let sequence = match self.curves.get(&(site.name, site.unit)) {
            Some(&sequence) => sequence,
            None => {
                let (kind, pid) = (TrackKind::Counter, self.pid);
                let text = TrackText { kind, pid, name: site.name, number: None, device: None, unit: site.unit };
                let place = self.writer.track(self.process, text)?;
                self.writer.sequence(place)?
            }
        };
        self.curves.insert((site.name, site.unit), sequence);
        self.counters.insert(address, sequence);
        Ok(sequence)
    }

    /// Creates the track of a lane when it is first used; for a device, when it first provides a mark.
    fn know_lane(&mut self, id: LaneId, is_marked: bool) -> io::Result<()> {
        if self.lanes.contains_key(&id) {
            return Ok(());
        }
        let Some(lane) = laptime_probe::lane(id).filter(|lane| is_marked || lane.clock().is_none()) else {
            return Ok(());
        };
        let kind = if lane.clock().is_some() { TrackKind::Stream } else { TrackKind::Lane };
        let text = TrackText { kind, pid: self.pid, name: lane.name(), number: None, device: None, unit: "" };
        let place = self.writer.track(self.process, text)?;
        let known = match lane.clock() {
            Some(clock) => {
                let timeline = Timeline::begin_exact(place, lane.name(), &mut self.writer)?;
                Lane::Device(DeviceLane::new(Arc::clone(clock), timeline))
            }
            None => Lane::Host(HostLane::new(place, lane.name())),
        };
        self.lanes.insert(id, known);
        Ok(())
    }

    /// Queries the devices for reached marks, and writes those that the host placed before `until`.
    ///
    /// All events of all threads before `until` are known here: a later mark may follow one that is not known yet.
    pub fn ask_devices(&mut self, until: Ticks) -> io::Result<()> {
        let until = Nanos(self.map.nanos(until));
        let mut uncertainty = self.uncertainty_written;
        for lane in self.lanes.values_mut() {
            if let Lane::Device(lane) = lane {
                let latest = lane.ask(until, &self.map, &mut self.writer)?;
                self.last_time = self.last_time.max(latest);
                uncertainty = uncertainty.max(Some(lane.uncertainty()));
            }
        }
        if let Some(nanos) = uncertainty.filter(|_| uncertainty > self.uncertainty_written) {
            self.uncertainty_written = uncertainty;
            self.writer.uncertainty(Nanos(nanos))?;
        }
        Ok(())
    }

    /// Whether a device has unreached marks.
    pub fn has_pending_marks(&self) -> bool {
        self.lanes.values().any(|lane| matches!(lane, Lane::Device(lane) if lane.has_pending()))
    }

    /// Flushes the file, so that it contains every event so far.
    pub fn flush(&mut self) -> io::Result<()> {
        let lost = self.lost();
        if lost != self.lost_written {
            self.lost_written = lost;
            self.writer.lost(lost)?;
        }
        self.writer.flush()
    }

    /// Ends the recording at `end`: open spans are closed there and flagged.
    pub fn finish(&mut self, end: Ticks) -> io::Result<()> {
        self.ask_devices(Ticks(u64::MAX))?;
        let end = self.time(end);
        for thread in self.threads.values_mut() {
            thread.close(end, &mut self.writer)?;
        }
        for lane in self.lanes.values_mut() {
            match lane {
                Lane::Host(lane) => lane.close(None, end, &mut self.writer)?,
                Lane::Device(lane) => lane.close(&mut self.writer)?,
            }
        }
        self.flush()
    }
}

fn category(kind: SiteKind) -> &'static str {
    match kind {
        SiteKind::Lap => LAP,
        SiteKind::Sync | SiteKind::SyncMark => SYNC,
        SiteKind::Stage | SiteKind::Mark | SiteKind::Value => "",
    }
}

/// Fields in the form that the format writes.
pub fn shown<'a>(fields: &'a [(&'static str, FieldValue)]) -> impl Iterator<Item = (&'a str, Value<'a>)> {
    fields.iter().map(|(name, value)| {
        let value = match value {
            FieldValue::Int(value) => Value::Int(*value),
            FieldValue::Uint(value) => Value::from(*value),
            FieldValue::Float(value) => Value::Float(*value),
            FieldValue::Bool(value) => Value::Bool(*value),
            FieldValue::Str(value) => Value::Str(value),
        };
        (*name, value)
    })
}
