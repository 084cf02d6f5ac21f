//! Errors about traces that lack GPU work or laps.

use laptime_analyze::{MOST_LAPS, NoLaps, plural};
use laptime_trace::Trace;

use crate::{failure::refusal, near::did_you_mean};

/// The trace has no GPU work, and therefore no `request`.
pub fn no_device_work(trace: &Trace, request: &str) -> anyhow::Error {
    if trace.span_count() == 0 {
        return empty();
    }
    let hint = if trace.is_cut_off {
        "the file is cut off, and GPU work may be in the missing part; copy the whole file"
    } else {
        "record devices too: torch.profiler with `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`, \
         `nsys profile`, or stages `on` a lane with a device clock"
    };
    refusal(format!("the trace shows no GPU work, so there are no {request} to report"), hint)
}

fn empty() -> anyhow::Error {
    refusal("the trace is empty: it has no spans", "check that the recording ran and was written to this file")
}

pub fn no_laps(trace: &Trace, reason: &NoLaps) -> anyhow::Error {
    if trace.span_count() == 0 {
        return empty();
    }
    match reason {
        NoLaps::NoSuchName { name, known } => {
            let near = did_you_mean(name, known.iter().map(|(name, _)| name.as_str()));
            refusal(format!("nothing in the trace is named `{name}`"), near + &repeating(known))
        }
        NoLaps::TooMany { name, count } => refusal(
            format!("`{name}` has {count} laps; at most {MOST_LAPS} can be analysed"),
            "name a coarser unit with `--lap NAME`, as `laptime stages` shows names, or record a shorter time",
        ),
        NoLaps::NothingRepeats => refusal(
            "nothing in the trace repeats that could be a lap",
            "name the unit with `--lap NAME`, as `laptime stages` shows names; to record one, mark it: `lap!` in Rust, \
             `profiler.step()` or `record_function` in PyTorch, an NVTX range",
        ),
    }
}

pub fn no_laps_for_budget(budget: &str, known: &[(String, u64)]) -> anyhow::Error {
    let reason = format!("the budget `{budget}` is for each lap, and no laps were found in the trace");
    refusal(reason, repeating(known))
}

/// A hint with names that could be laps.
fn repeating(known: &[(String, u64)]) -> String {
    if known.is_empty() {
        return "nothing in the trace repeats; mark laps with `lap!`, `record_function` or an NVTX range".to_owned();
    }
    let choice = |(name, count): &(String, u64)| format!("`{name}` ({})", plural(*count, "span", "spans"));
    let choices: Vec<String> = known.iter().map(choice).collect();
    format!("`--lap NAME` selects one of {}", choices.join(", "))
}
