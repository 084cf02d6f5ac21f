//! Folded stacks: one line per stack, frames from outermost to innermost, and the stack's self time in nanoseconds.
//!
//! `main;generate;prefill 1234` means that the thread `main` spent 1234 ns in `prefill` itself, inside `generate`.
//! Flame graphs are built from such lines.

use std::{collections::HashMap, fmt::Write};

use crate::DEEPEST;
use crate::trace::{SpanId, Trace};

/// Whose time is summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum By {
    /// The time of the host's tracks.
    #[default]
    Host,
    /// The time of device tracks, under the host stacks that launched it.
    Device,
}

/// Sums a trace by stack, in order of first occurrence.
///
/// A stack begins with the name of its track and has at most [`DEEPEST`] frames below it. Time spent in a child does
/// not count for its parent. Characters that are special in folded text are written as `%3B`, `%0A`, `%0D`; a per cent
/// sign before two hexadecimal digits as `%25`.
pub fn stacks(trace: &Trace, by: By) -> Vec<String> {
    match by {
        By::Host => host_stacks(trace),
        By::Device => device_stacks(trace),
    }
}

fn host_stacks(trace: &Trace) -> Vec<String> {
    let own = trace.own_times();
    let mut sums = Sums::default();
    let mut paths: Vec<usize> = Vec::with_capacity(own.len());
    let mut depths: Vec<usize> = Vec::with_capacity(own.len());
    for span in trace.spans() {
        let depth = span.parent.map_or(0, |parent| depths[parent.index()] + 1);
        depths.push(depth);
        let path = match span.parent {
            Some(parent) if depth >= DEEPEST => paths[parent.index()],
            Some(parent) => sums.place(format!("{};{}", sums.text[paths[parent.index()]], escaped(span.name))),
            None => sums.place(format!("{};{}", escaped(trace.name(trace.track(span.track).name)), escaped(span.name))),
        };
        if !trace.track(span.track).kind.is_device() {
            sums.add(path, own[span.id.index()].0);
        }
        paths.push(path);
    }
    sums.lines()
}

/// Sums the device time of a trace by the host stack that launched it.
///
/// A device span with a flow from the host goes under the host's stack; only its self time counts, so its ancestors on
/// the device are not counted twice. A span without a flow goes under its own track.
fn device_stacks(trace: &Trace) -> Vec<String> {
    let source: HashMap<SpanId, SpanId> = trace.flows().iter().map(|flow| (flow.to, flow.from)).collect();
    let own = trace.own_times();
    let mut sums = Sums::default();
    for span in trace.spans().filter(|span| trace.track(span.track).kind.is_device()) {
        let path = sums.place(stack_text(trace, source.get(&span.id).copied().unwrap_or(span.id)));
        sums.add(path, own[span.id.index()].0);
    }
    sums.lines()
}

fn stack_text(trace: &Trace, id: SpanId) -> String {
    let span = trace.span(id);
    let mut around: Vec<SpanId> = std::iter::once(id).chain(trace.ancestors(span)).collect();
    around.reverse();
    let track = escaped(trace.name(trace.track(span.track).name));
    let frames = around.iter().take(DEEPEST).map(|&id| escaped(trace.span(id).name));
    std::iter::once(track).chain(frames).collect::<Vec<_>>().join(";")
}

#[derive(Default)]
struct Sums {
    by_text: HashMap<String, usize>,
    text: Vec<String>,
    nanos: Vec<u64>,
}

impl Sums {
    fn place(&mut self, text: String) -> usize {
        let next = self.text.len();
        *self.by_text.entry(text).or_insert_with_key(|text| {
            self.text.push(text.clone());
            self.nanos.push(0);
            next
        })
    }

    fn add(&mut self, path: usize, nanos: u64) {
        self.nanos[path] = self.nanos[path].saturating_add(nanos);
    }

    fn lines(self) -> Vec<String> {
        let lines = self.text.into_iter().zip(self.nanos);
        lines.filter(|(_, nanos)| *nanos > 0).map(|(text, nanos)| format!("{text} {nanos}")).collect()
    }
}

fn escaped(name: &str) -> String {
    let needs = |char| matches!(char, ';' | '\n' | '\r' | '%');
    if name.is_empty() {
        return "(no name)".to_owned();
    }
    if !name.contains(needs) {
        return name.to_owned();
    }
    let mut text = String::new();
    for (at, char) in name.char_indices() {
        let looks_escaped = || {
            let next = name.as_bytes().get(at + 1..at + 3);
            next.is_some_and(|next| next.iter().all(u8::is_ascii_hexdigit))
        };
        match char {
            ';' | '\n' | '\r' => {
                let _ = write!(text, "%{:02X}", u32::from(char));
            }
            '%' if looks_escaped() => text.push_str("%25"),
            other => text.push(other),
        }
    }
    text
}

/// Whether text looks like folded stacks: lines that end in a space and a number, frames separated by semicolons.
pub(crate) fn looks_folded(start: &[u8]) -> bool {
    let Some(line) = start.split(|&byte| byte == b'\n').next().and_then(|line| std::str::from_utf8(line).ok()) else {
        return false;
    };
    line.contains(';') && line.rsplit_once(' ').is_some_and(|(_, count)| count.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Nanos, TraceBuilder};

    #[test]
    fn a_nest_of_any_depth_keeps_all_its_time_in_stacks_of_bounded_length() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let levels = 20_000;
        for level in 0..levels {
            builder.span(main, Nanos(level), Nanos(2 * (levels - level)), "f", "");
        }
        let stacks = stacks(&builder.build().unwrap(), By::Host);
        assert_eq!(stacks.len(), DEEPEST);
        assert!(stacks.iter().all(|stack| stack.matches(';').count() <= DEEPEST));
        let nanos = |stack: &String| stack.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
        assert_eq!(stacks.iter().map(nanos).sum::<u64>(), 2 * levels);
    }
}
