//! Readers and writers: one module per format. Readers detect the format by content, writers choose it by extension.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::{Compression, write::GzEncoder};

use crate::{builder::TraceBuilder, invariants::InvalidTrace, trace::Trace};

mod budget;
pub mod chrome;
pub mod folded;
mod input;
pub(crate) mod launches;
#[cfg(feature = "nsys")]
pub mod nsys;
mod pairing;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod pftrace;
pub mod speedscope;
mod unsupported;

use self::input::{filled, is_damage};
pub use self::input::{read, read_from};
use self::pairing::Unpaired;
pub use self::unsupported::Unsupported;

/// A file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Perfetto's protobuf: compact, append-only, lossless. Opens in ui.perfetto.dev.
    Pftrace,
    /// Chrome's JSON: lossless. Opens in chrome://tracing, ui.perfetto.dev and speedscope.
    Chrome,
    /// Chrome's JSON, gzipped.
    ChromeGz,
    /// speedscope's JSON: the spans of the tracks, without fields, flows, marks and values. Write-only.
    Speedscope,
    /// Folded stacks with self time in nanoseconds, the input of flame graph tools. Write-only.
    Folded,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::Pftrace, Self::Chrome, Self::ChromeGz, Self::Speedscope, Self::Folded];

    /// The file extensions, the usual one first.
    pub const fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Pftrace => &[".pftrace", ".perfetto-trace"],
            Self::Chrome => &[".json"],
            Self::ChromeGz => &[".json.gz"],
            Self::Speedscope => &[".speedscope.json", ".speedscope"],
            Self::Folded => &[".folded", ".collapsed"],
        }
    }

    /// Finds the format for a file name.
    pub fn from_path(path: &Path) -> Option<Self> {
        // Only the extension matters, and it is text.
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let fits = |format: &Self| format.extensions().iter().any(|extension| name.ends_with(extension));
        // `.speedscope.json` ends in `.json` too.
        [Self::Speedscope, Self::ChromeGz, Self::Chrome, Self::Pftrace, Self::Folded].into_iter().find(fits)
    }
}

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the errors are")]
pub enum ReadError {
    #[error("cannot open `{path}`", path = path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("`{path}` is a folder, not a trace", path = path.display())]
    Folder { path: PathBuf },
    #[error("cannot read the file")]
    Read(#[from] io::Error),
    #[error("the file is empty")]
    Empty,
    #[error("this is not a trace: {found}")]
    NotATrace { found: String },
    #[error("this is not a trace: it is a Perfetto trace without track events; it contains {contents}")]
    NoTrackEvents { contents: String },
    #[error("this is {}, which cannot be read", .0.format)]
    Unsupported(Unsupported),
    #[error("{format} contain only part of a trace and cannot be read")]
    OneWay { format: &'static str },
    #[error("this is {format}, which this build cannot read")]
    NotBuilt { format: &'static str, feature: &'static str },
    #[error("this is an SQLite database that cannot be read")]
    Database(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("{} MiB of compressed data unpack to events that need {} MiB of memory", .packed >> 20, .needed >> 20)]
    TooLarge { packed: u64, needed: u64 },
    #[error("cannot allocate memory for more events; those read so far take {} MiB", .needed >> 20)]
    Memory { needed: u64 },
    #[error("the trace is inconsistent")]
    Invalid(#[from] InvalidTrace),
}

/// Why a trace could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the errors are")]
pub enum WriteError {
    #[error("`{path}` has no known format extension", path = path.display())]
    Extension { path: PathBuf },
    #[error("cannot write `{path}`", path = path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Writes a trace in the format given by the file name.
///
/// The file is written completely or not at all: it is written under a temporary name and then renamed.
pub fn write(trace: &Trace, path: impl AsRef<Path>) -> Result<(), WriteError> {
    let path = path.as_ref();
    let format = Format::from_path(path).ok_or_else(|| WriteError::Extension { path: path.to_owned() })?;
    write_whole(path, |out| write_to(trace, format, out))
}

/// Creates a file completely or not at all.
pub fn write_whole(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), WriteError> {
    let failed = |source| WriteError::Write { path: path.to_owned(), source };
    // An existing device or pipe is written to directly.
    if path.exists() && !path.is_file() {
        let mut out = BufWriter::new(File::create(path).map_err(failed)?);
        return fill(&mut out).and_then(|()| out.flush()).map_err(failed);
    }
    // A symbolic link is resolved, so that it stays a link.
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}.part", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    let written = File::create(&unfinished).and_then(|file| {
        let mut out = BufWriter::with_capacity(1 << 18, file);
        fill(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?;
        if let Ok(there) = std::fs::metadata(path) {
            std::fs::set_permissions(&unfinished, there.permissions())?;
        }
        std::fs::rename(&unfinished, path)
    });
    written.map_err(|source| {
        // The incomplete file is useless; removing it fails only if it was never created.
        let _ = std::fs::remove_file(&unfinished);
        failed(source)
    })
}

/// Writes a trace in a format.
pub fn write_to(trace: &Trace, format: Format, mut out: impl Write) -> io::Result<()> {
    match format {
        Format::Pftrace => pftrace::write(trace, out),
        Format::Chrome => chrome::write(trace, out),
        Format::ChromeGz => {
            let mut out = BufWriter::with_capacity(1 << 16, GzEncoder::new(out, Compression::fast()));
            chrome::write(trace, &mut out)?;
            out.into_inner().map_err(io::IntoInnerError::into_error)?.finish().map(drop)
        }
        Format::Speedscope => speedscope::write(trace, out),
        Format::Folded => {
            for stack in folded::stacks(trace, folded::By::Host) {
                writeln!(out, "{stack}")?;
            }
            Ok(())
        }
    }
}

/// The warning for an empty trace.
pub const NO_EVENTS: &str = "the trace is empty: it has no spans, no marks and no values";

/// The warning for a file with a schema that this version does not know.
const NEWER: &str = "the trace was written by a newer laptime; some of it may be missing";

/// How a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    /// After an event, without its closing brackets.
    Unclosed,
    /// In the middle of an event.
    CutOff,
    /// Invalid data after this number of bytes.
    Damaged(u64),
}

impl TraceBuilder {
    /// Adds a warning about a number of things, unless it is zero.
    pub(crate) fn warn(&mut self, count: u64, what: &str) {
        if count > 0 {
            self.warnings.push(counted(count, what));
        }
    }

    /// Adds the warnings about the end of a file of `units`, and about its unpaired events.
    pub(crate) fn end_file(&mut self, end: End, units: &str, unpaired: &Unpaired) {
        self.is_cut_off = matches!(end, End::CutOff | End::Damaged(_));
        self.warnings.extend(match end {
            End::Whole => None,
            End::Unclosed => Some("the closing bracket is missing; every event before it was read".to_owned()),
            End::CutOff => Some(format!("the file is cut off; only the {units} before the cut were read")),
            End::Damaged(at) => Some(format!("the file is damaged after {at} bytes; everything before that was read")),
        });
        self.warn(unpaired.ends, "end events have no begin event and were skipped");
        self.warn(unpaired.begins, pairing::NO_END);
        if !self.has_events() {
            self.warnings.push(NO_EVENTS.to_owned());
        }
    }
}

/// A count with its noun; the plural is given and converted to the singular for one.
pub(crate) fn counted(count: u64, what: &str) -> String {
    if count != 1 {
        return format!("{count} {what}");
    }
    let mut has_noun = false;
    let word = |word: &'_ str| {
        let singular = match word {
            "activities" => "activity",
            "entries" => "entry",
            "events" | "flows" | "packets" | "records" | "rows" | "spans" | "strings" if !has_noun => {
                word.trim_end_matches('s')
            }
            "were" => "was",
            "have" => "has",
            "are" => "is",
            "do" => "does",
            "lack" => "lacks",
            "their" => "its",
            "them" => "it",
            _ => word,
        };
        has_noun |= singular != word;
        singular.to_owned()
    };
    let words: Vec<String> = what.split(' ').map(word).collect();
    format!("1 {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_reported_in_the_singular() {
        let flows = "flows lack one of their spans";
        assert_eq!(counted(2, flows), "2 flows lack one of their spans");
        assert_eq!(counted(1, flows), "1 flow lacks one of its spans");
        let ends = "end events have no begin event and were skipped";
        assert_eq!(counted(1, ends), "1 end event has no begin event and was skipped");
        let open = "spans have no end and were closed at the end of the trace";
        assert_eq!(counted(1, open), "1 span has no end and was closed at the end of the trace");
        assert_eq!(
            counted(1, "events do not fit their track and were skipped"),
            "1 event does not fit its track and was skipped"
        );
    }
}
