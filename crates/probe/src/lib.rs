#![doc = include_str!("../README.md")]

#[cfg(feature = "on")]
mod attach;
#[cfg(feature = "on")]
mod clock;
#[cfg(feature = "on")]
mod decode;
#[cfg(feature = "on")]
mod device;
#[cfg(feature = "on")]
pub mod dynamic;
#[cfg(feature = "on")]
mod field;
#[cfg(feature = "on")]
mod guard;
#[cfg(feature = "on")]
mod recorder;
#[cfg(feature = "on")]
mod ring;
#[cfg(feature = "simulated")]
#[path = "tests/simulated.rs"]
mod simulated;
#[cfg(feature = "on")]
mod site;
#[cfg(feature = "on")]
mod word;

#[cfg(feature = "tracing")]
pub mod tracing;

mod macros;
#[cfg(not(feature = "on"))]
mod off;
mod on_lane;

#[cfg(feature = "on")]
pub use self::{
    attach::{Entered, Handle, Paused, forget_after_fork, handle, pause, recording},
    clock::{Anchor, TickMap, Ticks, clock_name, has_invariant_counter, monotonic_nanos, now},
    decode::{FieldValue, Fields, LaneStamp, RawEvent, RawKind, events},
    device::{DeviceAnchor, DeviceClock, DeviceMoment, Lane, LaneId, Resolved, Stamp, lane},
    field::{Field, FieldKind},
    guard::{LaneSpan, Span},
    recorder::{Batch, Config, DefaultTaken, Recorder, ThreadIdentity},
    site::{Site, SiteKind, site},
};

#[cfg(feature = "simulated")]
pub use self::simulated::SimulatedDevice;

#[cfg(not(feature = "on"))]
pub use self::off::{Entered, Field, Handle, Lane, LaneSpan, Paused, Span, handle, pause, recording};

pub use self::on_lane::OnLane;

/// Internal API of the macros.
#[doc(hidden)]
pub mod __private {
    #[cfg(feature = "on")]
    pub use crate::{
        field::FieldTuple,
        guard::{enter, enter_on, point},
    };

    #[cfg(not(feature = "on"))]
    pub use crate::off::{check_field, check_lane};
}
