//! What a profile of two models joined through their caches comes to, in the lines of the kit and a few more.

use laptime_analyze::{JoinedStages, limits};
use laptime_bench::AxisValue;
use laptime_trace::Nanos;

use crate::c2c_files::{Kit, average, median, ms, total};

impl Kit<'_> {
    /// The lines that the kit prints, and those that it leaves out; medians of the recorded takes.
    pub fn summary(&self) -> Vec<String> {
        let whose =
            if self.is_queued { ", by a host that does not wait: `--timing events` tells the device's" } else { "" };
        let heading = format!("Timing Summary (medians of {} recorded takes{whose}):", self.takes.len());
        let lines = [
            Some(heading),
            self.stage("Base Embedding", "base_embedding", |take| &take.base_embedding),
            self.stage("Base Prefill", "base_prefill", |take| &take.base_prefill),
            self.stage("Teacher Embedding", "teacher_embedding", |take| &take.teacher_embedding),
            self.stage("Teacher Prefill", "teacher_prefill", |take| &take.teacher_prefill),
            self.projector(),
            self.stage("Last Token Prefill", "last_token_prefill", |take| &take.last_token_prefill),
            self.prefill(),
            self.first_token(),
            self.decode(),
            self.response(),
            self.stage("Sampling", "sampling", |take| &take.sampling),
            self.overlap(),
            self.memory(),
            Some(format!("  Calls: teacher {}, projector {}", self.told("teacher_calls"), self.projector_calls())),
            Some(format!(
                "  Base model: {}, teacher model: {}, fuser: {}",
                self.axis("base_model"),
                self.axis("teacher_model"),
                self.axis("fuser_checkpoint")
            )),
        ];
        lines.into_iter().flatten().collect()
    }

    fn of(&self, time: impl Fn(&JoinedStages) -> Option<f64>) -> Option<f64> {
        median(self.takes.iter().filter_map(time).collect())
    }

    fn stage(&self, label: &str, name: &str, times: fn(&JoinedStages) -> &Vec<Nanos>) -> Option<String> {
        let time = self.of(|take| total(times(take)))?;
        Some(format!("  {label}: {time:.3} ms{}", self.limit(name, time)))
    }

    /// The least milliseconds a stage can take, if peaks were measured.
    fn least(&self, name: &str) -> Option<f64> {
        // What is queued is not done.
        if self.is_queued {
            return None;
        }
        let (_, work) = self.work.iter().find(|(stage, _)| *stage == name)?;
        limits(work, 1.0, self.peaks).limit_ns.map(|nanos| nanos / 1e6)
    }

    fn limit(&self, name: &str, time: f64) -> String {
        self.least(name).map_or_else(String::new, |least| format!(", {:.1} x limit", time / least))
    }

    fn projector(&self) -> Option<String> {
        let (time, calls) = (self.of(|take| total(&take.projector))?, self.projector_calls());
        let first = self.of(|take| take.first_token.map(ms)).filter(|first| *first > 0.0);
        let each = (calls > 0).then(|| format!(", {:.4} ms a layer ({calls} calls)", time / calls as f64));
        let share = first.map(|first| format!(", {:.0} % of the first token", 100.0 * time / first));
        let (each, share) = (each.unwrap_or_default(), share.unwrap_or_default());
        Some(format!("  Projector: {time:.3} ms{each}{share}{}", self.limit("projector", time)))
    }

    /// Until the last token of the prompt was run.
    fn prefill(&self) -> Option<String> {
        let until = |take: &JoinedStages| {
            let read = take.sampling.first().copied().unwrap_or_default();
            take.first_token.map(|first| ms(first.saturating_sub(read)))
        };
        self.of(until).map(|time| format!("  Total Prefill (all of the above): {time:.3} ms"))
    }

    fn first_token(&self) -> Option<String> {
        let first = self.of(|take| take.first_token.map(ms))?;
        let of_prompt = self.work.iter().map(|(name, _)| *name).filter(|name| *name != "decode");
        let least: Option<f64> = of_prompt.map(|name| self.least(name)).sum();
        let limit = least.filter(|least| *least > 0.0).map(|least| format!(", {:.1} x limit", first / least));
        Some(format!("  First Token (TTFT): {first:.3} ms{}", limit.unwrap_or_default()))
    }

    fn decode(&self) -> Option<String> {
        let step = self.of(|take| average(&take.steps)).filter(|step| *step > 0.0)?;
        let steps = self.takes.first().map_or(0, |take| take.steps.len());
        let (all, rate) = (step * steps as f64, 1e3 / step);
        let limit = self.limit("decode", all);
        Some(format!("  Decode: {all:.3} ms total, {step:.3} ms/token avg ({steps} tokens), {rate:.0} tokens/s{limit}"))
    }

    fn response(&self) -> Option<String> {
        let time = self.of(|take| total(&take.response_projector))?;
        Some(format!("  Projector of new tokens (in Decode): {time:.3} ms"))
    }

    fn metric(&self, name: &str) -> Option<f64> {
        let metric = self.measured.metrics.iter().find(|metric| metric.name == name)?;
        median(metric.values.iter().flatten().copied().collect())
    }

    /// What reading both prompts at the same time hides.
    fn overlap(&self) -> Option<String> {
        let [base, teacher, together] =
            [self.metric("base_alone_ms")?, self.metric("teacher_alone_ms")?, self.metric("together_ms")?];
        let (hidden, share) = (self.metric("hidden_ms")?, 100.0 * self.metric("hidden_share")?);
        Some(format!(
            "  Overlap: base {base:.3} ms and teacher {teacher:.3} ms alone, {together:.3} ms together: {hidden:.3} ms hidden, {share:.0} % of the shorter"
        ))
    }

    fn memory(&self) -> Option<String> {
        let mib = |name: &str| match self.fact(name) {
            Some(AxisValue::Int(bytes)) => Some(format!("{:.2}", *bytes as f64 / f64::from(1 << 20))),
            _ => None,
        };
        let parts = [
            ("weights", "weight_bytes"),
            ("caches", "cache_bytes"),
            ("fuser", "fuser_bytes"),
            ("activations and the rest", "activation_bytes"),
        ];
        let told: Vec<String> =
            parts.iter().filter_map(|(name, fact)| Some(format!("{name} {}", mib(fact)?))).collect();
        (!told.is_empty()).then(|| format!("  Peak memory (MiB): {}", told.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use laptime_bench::Case;
    use laptime_trace::run::{Bandwidth, Measured, PeakFlops, Peaks, SCHEMA, Traffic, Work};

    use super::*;

    fn take() -> JoinedStages {
        let times = |times: &[u64]| times.iter().map(|micros| Nanos(micros * 1_000)).collect();
        JoinedStages {
            total: Nanos(9_000_000),
            first_token: Some(Nanos(4_002_000)),
            base_prefill: times(&[1_500]),
            teacher_prefill: times(&[1_000]),
            projector: times(&[1_400]),
            last_token_prefill: times(&[100]),
            steps: times(&[500, 500]),
            sampling: times(&[2, 1, 1]),
            ..JoinedStages::default()
        }
    }

    fn peaks() -> Peaks {
        let flops = PeakFlops { dtype: "f32".into(), flops_s: 1e9, median: None, size: 8, threads: 1 };
        let bandwidth = Bandwidth { traffic: Traffic::Read, bytes_s: 1e9, median: None, bytes: 8, threads: 1 };
        Peaks {
            schema: SCHEMA,
            machine: String::new(),
            device: "cpu".into(),
            measured: String::new(),
            flops: vec![flops],
            bandwidth: vec![bandwidth],
            gpu: None,
        }
    }

    fn summary(peaks: Option<&Peaks>, is_queued: bool) -> Vec<String> {
        let work = |flops| Work { flops, dtype: "f32".into(), bytes: 1, traffic: Traffic::Read };
        let work = vec![("base_prefill", work(500_000)), ("projector", work(500_000)), ("decode", work(250_000))];
        let (case, measured) = (Case::default(), Measured::default());
        Kit { case: &case, measured: &measured, takes: vec![take()], work, peaks, is_queued }.summary()
    }

    #[test]
    fn stages_are_held_against_their_limits_where_peaks_are_known() {
        let lines = summary(Some(&peaks()), false);
        let has = |line: &str| assert!(lines.iter().any(|told| told == line), "{line}: {lines:#?}");
        has("  Base Prefill: 1.500 ms, 3.0 x limit");
        has("  Teacher Prefill: 1.000 ms");
        has("  Total Prefill (all of the above): 4.000 ms");
        has("  First Token (TTFT): 4.002 ms, 4.0 x limit");
        has("  Decode: 1.000 ms total, 0.500 ms/token avg (2 tokens), 2000 tokens/s, 4.0 x limit");
    }

    #[test]
    fn without_peaks_and_without_calls_there_are_times_alone() {
        let lines = summary(None, false);
        assert!(lines.contains(&"  Projector: 1.400 ms, 35 % of the first token".to_owned()), "{lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("limit") || line.contains("Overlap")), "{lines:#?}");
    }

    #[test]
    fn times_of_a_host_that_does_not_wait_are_not_held_against_limits() {
        let lines = summary(Some(&peaks()), true);
        assert!(lines[0].contains("by a host that does not wait"), "{lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("x limit")), "{lines:#?}");
    }
}
