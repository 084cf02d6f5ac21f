//! Finds the tokens, stages and layers of a trace.

use std::collections::{BTreeMap, HashMap};

use laptime_trace::{NameId, Span, SpanId, Trace, Value};

use super::names;
use crate::fields::whole;

/// Start and end.
pub(super) type TimeRange = (u64, u64);

/// The result.
#[derive(Debug, Clone, Default)]
pub(super) struct Gathered {
    /// The tokens in order of time.
    pub tokens: Vec<TimeRange>,
    /// The stages, each with its token.
    pub stages: Vec<Stage>,
    /// What happened to each layer in each forward pass.
    pub passes: BTreeMap<(u64, u64), Pass>,
}

/// A stage of a token.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stage {
    pub name: &'static str,
    pub token: usize,
    pub time: TimeRange,
    /// The same on the host.
    pub host: TimeRange,
}

/// What happened to one layer in one forward pass.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pass {
    /// The token in which it was needed.
    pub token: Option<usize>,
    /// When the host first reached it or its wait.
    pub reached: Option<u64>,
    /// When the host reached it.
    pub needed: Option<u64>,
    /// When the host issued its copy.
    pub issued: Option<u64>,
    /// How long the host took to issue it.
    pub issuing: Option<u64>,
    pub copy: Option<TimeRange>,
    pub bytes: Option<u64>,
    pub pinned: Option<bool>,
    pub wait: Option<TimeRange>,
    pub compute: Option<TimeRange>,
    pub release: Option<TimeRange>,
    /// Waits are taken from the device: the time between a wait and its layer belongs to the host.
    pub is_on_device: bool,
}

/// The stages of a token.
const STAGES: [&str; 8] = [
    names::POSITIVE,
    names::NEGATIVE,
    names::TRANSFORMER,
    names::DIFFUSION,
    names::AUDIO_DECODE,
    names::SEMANTIC_ENCODE,
    names::CLEAR_CACHE,
    names::ALLOCATE,
];

/// Marks of a layer.
const OF_LAYERS: [&str; 5] =
    [names::LAYER_WAIT, names::LAYER, names::LAYER_RELEASE, names::LAYER_COPY, names::LAYER_ISSUE];

/// Reads a trace once.
pub(super) fn gather(trace: &Trace) -> Gathered {
    let mut found = Gathered { tokens: tokens(trace), ..Gathered::default() };
    let known: HashMap<NameId, &'static str> =
        STAGES.into_iter().chain(OF_LAYERS).filter_map(|name| Some((trace.known_name(name)?, name))).collect();
    let on_device = on_device(trace, &known);
    for span in trace.spans().filter(|span| !trace.track(span.track).kind.is_device()) {
        let Some(&name) = known.get(&trace.span_name(span.id)) else { continue };
        let host = (span.start.0, span.end().0);
        let device = on_device.get(&span.id).copied();
        if OF_LAYERS.contains(&name) {
            found.add_to_layer(name, &span, host, device);
        } else if let Some(token) = found.token_at(host.0) {
            found.stages.push(Stage { name, token, time: device.unwrap_or(host), host });
        }
    }
    found
}

fn tokens(trace: &Trace) -> Vec<TimeRange> {
    let Some(name) = trace.known_name(names::TOKEN) else { return Vec::new() };
    let named = trace.spans().filter(|span| trace.span_name(span.id) == name);
    let on_host = named.filter(|span| !trace.track(span.track).kind.is_device());
    let mut found: Vec<TimeRange> = on_host.map(|span| (span.start.0, span.end().0)).collect();
    found.sort_unstable();
    found
}

/// The device work of host spans that match a filter.
fn on_device(trace: &Trace, known: &HashMap<NameId, &'static str>) -> HashMap<SpanId, TimeRange> {
    let flows = trace.flows().iter().filter(|flow| known.contains_key(&trace.span_name(flow.from)));
    let to_device = flows.filter(|flow| trace.track(trace.span_track(flow.to)).kind.is_device());
    let mut found: HashMap<SpanId, TimeRange> = HashMap::new();
    for flow in to_device {
        let time = (trace.span_start(flow.to).0, trace.span_end(flow.to).0);
        let whole = found.entry(flow.from).or_insert(time);
        *whole = (whole.0.min(time.0), whole.1.max(time.1));
    }
    found
}

impl Gathered {
    /// The token that contains a moment.
    fn token_at(&self, moment: u64) -> Option<usize> {
        let after = self.tokens.partition_point(|(start, _)| *start <= moment);
        let at = after.checked_sub(1)?;
        (moment <= self.tokens[at].1).then_some(at)
    }

    fn add_to_layer(&mut self, name: &'static str, span: &Span<'_>, host: TimeRange, device: Option<TimeRange>) {
        let (Some(layer), Some(forward)) =
            (whole(&span.fields, names::FIELD_LAYER), whole(&span.fields, names::FIELD_FORWARD))
        else {
            return;
        };
        let token = self.token_at(host.0);
        let pass = self.passes.entry((forward, layer)).or_default();
        let time = device.unwrap_or(host);
        if matches!(name, names::LAYER_WAIT | names::LAYER) {
            pass.reached = Some(pass.reached.map_or(host.0, |known| known.min(host.0)));
        }
        match name {
            names::LAYER_WAIT => {
                (pass.wait, pass.needed, pass.is_on_device) = (Some(time), Some(host.0), device.is_some());
                pass.token = token;
            }
            names::LAYER => {
                pass.compute = Some(time);
                pass.token = pass.token.or(token);
            }
            names::LAYER_RELEASE => pass.release = Some(time),
            names::LAYER_ISSUE => pass.issued = Some(host.0),
            _ => pass.add_copy(span, host, device),
        }
    }
}

impl Pass {
    fn add_copy(&mut self, span: &Span<'_>, host: TimeRange, device: Option<TimeRange>) {
        self.copy = Some(device.unwrap_or(host));
        self.issued = self.issued.or(Some(host.0));
        self.issuing = device.map(|_| host.1.saturating_sub(host.0));
        self.bytes = whole(&span.fields, names::FIELD_BYTES);
        self.pinned = match span.fields.get(names::FIELD_PINNED) {
            Some(Value::Bool(pinned)) => Some(pinned),
            _ => None,
        };
    }
}
