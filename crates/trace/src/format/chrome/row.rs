//! One event as it stands in a file.

use super::flows::Step;
use crate::names::NameId;

/// A number as the file has it; some writers put names where numbers belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    Plain(i64),
    Named(NameId),
}

/// A time of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    Missing,
    Impossible,
    At(u64),
}

/// One event. Names are those of its batch.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Chrome's letter for the kind of event; zero for none, [`OTHER_PHASE`] for a word.
    pub phase: u8,
    pub is_open: bool,
    /// A flow ends in the span around it, and not in the next.
    pub binds_around: bool,
    pub has_fields: bool,
    pub name: NameId,
    pub category: NameId,
    pub time: Time,
    pub duration: Time,
    pub pid: Number,
    pub tid: Number,
    pub id: Option<Number>,
    /// What ties the span to those that it leads to, or that led to it.
    pub bind: Option<Number>,
    pub flows_out: bool,
    pub flows_in: bool,
    /// Where its fields lie in the batch.
    pub fields: (u32, u32),
}

/// The phase of events whose phase is no single letter.
pub const OTHER_PHASE: u8 = 0xff;

impl Row {
    /// Whether the event says nothing at all: `{}`.
    pub fn is_blank(&self) -> bool {
        self.phase == 0 && self.time == Time::Missing && self.name == NameId::EMPTY && !self.has_fields
    }

    /// Which end of a flow the span itself is.
    pub fn flow_step(&self) -> Option<Step> {
        match (self.flows_out, self.flows_in) {
            (false, false) => None,
            (true, false) => Some(Step::Start),
            (true, true) => Some(Step::Middle),
            (false, true) => Some(Step::Finish),
        }
    }
}
