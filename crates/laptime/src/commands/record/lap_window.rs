//! Recording windows counted in laps: `--after-laps 10 --for-laps 20`.

use laptime_trace::Trace;

/// The laps to keep. A lap is an NVTX range, or a repeating sequence of kernels that is detected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LapWindow {
    /// Laps to skip at the beginning.
    pub after: usize,
    /// Laps to keep; `None` keeps all.
    pub during: Option<usize>,
    /// The NVTX range of a lap; `None` detects laps.
    pub lap: Option<String>,
}

impl LapWindow {
    /// Cuts the trace to the laps, and describes them. Without enough laps, the trace is not cut.
    pub fn cut(&self, trace: Trace) -> anyhow::Result<(Trace, String)> {
        let Ok(found) = laptime_analyze::laps(&trace, self.lap.as_deref()) else {
            let lap = self.lap.as_ref().map_or_else(String::new, |lap| format!(" named `{lap}`"));
            return Ok((trace, format!("nothing{lap} repeats in the recording, so all of it was kept")));
        };
        let (name, count) = (found.name, found.laps.len());
        let Some(first) = found.laps.get(self.after) else {
            let shown =
                format!("the recording has {count} laps of `{name}`, so it was not cut to those after {}", self.after);
            return Ok((trace, shown));
        };
        let end = self.during.map_or(count, |during| count.min(self.after + during));
        let last = &found.laps[end - 1];
        let (from, to) = (first.start, last.end);
        // Device work belongs to the lap that launched it.
        let launches = laptime_analyze::launch_starts(&trace);
        let trace = trace.retain(|trace, id| {
            let begin = launches.get(&id).copied().unwrap_or(trace.span_start(id).0);
            (from..to).contains(&begin)
        })?;
        let trace = trace.retain_points(|time| (from..to).contains(&time.0))?;
        Ok((trace, format!("laps {} to {end} of {count} (`{name}`)", self.after + 1)))
    }
}

#[cfg(test)]
mod tests {
    use laptime_trace::{Nanos, TraceBuilder, activity::category};

    use super::*;

    fn steps(count: u64) -> Trace {
        let mut builder = TraceBuilder::default();
        let (main, stream) = (builder.thread(1, 1, "main"), builder.stream(1, 7, "stream 7"));
        for step in 0..count {
            let start = step * 1_000;
            builder.span(main, Nanos(start), Nanos(900), "step", category::NVTX);
            let call = builder.span(main, Nanos(start + 10), Nanos(10), "cudaLaunchKernel", category::RUNTIME);
            // The kernel runs during the next step.
            let kernel = builder.span(stream, Nanos(start + 1_050), Nanos(500), "gemm", category::KERNEL);
            builder.flow(call, kernel);
        }
        builder.build().unwrap()
    }

    fn window(after: usize, during: Option<usize>, lap: Option<&str>) -> LapWindow {
        LapWindow { after, during, lap: lap.map(str::to_owned) }
    }

    #[test]
    fn work_launched_in_the_laps_is_kept() {
        let (trace, shown) = window(10, Some(5), Some("step")).cut(steps(40)).unwrap();
        assert_eq!(shown, "laps 11 to 15 of 40 (`step`)");
        let starts = |name: &str| -> Vec<u64> {
            trace.spans().filter(|span| span.name == name).map(|span| span.start.0).collect()
        };
        assert_eq!(starts("step"), [10_000, 11_000, 12_000, 13_000, 14_000]);
        assert_eq!(starts("gemm"), [11_050, 12_050, 13_050, 14_050, 15_050]);
    }

    #[test]
    fn a_recording_with_too_few_laps_is_not_cut() {
        let (trace, shown) = window(50, None, Some("step")).cut(steps(40)).unwrap();
        assert_eq!((trace.span_count(), shown.contains("has 40 laps of `step`")), (120, true));
        let (trace, shown) = window(0, None, Some("epoch")).cut(steps(40)).unwrap();
        assert_eq!((trace.span_count(), shown.contains("nothing named `epoch` repeats")), (120, true));
    }
}
