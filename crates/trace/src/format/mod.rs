//! Reading and writing: one module a format, told apart by content when reading and by extension when writing.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};

use crate::{invariants::InvalidTrace, trace::Trace};

mod budget;
pub mod chrome;
pub mod folded;
mod input;
pub(crate) mod launches;
mod map;
#[cfg(feature = "nsys")]
pub mod nsys;
mod pairing;
pub mod pftrace;
pub mod speedscope;
mod unsupported;

use self::input::{filled, is_damage};
pub use self::input::{read, read_from};
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
    /// speedscope's JSON: the spans of the tracks, without fields, flows, marks and values. Written only.
    Speedscope,
    /// Folded stacks with their own time in nanoseconds: what flame graphs are made of. Written only.
    Folded,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::Pftrace, Self::Chrome, Self::ChromeGz, Self::Speedscope, Self::Folded];

    /// The endings of its files, the usual one first.
    pub const fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Pftrace => &[".pftrace", ".perfetto-trace"],
            Self::Chrome => &[".json"],
            Self::ChromeGz => &[".json.gz"],
            Self::Speedscope => &[".speedscope.json", ".speedscope"],
            Self::Folded => &[".folded", ".collapsed"],
        }
    }

    /// Finds the format that a file's name asks for.
    pub fn from_path(path: &Path) -> Option<Self> {
        // Only the ending counts, and that is text.
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let fits = |format: &Self| format.extensions().iter().any(|extension| name.ends_with(extension));
        // `.speedscope.json` ends in `.json` too.
        [Self::Speedscope, Self::ChromeGz, Self::Chrome, Self::Pftrace, Self::Folded].into_iter().find(fits)
    }
}

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("cannot open `{path}`", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },

    /// It is a folder.
    #[error("`{path}` is a folder, not a trace", path = path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
    },

    /// Reading stopped.
    #[error("reading stopped")]
    Read(#[from] io::Error),

    /// There is nothing in it.
    #[error("the file is empty")]
    Empty,

    /// It is something else.
    #[error("this is not a trace: {found}")]
    NotATrace {
        /// What it looks like.
        found: String,
    },

    /// It is a format of another tool that cannot be read.
    #[error("this is {}, which cannot be read", .0.format)]
    Unsupported(Unsupported),

    /// It is a format that can be written and not read.
    #[error("{format} keep only part of a trace and cannot be read back")]
    OneWay {
        /// The format in words.
        format: &'static str,
    },

    /// It is a format that this build cannot read.
    #[error("this is {format}, and this build cannot read it")]
    NotBuilt {
        /// The format in words.
        format: &'static str,
        /// The feature of the crate that reads it.
        feature: &'static str,
    },

    /// It is a database that cannot be read.
    #[error("this is an SQLite database that cannot be read")]
    Database(#[source] Box<dyn std::error::Error + Send + Sync>),

    /// It unpacks to far more than any trace of its size.
    #[error("{} MiB of compressed data unpack to events that take {} MiB of memory", .packed >> 20, .needed >> 20)]
    TooLarge {
        /// The compressed bytes that were read.
        packed: u64,
        /// The memory that their events take.
        needed: u64,
    },

    /// There is too little memory.
    #[error("cannot allocate memory for more events; those read so far take {} MiB", .needed >> 20)]
    Memory {
        /// The memory that the events before it take.
        needed: u64,
    },

    /// Its content makes no trace.
    #[error("the trace contradicts itself")]
    Invalid(#[from] InvalidTrace),
}

/// Why a trace could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The name says no known format.
    #[error("`{path}` has no extension that says a format", path = path.display())]
    Extension {
        /// The name.
        path: PathBuf,
    },

    /// The file cannot be made or written.
    #[error("cannot write `{path}`", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Writes a trace in the format that the file's name asks for.
///
/// The file appears whole or not at all: it is written beside its place and then moved there.
pub fn write(trace: &Trace, path: impl AsRef<Path>) -> Result<(), WriteError> {
    let path = path.as_ref();
    let format = Format::from_path(path).ok_or_else(|| WriteError::Extension { path: path.to_owned() })?;
    write_whole(path, |out| write_to(trace, format, out))
}

/// Makes a file appear whole or not at all.
pub fn write_whole(path: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), WriteError> {
    let failed = |source| WriteError::Write { path: path.to_owned(), source };
    // What is there and no plain file (a device, a pipe) is written to as it is.
    if path.exists() && !path.is_file() {
        let mut out = BufWriter::new(File::create(path).map_err(failed)?);
        return fill(&mut out).and_then(|()| out.flush()).map_err(failed);
    }
    // Through a link to the file itself, so that the link stays one.
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
        // The half-written file is of no use, and its removal can fail only where it was never made.
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

/// The warning of a trace that was read and has nothing in it.
const NO_EVENTS: &str = "the trace is empty: it has no spans, no marks and no values";

/// What was counted, in words; they are given for several and put into the singular for one.
pub(crate) fn counted(count: u64, what: &str) -> String {
    if count != 1 {
        return format!("{count} {what}");
    }
    let mut has_noun = false;
    let word = |word: &'_ str| {
        let singular = match word {
            "events" | "packets" | "flows" | "strings" | "spans" | "entries" | "ends" if has_noun => word,
            "events" => "event",
            "packets" => "packet",
            "flows" => "flow",
            "strings" => "string",
            "spans" => "span",
            "entries" => "entry",
            "ends" if !has_noun => "end",
            "were" => "was",
            "have" => "has",
            "are" => "is",
            "do" => "does",
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
    fn one_is_told_in_the_singular() {
        let flows = "flows have lost one of their spans";
        assert_eq!(counted(2, flows), "2 flows have lost one of their spans");
        assert_eq!(counted(1, flows), "1 flow has lost one of its spans");
        let ends = "ends of spans have no beginning and were passed over";
        assert_eq!(counted(1, ends), "1 end of spans has no beginning and was passed over");
        let open = "spans have no end and were closed where the trace ends";
        assert_eq!(counted(1, open), "1 span has no end and was closed where the trace ends");
        assert_eq!(
            counted(1, "events do not fit their track and were passed over"),
            "1 event does not fit its track and was passed over"
        );
    }
}
