//! A window that is counted in laps: `--after-laps 10 --for-laps 20`.

use laptime_trace::Trace;

/// The laps that are kept. A lap is a step that repeats: an NVTX range, or a sequence of kernels that is detected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LapWindow {
    /// Laps to leave out at the beginning.
    pub after: usize,
    /// Laps to keep; `None` keeps all that follow.
    pub during: Option<usize>,
    /// The name of the range that is a lap; `None` detects it.
    pub lap: Option<String>,
}

impl LapWindow {
    /// Keeps what begins in the wanted laps, and says which those are. Where nothing repeats, or not often enough, the
    /// trace stays whole.
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
        // Work of a device follows the call that launched it.
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
            // The device is behind: the kernel runs in the next step.
            let kernel = builder.span(stream, Nanos(start + 1_050), Nanos(500), "gemm", category::KERNEL);
            builder.flow(call, kernel);
        }
        builder.build().unwrap()
    }

    fn window(after: usize, during: Option<usize>, lap: Option<&str>) -> LapWindow {
        LapWindow { after, during, lap: lap.map(str::to_owned) }
    }

    #[test]
    fn what_the_wanted_laps_launched_is_kept() {
        let (trace, shown) = window(10, Some(5), Some("step")).cut(steps(40)).unwrap();
        assert_eq!(shown, "laps 11 to 15 of 40 (`step`)");
        let starts = |name: &str| -> Vec<u64> {
            trace.spans().filter(|span| span.name == name).map(|span| span.start.0).collect()
        };
        assert_eq!(starts("step"), [10_000, 11_000, 12_000, 13_000, 14_000]);
        assert_eq!(starts("gemm"), [11_050, 12_050, 13_050, 14_050, 15_050]);
    }

    #[test]
    fn a_recording_with_too_few_laps_stays_whole() {
        let (trace, shown) = window(50, None, Some("step")).cut(steps(40)).unwrap();
        assert_eq!((trace.span_count(), shown.contains("has 40 laps of `step`")), (120, true));
        let (trace, shown) = window(0, None, Some("epoch")).cut(steps(40)).unwrap();
        assert_eq!((trace.span_count(), shown.contains("nothing named `epoch` repeats")), (120, true));
    }
}
