//! Key findings of the report that `laptime report` and `laptime suite` write.

use super::Topic;

pub(super) const TOPICS: &[Topic] = &[
    Topic {
        id: "crossover",
        title: "the length at which two kinds of attention are equally fast",
        rule: "Two kinds of attention were measured at the same lengths; the ratio of their times is interpolated between \
               lengths.",
        meaning: "Below the length one kind is faster, above it the other. Differences below 1 % count as equal.",
        remedy: "Choose the kind that is faster at your length; measure more lengths near the crossover.",
    },
    Topic {
        id: "crossover-memory",
        title: "the length at which two kinds of attention need equal memory",
        rule: "The same comparison as `crossover`, with peak memory instead of time.",
        meaning: "Below the length one kind needs less memory, above it the other.",
        remedy: "Choose the kind that fits your memory.",
    },
    Topic {
        id: "failed",
        title: "cases failed",
        rule: "The workload returned an error.",
        meaning: "These cases have no figures.",
        remedy: "Look at `errors` of the case in `results.jsonl`.",
    },
    Topic {
        id: "growth",
        title: "how time and memory grow with length",
        rule: "A power of the length N is fitted to at least 3 lengths that double.",
        meaning: "N^1 is linear: twice the length takes twice as long. N^2 is quadratic: four times as long.",
        remedy: "`laptime scaling` shows the exponents with their 95 % intervals.",
    },
    Topic {
        id: "hardware-limit",
        title: "time relative to the hardware limit",
        rule: "The time of a case is divided by the lower bound from its FLOPs, its bytes and the measured peaks.",
        meaning: "1 means that the case runs as fast as the hardware allows.",
        remedy: "Above 3, record the case with `laptime profile` and see where its time goes.",
    },
    Topic {
        id: "loss",
        title: "the training loss",
        rule: "The loss of the first and the last training step on one batch are compared.",
        meaning: "A model that trains correctly memorises one batch, so its loss falls.",
        remedy: "If it does not fall, check the learning rate and the gradients.",
    },
    Topic {
        id: "only-one-fits",
        title: "only one kind of attention fits into memory",
        rule: "At this length one kind of attention ran out of memory and the other did not.",
        meaning: "There is no ratio at this length.",
        remedy: "Use the kind that fits.",
    },
    Topic {
        id: "out-of-memory",
        title: "cases ran out of memory",
        rule: "An allocation failed, or the estimate before the case exceeded the free memory.",
        meaning: "These cases have no figures.",
        remedy: "Use shorter sequences or smaller batches. `laptime bench model … --fit batch` finds the largest that fits.",
    },
    Topic {
        id: "peak-memory",
        title: "the largest peak memory",
        rule: "The highest peak memory of all measured cases.",
        meaning: "It shows which case needs the largest device.",
        remedy: "Compare it with the memory of the device.",
    },
    Topic {
        id: "quality",
        title: "what sparse attention leaves out",
        rule: "Sparsity, kept softmax mass and output error, as measured on the inputs of the benchmark.",
        meaning: "Random inputs spread attention over all positions, so trained models usually lose less.",
        remedy: "Evaluate a pattern on a trained model before you use it.",
    },
    Topic {
        id: "skipped",
        title: "cases were skipped",
        rule: "The workload cannot run the case, for example because the device lacks a dtype.",
        meaning: "These cases have no figures.",
        remedy: "The reason is in the table and in `results.jsonl`.",
    },
    Topic {
        id: "training-cost",
        title: "time of a training step relative to inference",
        rule: "The time of a training step is divided by the time of inference of the same case.",
        meaning: "A training step needs about 3 times the FLOPs of a forward pass.",
        remedy: "A much larger ratio points at the optimizer or at memory traffic; record it with `laptime profile`.",
    },
    Topic {
        id: "warm-up",
        title: "the first iterations of a fresh process",
        rule: "Iterations count as warm-up until the timings reach a steady state.",
        meaning: "Averages that include the warm-up are too high.",
        remedy: "Leave out as many iterations as stated: `--warmup N`.",
    },
];
