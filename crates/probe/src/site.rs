//! Call sites: the static data of an event, stored once.
//!
//! The table is process-wide: all recordings share the sites. A site is added when it is first recorded, and is then
//! identified by a small number.

use std::sync::RwLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::word::CODE_MASK;

/// The meaning of an event at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteKind {
    /// A stage of the pipeline.
    Stage,
    /// One pass of a loop.
    Lap,
    /// The host waits for a device.
    Sync,
    /// A moment.
    Mark,
    /// A moment at which the host waited, reported by a `tracing` event of target `gpu_sync`.
    SyncMark,
    /// A point of a curve.
    Value,
}

/// A place in the program that marks something.
#[derive(Debug)]
pub struct Site {
    code: AtomicU32,
    /// The meaning of an event here.
    pub kind: SiteKind,
    /// The name of the stage, lap, sync, mark or value.
    pub name: &'static str,
    /// The unit of a value; empty if none was given.
    pub unit: &'static str,
    /// The module, or the target of a `tracing` call site.
    pub target: &'static str,
    /// The source file.
    pub file: &'static str,
    /// The line in it.
    pub line: u32,
    /// The names of the fields.
    pub fields: &'static [&'static str],
}

/// A site equals only itself.
impl PartialEq for Site {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

static SITES: RwLock<Vec<&'static Site>> = RwLock::new(Vec::new());

impl Site {
    /// Describes a site; the macros do this in a `static`.
    pub const fn new(
        kind: SiteKind,
        name: &'static str,
        unit: &'static str,
        target: &'static str,
        file: &'static str,
        line: u32,
        fields: &'static [&'static str],
    ) -> Self {
        assert!(fields.len() <= crate::word::MOST_FIELDS, "a stage can have at most 15 fields");
        Self { code: AtomicU32::new(0), kind, name, unit, target, file, line, fields }
    }

    /// The site's number; zero when the table is full.
    #[inline(always)]
    pub(crate) fn code(&'static self) -> u32 {
        match self.code.load(Relaxed) {
            0 => self.register(),
            code => code,
        }
    }

    #[cold]
    fn register(&'static self) -> u32 {
        let mut sites = SITES.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let known = self.code.load(Relaxed);
        if known != 0 || sites.len() as u64 >= CODE_MASK {
            return known;
        }
        sites.push(self);
        let code = sites.len() as u32;
        self.code.store(code, Relaxed);
        code
    }
}

/// Finds a site by its number.
pub fn site(code: u32) -> Option<&'static Site> {
    let at = usize::try_from(code).ok()?.checked_sub(1)?;
    SITES.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(at).copied()
}
