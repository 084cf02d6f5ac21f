//! Which flows of a written file are stored on the spans themselves.
//!
//! A span may have one `bind_id`, shared by the spans that it leads to. That needs a quarter of the bytes of two
//! separate events, which are used only for flows that do not fit this scheme.

use crate::trace::{Flow, Trace};

/// The flow information of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    None,
    /// It leads to all spans with `In` and this number.
    Out(usize),
    In(usize),
}

/// The flows of a trace, as written.
#[derive(Debug)]
pub struct Ties {
    /// By span; empty where there are no flows.
    of_span: Vec<Tie>,
    /// Flows that are separate events.
    pub apart: Vec<Flow>,
}

impl Ties {
    pub fn of(trace: &Trace) -> Self {
        let spans = if trace.flows().is_empty() { 0 } else { trace.span_count() };
        let mut ties = Self { of_span: vec![Tie::None; spans], apart: Vec::new() };
        let mut last = 0;
        for flow in trace.flows() {
            let (from, to) = (flow.from.index(), flow.to.index());
            match (ties.of_span[from], ties.of_span[to]) {
                (Tie::None, Tie::None) if leads_forward(trace, *flow) => {
                    last += 1;
                    (ties.of_span[from], ties.of_span[to]) = (Tie::Out(last), Tie::In(last));
                }
                (Tie::Out(known), Tie::None) if leads_forward(trace, *flow) => ties.of_span[to] = Tie::In(known),
                _ => ties.apart.push(*flow),
            }
        }
        ties
    }

    /// The flow information of a span. Perfetto numbers flows that are separate events from zero, so these come after
    /// them.
    pub fn of_span(&self, span: usize) -> Tie {
        let behind = self.apart.len();
        match self.of_span.get(span).copied().unwrap_or(Tie::None) {
            Tie::None => Tie::None,
            Tie::Out(number) => Tie::Out(number + behind),
            Tie::In(number) => Tie::In(number + behind),
        }
    }
}

/// Whether viewers, which sort by time and then by file position, see the start before the end.
fn leads_forward(trace: &Trace, flow: Flow) -> bool {
    let place = |span| (trace.span(span).start, span);
    place(flow.from) < place(flow.to)
}
