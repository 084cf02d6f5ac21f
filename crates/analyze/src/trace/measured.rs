//! The measured part of a trace that a profile recorded: its iterations, without setup.

use laptime_trace::{InvalidTrace, LAP, Nanos, Span, Trace};

/// The lap of one iteration. Files of schema 1 call it `take`.
const ITERATION: [&str; 2] = ["iteration", "take"];

/// What a benchmark does before its first iteration; a trace without it was recorded by another program.
const PREPARE: &str = "prepare";

/// Whether a span is one iteration of a case.
pub(crate) fn is_iteration(span: &Span<'_>) -> bool {
    span.category == LAP && ITERATION.contains(&span.name)
}

/// The measured part of a trace.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The iterations with everything inside them, on all tracks.
    pub trace: Trace,
    /// How many iterations there are.
    pub iterations: usize,
    /// What came before the first of them, with its time: opening the device, weights, the check, warm-up.
    pub setup: Vec<(String, Nanos)>,
}

/// Extracts the measured iterations from a trace; none if it is not the trace of a profile.
pub fn measured(trace: &Trace) -> Option<Result<Measured, InvalidTrace>> {
    let mut windows: Vec<(Nanos, Nanos)> =
        trace.roots().filter(is_iteration).map(|span| (span.start, span.end())).collect();
    if windows.is_empty() || !trace.roots().any(|span| span.name == PREPARE) {
        return None;
    }
    windows.sort_unstable();
    let is_inside = |time: Nanos| {
        let before = windows.partition_point(|(start, _)| *start <= time);
        before.checked_sub(1).is_some_and(|at| time <= windows[at].1)
    };
    let setup = setup(trace.roots().filter(|span| !is_inside(span.start)), trace);
    let part = trace.clone().retain(|trace, id| is_inside(trace.span_start(id)));
    Some(part.map(|trace| Measured { trace, iterations: windows.len(), setup }))
}

/// The stages before the iterations, each name once, in the order in which they began.
fn setup<'a>(roots: impl Iterator<Item = Span<'a>>, trace: &Trace) -> Vec<(String, Nanos)> {
    let mut setup: Vec<(String, Nanos)> = Vec::new();
    for span in roots.filter(|span| !trace.track(span.track).kind.is_device()) {
        match setup.iter_mut().find(|(name, _)| name == span.name) {
            Some((_, time)) => *time = time.saturating_add(span.duration),
            None => setup.push((span.name.to_owned(), span.duration)),
        }
    }
    setup
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::TraceBuilder;

    fn trace(lap: &str) -> Trace {
        let mut builder = TraceBuilder::default();
        let (main, stream) = (builder.thread(1, 1, "main"), builder.stream(1, 7, "stream 7"));
        builder.span(main, Nanos(0), Nanos(10), "prepare", "");
        builder.span(main, Nanos(10), Nanos(5), "warm_up", "");
        builder.span(main, Nanos(15), Nanos(5), "warm_up", "");
        builder.span(stream, Nanos(16), Nanos(2), "kernel", "kernel");
        for start in [20, 40] {
            builder.span(main, Nanos(start), Nanos(10), lap, LAP);
            builder.span(main, Nanos(start + 2), Nanos(5), "decode", "");
            builder.span(stream, Nanos(start + 3), Nanos(2), "kernel", "kernel");
        }
        builder.build().unwrap()
    }

    #[test]
    fn iterations_are_kept_on_all_tracks_and_setup_is_summed_by_name() {
        for lap in ITERATION {
            let part = measured(&trace(lap)).unwrap().unwrap();
            assert_eq!((part.iterations, part.trace.span_count()), (2, 6));
            assert_eq!(part.setup, [("prepare".to_owned(), Nanos(10)), ("warm_up".to_owned(), Nanos(10))]);
        }
    }

    #[test]
    fn laps_of_another_program_are_not_iterations() {
        assert!(measured(&trace("step")).is_none());
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        builder.span(main, Nanos(0), Nanos(10), "iteration", LAP);
        assert!(measured(&builder.build().unwrap()).is_none());
    }
}
