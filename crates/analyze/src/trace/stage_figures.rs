//! The figures of a trace, for comparing traces.

use laptime_trace::Trace;

use crate::fleet::{Figure, Unit};
use crate::waits::{waiting, waits};
use crate::{devices::devices, intervals::Stretches};

/// The figures of a trace as a whole.
pub const STAGE_FIGURES: [Figure; 5] = [
    Figure { key: "wall_ms", label: "wall", unit: Unit::Time },
    Figure { key: "host_busy_ms", label: "host busy", unit: Unit::Time },
    Figure { key: "device_busy_ms", label: "device busy", unit: Unit::Time },
    Figure { key: "waits", label: "waits", unit: Unit::Count },
    Figure { key: "waits_ms", label: "waiting", unit: Unit::Time },
];

/// The values of those figures: wall time, time in which any thread was in a span, time in which any device was busy,
/// number of syncs, and time in which any thread was in one.
pub fn stage_figures(trace: &Trace) -> Vec<Option<f64>> {
    let devices = devices(trace);
    let wall = trace.bounds().map(|(first, last)| last.saturating_sub(first).0);
    let is_on_host = |track| !trace.track(track).kind.is_device();
    let roots = trace.roots().filter(|span| is_on_host(span.track));
    let host = Stretches::union(roots.map(|span| (span.start.0, span.end().0)).collect());
    let work = devices.work();
    let busy = Stretches::union(work.map(|work| (work.start, work.end)).collect());
    let waits = waits(trace, &devices);
    let has_devices = !devices.devices.is_empty();
    let time = |nanos: u64| nanos as f64;
    vec![
        wall.map(time),
        Some(time(host.length())),
        has_devices.then(|| time(busy.length())),
        Some(waits.len() as f64),
        Some(time(waiting(&waits).length())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::{Nanos, SYNC, TraceBuilder, activity::category};

    #[test]
    fn stage_time_is_a_union_over_threads_and_devices() {
        let mut builder = TraceBuilder::default();
        let threads = [builder.thread(1, 1, "main"), builder.thread(1, 2, "worker")];
        let stream = builder.stream(1, 7, "stream 7");
        builder.span(threads[0], Nanos(0), Nanos(50), "a", "");
        builder.span(threads[1], Nanos(40), Nanos(20), "b", "");
        builder.span(threads[0], Nanos(10), Nanos(20), "read", SYNC);
        builder.span(threads[0], Nanos(12), Nanos(10), "cudaStreamSynchronize", category::RUNTIME);
        builder.span(stream, Nanos(20), Nanos(80), "gemm", category::KERNEL);
        let found = stage_figures(&builder.build().unwrap());
        assert_eq!(found, [Some(100.0), Some(60.0), Some(80.0), Some(1.0), Some(20.0)]);
    }

    #[test]
    fn the_device_figure_is_missing_without_a_device() {
        let found = stage_figures(&TraceBuilder::default().build().unwrap());
        assert_eq!(found, [None, Some(0.0), None, Some(0.0), Some(0.0)]);
    }
}
