//! The `tracing` spans that this thread is in, and whether their entries were recorded.
//!
//! `tracing` reports an exit without saying whether the entry was recorded: a recording may have begun in between. The
//! space for an exit is reserved at its entry, so an exit may be written only if its entry was.

use std::cell::RefCell;

use crate::guard::{enter_ring, exit_ring};
use crate::{attach::Local, clock::now, field::FieldTuple};

struct Visit {
    id: u64,
    site: u32,
    attachment: u32,
}

thread_local! {
    static VISITS: RefCell<Vec<Visit>> = const { RefCell::new(Vec::new()) };
}

/// Records the entry of a span, and remembers whether it was stored.
#[inline]
pub fn enter<F: FieldTuple>(id: u64, site: u32, fields: &F) {
    // Late in the shutdown of a thread its data are gone, and nothing is recorded.
    let _ = VISITS.try_with(|visits| {
        let Ok(mut visits) = visits.try_borrow_mut() else { return };
        let entered = Local::with_ring(|ring, attachment| enter_ring(ring, site, fields).map(|_| attachment));
        if let Some(attachment) = entered {
            visits.push(Visit { id, site, attachment });
        }
    });
}

/// Records the exit of a span if its entry was recorded.
#[inline]
pub fn exit(id: u64) {
    let ticks = now().0;
    let visit = VISITS.try_with(|visits| {
        let mut visits = visits.try_borrow_mut().ok()?;
        if visits.last()?.id == id {
            return visits.pop();
        }
        let at = visits.iter().rposition(|visit| visit.id == id)?;
        Some(visits.remove(at))
    });
    if let Ok(Some(visit)) = visit {
        Local::with_ring_of(visit.attachment, |ring| exit_ring(ring, visit.site, ticks));
    }
}

/// Whether this thread is in a span whose entry was recorded.
pub fn is_in(id: u64) -> bool {
    let among =
        |visits: &RefCell<Vec<Visit>>| visits.try_borrow().is_ok_and(|all| all.iter().any(|visit| visit.id == id));
    VISITS.try_with(among).unwrap_or(false)
}
