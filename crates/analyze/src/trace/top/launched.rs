//! The device time of each row: its own, and that of the work it launched.

use laptime_trace::{DEEPEST, SpanId, Trace};

use super::Rows;
use crate::devices::{Devices, Work};
use crate::group::Group;

/// Device time per row. Overlapping work of one device counts once; devices are added.
pub struct Launched {
    /// Whether a device has kernels or copies, not only stages.
    pub has_work: bool,
    /// Time in which devices worked.
    pub busy: u64,
    /// Time in which devices did the work of a group, by the group's number.
    pub groups: Vec<u64>,
    /// Time in which devices did the work of a row.
    pub device: Vec<u64>,
    /// Time of the work that a row launched itself.
    pub own: Vec<Option<u64>>,
    /// Time of the work that a row or anything inside it launched.
    pub total: Vec<Option<u64>>,
}

impl Launched {
    pub fn of(trace: &Trace, devices: &Devices, rows: &Rows) -> Self {
        let count = rows.rows.len();
        let has_work = devices.devices.iter().any(|device| !device.is_stages);
        let mut union = Unions::new(count);
        for device in &devices.devices {
            union.begin_device();
            for (at, work) in device.work.iter().enumerate() {
                union.add_work(rows, work);
                if let Some(launch) = work.launch {
                    union.add_launch(trace, rows, work, launch, at as u32 + 1);
                }
            }
        }
        let Unions { busy, groups, device, own, total, .. } = union;
        let times = |unions: Vec<Union>| unions.into_iter().map(|union| union.length.unwrap_or(0)).collect();
        let known = |unions: Vec<Union>| unions.into_iter().map(|union| union.length).collect();
        let busy = busy.length.unwrap_or(0);
        Self { has_work, busy, groups: times(groups), device: times(device), own: known(own), total: known(total) }
    }
}

/// The length of a union of intervals in order of start.
#[derive(Debug, Clone, Copy, Default)]
struct Union {
    reached: u64,
    length: Option<u64>,
}

impl Union {
    fn add(&mut self, work: &Work) {
        let more = work.end.saturating_sub(work.start.max(self.reached));
        self.length = Some(self.length.unwrap_or(0).saturating_add(more));
        self.reached = self.reached.max(work.end);
    }
}

struct Unions {
    busy: Union,
    groups: Vec<Union>,
    device: Vec<Union>,
    own: Vec<Union>,
    total: Vec<Union>,
    /// The last work of this device that was added to each row, so that nested rows get it once.
    given: Vec<u32>,
}

impl Unions {
    fn new(rows: usize) -> Self {
        let unions = || vec![Union::default(); rows];
        Self {
            busy: Union::default(),
            groups: vec![Union::default(); Group::ALL.len()],
            device: unions(),
            own: unions(),
            total: unions(),
            given: vec![0; rows],
        }
    }

    /// Times of different devices do not overlap.
    fn begin_device(&mut self) {
        let rows = [&mut self.groups, &mut self.device, &mut self.own, &mut self.total].into_iter().flatten();
        for union in rows.chain([&mut self.busy]) {
            union.reached = 0;
        }
        self.given.fill(0);
    }

    fn add_work(&mut self, rows: &Rows, work: &Work) {
        self.busy.add(work);
        if let Some(row) = rows.of(work.id) {
            self.device[row].add(work);
            self.groups[rows.rows[row].group as usize].add(work);
        }
    }

    fn add_launch(&mut self, trace: &Trace, rows: &Rows, work: &Work, launch: SpanId, number: u32) {
        let mut has_own = false;
        let around = std::iter::once(launch).chain(trace.ancestors(trace.span(launch)));
        // A deeper nesting is an error, and would cost its depth per kernel.
        for row in around.take(DEEPEST).filter_map(|id| rows.of(id)) {
            if !has_own && !rows.rows[row].kind.is_call() {
                self.own[row].add(work);
                has_own = true;
            }
            if std::mem::replace(&mut self.given[row], number) != number {
                self.total[row].add(work);
            }
        }
    }
}
