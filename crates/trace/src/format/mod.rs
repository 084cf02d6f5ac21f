//! Reading and writing: one module a format, told apart by content when reading and by extension when writing.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, bufread::MultiGzDecoder, write::GzEncoder};

use crate::{invariants::InvalidTrace, trace::Trace};

pub mod chrome;
pub mod folded;
mod pairing;
pub mod pftrace;
pub mod speedscope;

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
        let name = path.file_name().and_then(OsStr::to_str)?.to_ascii_lowercase();
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

    /// It is a format that can be written and not read.
    #[error("{format} keep only part of a trace and cannot be read back")]
    OneWay {
        /// The format in words.
        format: &'static str,
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

/// Reads a trace of any known format.
pub fn read(path: impl AsRef<Path>) -> Result<Trace, ReadError> {
    let path = path.as_ref();
    let open = |source| ReadError::Open { path: path.to_owned(), source };
    if path.is_dir() {
        return Err(ReadError::Folder { path: path.to_owned() });
    }
    read_from(BufReader::with_capacity(1 << 20, File::open(path).map_err(open)?))
}

/// Reads a trace of any known format from a stream.
pub fn read_from(mut input: impl BufRead) -> Result<Trace, ReadError> {
    let start = peek(&mut input)?;
    if !start.starts_with(&[0x1f, 0x8b]) {
        return read_plain(&mut input);
    }
    // In small steps: what is unpacked together with the damage is lost with it.
    let mut unpacked =
        BufReader::with_capacity(1 << 14, Unpacked { packed: MultiGzDecoder::new(input), is_damaged: false });
    let mut trace = read_plain(&mut unpacked)?;
    // The checksum stands at the very end, behind the last bracket.
    io::copy(&mut unpacked, &mut io::sink())?;
    if unpacked.get_ref().is_damaged {
        let warning = "the gzip data are damaged; what was read before the damage may be wrong too";
        trace.warnings.push(warning.to_owned());
    }
    Ok(trace)
}

/// Unpacked data that end where the packed ones are damaged.
struct Unpacked<R> {
    packed: R,
    is_damaged: bool,
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_damaged {
            return Ok(0);
        }
        self.packed.read(buffer).or_else(|error| {
            // Data cut off are told by whoever reads them.
            self.is_damaged = is_damage(&error) && error.kind() != io::ErrorKind::UnexpectedEof;
            if self.is_damaged { Ok(0) } else { Err(error) }
        })
    }
}

fn read_plain(input: &mut impl BufRead) -> Result<Trace, ReadError> {
    match Content::of(peek(input)?) {
        Content::Empty => Err(ReadError::Empty),
        Content::Json => chrome::read(input),
        Content::Speedscope => Err(ReadError::OneWay { format: "speedscope files" }),
        Content::Folded => Err(ReadError::OneWay { format: "folded stacks" }),
        Content::Pftrace => pftrace::read(input),
        Content::Other(found) => Err(ReadError::NotATrace { found }),
    }
}

/// The beginning of a stream, without taking it. A reader may give less than it has; a few bytes are enough to tell.
fn peek(input: &mut impl BufRead) -> Result<&[u8], ReadError> {
    input.fill_buf().map_err(|source| match source.kind() {
        io::ErrorKind::UnexpectedEof => ReadError::NotATrace { found: "gzip data cut off at its beginning".to_owned() },
        _ if is_damage(&source) => ReadError::NotATrace { found: format!("the gzip data is damaged ({source})") },
        _ => ReadError::Read(source),
    })
}

/// Whether an error says that the compressed data ends early or is damaged: then what came before it counts.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
}

/// The next bytes of a stream; none where it ends, or where its compressed data are damaged.
fn filled(input: &mut impl BufRead) -> io::Result<&[u8]> {
    match input.fill_buf() {
        Err(error) if is_damage(&error) => Ok(&[]),
        other => other,
    }
}

/// What a file looks like from its beginning.
enum Content {
    Empty,
    Json,
    Speedscope,
    Folded,
    Pftrace,
    Other(String),
}

impl Content {
    fn of(start: &[u8]) -> Self {
        let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
        let opens_json = looks_like_json(text);
        let head = &start[..start.len().min(4096)];
        match start {
            [] => Self::Empty,
            _ if opens_json && memchr::memmem::find(head, b"speedscope.app/file-format-schema").is_some() => {
                Self::Speedscope
            }
            _ if opens_json => Self::Json,
            _ if text.is_empty() => Self::Other("nothing but white space".to_owned()),
            [pftrace::PACKET_TAG, ..] => Self::Pftrace,
            _ if start.starts_with(b"SQLite format 3\0") => {
                Self::Other("an SQLite database, perhaps an Nsight Systems export".to_owned())
            }
            _ if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) => Self::Other("zstd data".to_owned()),
            _ if folded::looks_folded(head) => Self::Folded,
            _ => Self::Other(format!("it begins with {}", shown_bytes(start))),
        }
    }
}

/// Whether text without leading white space begins like JSON. One byte would not tell: a packet's first byte is a line
/// feed, and its second, the length, may be a bracket.
fn looks_like_json(text: &[u8]) -> bool {
    let next = |rest: &[u8]| rest.trim_ascii_start().first().copied();
    match text {
        [b'{', rest @ ..] => matches!(next(rest), Some(b'"' | b'}') | None),
        [b'[', rest @ ..] => {
            matches!(next(rest), Some(b'{' | b'[' | b']' | b'"' | b'-' | b'0'..=b'9' | b'n' | b't' | b'f') | None)
        }
        _ => false,
    }
}

fn shown_bytes(bytes: &[u8]) -> String {
    let first = &bytes[..bytes.len().min(12)];
    if first.iter().all(|byte| (b' '..=b'~').contains(byte)) {
        return format!("`{}`", String::from_utf8_lossy(first));
    }
    let shown: Vec<String> = first.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("the bytes {}", shown.join(" "))
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
