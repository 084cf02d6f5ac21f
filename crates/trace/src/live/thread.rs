//! A recorded thread: its track, and its open stages.

use std::io::{self, Write};

use laptime_probe::{FieldValue, Site};

use super::{OwnFields, timeline::Timeline};
use crate::{format::pftrace::Writer, time::Nanos};

/// The key that connects an exit with its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    source: u32,
    site: usize,
}

pub struct Thread {
    pub source: u32,
    pub timeline: Timeline,
    /// The open spans as needed by marks and syncs: their sites, and the number of a lap.
    pub around: Vec<(&'static Site, Option<FieldValue>)>,
}

impl Thread {
    pub fn key(&self, site: &'static Site) -> Key {
        Key { source: self.source, site: std::ptr::from_ref(site) as usize }
    }

    /// Adds the location to a sync: file, line, stage and lap.
    pub fn say_where(&self, site: &'static Site, fields: &mut OwnFields) {
        let stage = self.around.last().map(|(site, _)| FieldValue::Str(site.name.to_owned()));
        let lap = self.around.iter().rev().find_map(|(_, lap)| lap.clone());
        let places = [
            ("file", Some(FieldValue::Str(site.file.to_owned()))),
            ("line", Some(FieldValue::Uint(u64::from(site.line)))),
            ("stage", stage),
            ("lap", lap),
        ];
        for (name, value) in places {
            let is_free = !fields.iter().any(|(known, _)| *known == name);
            fields.extend(value.filter(|_| is_free).map(|value| (name, value)));
        }
    }

    /// Closes and flags the open spans.
    pub fn close<W: Write>(&mut self, time: Nanos, writer: &mut Writer<W>) -> io::Result<()> {
        self.around.clear();
        self.timeline.close(time, writer)
    }
}
