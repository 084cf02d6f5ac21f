//! Turns batches of recorded words into packets while a program runs.

mod device;
mod timeline;

use std::{
    collections::HashMap,
    io::{self, Write},
    sync::Arc,
};

use laptime_probe::{
    Batch, FieldValue, Fields, LaneId, LaneStamp, RawEvent, RawKind, Site, SiteKind, ThreadIdentity, TickMap, Ticks,
    events,
};

use self::{
    device::DeviceLane,
    timeline::{Opening, Timeline},
};
use crate::{
    LAP, SYNC,
    format::pftrace::{Sequence, TrackPlace, TrackText, Writer},
    time::{Nanos, Origin},
    track::TrackKind,
    value::{Number, Value},
};

/// Fields as the writer keeps them until a span ends.
pub type OwnFields = Vec<(&'static str, FieldValue)>;

/// Writes what a recording hands over.
pub struct LiveWriter<W: Write> {
    writer: Writer<W>,
    map: TickMap,
    process: TrackPlace,
    pid: i64,
    threads: HashMap<u32, Thread>,
    lanes: HashMap<LaneId, Lane>,
    counters: HashMap<usize, Sequence>,
    lost: HashMap<u32, u64>,
    lost_told: u64,
    uncertainty_told: u64,
    last_time: Nanos,
    spans: u64,
}

/// One source of events: its track, and what is open on it.
struct Thread {
    timeline: Timeline,
    /// The open spans as seen by marks and waits: name, and the number of a lap.
    around: Vec<(&'static Site, Option<FieldValue>)>,
}

enum Lane {
    Host(Timeline),
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
            lost: HashMap::new(),
            lost_told: 0,
            uncertainty_told: 0,
            last_time: Nanos(0),
            spans: 0,
        })
    }

    /// The map from ticks to time, to be corrected now and then.
    pub fn map_mut(&mut self) -> &mut TickMap {
        &mut self.map
    }

    /// Spans begun so far.
    pub fn spans(&self) -> u64 {
        self.spans
    }

    /// Events lost so far.
    pub fn lost(&self) -> u64 {
        self.lost.values().sum()
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.writer.written()
    }

    /// Writes one batch. `meanwhile` is called now and then, so that a long batch does not keep the buffers waiting.
    pub fn batch(&mut self, batch: &Batch, mut meanwhile: impl FnMut()) -> io::Result<()> {
        self.lost.insert(batch.source, batch.lost);
        if !self.threads.contains_key(&batch.source) {
            let thread = self.begin_thread(&batch.thread)?;
            self.threads.insert(batch.source, thread);
        }
        for (at, event) in events(batch).enumerate() {
            self.event(batch.source, event)?;
            if at % 2048 == 2047 {
                meanwhile();
            }
        }
        if batch.finished {
            self.close_thread(batch.source)?;
        }
        Ok(())
    }

    fn begin_thread(&mut self, thread: &Arc<ThreadIdentity>) -> io::Result<Thread> {
        let number = i64::try_from(thread.tid).ok();
        let text = TrackText { kind: TrackKind::Thread, pid: self.pid, name: &thread.name, number, unit: "" };
        let place = self.writer.track(self.process, text)?;
        let timeline = Timeline::begin(place, &thread.name, &mut self.writer)?;
        Ok(Thread { timeline, around: Vec::new() })
    }

    fn event(&mut self, source: u32, event: RawEvent<'_>) -> io::Result<()> {
        let time = self.time(event.ticks);
        match event.kind {
            RawKind::Enter { site, lane, fields } => self.enter(source, time, site, lane, fields),
            RawKind::Exit { site, lane } => self.exit(source, time, site, lane),
            RawKind::Record { site, fields } => {
                self.thread(source).timeline.add_fields(key(source, site), fields.collect());
                Ok(())
            }
            RawKind::Point { site, fields } if site.kind == SiteKind::Value => self.value(time, site, fields),
            RawKind::Point { site, fields } => self.mark(source, time, site, fields),
            RawKind::Detach => self.close_open(source, time),
        }
    }

    fn time(&mut self, ticks: Ticks) -> Nanos {
        let time = Nanos(self.map.nanos(ticks));
        self.last_time = self.last_time.max(time);
        time
    }

    fn thread(&mut self, source: u32) -> &mut Thread {
        self.threads.get_mut(&source).expect("a batch makes its thread known before its events")
    }

    fn enter(
        &mut self,
        source: u32,
        time: Nanos,
        site: &'static Site,
        lane: Option<LaneStamp>,
        fields: Fields<'_>,
    ) -> io::Result<()> {
        self.spans += 1;
        let mut fields: OwnFields = fields.collect();
        let lap = (site.kind == SiteKind::Lap).then(|| fields.first().map(|(_, value)| value.clone())).flatten();
        if site.kind == SiteKind::Sync {
            self.say_where(source, site, &mut fields);
        }
        let opening = Opening { key: key(source, site), name: site.name, category: category(site.kind), fields };
        let device = lane.and_then(|lane| Some((lane.lane, lane.stamp?)));
        if lane.is_some() && device.is_none() {
            return self.enter_host_lane(lane, time, opening);
        }
        let flow = device.map(|(lane, stamp)| device::flow_number(lane, stamp));
        let device_opening = device.map(|_| opening.clone());
        let thread = self.threads.get_mut(&source).expect("a batch makes its thread known before its events");
        thread.around.push((site, lap));
        thread.timeline.enter(time, opening, flow, &mut self.writer)?;
        if let (Some((lane, stamp)), Some(opening), Some(flow)) = (device, device_opening, flow)
            && let Some(lane) = self.device_lane(lane)?
        {
            lane.begin(stamp, opening, flow);
        }
        Ok(())
    }

    fn enter_host_lane(&mut self, lane: Option<LaneStamp>, time: Nanos, opening: Opening) -> io::Result<()> {
        let Some(lane) = lane.map(|lane| lane.lane) else { return Ok(()) };
        self.know_lane(lane)?;
        match self.lanes.get_mut(&lane) {
            Some(Lane::Host(timeline)) => timeline.enter(time, opening, None, &mut self.writer),
            // A device that gave no mark: the stage has no device time, and its exit finds nothing to end.
            _ => Ok(()),
        }
    }

    fn exit(&mut self, source: u32, time: Nanos, site: &'static Site, lane: Option<LaneStamp>) -> io::Result<()> {
        let key = key(source, site);
        if let Some(LaneStamp { lane, stamp }) = lane {
            self.know_lane(lane)?;
            match (self.lanes.get_mut(&lane), stamp) {
                (Some(Lane::Host(timeline)), _) => return timeline.exit(time, key, &mut self.writer),
                (Some(Lane::Device(device)), Some(stamp)) => device.end(stamp, key),
                _ => {}
            }
        }
        let thread = self.thread(source);
        if let Some(at) = thread.around.iter().rposition(|(known, _)| std::ptr::eq(*known, site)) {
            thread.around.remove(at);
        }
        let thread = self.threads.get_mut(&source).expect("a batch makes its thread known before its events");
        thread.timeline.exit(time, key, &mut self.writer)
    }

    fn mark(&mut self, source: u32, time: Nanos, site: &'static Site, fields: Fields<'_>) -> io::Result<()> {
        let mut fields: OwnFields = fields.collect();
        if site.kind == SiteKind::SyncMark {
            self.say_where(source, site, &mut fields);
        }
        let message = fields.iter().find_map(|(name, value)| match value {
            // An event of `tracing` is named after its line; what it says is the better name.
            FieldValue::Str(text) if *name == "message" && site.name.starts_with("event ") => Some(text.clone()),
            _ => None,
        });
        let name = message.as_deref().unwrap_or(site.name);
        let sequence = self.thread(source).timeline.sequence();
        self.writer.mark(sequence, time, name, category(site.kind), shown(&fields))
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

    /// The curve of a site; sites of the same name and unit share one.
    fn counter(&mut self, site: &'static Site) -> io::Result<Sequence> {
        let address = std::ptr::from_ref(site) as usize;
        if let Some(&sequence) = self.counters.get(&address) {
            return Ok(sequence);
        }
        let text =
            TrackText { kind: TrackKind::Counter, pid: self.pid, name: site.name, number: None, unit: site.unit };
        let place = self.writer.track(self.process, text)?;
        let sequence = self.writer.sequence(place)?;
        self.counters.insert(address, sequence);
        Ok(sequence)
    }

    /// Adds to a wait where it stands: file, line, stage and lap.
    fn say_where(&mut self, source: u32, site: &'static Site, fields: &mut OwnFields) {
        let around = &self.thread(source).around;
        let stage = around.last().map(|(site, _)| FieldValue::Str(site.name.to_owned()));
        let lap = around.iter().rev().find_map(|(_, lap)| lap.clone());
        let places = [
            ("file", Some(FieldValue::Str(site.file.to_owned()))),
            ("line", Some(FieldValue::Uint(u64::from(site.line)))),
            ("stage", stage),
            ("lap", lap),
        ];
        for (name, value) in places {
            let is_free = !fields.iter().any(|(known, _)| *known == name);
            fields.extend(value.filter(|_| is_free).map(|value| (name, value)));
        }
    }

    /// Makes a lane's track when it is first used.
    fn know_lane(&mut self, id: LaneId) -> io::Result<()> {
        if self.lanes.contains_key(&id) {
            return Ok(());
        }
        let Some(lane) = laptime_probe::lane(id) else { return Ok(()) };
        let kind = if lane.clock().is_some() { TrackKind::Stream } else { TrackKind::Lane };
        let text = TrackText { kind, pid: self.pid, name: lane.name(), number: None, unit: "" };
        let place = self.writer.track(self.process, text)?;
        let timeline = Timeline::begin(place, lane.name(), &mut self.writer)?;
        let known = match lane.clock() {
            Some(clock) => Lane::Device(DeviceLane::new(Arc::clone(clock), timeline)),
            None => Lane::Host(timeline),
        };
        self.lanes.insert(id, known);
        Ok(())
    }

    fn device_lane(&mut self, id: LaneId) -> io::Result<Option<&mut DeviceLane>> {
        self.know_lane(id)?;
        Ok(match self.lanes.get_mut(&id) {
            Some(Lane::Device(lane)) => Some(lane),
            _ => None,
        })
    }

    /// Asks the devices which marks they have reached, and writes those.
    pub fn ask_devices(&mut self) -> io::Result<()> {
        let mut uncertainty = self.uncertainty_told;
        for lane in self.lanes.values_mut() {
            if let Lane::Device(lane) = lane {
                let latest = lane.ask(&self.map, &mut self.writer)?;
                self.last_time = self.last_time.max(latest);
                uncertainty = uncertainty.max(lane.uncertainty());
            }
        }
        if uncertainty > self.uncertainty_told {
            self.uncertainty_told = uncertainty;
            self.writer.uncertainty(Nanos(uncertainty))?;
        }
        Ok(())
    }

    /// Whether a device has marks that it has not reached.
    pub fn has_pending_marks(&self) -> bool {
        self.lanes.values().any(|lane| matches!(lane, Lane::Device(lane) if lane.has_pending()))
    }

    fn close_open(&mut self, source: u32, time: Nanos) -> io::Result<()> {
        let thread = self.threads.get_mut(&source).expect("a batch makes its thread known before its events");
        thread.around.clear();
        thread.timeline.close(time, &mut self.writer)
    }

    fn close_thread(&mut self, source: u32) -> io::Result<()> {
        let last = self.last_time;
        self.close_open(source, last)?;
        self.threads.remove(&source);
        Ok(())
    }

    /// Writes out all there is, so that the file holds every event so far.
    pub fn flush(&mut self) -> io::Result<()> {
        let lost = self.lost();
        if lost != self.lost_told {
            self.lost_told = lost;
            self.writer.lost(lost)?;
        }
        self.writer.flush()
    }

    /// Ends the recording at `end`: what is still open is closed there and flagged.
    pub fn finish(&mut self, end: Ticks) -> io::Result<()> {
        let end = self.time(end);
        self.ask_devices()?;
        let sources: Vec<u32> = self.threads.keys().copied().collect();
        for source in sources {
            self.close_open(source, end)?;
        }
        let mut unresolved = 0;
        for lane in self.lanes.values_mut() {
            match lane {
                Lane::Host(timeline) => timeline.close(end, &mut self.writer)?,
                Lane::Device(lane) => unresolved += lane.close(end, &mut self.writer)?,
            }
        }
        // Marks that the device never reached are events that could not be kept; zero is no thread's number.
        self.lost.insert(0, unresolved);
        self.flush()
    }
}

/// What ties an exit to its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    source: u32,
    site: usize,
}

fn key(source: u32, site: &'static Site) -> Key {
    Key { source, site: std::ptr::from_ref(site) as usize }
}

fn category(kind: SiteKind) -> &'static str {
    match kind {
        SiteKind::Lap => LAP,
        SiteKind::Sync | SiteKind::SyncMark => SYNC,
        SiteKind::Stage | SiteKind::Mark | SiteKind::Value => "",
    }
}

/// Fields as the format writes them.
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
