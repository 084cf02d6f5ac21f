//! What a profile of two models joined through their caches comes to, in the lines of the kit and a few more.

use laptime_analyze::{JoinedStages, limits};
use laptime_bench::AxisValue;
use laptime_trace::Nanos;

use crate::c2c_files::{Kit, average, median, ms, total};

impl Kit<'_> {
    /// The lines that the kit prints, and those that it leaves out. All of the prompt is of one iteration, whose time to
    /// the first token is the median, so that its parts add up; what follows are medians of all iterations.
    pub fn summary(&self) -> Vec<String> {
        let whose =
            if self.is_queued { ", by a host that does not wait: `--timing events` shows the device's" } else { "" };
        let heading = match self.takes.len() {
            1 => format!("Timing Summary (1 recorded iteration{whose}):"),
            count => format!("Timing Summary (the median iteration of {count} by its first token{whose}):"),
        };
        let lines = [
            Some(heading),
            self.stage("Base Embedding", "base_embedding", |take| &take.base_embedding),
            self.stage("Base Prefill", "base_prefill", |take| &take.base_prefill),
            self.stage("Teacher Embedding", "teacher_embedding", |take| &take.teacher_embedding),
            self.stage("Teacher Prefill", "teacher_prefill", |take| &take.teacher_prefill),
            self.projector(),
            self.stage("Last Token Prefill", "last_token_prefill", |take| &take.last_token_prefill),
            self.between(),
            self.prefill(),
            self.first_token(),
            self.decode(),
            self.response(),
            self.sampling(),
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
        lines.into_iter().flatten().chain(self.below_limit()).collect()
    }

    /// The iteration whose time to the first token is the median; of an even number the shorter of both.
    fn usual(&self) -> Option<&JoinedStages> {
        let mut takes: Vec<&JoinedStages> = self.takes.iter().collect();
        takes.sort_by_key(|take| (take.first_token, take.total));
        takes.get(takes.len().saturating_sub(1) / 2).copied()
    }

    fn of(&self, time: impl Fn(&JoinedStages) -> Option<f64>) -> Option<f64> {
        median(self.takes.iter().filter_map(time).collect())
    }

    fn stage(&self, label: &str, name: &str, times: fn(&JoinedStages) -> &Vec<Nanos>) -> Option<String> {
        let time = total(times(self.usual()?))?;
        Some(format!("  {label}: {time:.3} ms{}", self.limit(name, time)))
    }

    fn sampling(&self) -> Option<String> {
        self.of(|take| total(&take.sampling)).map(|time| format!("  Sampling: {time:.3} ms"))
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

    /// A note on stages that seem to be faster than the hardware: their limit is wrong.
    fn below_limit(&self) -> Option<String> {
        let usual = self.usual()?;
        let times: [(&str, Option<f64>); 7] = [
            ("base_embedding", total(&usual.base_embedding)),
            ("base_prefill", total(&usual.base_prefill)),
            ("teacher_embedding", total(&usual.teacher_embedding)),
            ("teacher_prefill", total(&usual.teacher_prefill)),
            ("projector", total(&usual.projector)),
            ("last_token_prefill", total(&usual.last_token_prefill)),
            ("decode", self.of(|take| total(&take.steps))),
        ];
        let below = times
            .into_iter()
            .filter(|(name, time)| time.zip(self.least(name)).is_some_and(|(time, least)| time < least));
        let names: Vec<String> = below.map(|(name, _)| format!("`{name}`")).collect();
        (!names.is_empty()).then(|| {
            format!(
                "  note: {} took less time than its limit [below-limit]: the peaks are too low, or the data was in a cache; \
                 run `laptime peaks` again",
                names.join(", ")
            )
        })
    }

    fn projector(&self) -> Option<String> {
        let usual = self.usual()?;
        let (time, calls) = (total(&usual.projector)?, self.projector_calls());
        let first = usual.first_token.map(ms).filter(|first| *first > 0.0);
        let each = (calls > 0).then(|| format!(", {:.4} ms a layer ({calls} calls)", time / calls as f64));
        let share = first.map(|first| format!(", {:.0} % of the first token", 100.0 * time / first));
        let (each, share) = (each.unwrap_or_default(), share.unwrap_or_default());
        Some(format!("  Projector: {time:.3} ms{each}{share}{}", self.limit("projector", time)))
    }

    /// Milliseconds until the last token of the prompt was run.
    fn prefill_ms(&self) -> Option<f64> {
        let usual = self.usual()?;
        let read = usual.sampling.first().copied().unwrap_or_default();
        usual.first_token.map(|first| ms(first.saturating_sub(read)))
    }

    /// What lies between the stages of the prompt; where the teacher runs beside the base model, what overlaps.
    fn between(&self) -> Option<String> {
        let usual = self.usual()?;
        let stages = [
            &usual.base_embedding,
            &usual.base_prefill,
            &usual.teacher_embedding,
            &usual.teacher_prefill,
            &usual.projector,
            &usual.last_token_prefill,
        ];
        let parts: f64 = stages.into_iter().filter_map(|times| total(times)).sum();
        let rest = self.prefill_ms()? - parts;
        Some(match rest < 0.0 {
            true => format!("  Overlap of stages: {rest:.3} ms"),
            false => format!("  Between stages: {rest:.3} ms"),
        })
    }

    fn prefill(&self) -> Option<String> {
        self.prefill_ms().map(|time| format!("  Total Prefill (sum of the above): {time:.3} ms"))
    }

    fn first_token(&self) -> Option<String> {
        let first = self.usual()?.first_token.map(ms)?;
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
        has("  Between stages: 0.000 ms");
        has("  Total Prefill (sum of the above): 4.000 ms");
        has("  First Token (TTFT): 4.002 ms, 4.0 x limit");
        has("  Decode: 1.000 ms total, 0.500 ms/token avg (2 tokens), 2000 tokens/s, 4.0 x limit");
    }

    /// The milliseconds of a line that begins so.
    fn figure(lines: &[String], label: &str) -> f64 {
        let line = lines.iter().find(|line| line.trim_start().starts_with(label)).unwrap_or_else(|| panic!("{label}"));
        line.split(": ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    }

    #[test]
    fn the_parts_of_the_prefill_add_up_whatever_each_iteration_took() {
        let slow = JoinedStages {
            first_token: Some(Nanos(9_002_000)),
            base_prefill: vec![Nanos(1_000_000)],
            teacher_prefill: vec![Nanos(6_000_000)],
            ..take()
        };
        let beside = JoinedStages { first_token: Some(Nanos(3_502_000)), ..take() };
        let quick = JoinedStages { first_token: Some(Nanos(3_002_000)), projector: vec![Nanos(100_000)], ..take() };
        for takes in [vec![slow.clone(), take(), quick.clone()], vec![slow, beside, quick]] {
            let (case, measured) = (Case::default(), Measured::default());
            let work = Vec::new();
            let lines = Kit { case: &case, measured: &measured, takes, work, peaks: None, is_queued: false }.summary();
            let parts = ["Base Prefill", "Teacher Prefill", "Projector", "Last Token Prefill"];
            let rest = lines.iter().any(|line| line.contains("Overlap of stages"));
            let rest = figure(&lines, if rest { "Overlap of stages" } else { "Between stages" });
            let sum: f64 = parts.map(|label| figure(&lines, label)).iter().sum::<f64>() + rest;
            assert!((sum - figure(&lines, "Total Prefill")).abs() < 1e-9, "{lines:#?}");
        }
    }

    #[test]
    fn a_stage_that_is_faster_than_its_limit_is_a_note() {
        let low = Peaks {
            flops: peaks().flops.into_iter().map(|peak| PeakFlops { flops_s: 1e8, ..peak }).collect(),
            ..peaks()
        };
        let lines = summary(Some(&low), false);
        let note = lines.last().unwrap();
        assert!(note.starts_with("  note: `base_prefill`, `projector`, `decode` took less time than"), "{lines:#?}");
        assert!(!summary(Some(&peaks()), false).iter().any(|line| line.contains("note:")));
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
