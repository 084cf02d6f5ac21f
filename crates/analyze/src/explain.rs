//! What every note means: the rule with its threshold, why it matters and what to do.
//!
//! This is the one source of these texts: `laptime explain`, the report and the page on notes print them.

/// What a note means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topic {
    /// The id that follows the note in brackets.
    pub id: &'static str,
    /// What it is about, in a few words.
    pub title: &'static str,
    /// When the note is printed, with the threshold.
    pub rule: &'static str,
    /// Why it matters.
    pub meaning: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

/// Finds the topic of an id.
pub fn explain(id: &str) -> Option<&'static Topic> {
    TOPICS.iter().find(|topic| topic.id == id)
}

/// All topics, in alphabetical order of their ids.
pub const TOPICS: &[Topic] = &[
    Topic {
        id: "beyond-peak",
        title: "faster than the measured peak",
        rule: "The case reaches more than 100 % of the arithmetic or memory peak that `laptime peaks` measured.",
        meaning: "Nothing runs faster than the hardware. Either the peaks were measured on a busy machine, the work is \
                  counted too high, or the data stays in a cache that the memory peak does not include.",
        remedy: "Run `laptime peaks --reset` on an idle machine, then measure again.",
    },
    Topic {
        id: "busy-machine",
        title: "other processes were running",
        rule: "The load average was above half the number of CPUs when the run started.",
        meaning: "Other processes compete for cores, caches and memory bandwidth. They usually make timings slower and \
                  less repeatable.",
        remedy: "Stop the other processes and measure again. `laptime doctor` shows what else is unusual.",
    },
    Topic {
        id: "debug-build",
        title: "the program is a debug build",
        rule: "The binary was compiled with optimisation level 0.",
        meaning: "Unoptimised code is often 10 to 100 times slower, so the timings describe no real program.",
        remedy: "Build with `cargo build --release` and measure again.",
    },
    Topic {
        id: "few-iterations",
        title: "too few iterations for an interval",
        rule: "A case ran in one process with fewer than 6 iterations.",
        meaning: "A 95 % confidence interval of the median needs at least 6 samples, so the interval is left empty.",
        remedy: "Use `--iterations 6` or more, or leave the flag out: Laptime then stops when the interval is narrow.",
    },
    Topic {
        id: "interrupted",
        title: "the run was interrupted",
        rule: "Ctrl-C or a signal stopped the case before its stop rule was met.",
        meaning: "The figures are correct for the iterations that ran, but their interval may be wider than asked for.",
        remedy: "Continue with `laptime bench --resume DIR`; finished cases are kept.",
    },
    Topic {
        id: "one-process",
        title: "each case ran in one process",
        rule: "The run used `--runs 1`, which is the default.",
        meaning: "Memory layout, clocks and caches differ between processes. An interval from one process does not \
                  include that variation, so it is no basis for comparing two runs.",
        remedy: "Use `--runs 10` for both sides of a comparison, or `laptime ab`.",
    },
    Topic {
        id: "outliers",
        title: "some iterations are outliers",
        rule: "An iteration is more than 50 % off the median, or more than 5 % of the iterations are outliers and the \
               worst is more than 10 % off.",
        meaning: "Something interfered: another process, an allocation, garbage collection, a clock change. The median \
                  is robust against a few outliers; the mean and the maximum are not.",
        remedy: "Look at p95 and the maximum next to the median. `laptime doctor` measures how noisy the machine is.",
    },
    Topic {
        id: "process-spread",
        title: "processes differ more than iterations",
        rule: "The medians of the processes spread by more than 1 % and by more than twice the spread within a process.",
        meaning: "The interval of a single process would be too narrow: the next process may be off by more.",
        remedy: "Compare with several processes per side (`--runs 10`); `laptime compare` then uses them as samples.",
    },
    Topic {
        id: "slow-start",
        title: "the first iterations are slower",
        rule: "The first counted iterations are more than 5 % slower than the rest.",
        meaning: "Early calls often pay for allocation, loading and autotuning. They pull the median and the maximum up.",
        remedy: "Raise `--warmup`, or use `--warmup auto`. `laptime warmup WORKLOAD` shows how many iterations to skip.",
    },
    Topic {
        id: "slowing-down",
        title: "timings rose during the run",
        rule: "The iterations became more than 1 % slower and stayed so.",
        meaning: "Clocks usually drop when the device heats up. The median then mixes two speeds.",
        remedy: "Watch clocks and temperature with `laptime doctor`, pause between cases, or lock a clock the device can hold.",
    },
    Topic {
        id: "throttled",
        title: "the device lowered its clock",
        rule: "The driver reported a throttling reason at the end of at least one iteration.",
        meaning: "The timings describe a slower device than the one you have at full clock.",
        remedy: "`laptime doctor` shows clocks, power and temperature. Let the device cool, raise its power limit, or lock a clock.",
    },
    Topic {
        id: "unsteady",
        title: "timings did not reach a steady state",
        rule: "The last third of the iterations still drifts or jumps between levels.",
        meaning: "The median depends on how long you measure, so it does not describe a stable speed.",
        remedy: "`laptime warmup WORKLOAD` shows the timings from the first iteration on. Look for other processes, \
                 clock changes and growing data.",
    },
    Topic {
        id: "wide-interval",
        title: "time ran out before the interval was narrow",
        rule: "`--max-time` was reached while the 95 % interval was still wider than `--within`.",
        meaning: "The median is less certain than you asked for.",
        remedy: "Raise `--max-time`, or accept a wider interval with `--within`.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_sorted_unique_and_complete() {
        assert!(TOPICS.is_sorted_by(|a, b| a.id < b.id));
        for topic in TOPICS {
            assert!(topic.id.chars().all(|char| char.is_ascii_lowercase() || char == '-'), "{}", topic.id);
            for text in [topic.rule, topic.meaning, topic.remedy] {
                assert!(text.ends_with('.') && !text.contains("  "), "{}: {text}", topic.id);
            }
        }
    }

    #[test]
    fn an_id_is_found_and_another_word_is_not() {
        assert_eq!(explain("unsteady").map(|topic| topic.title), Some("timings did not reach a steady state"));
        assert_eq!(explain("steady"), None);
    }
}
