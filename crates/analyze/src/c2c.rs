//! The stages of cache-to-cache (C2C) pipelines, per iteration.

use std::collections::HashMap;

use laptime_trace::{Nanos, SpanId, Trace, TrackId, TrackKind};

use crate::measured::is_iteration;

/// Times of one iteration, in order; a stage that did not occur is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JoinedStages {
    /// The whole iteration.
    pub total: Nanos,
    /// From the start of the iteration until the first token was read.
    pub first_token: Option<Nanos>,
    /// Embedding of the prompt by the base model.
    pub base_embedding: Vec<Nanos>,
    /// The base model's prefill without its embedding.
    pub base_prefill: Vec<Nanos>,
    /// Embedding of the prompt by the teacher model.
    pub teacher_embedding: Vec<Nanos>,
    /// The teacher model's prefill without its embedding.
    pub teacher_prefill: Vec<Nanos>,
    /// Fusing the prompt, all layers together.
    pub projector: Vec<Nanos>,
    /// Fusing new tokens, which is part of their decode steps.
    pub response_projector: Vec<Nanos>,
    /// Layer paths, if each is a stage: keys and values separately.
    pub paths: Vec<Nanos>,
    /// The last token of the prompt.
    pub last_token_prefill: Vec<Nanos>,
    /// Decode steps.
    pub steps: Vec<Nanos>,
    /// Reading a sampled token, the first one after the prompt.
    pub sampling: Vec<Nanos>,
}

impl JoinedStages {
    /// The sum of some times.
    pub fn sum(times: &[Nanos]) -> Nanos {
        times.iter().copied().fold(Nanos(0), Nanos::saturating_add)
    }

    /// Whether it contains no stage of such a pipeline.
    fn is_empty(&self) -> bool {
        self.projector.is_empty() && self.last_token_prefill.is_empty()
    }
}

/// The iterations of a trace that have such stages, in order. Stages of the device are used if there are any; the teacher
/// may run on another stream.
pub fn joined_stages(trace: &Trace) -> Vec<JoinedStages> {
    let is_thread = |track: TrackId| trace.track(track).kind == TrackKind::Thread;
    let (mut tracks, threads): (Vec<TrackId>, Vec<_>) =
        trace.tracks().map(|(id, _)| id).partition(|id| !is_thread(*id));
    tracks.extend(threads);
    let has_iterations = |track: &TrackId| trace.spans_on(*track).any(|span| is_iteration(&span));
    let Some(own) = tracks.iter().copied().find(has_iterations) else { return Vec::new() };
    let mut iterations = Iterations::default();
    iterations.add_own(trace, own);
    if !is_thread(own) {
        let others = tracks.into_iter().filter(|track| *track != own && !is_thread(*track));
        others.for_each(|track| iterations.add_second_stream(trace, track));
    }
    iterations.found.into_iter().map(|(_, iteration)| iteration).filter(|iteration| !iteration.is_empty()).collect()
}

/// Iterations by start time.
#[derive(Default)]
struct Iterations {
    found: Vec<(Nanos, JoinedStages)>,
}

/// The position of a span.
#[derive(Clone, Copy)]
struct Place {
    /// The iteration it belongs to.
    iteration: usize,
    /// Whether it is in a decode step.
    is_in_step: bool,
}

impl Iterations {
    /// The iterations of a track and the spans in them; parents come before children.
    fn add_own(&mut self, trace: &Trace, track: TrackId) {
        let mut places: HashMap<SpanId, Place> = HashMap::new();
        for span in trace.spans_on(track).filter(|span| !span.is_open) {
            if is_iteration(&span) {
                places.insert(span.id, Place { iteration: self.found.len(), is_in_step: false });
                self.found.push((span.start, JoinedStages { total: span.duration, ..JoinedStages::default() }));
                continue;
            }
            let Some(&place) = span.parent.and_then(|parent| places.get(&parent)) else { continue };
            places.insert(span.id, Place { is_in_step: place.is_in_step || span.name == STEP, ..place });
            let (start, iteration) = &mut self.found[place.iteration];
            if span.name == SAMPLING && iteration.first_token.is_none() {
                iteration.first_token = Some(span.start.saturating_add(span.duration).saturating_sub(*start));
            }
            iteration.add(span.name, span.duration, place.is_in_step);
        }
    }

    /// Spans on another stream during an iteration.
    fn add_second_stream(&mut self, trace: &Trace, track: TrackId) {
        for span in trace.spans_on(track).filter(|span| !span.is_open) {
            let started = self.found.partition_point(|(start, _)| *start <= span.start);
            let Some((start, iteration)) = self.found[..started].last_mut() else { continue };
            if span.start < start.saturating_add(iteration.total) && span.name.starts_with(TEACHER) {
                iteration.add(span.name, span.duration, false);
            }
        }
    }
}

/// The lap of a decode step.
const STEP: &str = "token";

/// Where the host reads a token.
const SAMPLING: &str = "sampling";

/// The prefix of the teacher's stage names.
const TEACHER: &str = "teacher_";

impl JoinedStages {
    fn add(&mut self, name: &str, duration: Nanos, is_in_step: bool) {
        let less = |times: &mut Vec<Nanos>| {
            if let Some(last) = times.last_mut() {
                *last = last.saturating_sub(duration);
            }
        };
        match name {
            "base_embedding" => {
                less(&mut self.base_prefill);
                self.base_embedding.push(duration);
            }
            "teacher_embedding" => {
                less(&mut self.teacher_prefill);
                self.teacher_embedding.push(duration);
            }
            "base_prefill" => self.base_prefill.push(duration),
            "teacher_prefill" => self.teacher_prefill.push(duration),
            "projector" if is_in_step => self.response_projector.push(duration),
            "projector" => self.projector.push(duration),
            "fuse_keys" | "fuse_values" if is_in_step => {}
            "fuse_keys" | "fuse_values" => self.paths.push(duration),
            "last_token_prefill" => self.last_token_prefill.push(duration),
            STEP => self.steps.push(duration),
            SAMPLING => self.sampling.push(duration),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use laptime_trace::{LAP, TraceBuilder};

    use super::*;

    #[test]
    fn prefill_excludes_its_embedding_and_stages_outside_iterations_are_ignored() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 10, "main");
        let mut span = |start, length, name: &str, category: &str| {
            builder.span(main, Nanos(start), Nanos(length), name, category);
        };
        span(0, 50, "base_prefill", "");
        for start in [100, 300] {
            span(start, 150, "iteration", LAP);
            span(start, 20, "base_prefill", "");
            span(start + 1, 5, "base_embedding", "");
            span(start + 20, 30, "teacher_prefill", "");
            span(start + 50, 40, "projector", "");
            span(start + 50, 10, "fuse_keys", "");
            span(start + 90, 8, "last_token_prefill", "");
            span(start + 98, 2, "sampling", "");
            span(start + 100, 30, "decode", "");
            span(start + 101, 9, "token", LAP);
            span(start + 110, 1, "sampling", "");
        }
        let iterations = joined_stages(&builder.build().unwrap());
        assert_eq!(iterations.len(), 2);
        let iteration = &iterations[1];
        assert_eq!((&iteration.base_prefill[..], &iteration.base_embedding[..]), (&[Nanos(15)][..], &[Nanos(5)][..]));
        assert_eq!((&iteration.paths[..], &iteration.steps[..]), (&[Nanos(10)][..], &[Nanos(9)][..]));
        assert!(iteration.teacher_embedding.is_empty());
        assert_eq!(
            (iteration.total, iteration.first_token, JoinedStages::sum(&iteration.sampling)),
            (Nanos(150), Some(Nanos(100)), Nanos(3))
        );
    }

    #[test]
    fn a_teacher_on_another_stream_belongs_to_the_iteration_it_ran_in() {
        let mut builder = TraceBuilder::default();
        let [first, second] = [7, 8].map(|stream| builder.stream(1, stream, "stream"));
        builder.span(first, Nanos(100), Nanos(100), "iteration", LAP);
        builder.span(first, Nanos(110), Nanos(20), "base_prefill", "");
        builder.span(first, Nanos(150), Nanos(10), "projector", "");
        for (start, length) in [(10, 5), (105, 40), (300, 5)] {
            builder.span(second, Nanos(start), Nanos(length), "teacher_prefill", "");
        }
        builder.span(second, Nanos(106), Nanos(4), "teacher_embedding", "");
        let iterations = joined_stages(&builder.build().unwrap());
        assert_eq!(iterations.len(), 1);
        assert_eq!(
            (&iterations[0].teacher_prefill[..], &iterations[0].teacher_embedding[..]),
            (&[Nanos(36)][..], &[Nanos(4)][..])
        );
        assert_eq!(iterations[0].base_prefill, [Nanos(20)]);
        assert_eq!(iterations[0].first_token, None);
    }

    #[test]
    fn fusion_in_a_decode_step_is_not_part_of_the_prompt() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 10, "main");
        builder.span(main, Nanos(0), Nanos(100), "iteration", LAP);
        builder.span(main, Nanos(0), Nanos(10), "projector", "");
        builder.span(main, Nanos(20), Nanos(30), "decode", "");
        builder.span(main, Nanos(21), Nanos(20), "token", LAP);
        builder.span(main, Nanos(30), Nanos(6), "projector", "");
        let iterations = joined_stages(&builder.build().unwrap());
        assert_eq!(
            (&iterations[0].projector[..], &iterations[0].response_projector[..]),
            (&[Nanos(10)][..], &[Nanos(6)][..])
        );
    }

    #[test]
    fn a_trace_without_c2c_stages_has_no_iterations() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 10, "main");
        builder.span(main, Nanos(0), Nanos(9), "iteration", LAP);
        assert!(joined_stages(&builder.build().unwrap()).is_empty());
    }
}
