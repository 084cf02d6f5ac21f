//! The metadata of a JSON trace, and its summary after all events were read.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::document::Document;
use super::read::{At, Reader};
use super::{SCHEMA, meta, tracks::OwnTrack, xprof};
use crate::format::{End, NEWER, ReadError, Unsupported, pairing::Unpaired};
use crate::time::{Nanos, Origin};
use crate::{metadata::SOURCE, trace::Trace, track::TrackKind};

/// Counts of skipped events, by reason.
#[derive(Debug, Default)]
pub struct Counts {
    pub understood: u64,
    pub damaged: u64,
    pub strange: u64,
    /// Objects without any member of an event.
    pub blank: u64,
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
    /// Handles a metadata event.
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

    /// Handles the metadata of the whole trace in our own files.
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
            builder.warnings.push(NEWER.to_owned());
        }
    }

    /// Builds the trace, or returns why it cannot.
    pub fn finish(mut self, document: &Document) -> Result<Trace, ReadError> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let end = document.finish();
        let counts = &self.counts;
        let found = match end {
            _ if counts.understood > 0 => "",
            _ if !document.found_events => "it is JSON without `traceEvents`",
            // One blank object may end an empty list.
            _ if counts.damaged > 0 || counts.strange > 0 || counts.blank > 1 => "none of its events can be parsed",
            End::CutOff => "it is JSON truncated inside its first event",
            End::Damaged(_) => "it is JSON damaged inside its first event",
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
        for pairs in [&mut self.tracks.pairs, &mut self.tracks.async_pairs] {
            std::mem::take(pairs).settle(self.last_time, &mut self.builder, &mut unpaired);
        }
        if !self.is_ours {
            xprof::settle(&mut self);
        }
        self.tracks.name_processes(&mut self.builder);
        self.connect_flows();
        self.counts.misplaced = self.builder.discard_misplaced();
        self.warn();
        self.builder.end_file(end, "events", &unpaired);
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

    /// The time origin of another tool's trace. torch.profiler counts from a moment that it names, and older versions
    /// from 1970.
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

    fn warn(&mut self) {
        let (counts, builder) = (&self.counts, &mut self.builder);
        builder.warn(counts.damaged, "damaged events were skipped");
        builder.warn(counts.strange, "events of an unknown kind were skipped");
        builder.warn(counts.impossible_times, "events without a valid time were skipped");
        builder.warn(counts.misplaced, "events do not fit their track and were skipped");
        builder.warn(counts.lost_flows, "flows lack one of their spans");
        builder.warn(counts.replaced, "strings are not valid UTF-8; replacement characters mark the invalid parts");
        builder.warn(counts.long_members, "metadata entries are too long and were skipped");
        builder.warn(counts.unexplained, "device spans have no launching call");
        for (&phase, &count) in &counts.phases {
            builder.warn(count, &format!("events of kind `{}` were skipped", phase.escape_ascii()));
        }
        builder.warn(counts.other_phases, "events of kind `other` were skipped");
    }
}
