//! Notes under the figures of a benchmark.

use super::Topic;

pub(super) const TOPICS: &[Topic] = &[
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
        id: "different-setup",
        title: "the two runs differ in more than the program",
        rule: "The runs used a different CPU, number of CPUs, device, GPU, timing, cache setting, optimisation level or \
               assertions.",
        meaning: "The verdict may be about that difference and not about the program.",
        remedy: "Measure both runs on the same machine with the same settings, or use `laptime ab`.",
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
        id: "recording-overhead",
        title: "recording slows the program down",
        rule: "Recorded iterations are more than 1 % slower than unrecorded ones.",
        meaning: "Times in the recording are too long; shares are usually still right.",
        remedy: "Mark fewer stages in the innermost loop, or use a cheaper `--timing`.",
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
        id: "unclear-growth",
        title: "growth with length is unclear",
        rule: "A length has fewer than 6 iterations, or fewer than 6 processes if there are several.",
        meaning: "Without a 95 % interval the exponent of the growth in time is left out.",
        remedy: "Use `--iterations 6` or more, or `--runs 6` or more if you use several processes.",
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
