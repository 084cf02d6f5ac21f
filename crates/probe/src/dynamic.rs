//! Marks whose names and fields are only known at run time, for bindings of other languages.
//!
//! ```
//! use laptime_probe::{FieldValue, SiteKind, dynamic};
//!
//! let site = dynamic::site(SiteKind::Stage, "prefill", "", "run.py", 7, &["tokens"]);
//! let open = dynamic::enter(site, &[FieldValue::Int(512)]);
//! // … the work
//! if let Some(open) = open {
//!     dynamic::exit(&open);
//! }
//! ```

use std::sync::Arc;

use crate::device::{Lane, LaneState};
use crate::field::{Field, FieldTuple};
use crate::guard::{self, LaneSpan, Span, exit_ring};
use crate::site::{Site, SiteKind};
use crate::{attach::Local, clock::now, decode::FieldValue, ring::Push, word::MOST_FIELDS};

/// Creates a site that lives as long as the process; each call creates another one. Fields after the fifteenth are left
/// out.
pub fn site(kind: SiteKind, name: &str, unit: &str, file: &str, line: u32, fields: &[&str]) -> &'static Site {
    let leak = |text: &str| &*String::leak(text.to_owned());
    let fields: Vec<&'static str> = fields.iter().take(MOST_FIELDS).map(|name| leak(name)).collect();
    Box::leak(Box::new(Site::new(kind, leak(name), leak(unit), "", leak(file), line, fields.leak())))
}

/// An open span. Unlike a guard it may be stored anywhere; leaving it on another thread has no effect, and the span then
/// ends with its thread.
#[derive(Debug)]
pub struct Open {
    site: u32,
    attachment: u32,
    thread: usize,
    lane: Option<Arc<LaneState>>,
}

/// Enters a span on this thread; none if it is not recorded.
pub fn enter(site: &'static Site, fields: &[FieldValue]) -> Option<Open> {
    let (site, attachment) = Span::into_parts(guard::enter(site, &Values(fields)))?;
    Some(Open { site, attachment, thread: Local::address(), lane: None })
}

/// Enters a span on a lane; none if it is not recorded.
pub fn enter_on(site: &'static Site, lane: &Lane, fields: &[FieldValue]) -> Option<Open> {
    let (site, attachment, lane) = LaneSpan::into_parts(guard::enter_on(site, lane, &Values(fields)))?;
    Some(Open { site, attachment, thread: Local::address(), lane: Some(lane) })
}

/// Leaves a span.
pub fn exit(open: &Open) {
    if open.thread != Local::address() {
        return;
    }
    match &open.lane {
        Some(lane) => guard::exit_lane(open.site, open.attachment, lane),
        None => {
            let ticks = now().0;
            Local::with_ring_of(open.attachment, |ring| exit_ring(ring, open.site, ticks));
        }
    }
}

/// Marks a moment, or a point of a curve if the site is that of a value.
pub fn point(site: &'static Site, fields: &[FieldValue]) {
    guard::point(site, &Values(fields));
}

/// The fields of one event.
struct Values<'a>(&'a [FieldValue]);

impl Values<'_> {
    fn kept(&self) -> &[FieldValue] {
        &self.0[..self.0.len().min(MOST_FIELDS)]
    }
}

impl FieldTuple for Values<'_> {
    fn words(&self) -> u64 {
        let shape = u64::from(!self.0.is_empty());
        shape + self.kept().iter().map(|value| field(value).words()).sum::<u64>()
    }

    fn put(&self, push: &mut Push<'_>) {
        if self.0.is_empty() {
            return;
        }
        let shape = |(at, value): (usize, &FieldValue)| (field(value).kind() as u64) << (4 * at);
        push.word(self.kept().iter().enumerate().map(shape).fold(0, |all, one| all | one));
        self.kept().iter().for_each(|value| field(value).put(push));
    }
}

fn field(value: &FieldValue) -> &dyn Field {
    match value {
        FieldValue::Int(number) => number,
        FieldValue::Uint(number) => number,
        FieldValue::Float(number) => number,
        FieldValue::Bool(is) => is,
        FieldValue::Str(text) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, RawKind, Recorder, events};

    #[test]
    fn a_span_entered_at_run_time_is_recorded_with_its_fields() {
        let recorder_site = site(SiteKind::Stage, "prefill", "", "run.py", 7, &["tokens", "who"]);
        let mut recorder = Recorder::new(Config::default());
        let entered = recorder.handle().enter();
        let fields = [FieldValue::Int(3), FieldValue::Str("a".to_owned())];
        let open = enter(recorder_site, &fields).unwrap();
        exit(&open);
        drop(entered);
        let mut batches = Vec::new();
        recorder.drain(&mut batches);
        let entered = |event: crate::RawEvent<'_>| match event.kind {
            RawKind::Enter { site, fields, .. } => Some((site.name, site.line, fields.collect::<Vec<_>>())),
            _ => None,
        };
        let seen: Vec<_> = batches.iter().flat_map(events).filter_map(entered).collect();
        assert_eq!(seen, [("prefill", 7, vec![("tokens", fields[0].clone()), ("who", fields[1].clone())])]);
    }

    #[test]
    fn nothing_is_entered_when_nothing_records() {
        assert!(enter(site(SiteKind::Stage, "idle", "", "", 0, &[]), &[]).is_none());
    }
}
