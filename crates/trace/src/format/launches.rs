//! Connects device work with the calls that launched it, by correlation id.

use crate::builder::{SpanEntry, TraceBuilder};

/// Calls and work by correlation id.
///
/// A graph launch is one call with hundreds of kernels. An id may repeat (several processes in one file, a counter that
/// wrapped around): the work then belongs to the last call that began before it.
#[derive(Debug, Default)]
pub struct Launches {
    calls: Vec<(u64, SpanEntry)>,
    work: Vec<(u64, SpanEntry)>,
}

impl Launches {
    pub fn call(&mut self, correlation: u64, span: SpanEntry) {
        self.calls.push((correlation, span));
    }

    pub fn work(&mut self, correlation: u64, span: SpanEntry) {
        self.work.push((correlation, span));
    }

    /// Whether calls and work were seen, so that correlation ids determine the flows.
    pub fn are_known(&self) -> bool {
        !self.calls.is_empty() && !self.work.is_empty()
    }

    /// Connects them; returns the amount of work with an id that no call has.
    pub fn connect(mut self, builder: &mut TraceBuilder) -> u64 {
        let start = |span: SpanEntry| builder.start_of(span);
        self.calls.sort_unstable_by_key(|&(correlation, span)| (correlation, start(span), span));
        let mut flows = Vec::with_capacity(self.work.len());
        let mut unexplained = 0;
        let mut first = 0;
        for &(correlation, work) in &self.work {
            // Work mostly comes in the order of its calls.
            first += self.calls[first..].iter().take(2).take_while(|&&(known, _)| known < correlation).count();
            let is_before = |at: usize| self.calls.get(at).is_some_and(|&(known, _)| known < correlation);
            if is_before(first) || first > 0 && !is_before(first - 1) {
                first = self.calls.partition_point(|&(known, _)| known < correlation);
            }
            let is_alone = self.calls.get(first + 1).is_none_or(|&(known, _)| known > correlation);
            let same = &self.calls[first..];
            let same = match is_alone {
                true => &same[..same.iter().take(1).filter(|&&(known, _)| known == correlation).count()],
                false => &same[..same.partition_point(|&(known, _)| known == correlation)],
            };
            let before = same.partition_point(|&(_, call)| start(call) <= start(work));
            match same.get(before.saturating_sub(1)) {
                Some(&(_, call)) => flows.push((call, work)),
                None => unexplained += 1,
            }
        }
        flows.into_iter().for_each(|(call, work)| builder.flow(call, work));
        unexplained
    }
}
