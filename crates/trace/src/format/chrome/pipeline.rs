//! Parses the events of a large file on several threads.
//!
//! The file is split into chunks where an event seems to end, and each chunk is parsed separately as if it began
//! between two events. Whether it does is known once everything before it has been parsed: then its batch is used as it
//! is, or the chunk is parsed again from the end of the chunk before it. A wrong guess therefore costs time and never
//! an event. Memory is bounded by the few chunks and batches in flight.

use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::{io, sync::Mutex, thread};

use hashbrown::DefaultHashBuilder;

use super::batch::{Batch, Stop};
use super::document::{Document, Sink};

/// The chunk size: large enough that names repeat, small compared with the resulting trace. Chunks of 64 KiB to 1 MiB
/// are equally fast for large files; small files need less time and memory with small chunks.
pub const CHUNK: usize = 128 << 10;

/// More threads would wait for the one that merges the batches.
const MOST_THREADS: usize = 8;

/// A parsed chunk.
struct Done<C> {
    chunk: C,
    batch: Batch,
    used: usize,
    stop: Stop,
}

/// The number of parser threads.
pub fn thread_count() -> usize {
    thread::available_parallelism().map_or(1, |count| count.get().min(MOST_THREADS))
}

/// Parses chunks on `threads` threads, which get them from `next` in turn, and merges them here in file order.
pub fn read_chunks<C: AsRef<[u8]> + Send>(
    threads: usize,
    next: impl FnMut() -> io::Result<Option<C>> + Send,
    document: &mut Document,
    hasher: &DefaultHashBuilder,
    sink: &mut impl Sink,
) -> io::Result<()> {
    let source = Mutex::new(Some(next));
    thread::scope(|scope| {
        let (order_sender, order) = channel::<usize>();
        let (mut outputs, mut returns, mut parsers) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..threads {
            let (done_sender, done) = sync_channel::<Done<C>>(1);
            let (batch_sender, batches) = sync_channel::<Batch>(4);
            let (source, order, hasher) = (&source, order_sender.clone(), hasher.clone());
            let take = move || next_chunk(source, || order.send(number).is_ok());
            parsers.push(scope.spawn(move || work(take, &done_sender, &batches, &hasher)));
            outputs.push(done);
            returns.push(batch_sender);
        }
        drop(order_sender);
        for number in order {
            let Ok(done) = outputs[number].recv() else { break };
            let batch = take(done, document, sink);
            let _ = returns[number].try_send(batch);
            if document.has_ended() || sink.is_full() {
                break;
            }
        }
        drop(outputs);
        let failed = |_| Err(io::Error::other("a reader thread failed"));
        parsers.into_iter().try_for_each(|parser| parser.join().unwrap_or_else(failed))
    })
}

/// Takes the next chunk, and announces it while no other thread can take one.
fn next_chunk<C>(
    source: &Mutex<Option<impl FnMut() -> io::Result<Option<C>>>>,
    announce: impl Fn() -> bool,
) -> io::Result<Option<C>> {
    let mut source = source.lock().map_err(|_| io::Error::other("a reader thread failed"))?;
    let Some(next) = source.as_mut() else { return Ok(None) };
    let chunk = next();
    let is_wanted = matches!(chunk, Ok(Some(_))) && announce();
    if !is_wanted {
        *source = None;
    }
    chunk.map(|chunk| chunk.filter(|_| is_wanted))
}

/// Parses chunks until there are no more, or the receiver is gone.
fn work<C: AsRef<[u8]>>(
    mut next: impl FnMut() -> io::Result<Option<C>>,
    done: &SyncSender<Done<C>>,
    batches: &Receiver<Batch>,
    hasher: &DefaultHashBuilder,
) -> io::Result<()> {
    while let Some(chunk) = next()? {
        let mut batch = batches.try_recv().unwrap_or_else(|_| Batch::new(hasher.clone()));
        batch.clear();
        let (used, stop) = batch.read(chunk.as_ref(), usize::MAX);
        if done.send(Done { chunk, batch, used, stop }).is_err() {
            break;
        }
    }
    Ok(())
}

/// Accepts a parsed chunk: its batch if the guess was right, otherwise its bytes.
fn take<C: AsRef<[u8]>>(mut done: Done<C>, document: &mut Document, sink: &mut impl Sink) -> Batch {
    let bytes = done.chunk.as_ref();
    let read_already = if document.is_between_events() {
        sink.events(&mut done.batch);
        document.pass(done.used, done.stop);
        done.used
    } else {
        0
    };
    document.feed(&bytes[read_already..], sink);
    done.batch
}

/// The chunks of a text that is completely in memory.
pub struct Cut<'a> {
    rest: &'a [u8],
    chunk: usize,
}

impl<'a> Cut<'a> {
    pub fn new(text: &'a [u8], chunk: usize) -> Self {
        Self { rest: text, chunk }
    }

    pub fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = if self.rest.len() <= self.chunk { self.rest.len() } else { border(self.rest, self.chunk) };
        let (chunk, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(chunk)
    }
}

/// The position where an event seems to begin, here or before; the position itself if nothing looks like that.
///
/// An event begins with a brace that follows another's closing brace and a comma, with a string inside.
pub fn border(text: &[u8], place: usize) -> usize {
    // Longer than nearly all events.
    const LOOKED_BACK: usize = 16 << 10;
    let first = place.saturating_sub(LOOKED_BACK);
    let mut end = place;
    while let Some(brace) = memchr::memrchr(b'{', &text[first..end]) {
        let at = first + brace;
        let before = text[first..at].trim_ascii_end();
        let follows_event = before.strip_suffix(b",").is_some_and(|event| event.trim_ascii_end().ends_with(b"}"));
        if follows_event && text[at + 1..].trim_ascii_start().first() == Some(&b'"') {
            return at;
        }
        end = at;
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::chrome::document::{End, tests::Seen};

    /// Events that look like the start of another one.
    const TEXT: &str = r#"{"about": [{"a": 1}, {"b": 2}], "traceEvents": [
        {"name": "plain", "ph": "X"}, {"name": "},{\"name\": \"trap\"", "args": {"list": [{"x": "}, {"}, {"y": 1}]}},
        {"args": {"deep": [[{"a": "b"}, {"c": "d"}], {"e": "f"}]}, "name": "nested"},7,"text, {\"a\"", {"name": "last"}
        ], "more": {"x": [{"y": 1}, {"z": 2}]}, "n": 3}"#;

    fn in_pieces(text: &[u8]) -> (Seen, End) {
        let (mut seen, mut document) = (Seen::default(), Document::new(DefaultHashBuilder::default()));
        document.feed(text, &mut seen);
        (seen, document.finish())
    }

    fn in_parallel(text: &[u8], chunk: usize, threads: usize) -> (Seen, End) {
        let hasher = DefaultHashBuilder::default();
        let (mut seen, mut document) = (Seen::default(), Document::new(hasher.clone()));
        let mut cut = Cut::new(text, chunk);
        read_chunks(threads, move || Ok(cut.next()), &mut document, &hasher, &mut seen).unwrap();
        (seen, document.finish())
    }

    #[test]
    fn wherever_a_file_is_cut_into_chunks_the_same_is_read() {
        let expected = in_pieces(TEXT.as_bytes());
        assert_eq!(expected.0.names.last().map(String::as_str), Some("last"));
        for chunk in 1..TEXT.len() {
            assert_eq!(in_parallel(TEXT.as_bytes(), chunk, 1 + chunk % 3), expected, "chunks of {chunk} bytes");
        }
    }

    #[test]
    fn a_file_that_ends_anywhere_ends_the_same_in_chunks() {
        for length in 0..TEXT.len() {
            let text = &TEXT.as_bytes()[..length];
            assert_eq!(in_parallel(text, 37, 2), in_pieces(text), "cut after {length} bytes");
        }
    }

    #[test]
    fn a_source_that_fails_is_reported() {
        let hasher = DefaultHashBuilder::default();
        let (mut seen, mut document) = (Seen::default(), Document::new(hasher.clone()));
        let mut chunks = vec![Err(io::Error::other("gone")), Ok(Some(&b"[{},"[..]))];
        let next = move || chunks.pop().unwrap_or(Ok(None));
        let read = read_chunks(2, next, &mut document, &hasher, &mut seen);
        assert_eq!(read.unwrap_err().to_string(), "gone");
    }
}
