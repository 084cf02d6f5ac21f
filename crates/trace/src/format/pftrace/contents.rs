//! What a Perfetto file contains besides track events, which are the only data read.

use std::collections::BTreeMap;

use prost::bytes::Buf;
use prost::encoding::{DecodeContext, decode_key, skip_field};

/// Packets by the field of their data.
#[derive(Debug, Default)]
pub struct Contents(BTreeMap<u32, u64>);

/// The names of packet fields, by Perfetto's field numbers.
const KINDS: [(u32, &str); 24] = [
    (1, "ftrace events"),
    (2, "process trees"),
    (4, "inode maps"),
    (6, "clock snapshots"),
    (7, "system statistics"),
    (9, "process statistics"),
    (33, "the trace configuration"),
    (34, "ftrace statistics"),
    (35, "trace statistics"),
    (37, "heap profiles"),
    (38, "battery counters"),
    (39, "Android log messages"),
    (40, "power rails"),
    (45, "system information"),
    (49, "Perfetto's own events"),
    (52, "GPU counters"),
    (53, "GPU render stages"),
    (54, "sampled stacks"),
    (56, "heap graphs"),
    (57, "graphics frames"),
    (66, "perf samples"),
    (67, "CPU information"),
    (71, "GPU memory totals"),
    (133, "packets compressed with zstd"),
];

/// Fields of every packet that do not determine its kind.
const FRAME: [u32; 9] = [3, 8, 10, 12, 13, 41, 42, 58, 59];

impl Contents {
    /// Counts a packet without readable data.
    pub fn count(&mut self, packet: &[u8]) {
        let mut rest = packet;
        while rest.has_remaining() {
            let Ok((field, wire)) = decode_key(&mut rest) else { return };
            if !FRAME.contains(&field) {
                *self.0.entry(field).or_default() += 1;
                return;
            }
            if skip_field(wire, field, &mut rest, DecodeContext::default()).is_err() {
                return;
            }
        }
    }

    /// A summary of the counts, the most frequent kinds first; none if there are none.
    pub fn words(&self) -> Option<String> {
        const NAMED: usize = 5;
        let mut counted: Vec<(&str, u64)> = Vec::new();
        for (&field, &packets) in &self.0 {
            let kind = KINDS.iter().find(|(known, _)| *known == field).map_or("other data", |(_, words)| *words);
            match counted.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, sum)) => *sum += packets,
                None => counted.push((kind, packets)),
            }
        }
        counted.sort_by_key(|&(_, packets)| std::cmp::Reverse(packets));
        let packets = |count: u64| if count == 1 { "1 packet".to_owned() } else { format!("{count} packets") };
        let words = counted.iter().take(NAMED).map(|&(kind, count)| format!("{kind} ({})", packets(count)));
        let mut words: Vec<String> = words.collect();
        if counted.len() > NAMED {
            words.push("and more".to_owned());
        }
        (!words.is_empty()).then(|| words.join(", "))
    }
}
