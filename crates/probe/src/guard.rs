//! The hot path: entering and leaving a span, marking a moment, recording a value.

use std::{marker::PhantomData, sync::Arc};

use crate::attach::{Local, make_room};
use crate::device::{Lane, LaneState};
use crate::field::FieldTuple;
use crate::{clock::now, on_lane::OnLane, ring::Ring, site::Site, word};

/// The guard of a stage, lap or sync, which ends on drop.
#[must_use = "a stage ends when its guard is dropped; bind it, as in `let _stage = stage!(…)`"]
#[derive(Debug)]
pub struct Span {
    /// Zero when not recorded.
    site: u32,
    attachment: u32,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl Span {
    /// A guard of a stage that is not recorded.
    #[inline(always)]
    pub const fn none() -> Self {
        Self { site: 0, attachment: 0, stays_on_its_thread: PhantomData }
    }

    /// Ends the stage here instead of at the end of the scope.
    #[inline(always)]
    pub fn end(self) {}

    /// Site and attachment, without ending the stage; none if it is not recorded.
    pub(crate) fn into_parts(self) -> Option<(u32, u32)> {
        let parts = (self.site, self.attachment);
        std::mem::forget(self);
        (parts.0 != 0).then_some(parts)
    }
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        if self.site != 0 {
            exit(self.site, self.attachment);
        }
    }
}

/// Words of an exit: its head.
const EXIT_WORDS: u64 = 1;
/// Words of an entry on a lane, before its fields: its head, lane and site, stamp.
const ENTER_ON_WORDS: u64 = 3;
/// Words of an exit on a lane: its head, lane and site, stamp.
const EXIT_ON_WORDS: u64 = 3;

#[inline(always)]
fn has_room(ring: &Ring, words: u64, exit: u64) -> bool {
    ring.fits(words, exit) || make_room(ring, words, exit)
}

/// Opens a span.
#[inline]
pub fn enter<F: FieldTuple>(site: &'static Site, fields: &F) -> Span {
    let entered = Local::with_ring(|ring, attachment| {
        let code = enter_ring(ring, site.code(), fields)?;
        Some(Span { site: code, attachment, stays_on_its_thread: PhantomData })
    });
    entered.unwrap_or(Span::none())
}

/// Writes an entry; none if it was dropped.
#[inline(always)]
pub(crate) fn enter_ring<F: FieldTuple>(ring: &Ring, code: u32, fields: &F) -> Option<u32> {
    if code == 0 {
        ring.lose_one();
        return None;
    }
    if !has_room(ring, 1 + fields.words(), EXIT_WORDS) {
        return None;
    }
    ring.reserve(EXIT_WORDS);
    let mut push = ring.push();
    push.word(word::head(now().0, word::ENTER, u64::from(code)));
    fields.put(&mut push);
    push.publish();
    Some(code)
}

#[inline]
fn exit(site: u32, attachment: u32) {
    let ticks = now().0;
    Local::with_ring_of(attachment, |ring| exit_ring(ring, site, ticks));
}

/// Writes an exit; its space was reserved at the entry.
#[inline(always)]
pub(crate) fn exit_ring(ring: &Ring, site: u32, ticks: u64) {
    ring.release(EXIT_WORDS);
    let mut push = ring.push();
    push.word(word::head(ticks, word::EXIT, u64::from(site)));
    push.publish();
}

/// The guard of a stage on a [`Lane`].
#[must_use = "a stage ends when its guard is dropped; bind it, as in `let _stage = stage!(…)`"]
#[derive(Debug)]
pub struct LaneSpan {
    /// Site, attachment and lane, while the stage is recorded.
    open: Option<(u32, u32, Arc<LaneState>)>,
    /// The stage without a lane; it ends with this guard.
    _alone: Span,
}

impl LaneSpan {
    /// A guard of a stage that is not recorded.
    pub const fn none() -> Self {
        Self { open: None, _alone: Span::none() }
    }

    /// Ends the stage here instead of at the end of the scope.
    pub fn end(self) {}

    /// Site, attachment and lane, without ending the stage; none if it is not recorded.
    pub(crate) fn into_parts(mut self) -> Option<(u32, u32, Arc<LaneState>)> {
        self.open.take()
    }
}

/// Opens a span on a lane; if the lane has a device clock, its stream is marked too.
pub fn enter_on<F: FieldTuple>(site: &'static Site, lane: &impl OnLane, fields: &F) -> LaneSpan {
    match lane.lane() {
        Some(lane) => enter_lane(site, lane, fields),
        None => LaneSpan { open: None, _alone: enter(site, fields) },
    }
}

fn enter_lane<F: FieldTuple>(site: &'static Site, lane: &Lane, fields: &F) -> LaneSpan {
    let code = site.code();
    let words = ENTER_ON_WORDS + fields.words();
    // The stream is marked while no ring is borrowed: a device clock may do anything, even record or enter another
    // recording. Nothing is marked for a dropped span.
    let Some(attachment) = Local::with_ring(|ring, attachment| {
        let kept = code != 0 && has_room(ring, words, EXIT_ON_WORDS);
        if kept {
            ring.reserve(words + EXIT_ON_WORDS);
        } else if code == 0 {
            ring.lose_one();
        }
        kept.then_some(attachment)
    }) else {
        return LaneSpan::none();
    };
    let stamp = lane.state().mark();
    Local::with_ring_of(attachment, |ring| {
        ring.release(words);
        let mut push = ring.push();
        push.word(word::head(now().0, word::EXTENDED, word::ENTER_ON));
        push.word(lane.state().with_site(code));
        push.word(stamp);
        fields.put(&mut push);
        push.publish();
    });
    let open = Some((code, attachment, Arc::clone(lane.state())));
    LaneSpan { open, _alone: Span::none() }
}

impl Drop for LaneSpan {
    fn drop(&mut self) {
        if let Some((site, attachment, lane)) = self.open.take() {
            exit_lane(site, attachment, &lane);
        }
    }
}

/// Writes an exit on a lane; its space was reserved at the entry.
pub(crate) fn exit_lane(site: u32, attachment: u32, lane: &LaneState) {
    let stamp = lane.mark();
    let ticks = now().0;
    Local::with_ring_of(attachment, |ring| {
        ring.release(EXIT_ON_WORDS);
        let mut push = ring.push();
        push.word(word::head(ticks, word::EXTENDED, word::EXIT_ON));
        push.word(lane.with_site(site));
        push.word(stamp);
        push.publish();
    });
}

/// Marks a moment or records a value.
#[inline]
pub fn point<F: FieldTuple>(site: &'static Site, fields: &F) {
    Local::with_ring(|ring, _| {
        let code = site.code();
        if code == 0 {
            ring.lose_one();
        } else if has_room(ring, 1 + fields.words(), 0) {
            let mut push = ring.push();
            push.word(word::head(now().0, word::POINT, u64::from(code)));
            fields.put(&mut push);
            push.publish();
        }
        Some(())
    });
}
