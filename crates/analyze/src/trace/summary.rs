//! The figures of a trace for a table of many traces: one row per device.

use std::collections::HashMap;

use laptime_trace::{NameId, Nanos, Trace};

use crate::devices::{DeviceWork, Devices};
use crate::diagnose::{Diagnosis, FindingLimits, diagnose_of};
use crate::gaps::{DeviceGaps, gaps_of};
use crate::overlap::{DeviceOverlap, overlap_of};
use crate::timeline::{Prepared, Timeline};
use crate::{group::Group, intervals::Stretches, overview::Overview};

/// The figures of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceSummary {
    /// The devices, in order of their numbers.
    pub devices: Vec<DeviceSummary>,
    /// The bottlenecks.
    pub diagnosis: Diagnosis,
    /// The trace as a whole.
    pub overview: Overview,
}

/// The figures of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceSummary {
    /// Its number.
    pub number: Option<i64>,
    /// Busy and idle time by cause.
    pub gaps: DeviceGaps,
    /// Copies and communication.
    pub overlap: DeviceOverlap,
    /// The time in which work of each group ran; groups may overlap one another.
    pub groups: Vec<(Group, Nanos)>,
}

impl Prepared<'_> {
    /// Summarises the trace: one row per device, and the bottlenecks.
    pub fn summary(&self) -> TraceSummary {
        let Prepared { trace, devices, .. } = self;
        // Only a requested lap unit can be missing.
        let timeline = Timeline::of(self, None).expect("no lap was asked for");
        let gaps = gaps_of(&timeline, 0).devices;
        let overlap = overlap_of(trace, devices, timeline.overview.clone()).devices;
        let figures = std::iter::zip(gaps, overlap);
        let of_device = |(device, (gaps, overlap)): (&DeviceWork, _)| DeviceSummary {
            number: device.number,
            gaps,
            overlap,
            groups: groups(trace, devices, device),
        };
        TraceSummary {
            devices: std::iter::zip(&devices.devices, figures).map(of_device).collect(),
            diagnosis: diagnose_of(Some(&timeline), &[], None, &FindingLimits::default()),
            overview: timeline.overview.clone(),
        }
    }
}

/// The time of each group that occurs, in the order of [`Group::ALL`].
fn groups(trace: &Trace, devices: &Devices, device: &DeviceWork) -> Vec<(Group, Nanos)> {
    let mut known: HashMap<NameId, Group> = HashMap::new();
    let mut times: HashMap<Group, Vec<(u64, u64)>> = HashMap::new();
    for work in &device.work {
        let activity = devices.activities[work.id.index()];
        let name = trace.span_name(work.id);
        let group = *known.entry(name).or_insert_with(|| Group::of(activity, trace.name(name)));
        times.entry(group).or_default().push((work.start, work.end));
    }
    let time = |group| Some((group, Nanos(Stretches::union(times.remove(&group)?).length())));
    Group::ALL.into_iter().filter_map(time).collect()
}

#[cfg(test)]
mod tests {
    use laptime_trace::TraceBuilder;

    use super::*;

    /// Two kernels that overlap by 10 on two streams, a copy, and 20 of idle time.
    #[test]
    fn a_device_is_summarised_with_unions_of_time() {
        let mut builder = TraceBuilder::default();
        let streams = [7, 9].map(|number| {
            let stream = builder.stream(1, number, "stream");
            builder.track_mut(stream).device = Some(3);
            stream
        });
        builder.span(streams[0], Nanos(100), Nanos(50), "sgemm_128", "kernel");
        builder.span(streams[1], Nanos(140), Nanos(40), "sgemm_64", "kernel");
        builder.span(streams[1], Nanos(200), Nanos(30), "Memcpy HtoD", "gpu_memcpy");
        let trace = builder.build().unwrap();
        let summary = Prepared::of(&trace).summary();
        let [device] = summary.devices.as_slice() else { panic!("one device") };
        assert_eq!(device.number, Some(3));
        assert_eq!(device.groups, [(Group::Matmul, Nanos(80)), (Group::Copy, Nanos(30))]);
        assert_eq!(device.gaps.window, Nanos(130));
        assert_eq!(device.overlap.compute, Nanos(80));
        assert_eq!(device.gaps.parts.iter().map(|part| part.time.0).sum::<u64>(), 130);
    }

    #[test]
    fn a_trace_without_devices_has_no_device_rows() {
        assert!(Prepared::of(&TraceBuilder::default().build().unwrap()).summary().devices.is_empty());
    }
}
