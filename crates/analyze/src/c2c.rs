//! The stages of two models joined through their caches, take by take.

use laptime_trace::{Nanos, SpanId, Trace, TrackId, TrackKind};

/// Times of one take, in the order in which they were taken; a stage that did not happen has none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JoinedStages {
    /// The whole take.
    pub total: Nanos,
    /// Embedding of the prompt by the base model.
    pub base_embedding: Vec<Nanos>,
    /// The base model's prefill without its embedding.
    pub base_prefill: Vec<Nanos>,
    /// Embedding of the prompt by the teacher model.
    pub teacher_embedding: Vec<Nanos>,
    /// The teacher model's prefill without its embedding.
    pub teacher_prefill: Vec<Nanos>,
    /// Fusing: all layers together.
    pub projector: Vec<Nanos>,
    /// Paths of layers, where each is a stage: keys and values apart.
    pub paths: Vec<Nanos>,
    /// The last token of the prompt.
    pub last_token_prefill: Vec<Nanos>,
    /// Decode steps.
    pub steps: Vec<Nanos>,
    /// Reading a token, the first one behind the prompt.
    pub sampling: Vec<Nanos>,
}

impl JoinedStages {
    /// All of some times together.
    pub fn sum(times: &[Nanos]) -> Nanos {
        times.iter().copied().fold(Nanos(0), Nanos::saturating_add)
    }

    /// Everything until the first token is known.
    pub fn first_token(&self) -> Nanos {
        let prefill = [
            &self.base_embedding,
            &self.base_prefill,
            &self.teacher_embedding,
            &self.teacher_prefill,
            &self.projector,
            &self.last_token_prefill,
        ];
        let first = self.sampling.first().copied().unwrap_or_default();
        prefill.into_iter().map(|times| Self::sum(times)).fold(first, Nanos::saturating_add)
    }
}

/// The takes of a trace that have such stages, in their order. Where a device has stages of its own, these are told.
pub fn joined_stages(trace: &Trace) -> Vec<JoinedStages> {
    let Some(track) = track_of_takes(trace) else { return Vec::new() };
    let mut takes: Vec<JoinedStages> = Vec::new();
    // Where a span lies in the list of takes; spans come behind those that they lie in.
    let mut take_of: std::collections::HashMap<SpanId, usize> = std::collections::HashMap::new();
    for span in trace.spans_on(track).filter(|span| !span.is_open) {
        if span.name == TAKE {
            take_of.insert(span.id, takes.len());
            takes.push(JoinedStages { total: span.duration, ..JoinedStages::default() });
            continue;
        }
        let Some(&at) = span.parent.and_then(|parent| take_of.get(&parent)) else { continue };
        take_of.insert(span.id, at);
        takes[at].add(span.name, span.duration);
    }
    takes.retain(|take| !take.projector.is_empty() || !take.last_token_prefill.is_empty());
    takes
}

/// The lap of a take.
const TAKE: &str = "take";

fn track_of_takes(trace: &Trace) -> Option<TrackId> {
    let has_takes = |id: &TrackId| trace.spans_on(*id).any(|span| span.name == TAKE);
    let mut with: Vec<(bool, TrackId)> = trace
        .tracks()
        .filter(|(id, _)| has_takes(id))
        .map(|(id, track)| (track.kind == TrackKind::Thread, id))
        .collect();
    with.sort_by_key(|(is_host, _)| *is_host);
    with.first().map(|(_, id)| *id)
}

impl JoinedStages {
    fn add(&mut self, name: &str, duration: Nanos) {
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
            "projector" => self.projector.push(duration),
            "fuse_keys" | "fuse_values" => self.paths.push(duration),
            "last_token_prefill" => self.last_token_prefill.push(duration),
            "token" => self.steps.push(duration),
            "sampling" => self.sampling.push(duration),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use laptime_trace::{LAP, TraceBuilder};

    use super::*;

    #[test]
    fn a_prefill_is_told_without_its_embedding_and_stages_outside_of_takes_are_not() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 10, "main");
        let mut span = |start, length, name: &str, category: &str| {
            builder.span(main, Nanos(start), Nanos(length), name, category);
        };
        span(0, 50, "base_prefill", "");
        for start in [100, 300] {
            span(start, 150, "take", LAP);
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
        let takes = joined_stages(&builder.build().unwrap());
        assert_eq!(takes.len(), 2);
        let take = &takes[1];
        assert_eq!((&take.base_prefill[..], &take.base_embedding[..]), (&[Nanos(15)][..], &[Nanos(5)][..]));
        assert_eq!((&take.paths[..], &take.steps[..]), (&[Nanos(10)][..], &[Nanos(9)][..]));
        assert!(take.teacher_embedding.is_empty());
        assert_eq!(
            (take.total, take.first_token(), JoinedStages::sum(&take.sampling)),
            (Nanos(150), Nanos(100), Nanos(3))
        );
    }

    #[test]
    fn a_trace_of_something_else_has_none() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 10, "main");
        builder.span(main, Nanos(0), Nanos(9), "take", LAP);
        assert!(joined_stages(&builder.build().unwrap()).is_empty());
    }
}
