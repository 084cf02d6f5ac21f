//! The summary of a C2C profile: in our own lines, and in those of the C2C profiler.

use laptime_analyze::{JoinedStages, limits};
use laptime_stats::spread::median;
use laptime_trace::Nanos;

use super::files::{Recording, average, ms, total};
use crate::extras::files::{metric, mib, number};

/// A stage of the prompt: its name, its labels in our summary and in the C2C profiler's, and its times.
type OfPrompt = (&'static str, &'static str, &'static str, fn(&JoinedStages) -> &Vec<Nanos>);

const OF_PROMPT: [OfPrompt; 6] = [
    ("base_embedding", "base embedding", "Base Embedding", |iteration| &iteration.base_embedding),
    ("base_prefill", "base prefill", "Base Prefill", |iteration| &iteration.base_prefill),
    ("teacher_embedding", "teacher embedding", "Teacher Embedding", |iteration| &iteration.teacher_embedding),
    ("teacher_prefill", "teacher prefill", "Teacher Prefill", |iteration| &iteration.teacher_prefill),
    ("projector", "projector", "Projector", |iteration| &iteration.projector),
    ("last_token_prefill", "last token", "Last Token Prefill", |iteration| &iteration.last_token_prefill),
];

impl Recording<'_> {
    /// The summary of a profile. The first token is that of the iteration with the median time to first token, so
    /// that its parts add up; the rest are medians of all iterations.
    pub fn lines(&self) -> Vec<String> {
        let projector = self.projector().filter(|_| self.projector_calls() > 0);
        let decode = self.decode().map(|(step, steps, limit)| {
            format!("Decode: {step:.3} ms per token ({steps} tokens, {:.0} tokens/s){limit}", 1e3 / step)
        });
        let lines = [self.first_token_line(), projector, decode, self.overlap(), self.memory(), self.below_limit()];
        lines.into_iter().flatten().map(|line| line.trim_start().to_owned()).collect()
    }

    fn first_token_line(&self) -> Option<String> {
        let usual = self.usual()?;
        let first = usual.first_token.map(ms)?;
        let part = |(_, name, _, times): &OfPrompt| Some(format!("{name} {:.3}", total(times(usual))?));
        let parts = OF_PROMPT.iter().filter_map(part).collect::<Vec<_>>().join(" + ");
        let timed = if self.is_queued { " (host times; `--timing events` shows device times)" } else { "" };
        Some(format!("First token: {first:.3} ms{}: {parts} ms{timed}", self.first_token_limit(first)))
    }

    /// The output of the C2C profiler, and a few more lines.
    pub fn compat_lines(&self) -> Vec<String> {
        let whose = if self.is_queued { ", host times; `--timing events` shows device times" } else { "" };
        let heading = match self.iterations.len() {
            1 => format!("Timing Summary (1 recorded iteration{whose}):"),
            count => format!("Timing Summary (the median iteration of {count} by its first token{whose}):"),
        };
        let first = self.usual().and_then(|usual| usual.first_token).map(ms);
        let decode = self.decode().map(|(step, steps, limit)| {
            let (all, rate) = (step * steps as f64, 1e3 / step);
            format!("  Decode: {all:.3} ms total, {step:.3} ms/token avg ({steps} tokens), {rate:.0} tokens/s{limit}")
        });
        let response = self.of(|iteration| total(&iteration.response_projector));
        let sampling = self.of(|iteration| total(&iteration.sampling));
        let (teacher, projector) = (self.fact_text("teacher_calls"), self.projector_calls());
        let [base, other, fuser] = ["base_model", "teacher_model", "fuser_checkpoint"].map(|axis| self.axis(axis));
        let mut lines = vec![Some(heading)];
        lines.extend(OF_PROMPT.iter().map(|stage| self.stage(stage)));
        lines.extend([
            self.between(),
            self.prefill_ms().map(|time| format!("  Total Prefill (sum of the above): {time:.3} ms")),
            first.map(|first| format!("  First Token (TTFT): {first:.3} ms{}", self.first_token_limit(first))),
            decode,
            response.map(|time| format!("  Projector of new tokens (in Decode): {time:.3} ms")),
            sampling.map(|time| format!("  Sampling: {time:.3} ms")),
            self.overlap(),
            self.memory(),
            Some(format!("  Calls: teacher {teacher}, projector {projector}")),
            Some(format!("  Base model: {base}, teacher model: {other}, fuser: {fuser}")),
            self.below_limit(),
        ]);
        lines.into_iter().flatten().collect()
    }

    /// The iteration with the median time to first token; for an even number the faster of the two in the middle.
    fn usual(&self) -> Option<&JoinedStages> {
        let mut iterations: Vec<&JoinedStages> = self.iterations.iter().collect();
        iterations.sort_by_key(|iteration| (iteration.first_token, iteration.total));
        iterations.get(iterations.len().saturating_sub(1) / 2).copied()
    }

    fn of(&self, time: impl Fn(&JoinedStages) -> Option<f64>) -> Option<f64> {
        median(&self.iterations.iter().filter_map(time).collect::<Vec<_>>())
    }

    fn stage(&self, (name, _, label, times): &OfPrompt) -> Option<String> {
        if *name == "projector" {
            return self.projector();
        }
        let time = total(times(self.usual()?))?;
        Some(format!("  {label}: {time:.3} ms{}", self.limit(name, time)))
    }

    /// The lower bound of a stage in milliseconds, if peaks were measured.
    fn least(&self, name: &str) -> Option<f64> {
        // Host times of queued work are not comparable with limits.
        if self.is_queued {
            return None;
        }
        let (_, work) = self.work.iter().find(|(stage, _)| *stage == name)?;
        limits(work, 1.0, self.peaks).limit_ns.map(|nanos| nanos / 1e6)
    }

    fn limit(&self, name: &str, time: f64) -> String {
        self.least(name).map_or_else(String::new, |least| format!(", {:.1} x limit", time / least))
    }

    /// A note on stages faster than their limit: the limit is wrong.
    fn below_limit(&self) -> Option<String> {
        let usual = self.usual()?;
        let of_prompt = OF_PROMPT.iter().map(|(name, _, _, times)| (*name, total(times(usual))));
        let times = of_prompt.chain([("decode", self.of(|iteration| total(&iteration.steps)))]);
        let below = times.filter(|(name, time)| time.zip(self.least(name)).is_some_and(|(time, least)| time < least));
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
        let each = (calls > 0).then(|| format!(", {:.4} ms per layer ({calls} calls)", time / calls as f64));
        let share = first.map(|first| format!(", {:.0} % of the first token", 100.0 * time / first));
        let (each, share) = (each.unwrap_or_default(), share.unwrap_or_default());
        Some(format!("  Projector: {time:.3} ms{each}{share}{}", self.limit("projector", time)))
    }

    /// Milliseconds of the whole prefill.
    fn prefill_ms(&self) -> Option<f64> {
        let usual = self.usual()?;
        let read = usual.sampling.first().copied().unwrap_or_default();
        usual.first_token.map(|first| ms(first.saturating_sub(read)))
    }

    /// The time between the stages of the prompt, or their overlap if both models run at the same time.
    fn between(&self) -> Option<String> {
        let usual = self.usual()?;
        let parts: f64 = OF_PROMPT.iter().filter_map(|(_, _, _, times)| total(times(usual))).sum();
        let rest = self.prefill_ms()? - parts;
        let label = if rest < 0.0 { "Overlap of stages" } else { "Between stages" };
        Some(format!("  {label}: {rest:.3} ms"))
    }

    fn first_token_limit(&self, first: f64) -> String {
        let of_prompt = self.work.iter().map(|(name, _)| *name).filter(|name| *name != "decode");
        let least: Option<f64> = of_prompt.map(|name| self.least(name)).sum();
        let limit = least.filter(|least| *least > 0.0).map(|least| format!(", {:.1} x limit", first / least));
        limit.unwrap_or_default()
    }

    /// Milliseconds of a decode step, their number, and the comparison with their limit.
    fn decode(&self) -> Option<(f64, usize, String)> {
        let step = self.of(|iteration| average(&iteration.steps)).filter(|step| *step > 0.0)?;
        let steps = self.iterations.first().map_or(0, |iteration| iteration.steps.len());
        Some((step, steps, self.limit("decode", step * steps as f64)))
    }

    /// The time saved by prefilling both models at the same time.
    fn overlap(&self) -> Option<String> {
        let of = |name: &str| metric(self.measured, name);
        let [base, teacher, together] = [of("base_alone_ms")?, of("teacher_alone_ms")?, of("together_ms")?];
        let (hidden, share) = (of("hidden_ms")?, 100.0 * of("hidden_share")?);
        Some(format!(
            "  Overlap: base {base:.3} ms and teacher {teacher:.3} ms alone, {together:.3} ms together: {hidden:.3} ms hidden, {share:.0} % of the shorter"
        ))
    }

    fn memory(&self) -> Option<String> {
        let known = |(name, fact): (&str, &str)| Some(format!("{name} {:.2}", mib(number(self.measured, fact)?)));
        let parts = [
            ("weights", "weight_bytes"),
            ("caches", "cache_bytes"),
            ("fuser", "fuser_bytes"),
            ("activations and the rest", "activation_bytes"),
        ];
        let parts: Vec<String> = parts.into_iter().filter_map(known).collect();
        (!parts.is_empty()).then(|| format!("  Peak memory (MiB): {}", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use laptime_bench::Case;
    use laptime_trace::run::{Bandwidth, Measured, PeakFlops, Peaks, SCHEMA, Traffic, Work};

    use super::*;

    fn iteration() -> JoinedStages {
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
        Recording { case: &case, measured: &measured, iterations: vec![iteration()], work, peaks, is_queued }
            .compat_lines()
    }

    #[test]
    fn stages_are_compared_with_their_limits_where_peaks_are_known() {
        let lines = summary(Some(&peaks()), false);
        let has = |line: &str| assert!(lines.iter().any(|printed| printed == line), "{line}: {lines:#?}");
        has("  Base Prefill: 1.500 ms, 3.0 x limit");
        has("  Teacher Prefill: 1.000 ms");
        has("  Between stages: 0.000 ms");
        has("  Total Prefill (sum of the above): 4.000 ms");
        has("  First Token (TTFT): 4.002 ms, 4.0 x limit");
        has("  Decode: 1.000 ms total, 0.500 ms/token avg (2 tokens), 2000 tokens/s, 4.0 x limit");
    }

    /// The milliseconds in the line with this label.
    fn figure(lines: &[String], label: &str) -> f64 {
        let line = lines.iter().find(|line| line.trim_start().starts_with(label)).unwrap_or_else(|| panic!("{label}"));
        line.split(": ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    }

    #[test]
    fn the_parts_of_the_prefill_add_up() {
        let slow = JoinedStages {
            first_token: Some(Nanos(9_002_000)),
            base_prefill: vec![Nanos(1_000_000)],
            teacher_prefill: vec![Nanos(6_000_000)],
            ..iteration()
        };
        let middle = JoinedStages { first_token: Some(Nanos(3_502_000)), ..iteration() };
        let quick =
            JoinedStages { first_token: Some(Nanos(3_002_000)), projector: vec![Nanos(100_000)], ..iteration() };
        for iterations in [vec![slow.clone(), iteration(), quick.clone()], vec![slow, middle, quick]] {
            let (case, measured) = (Case::default(), Measured::default());
            let work = Vec::new();
            let lines = Recording { case: &case, measured: &measured, iterations, work, peaks: None, is_queued: false }
                .compat_lines();
            let parts = ["Base Prefill", "Teacher Prefill", "Projector", "Last Token Prefill"];
            let rest = lines.iter().any(|line| line.contains("Overlap of stages"));
            let rest = figure(&lines, if rest { "Overlap of stages" } else { "Between stages" });
            let sum: f64 = parts.map(|label| figure(&lines, label)).iter().sum::<f64>() + rest;
            assert!((sum - figure(&lines, "Total Prefill")).abs() < 1e-9, "{lines:#?}");
        }
    }

    #[test]
    fn a_stage_faster_than_its_limit_is_noted() {
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
    fn without_peaks_and_calls_only_times_are_printed() {
        let lines = summary(None, false);
        assert!(lines.contains(&"  Projector: 1.400 ms, 35 % of the first token".to_owned()), "{lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("limit") || line.contains("Overlap")), "{lines:#?}");
    }

    #[test]
    fn host_times_of_queued_work_are_not_compared_with_limits() {
        let lines = summary(Some(&peaks()), true);
        assert!(lines[0].contains("host times"), "{lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("x limit")), "{lines:#?}");
    }
}
