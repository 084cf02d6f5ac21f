//! Which flows a written file tells on the spans themselves.
//!
//! A span may carry one `bind_id`: the spans that it leads to carry the same. That takes a quarter of the bytes of two
//! events of their own, which only flows have that find no place so.

use crate::trace::{Flow, Trace};

/// What a span says of the flows that it has a part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    None,
    /// It leads to all spans that say `In` with this number.
    Out(usize),
    In(usize),
}

/// The flows of a trace, as they are written.
#[derive(Debug)]
pub struct Ties {
    /// By span; empty where there are no flows.
    of_span: Vec<Tie>,
    /// Flows that are events of their own.
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

    /// What a span says. Perfetto numbers flows that are events of their own from zero on among the others, so these
    /// come behind.
    pub fn of_span(&self, span: usize) -> Tie {
        let behind = self.apart.len();
        match self.of_span.get(span).copied().unwrap_or(Tie::None) {
            Tie::None => Tie::None,
            Tie::Out(number) => Tie::Out(number + behind),
            Tie::In(number) => Tie::In(number + behind),
        }
    }
}

/// Whether viewers, who go by time and then by place in the file, see the beginning before the end.
fn leads_forward(trace: &Trace, flow: Flow) -> bool {
    let place = |span| (trace.span(span).start, span);
    place(flow.from) < place(flow.to)
}
