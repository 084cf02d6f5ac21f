//! Opens an input and detects its format by content.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::{fs::File, path::Path};

use flate2::bufread::MultiGzDecoder;

use super::budget::{Budget, Packed};
use super::{ReadError, Unsupported, chrome, folded, pftrace};
use crate::trace::Trace;

/// Bytes read from a file at once.
const BUFFER: usize = 64 << 10;

/// JSON of at most this length is read on one thread.
const SMALL: u64 = 2 << 20;

/// The same for gzipped JSON.
const SMALL_PACKED: u64 = 128 << 10;

/// Reads a trace of any known format, on several threads if it is large.
pub fn read(path: impl AsRef<Path>) -> Result<Trace, ReadError> {
    let path = path.as_ref();
    let open = |source| ReadError::Open { path: path.to_owned(), source };
    if path.is_dir() {
        return Err(ReadError::Folder { path: path.to_owned() });
    }
    let mut input = BufReader::with_capacity(BUFFER, File::open(path).map_err(open)?);
    let start = peek(&mut input)?;
    if let Some(known) = Unsupported::of(start, Some(path)) {
        return Err(ReadError::Unsupported(known));
    }
    if is_gzip(start) {
        return match is_small(input.get_ref(), SMALL_PACKED) {
            true => read_gzip(input, |unpacked, budget| chrome::read_within(unpacked, budget)),
            false => read_gzip(input, |unpacked, budget| chrome::read_parallel(unpacked, budget)),
        };
    }
    match Content::of(start) {
        Content::Json if is_small(input.get_ref(), SMALL) => chrome::read(input),
        Content::Json => {
            let start = Cursor::new(input.buffer().to_vec());
            chrome::read_parallel(start.chain(input.into_inner()), Budget::default())
        }
        Content::Database => read_database(path),
        _ => read_plain(&mut input, Budget::default()),
    }
}

/// Whether threads would cost more than they save: each touches fresh memory for its buffers.
fn is_small(file: &File, most: u64) -> bool {
    file.metadata().is_ok_and(|about| about.is_file() && about.len() <= most)
}

/// Reads a trace of any known format from a stream, on this thread. A database cannot be read from a stream.
pub fn read_from(mut input: impl BufRead) -> Result<Trace, ReadError> {
    if is_gzip(peek(&mut input)?) {
        read_gzip(input, |unpacked, budget| chrome::read_within(unpacked, budget))
    } else {
        read_plain(&mut input, Budget::default())
    }
}

/// The content of one database.
#[cfg(feature = "nsys")]
fn read_database(path: &Path) -> Result<Trace, ReadError> {
    super::nsys::read(path)
}

#[cfg(not(feature = "nsys"))]
fn read_database(_: &Path) -> Result<Trace, ReadError> {
    Err(ReadError::NotBuilt { format: "an SQLite database, perhaps an Nsight Systems export", feature: "nsys" })
}

fn is_gzip(start: &[u8]) -> bool {
    start.starts_with(&[0x1f, 0x8b])
}

type UnpackedInput<R> = BufReader<Unpacked<MultiGzDecoder<R>>>;

fn read_gzip<R: BufRead>(
    input: R,
    read_json: impl FnOnce(&mut UnpackedInput<Packed<R>>, Budget) -> Result<Trace, ReadError>,
) -> Result<Trace, ReadError> {
    let budget = Budget::of_packed();
    let input = Packed { input, budget: budget.clone() };
    // In small steps: data unpacked together with damage is lost with it.
    let mut unpacked =
        BufReader::with_capacity(1 << 14, Unpacked { packed: MultiGzDecoder::new(input), is_damaged: false });
    let mut trace = match Content::of(peek(&mut unpacked)?) {
        Content::Json => read_json(&mut unpacked, budget)?,
        _ => read_plain(&mut unpacked, budget)?,
    };
    // The checksum is at the very end, after the last bracket.
    io::copy(&mut unpacked, &mut io::sink()).or_else(|error| if is_damage(&error) { Ok(0) } else { Err(error) })?;
    if unpacked.get_ref().is_damaged {
        let warning = "the gzip data is damaged; events before the damage may be wrong too";
        trace.warnings.push(warning.to_owned());
        trace.is_cut_off = true;
    }
    Ok(trace)
}

/// Unpacked data up to the first damage.
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
            // The consumer reports data that is cut off.
            self.is_damaged = is_damage(&error) && error.kind() != io::ErrorKind::UnexpectedEof;
            if self.is_damaged { Ok(0) } else { Err(error) }
        })
    }
}

fn read_plain(input: &mut impl BufRead, budget: Budget) -> Result<Trace, ReadError> {
    match Content::of(peek(input)?) {
        Content::Empty => Err(ReadError::Empty),
        Content::Json => chrome::read_within(input, budget),
        Content::Speedscope => Err(ReadError::OneWay { format: "speedscope files" }),
        Content::Folded => Err(ReadError::OneWay { format: "folded stacks" }),
        Content::Pftrace => pftrace::read_within(input, budget),
        Content::Database => {
            Err(ReadError::NotATrace { found: "an SQLite database, which can be read from a file only".to_owned() })
        }
        Content::Unsupported(known) => Err(ReadError::Unsupported(known)),
        Content::Other(found) => Err(ReadError::NotATrace { found }),
    }
}

/// The beginning of a stream, without consuming it. A reader may return less than it has; a few bytes are enough to
/// detect the format.
fn peek(input: &mut impl BufRead) -> Result<&[u8], ReadError> {
    input.fill_buf().map_err(|source| match source.kind() {
        io::ErrorKind::UnexpectedEof => ReadError::NotATrace { found: "gzip data cut off at its beginning".to_owned() },
        _ if is_damage(&source) => ReadError::NotATrace { found: format!("the gzip data is damaged ({source})") },
        _ => ReadError::Read(source),
    })
}

/// Whether an error means that the compressed data ends early or is damaged; everything before it is used.
pub fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
}

/// The next bytes of a stream; none at its end, or where its compressed data is damaged.
pub fn filled(input: &mut impl BufRead) -> io::Result<&[u8]> {
    match input.fill_buf() {
        Err(error) if is_damage(&error) => Ok(&[]),
        other => other,
    }
}

/// The format of a file, detected from its beginning.
enum Content {
    Empty,
    Json,
    Speedscope,
    Folded,
    Pftrace,
    Database,
    Unsupported(Unsupported),
    Other(String),
}

impl Content {
    fn of(start: &[u8]) -> Self {
        let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
        let opens_json = looks_like_json(text);
        let head = &start[..start.len().min(4096)];
        match start {
            [] => Self::Empty,
            _ if let Some(known) = Unsupported::of(start, None) => Self::Unsupported(known),
            _ if opens_json && memchr::memmem::find(head, b"speedscope.app/file-format-schema").is_some() => {
                Self::Speedscope
            }
            _ if opens_json => Self::Json,
            _ if text.is_empty() => Self::Other("only white space".to_owned()),
            [pftrace::PACKET_TAG, ..] => Self::Pftrace,
            _ if start.starts_with(b"SQLite format 3\0") => Self::Database,
            _ if folded::looks_folded(head) => Self::Folded,
            _ => Self::Other(format!("it begins with {}", shown_bytes(start))),
        }
    }
}

/// Whether text without leading white space begins like JSON. One byte is not enough: the first byte of a packet is a
/// line feed, and the second, its length, may be a bracket.
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
