//! A layer that records in addition to other layers over a registry.

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::{layer::Context, registry::LookupSpan};

use super::fields::{Gathered, Words, gather, record_late};
use super::{callsite::site_of, entered};
use crate::{attach::recording, field::FieldTuple, guard::point, word::MOST_FIELDS};

/// Records the spans and events that a `tracing-subscriber` registry sees, while something records.
///
/// ```
/// use tracing_subscriber::prelude::*;
/// let _guard = tracing_subscriber::registry().with(laptime_probe::tracing::Layer::new()).set_default();
/// let _span = tracing::info_span!("prefill", tokens = 512).entered();
/// ```
#[derive(Debug, Clone, Default)]
pub struct Layer(());

impl Layer {
    /// A layer that records whatever reaches it; filter it with `tracing-subscriber`'s own filters.
    pub fn new() -> Self {
        Self::default()
    }
}

/// The fields of a span as words, stored with the span in the registry; few words are stored without an allocation.
enum KeptFields {
    Few(usize, [u64; FEW]),
    Many(Box<[u64]>),
}

/// The words of fields without values, for a span created before anything recorded.
const ABSENT: [u64; 1 + MOST_FIELDS] = [0; 1 + MOST_FIELDS];

/// Words of the shape and five fields.
const FEW: usize = 6;

impl KeptFields {
    #[inline]
    fn new(fields: &Gathered) -> Self {
        let length = fields.words() as usize;
        if length > FEW {
            return Self::Many(fields.to_words());
        }
        let mut words = [0; FEW];
        let mut places = words.iter_mut();
        fields.each_word(|word| {
            if let Some(place) = places.next() {
                *place = word;
            }
        });
        Self::Few(length, words)
    }

    fn words(&self) -> &[u64] {
        match self {
            Self::Few(length, words) => &words[..*length],
            Self::Many(words) => words,
        }
    }
}

impl<S> tracing_subscriber::Layer<S> for Layer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, span: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let site = site_of(span.metadata());
        if site.fields.is_empty() || !recording() {
            return;
        }
        if let Some(kept) = context.span(id) {
            gather(
                site.fields.len(),
                |fields| span.record(fields),
                |fields| kept.extensions_mut().insert(KeptFields::new(fields)),
            );
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id).filter(|_| recording()) else { return };
        let site = site_of(span.metadata());
        gather(
            site.fields.len(),
            |fields| values.record(fields),
            |later| {
                if let Some(kept) = span.extensions_mut().get_mut::<KeptFields>() {
                    *kept = KeptFields::new(&Gathered::updated(kept.words(), later));
                }
                if entered::is_in(id.into_u64()) {
                    record_late(site.code(), later);
                }
            },
        );
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if recording() {
            let site = site_of(event.metadata());
            gather(site.fields.len(), |fields| event.record(fields), |fields| point(site, fields));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id).filter(|_| recording()) else { return };
        let site = site_of(span.metadata());
        if site.fields.is_empty() {
            return entered::enter(id.into_u64(), site.code(), &());
        }
        let extensions = span.extensions();
        match extensions.get::<KeptFields>() {
            Some(kept) => entered::enter(id.into_u64(), site.code(), &Words(kept.words())),
            None => entered::enter(id.into_u64(), site.code(), &Words(&ABSENT[..=site.fields.len()])),
        }
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        entered::exit(id.into_u64());
    }
}
