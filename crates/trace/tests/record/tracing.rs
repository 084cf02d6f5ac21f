//! `tracing` spans and events reach the same file.

use laptime_probe::tracing::Subscriber;
use tracing::{field::Empty, info, info_span, subscriber::with_default};

use crate::alone::{alone, on_thread, shape};

#[test]
fn spans_keep_fields_that_came_late() {
    let alone = alone();
    let (trace, _) = alone.record(|| {
        on_thread("pipeline", || {
            with_default(Subscriber::new(), || {
                let load = info_span!("load", model = "tiny", bytes = Empty, shards = 1);
                let _entered = load.enter();
                let _inner = info_span!("inner").entered();
                load.record("bytes", 4_096);
                load.record("shards", 2);
            });
        });
    });
    assert_eq!(shape(&trace, "pipeline"), "load  model=tiny  shards=2  bytes=4096\n  inner\n");
}

#[test]
fn events_of_target_gpu_sync_are_marks_that_say_where_they_belong() {
    let alone = alone();
    let mut line = 0;
    let (trace, _) = alone.record(|| {
        on_thread("pipeline", || {
            with_default(Subscriber::new(), || {
                let _decode = info_span!("decode").entered();
                line = line!() + 1;
                info!(name: "read_token", target: "gpu_sync", bytes = 4);
                info!(answer = 42, "an event with a message");
            });
        });
    });
    let expected = format!(
        "decode
! sync:read_token  bytes=4  file={}  line={line}  stage=decode
! an event with a message  message=an event with a message  answer=42
",
        file!()
    );
    assert_eq!(shape(&trace, "pipeline"), expected);
}
