//! The rarer Perfetto messages that we read and write, with Perfetto's field numbers; `packet` reads events and `encode`
//! writes them.
//!
//! Text is read as bytes: a name in another tool's trace may be invalid UTF-8, which must not cost its packet.

use prost::Message;

/// Declares messages: the type, the label and the number of each field, and the field in Rust.
macro_rules! messages {
    ($($name:ident {
        $($kind:ident $(= $how:tt)?, $label:ident, $tag:tt: $field:ident: $type:ty;)*
    })*) => {
        $(
            #[derive(Clone, PartialEq, Message)]
            pub struct $name {
                $(#[prost($kind $(= $how)?, $label, tag = $tag)] pub $field: $type,)*
            }
        )*
    };
}

messages! {
    TracePacket {
        message, optional, "5": chrome_events: Option<ChromeEventBundle>;
        message, optional, "6": clock_snapshot: Option<ClockSnapshot>;
        uint64, optional, "8": timestamp: Option<u64>;
        uint32, optional, "10": sequence: Option<u32>;
        message, optional, "12": interned_data: Option<InternedData>;
        uint32, optional, "13": sequence_flags: Option<u32>;
        bytes = "vec", optional, "50": compressed_packets: Option<Vec<u8>>;
        uint32, optional, "58": timestamp_clock_id: Option<u32>;
        message, optional, "59": defaults: Option<PacketDefaults>;
        message, optional, "60": track_descriptor: Option<TrackDescriptor>;
    }
    InternedName {
        uint64, optional, "1": iid: Option<u64>;
        bytes = "vec", optional, "2": name: Option<Vec<u8>>;
    }
    InternedData {
        message, repeated, "1": event_categories: Vec<InternedName>;
        message, repeated, "2": event_names: Vec<InternedName>;
        message, repeated, "3": annotation_names: Vec<InternedName>;
        message, repeated, "29": annotation_strings: Vec<InternedName>;
    }
    Clock {
        uint32, optional, "1": clock_id: Option<u32>;
        uint64, optional, "2": timestamp: Option<u64>;
        bool, optional, "3": is_incremental: Option<bool>;
        uint64, optional, "4": unit_multiplier_ns: Option<u64>;
    }
    ClockSnapshot {
        message, repeated, "1": clocks: Vec<Clock>;
    }
    TrackEventDefaults {
        uint64, optional, "11": track_uuid: Option<u64>;
    }
    PacketDefaults {
        message, optional, "11": track_event_defaults: Option<TrackEventDefaults>;
        uint32, optional, "58": timestamp_clock_id: Option<u32>;
    }
    ProcessDescriptor {
        int64, optional, "1": pid: Option<i64>;
        bytes = "vec", optional, "6": process_name: Option<Vec<u8>>;
    }
    ThreadDescriptor {
        int64, optional, "1": pid: Option<i64>;
        int64, optional, "2": tid: Option<i64>;
        bytes = "vec", optional, "5": thread_name: Option<Vec<u8>>;
    }
    CounterDescriptor {
        int32, optional, "3": unit: Option<i32>;
        bytes = "vec", optional, "6": unit_name: Option<Vec<u8>>;
    }
    TrackDescriptor {
        uint64, optional, "1": uuid: Option<u64>;
        bytes = "vec", optional, "2": name: Option<Vec<u8>>;
        message, optional, "3": process: Option<ProcessDescriptor>;
        message, optional, "4": thread: Option<ThreadDescriptor>;
        uint64, optional, "5": parent_uuid: Option<u64>;
        message, optional, "8": counter: Option<CounterDescriptor>;
        bytes = "vec", optional, "10": static_name: Option<Vec<u8>>;
        bytes = "vec", optional, "14": description: Option<Vec<u8>>;
    }
    ChromeMetadata {
        bytes = "vec", optional, "1": name: Option<Vec<u8>>;
        bytes = "vec", optional, "2": string_value: Option<Vec<u8>>;
        int64, optional, "4": int_value: Option<i64>;
    }
    ChromeEventBundle {
        message, repeated, "2": metadata: Vec<ChromeMetadata>;
    }
}

pub const SLICE_BEGIN: u64 = 1;
pub const SLICE_END: u64 = 2;
pub const INSTANT: u64 = 3;
pub const COUNTER: u64 = 4;

impl Clock {
    /// A clock's time in nanoseconds.
    pub fn at(id: u32, timestamp: u64) -> Self {
        Self { clock_id: Some(id), timestamp: Some(timestamp), ..Self::default() }
    }
}

impl ChromeMetadata {
    /// An entry that is text.
    pub fn text(name: &str, value: &str) -> Self {
        Self { name: Some(name.into()), string_value: Some(value.into()), int_value: None }
    }

    /// An entry that is a number.
    pub fn number(name: &str, value: i64) -> Self {
        Self { name: Some(name.into()), string_value: None, int_value: Some(value) }
    }
}
