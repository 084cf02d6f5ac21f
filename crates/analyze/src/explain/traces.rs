//! Notes about a trace: what its recording or its file got wrong.

use super::Topic;

pub(super) const TOPICS: &[Topic] = &[
    Topic {
        id: "before-launch",
        title: "work starts before its launch",
        rule: "A kernel or copy starts earlier than the call that launched it, by more than the clock uncertainty of the \
               trace (at least 1 µs).",
        meaning: "The host and device clocks disagree, or calls are matched with the wrong work. Causes of gaps and launch \
                  latencies are unreliable. Busy and idle times are correct.",
        remedy: "Record again. If it happens again, update the driver or the profiler.",
    },
    Topic {
        id: "busy-idle",
        title: "busy and idle time do not add up",
        rule: "Busy plus idle time of a device differs from the time between its first and last work.",
        meaning: "Busy shares and gaps of this trace are wrong. This is a bug in Laptime.",
        remedy: "Please report it, with the trace if you can share it.",
    },
    Topic {
        id: "children-outside",
        title: "spans do not nest",
        rule: "A span starts before or ends after the span that contains it, or nested spans are longer than their parent.",
        meaning: "Self times of this trace are wrong. This is a bug in Laptime or in the program that wrote the trace.",
        remedy: "Please report it, with the trace if you can share it.",
    },
    Topic {
        id: "duplicate-work",
        title: "the same work is in the file twice",
        rule: "Two kernels or copies have the same stream, name, start, end and launch.",
        meaning: "Counts and sums per name are too high. Busy and idle times are correct, because overlaps count once.",
        remedy: "Check whether the file was merged from overlapping files.",
    },
    Topic {
        id: "empty-trace",
        title: "the trace is empty",
        rule: "The trace contains no spans.",
        meaning: "Nothing was recorded, or the file holds events of a kind that Laptime does not read.",
        remedy: "Check that the recording covered the work, and that the program was not stopped before it wrote the file.",
    },
    Topic {
        id: "open-spans",
        title: "spans were open at the end of the recording",
        rule: "At least one span has a start but no end.",
        meaning: "The end of the recording is used as the end of these spans, so their last duration is too short.",
        remedy: "Stop the recording after the work has finished, for example after a synchronisation.",
    },
    Topic {
        id: "stages-only",
        title: "no kernels were recorded",
        rule: "A device has stages on its streams but no kernels or copies.",
        meaning: "Busy time is the time between the start and end of stages, idle time inside them included, so it is an \
                  upper bound.",
        remedy: "Record kernels too: `laptime profile` on a device with CUPTI, or `laptime record`.",
    },
    Topic {
        id: "stream-overlap",
        title: "kernels of one stream overlap",
        rule: "Work on one stream overlaps for more than 1 % of its time.",
        meaning: "Kernels may start early (programmatic dependent launch), or the trace shows several streams as one. Sums of \
                  kernel times exceed the busy time. Busy and idle times count overlaps once and are correct.",
        remedy: "Use busy and idle time, not sums of kernel times.",
    },
];
