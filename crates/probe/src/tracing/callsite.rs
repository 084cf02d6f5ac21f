//! Maps `tracing` call sites to sites.

use std::sync::{Mutex, PoisonError};
use std::{cell::Cell, collections::HashMap, ptr};

use tracing_core::Metadata;

use crate::site::{Site, SiteKind};
use crate::word::MOST_FIELDS;

/// Spans and events of this target mean that the host waited for a device.
const SYNC_TARGET: &str = "gpu_sync";

const CACHED: usize = 64;

type Entry = (*const Metadata<'static>, Option<&'static Site>);

thread_local! {
    /// The sites that this thread used last, by the address of their metadata.
    static CACHE: [Cell<Entry>; CACHED] = const { [const { Cell::new((ptr::null(), None)) }; CACHED] };
}

/// Finds or creates the site of a call site; the metadata of a call site is static.
#[inline]
pub fn site_of(metadata: &'static Metadata<'static>) -> &'static Site {
    let address: *const Metadata<'static> = metadata;
    let place = (address as usize >> 4) % CACHED;
    CACHE.with(|cache| match cache[place].get() {
        (known, Some(site)) if ptr::eq(known, address) => site,
        _ => {
            let site = find_or_make(metadata);
            cache[place].set((address, Some(site)));
            site
        }
    })
}

#[cold]
fn find_or_make(metadata: &'static Metadata<'static>) -> &'static Site {
    static SITES: Mutex<Option<HashMap<usize, &'static Site>>> = Mutex::new(None);
    let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    let address = ptr::from_ref(metadata) as usize;
    sites.get_or_insert_default().entry(address).or_insert_with(|| Box::leak(Box::new(make(metadata))))
}

fn make(metadata: &'static Metadata<'static>) -> Site {
    let kind = match (metadata.is_span(), metadata.target() == SYNC_TARGET) {
        (true, true) => SiteKind::Sync,
        (true, false) => SiteKind::Stage,
        (false, true) => SiteKind::SyncMark,
        (false, false) => SiteKind::Mark,
    };
    let fields: Vec<&'static str> = metadata.fields().iter().take(MOST_FIELDS).map(|field| field.name()).collect();
    let (file, line) = (metadata.file().unwrap_or(""), metadata.line().unwrap_or(0));
    Site::new(kind, metadata.name(), "", metadata.target(), file, line, fields.leak())
}
