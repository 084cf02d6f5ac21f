//! The variants: ways to mark a span, and how each is set up and repeated.

use std::{hint::black_box, io, time::Instant};

use fastrace::{
    collector::{Config, Reporter, SpanContext, SpanRecord},
    local::LocalSpan,
};
use laptime_probe::stage;
use tracing::{info_span, subscriber::set_global_default};
use tracing_subscriber::{Layer, Registry, prelude::*};

/// A way to mark a span, or a baseline to compare it with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    Native,
    Subscriber,
    Layer,
    Chrome,
    Fastrace,
    EmptyLayer,
    Registry,
    Unsubscribed,
    Idle,
    TwoTicks,
    TwoInstants,
}

impl Variant {
    pub const ALL: [Self; 11] = [
        Self::Native,
        Self::Subscriber,
        Self::Layer,
        Self::Chrome,
        Self::Fastrace,
        Self::EmptyLayer,
        Self::Registry,
        Self::Unsubscribed,
        Self::Idle,
        Self::TwoTicks,
        Self::TwoInstants,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "laptime stage!",
            Self::Subscriber => "laptime Subscriber",
            Self::Layer => "laptime Layer",
            Self::Chrome => "tracing-chrome",
            Self::Fastrace => "fastrace",
            Self::EmptyLayer => "registry, empty layer",
            Self::Registry => "registry, bare",
            Self::Unsubscribed => "tracing, no subscriber",
            Self::Idle => "laptime stage!, idle",
            Self::TwoTicks => "two reads of our clock",
            Self::TwoInstants => "two Instant::now",
        }
    }

    /// Whether the spans go to a laptime recording.
    pub fn is_recorded(self) -> bool {
        matches!(self, Self::Native | Self::Subscriber | Self::Layer)
    }

    /// Whether it is a clock, without fields or depth.
    pub fn is_clock(self) -> bool {
        matches!(self, Self::TwoTicks | Self::TwoInstants)
    }

    /// Spans per timed chunk: about a millisecond, so that most chunks are not disturbed by other programs.
    ///
    /// More for tracing-chrome, whose queue absorbs a short burst at half the cost of a long one.
    pub fn chunk(self) -> u64 {
        match self {
            Self::Layer | Self::EmptyLayer | Self::Fastrace | Self::Registry => 6_000,
            Self::Chrome => 12_000,
            _ => 24_000,
        }
    }

    /// Sets up the process; the returned value is kept until the end.
    pub fn set_up(self) -> Box<dyn std::any::Any> {
        const ONCE: &str = "a sample's process sets its subscriber once";
        match self {
            Self::Subscriber => set_global_default(laptime_probe::tracing::Subscriber::new()).expect(ONCE),
            Self::Layer => {
                set_global_default(Registry::default().with(laptime_probe::tracing::Layer::new())).expect(ONCE);
            }
            Self::EmptyLayer => set_global_default(Registry::default().with(Empty)).expect(ONCE),
            Self::Registry => set_global_default(Registry::default()).expect(ONCE),
            Self::Chrome => {
                let builder = tracing_chrome::ChromeLayerBuilder::new().include_args(true);
                let (layer, guard) = builder.writer(io::sink()).build();
                set_global_default(Registry::default().with(layer)).expect(ONCE);
                return Box::new(guard);
            }
            Self::Fastrace => fastrace::set_reporter(Nowhere, Config::default()),
            _ => {}
        }
        Box::new(())
    }

    /// Records `spans` spans, nested `depth` deep.
    pub fn repeat(self, spans: u64, depth: u32, fields: bool) {
        match (self, fields) {
            (Self::Native | Self::Idle, false) => nest(spans, depth, |_| stage!("bench")),
            (Self::Native | Self::Idle, true) => nest(spans, depth, |i| stage!("bench", token = i, layer = 7_u64)),
            (Self::Fastrace, _) => repeat_fastrace(spans, depth, fields),
            (Self::TwoTicks, _) => nest(spans, depth, |_| Reading::new(laptime_probe::now)),
            (Self::TwoInstants, _) => nest(spans, depth, |_| Reading::new(Instant::now)),
            (_, false) => nest(spans, depth, |_| info_span!("bench").entered()),
            (_, true) => nest(spans, depth, |i| info_span!("bench", token = i, layer = 7_u64).entered()),
        }
    }
}

#[inline(always)]
fn nest<G>(spans: u64, depth: u32, open: impl Fn(u64) -> G) {
    if depth == 1 {
        for i in 0..spans {
            let _one = open(black_box(i));
        }
        return;
    }
    for i in 0..spans / 3 {
        let _one = open(black_box(i));
        let _two = open(black_box(i));
        let _three = open(black_box(i));
    }
}

/// A root holds at most 10,240 spans and drops the rest, so there is one root per thousand spans.
fn repeat_fastrace(spans: u64, depth: u32, fields: bool) {
    for _ in 0..spans / 1_000 {
        let root = fastrace::Span::root("batch", SpanContext::random());
        let _parent = root.set_local_parent();
        let open = || LocalSpan::enter_with_local_parent("bench");
        if fields {
            nest(1_000, depth, |i| open().with_properties(|| [("token", i.to_string()), ("layer", "7".to_owned())]));
        } else {
            nest(1_000, depth, |_| open());
        }
    }
}

/// Reads a clock when it is created and when it is dropped.
struct Reading<T, F: Fn() -> T> {
    first: T,
    clock: F,
}

impl<T, F: Fn() -> T> Reading<T, F> {
    #[inline(always)]
    fn new(clock: F) -> Self {
        Self { first: clock(), clock }
    }
}

impl<T, F: Fn() -> T> Drop for Reading<T, F> {
    #[inline(always)]
    fn drop(&mut self) {
        black_box((&self.first, (self.clock)()));
    }
}

/// A layer that does nothing: the minimum cost of any layer.
struct Empty;

impl<S: tracing::Subscriber> Layer<S> for Empty {}

/// A reporter that discards its input.
struct Nowhere;

impl Reporter for Nowhere {
    fn report(&mut self, _: Vec<SpanRecord>) {}
}
