//! What a JSON trace says of itself, and what there is to say when all its events were seen.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::{
    SCHEMA,
    document::{Document, End},
    meta,
    read::{At, Reader},
    tracks::OwnTrack,
    xprof,
};
use crate::{
    format::{NO_EVENTS, ReadError, Unsupported, counted, pairing::Unpaired},
    metadata::SOURCE,
    time::{Nanos, Origin},
    trace::Trace,
    track::TrackKind,
};

/// What was not read, by kind.
#[derive(Debug, Default)]
pub struct Counts {
    pub understood: u64,
    pub damaged: u64,
    pub strange: u64,
    pub replaced: u64,
    pub impossible_times: u64,
    pub misplaced: u64,
    pub lost_flows: u64,
    pub unexplained: u64,
    pub long_members: u64,
    pub other_phases: u64,
    pub phases: BTreeMap<u8, u64>,
}

impl Reader {
    /// Takes a metadata event.
    pub fn metadata(&mut self, at: At<'_>) -> Option<()> {
        if !at.row.has_fields {
            return None;
        }
        let int = |key: &str| at.int(at.batch.names.known(key));
        let builder = &mut self.builder;
        match at.batch.names.name(at.row.name) {
            "process_name" => {
                if self.is_ours {
                    builder.process(at.pid);
                }
                self.tracks.name_process(at.pid, at.text("name")?);
            }
            "process_labels" => self.tracks.label_process(at.pid, at.text("labels").unwrap_or_default()),
            "thread_name" => self.tracks.name_thread(at.pid, at.tid, at.text("name")?.trim_end(), builder),
            meta::TRACK => {
                let kind = TrackKind::from_words(at.text("kind")?)?;
                let (name, unit) = (at.text("name")?, at.text("unit").unwrap_or_default());
                let track = OwnTrack { kind, name, number: int("number"), device: int("device"), unit };
                self.tracks.describe(at.pid, at.tid, track, builder);
            }
            meta::LANE => self.tracks.lane(at.pid, at.tid, int("track_tid")?, builder),
            meta::TRACE => self.own_trace(at),
            _ => {}
        }
        Some(())
    }

    /// Takes what our own files say of the trace as a whole.
    fn own_trace(&mut self, at: At<'_>) {
        self.is_ours = true;
        let int = |key: &str| at.int(at.batch.names.known(key));
        let count = |key: &str| int(key).and_then(|count| u64::try_from(count).ok());
        let builder = &mut self.builder;
        builder.origin =
            Origin { name: at.text("origin").unwrap_or_default().to_owned(), unix_nanos: int("origin_unix_ns") };
        builder.clock_uncertainty = count("clock_uncertainty_ns").map(Nanos);
        builder.lost = count("lost").unwrap_or(0);
        let entries = at.text("metadata").and_then(|json| serde_json::from_str::<Map<String, Json>>(json).ok());
        for (key, json) in entries.unwrap_or_default() {
            builder.metadata.set(&key, json.as_str().unwrap_or_default());
        }
        if count("schema") > Some(SCHEMA) {
            let warning = "the trace was written by a newer laptime; some of it may be missing";
            builder.warnings.push(warning.to_owned());
        }
    }

    /// Makes the trace, or says why there is none.
    pub fn finish(mut self, document: &Document) -> Result<Trace, ReadError> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let end = document.finish();
        let counts = &self.counts;
        let found = match end {
            _ if counts.understood > 0 => "",
            _ if !document.found_events => "it is JSON without `traceEvents`",
            _ if counts.damaged > 0 || counts.strange > 0 => "none of its events can be understood",
            End::CutOff => "it is JSON cut off before its first event ends",
            End::Damaged(_) => "it is JSON damaged before its first event ends",
            _ => "",
        };
        if counts.understood == 0
            && let Some(known) = Unsupported::of_members(&self.members)
        {
            return Err(ReadError::Unsupported(known));
        }
        if !found.is_empty() {
            return Err(ReadError::NotATrace { found: found.to_owned() });
        }
        if !self.is_ours {
            self.builder.origin = self.origin();
        }
        let mut unpaired = Unpaired::default();
        let pairs = std::mem::take(&mut self.tracks.pairs).into_values();
        for pairs in pairs.chain(std::mem::take(&mut self.tracks.async_pairs).into_values()) {
            pairs.settle(self.last_time, &mut self.builder, &mut unpaired);
        }
        if !self.is_ours {
            xprof::settle(&mut self);
        }
        self.tracks.name_processes(&mut self.builder);
        self.connect_flows();
        self.counts.misplaced = self.builder.discard_misplaced();
        self.warn(end);
        self.builder.warnings.extend(unpaired.warnings());
        self.builder.is_cut_off = matches!(end, End::CutOff | End::Damaged(_));
        if !self.builder.has_events() {
            self.builder.warnings.push(NO_EVENTS.to_owned());
        }
        drop(std::mem::take(&mut self.tracks));
        Ok(self.builder.build()?)
    }

    fn connect_flows(&mut self) {
        let mut lost = std::mem::take(&mut self.flows).connect(&self.tracks, &mut self.builder);
        if !self.launches.are_known() {
            lost += std::mem::take(&mut self.launch_flows).connect(&self.tracks, &mut self.builder);
        }
        self.counts.unexplained = std::mem::take(&mut self.launches).connect(&mut self.builder);
        self.counts.lost_flows = lost;
    }

    /// Time zero of a trace of others. torch.profiler counts from a moment that it names, and before that from 1970.
    fn origin(&self) -> Origin {
        const YEAR_2001: u64 = 1_000_000_000_000_000_000;
        let is_kineto = self.builder.metadata.text(SOURCE).is_some_and(|source| source == "torch.profiler");
        match self.base_nanos {
            Some(nanos) => Origin { name: "base time of the profiler".to_owned(), unix_nanos: Some(nanos) },
            None if is_kineto && self.last_time > YEAR_2001 => {
                Origin { name: "beginning of 1970".to_owned(), unix_nanos: Some(0) }
            }
            None => Origin::named("zero of the trace's own clock"),
        }
    }

    fn warn(&mut self, end: End) {
        let (counts, warnings) = (&self.counts, &mut self.builder.warnings);
        let mut warn = |count: u64, what: &str| {
            if count > 0 {
                warnings.push(counted(count, what));
            }
        };
        warn(counts.damaged, "damaged events were passed over");
        warn(counts.strange, "events without a known kind were passed over");
        warn(counts.impossible_times, "events without a possible time were passed over");
        warn(counts.misplaced, "events do not fit their track and were passed over");
        warn(counts.lost_flows, "flows have lost one of their spans");
        warn(counts.replaced, "strings are no UTF-8; what cannot be read of them was replaced");
        warn(counts.long_members, "entries about the whole run are too long and were passed over");
        warn(counts.unexplained, "spans of a device have no call that launched them");
        for (&phase, &count) in &counts.phases {
            warn(count, &format!("events of kind `{}` were passed over", phase.escape_ascii()));
        }
        warn(counts.other_phases, "events of kind `other` were passed over");
        match end {
            End::Whole => {}
            End::Unclosed => warnings.push("the closing bracket is missing; every event before it was read".to_owned()),
            End::CutOff => warnings.push("the file is cut off; all whole events were read".to_owned()),
            End::Damaged(offset) => {
                warnings.push(format!("the file is damaged after {offset} bytes; what comes before was read"));
            }
        }
    }
}
