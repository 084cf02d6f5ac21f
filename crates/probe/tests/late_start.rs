//! A recording that starts after a span was created. In a separate file, because recording is process-wide.

mod outline;

use laptime_probe::tracing::{Layer, Subscriber};
use outline::recorded;
use tracing::{Dispatch, dispatcher::with_default, info_span};
use tracing_subscriber::{Registry, prelude::*};

#[test]
fn a_span_created_before_the_recording_has_no_fields() {
    let layer = Dispatch::new(Registry::default().with(Layer::new()));
    let span = with_default(&layer, || info_span!("early", tokens = 3, text = "a"));
    let seen = recorded(|| {
        span.in_scope(|| span.record("tokens", 4));
        with_default(&layer, || info_span!("after", tokens = 5).in_scope(|| ()));
    });
    assert_eq!(seen, "early, then tokens=4\nafter tokens=5\n");

    // The subscriber is not asked to create spans while nothing records.
    let subscriber = Dispatch::new(Subscriber::new());
    let span = with_default(&subscriber, || info_span!("early", tokens = 3));
    assert!(span.is_disabled());
}
