//! Files with corrupted bytes.

use proptest::{prelude::*, sample::Index};

use crate::{
    any_trace::{any_trace, seeded},
    complete_trace::complete_trace,
    heap::peak_of,
    many_blocks, read, samples, uncompressed, written,
};
use laptime_trace::{Format, Trace};

/// The maximum memory for reading a file of a few kilobytes, whatever its content.
const MOST_HELD: usize = 4 << 20;

/// The flipped bits; fewer in unoptimised builds, where each file takes milliseconds.
const CHANGES: &[u8] = if cfg!(debug_assertions) { &[0xff] } else { &[0x01, 0x02, 0x08, 0x20, 0x80, 0xff] };

#[test]
fn a_wrong_byte_anywhere_breaks_nothing() {
    for (name, bytes) in samples() {
        for at in 0..bytes.len() {
            for change in CHANGES {
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                let (_, held) = peak_of(|| read(&damaged).is_ok());
                assert!(held < MOST_HELD, "{name} with byte {at} changed by {change:#x} took {held} bytes");
            }
        }
    }
}

/// A change to a file.
#[derive(Debug, Clone)]
enum Change {
    Set(Index, u8),
    Remove(Index, usize),
    Repeat(Index, usize),
    Insert(Index, Vec<u8>),
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        1 => (any::<Index>(), 1_usize..40).prop_map(|(at, count)| Change::Remove(at, count)),
        1 => (any::<Index>(), 1_usize..40).prop_map(|(at, count)| Change::Repeat(at, count)),
        1 => (any::<Index>(), prop::collection::vec(any::<u8>(), 1..12)).prop_map(|(at, new)| Change::Insert(at, new)),
    ]
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let (Self::Set(at, _) | Self::Remove(at, _) | Self::Repeat(at, _) | Self::Insert(at, _)) = self;
        let at = at.index(bytes.len() + 1);
        let within = |count: &usize| at..(at + count).min(bytes.len());
        match self {
            Self::Set(_, new) => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = *new),
            Self::Remove(_, count) => drop(bytes.drain(within(count))),
            Self::Repeat(_, count) => bytes.extend_from_within(within(count)),
            Self::Insert(_, new) => drop(bytes.splice(at..at, new.iter().copied())),
        }
    }
}

proptest! {
    #![proptest_config(seeded())]

    #[test]
    fn damage_of_any_kind_to_any_trace_breaks_nothing(
        trace in any_trace(),
        changes in prop::collection::vec(any_change(), 1..6),
    ) {
        let formats = [Format::Pftrace, Format::Chrome, Format::ChromeGz];
        let files = formats.map(|format| written(&trace.0, format)).into_iter().chain([uncompressed(&trace.0)]);
        for mut bytes in files {
            changes.iter().for_each(|change| change.apply(&mut bytes));
            let (_, held) = peak_of(|| read(&bytes).is_ok());
            prop_assert!(held < MOST_HELD + 40 * bytes.len(), "took {} bytes", held);
        }
    }
}

#[test]
fn a_wrong_bit_in_a_recording_is_reported_and_never_gives_a_wrong_span() {
    let bytes = many_blocks();
    let whole = read(&bytes).unwrap();
    let spans = |trace: &Trace| -> Vec<_> {
        let content = |span: laptime_trace::Span<'_>| {
            (span.name.to_owned(), span.start, span.fields.get("token").map(|v| v.to_string()))
        };
        trace.spans().map(content).collect()
    };
    let expected = spans(&whole);
    for place in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[place / 8] ^= 1 << (place % 8);
        let Ok(trace) = read(&damaged) else { continue };
        assert!(expected.starts_with(&spans(&trace)), "bit {place}: {}", trace.outline());
        assert!(trace == whole || !trace.warnings.is_empty(), "flipping bit {place} gave no warning");
    }
}

#[test]
fn damaged_gzip_data_are_reported() {
    let bytes = written(&complete_trace(), Format::ChromeGz);
    let whole = read(&bytes).unwrap();
    for place in 80..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[place / 8] ^= 1 << (place % 8);
        let Ok(trace) = read(&damaged) else { continue };
        assert!(trace == whole || !trace.warnings.is_empty(), "flipping bit {place} gave no warning");
    }
}
