//! The subscriber: `tracing` without a registry.

use std::cell::Cell;

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Interest, LevelFilter, Metadata};

use super::fields::{gather, record_late};
use super::slots::{self, Place};
use super::{callsite::site_of, entered};
use crate::{attach::recording, guard::point, site::Site, word::CODE_MASK};

/// Records all spans and events up to a level, while something records.
///
/// It has neither a registry nor a current span, which makes it fast but not composable; use [`Layer`](super::Layer)
/// with other layers.
#[derive(Debug, Clone)]
pub struct Subscriber {
    most_verbose: LevelFilter,
}

impl Default for Subscriber {
    fn default() -> Self {
        Self { most_verbose: LevelFilter::TRACE }
    }
}

impl Subscriber {
    /// A subscriber that records every level.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ignores spans and events more verbose than `level`.
    pub fn with_max_level(mut self, level: impl Into<LevelFilter>) -> Self {
        self.most_verbose = level.into();
        self
    }
}

/// A span's id: site in 20 bits, place of its fields in 22 (or none), and a count that makes it unique on its thread.
const PLACE_SHIFT: u32 = 20;
const COUNT_SHIFT: u32 = 42;
const NO_PLACE: u64 = (1 << (COUNT_SHIFT - PLACE_SHIFT)) - 1;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn number(site: u32, place: u64) -> Id {
    let count = COUNT.get().wrapping_add(1);
    COUNT.set(count);
    let number = (count << COUNT_SHIFT) | (place << PLACE_SHIFT) | u64::from(site);
    // A site number is never zero, except where the table of sites is full.
    Id::from_u64(number.max(1))
}

fn site_in(id: &Id) -> u32 {
    (id.into_u64() & CODE_MASK) as u32
}

fn place_in(id: &Id) -> Option<Place> {
    let place = (id.into_u64() >> PLACE_SHIFT) & NO_PLACE;
    (place != NO_PLACE).then_some(place as Place)
}

impl tracing_core::Subscriber for Subscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.most_verbose < *metadata.level() {
            return Interest::never();
        }
        // Whether something records can change; checking it each time is one load.
        Interest::sometimes()
    }

    #[inline]
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        recording() && *metadata.level() <= self.most_verbose
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most_verbose)
    }

    #[inline]
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let site: &'static Site = site_of(span.metadata());
        if site.fields.is_empty() {
            return number(site.code(), NO_PLACE);
        }
        let place = gather(site.fields.len(), |fields| span.record(fields), slots::keep);
        number(site.code(), u64::from(place))
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let (Some(place), Some(site)) = (place_in(id), crate::site(site_in(id))) else { return };
        gather(
            site.fields.len(),
            |fields| values.record(fields),
            |fields| {
                slots::update(place, fields);
                if entered::is_in(id.into_u64()) {
                    record_late(site_in(id), fields);
                }
            },
        );
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let site = site_of(event.metadata());
        gather(site.fields.len(), |fields| event.record(fields), |fields| point(site, fields));
    }

    #[inline]
    fn enter(&self, id: &Id) {
        match place_in(id) {
            None => entered::enter(id.into_u64(), site_in(id), &()),
            Some(place) => slots::with_fields(place, |fields| entered::enter(id.into_u64(), site_in(id), fields)),
        }
    }

    #[inline]
    fn exit(&self, id: &Id) {
        entered::exit(id.into_u64());
    }

    fn clone_span(&self, id: &Id) -> Id {
        if let Some(place) = place_in(id) {
            slots::clone(place);
        }
        id.clone()
    }

    #[inline]
    fn try_close(&self, id: Id) -> bool {
        place_in(&id).is_none_or(slots::close)
    }
}
