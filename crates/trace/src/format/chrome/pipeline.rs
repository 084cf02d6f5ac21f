//! Parses the events of a large file on several threads.
//!
//! The file is split into chunks where an event seems to end, and each chunk is parsed separately as if it began
//! between two events. Whether it does is known once everything before it has been parsed: then its batch is used as it
//! is, or the chunk is parsed again from the end of the chunk before it. A wrong guess therefore costs time and never
//! an event. Memory is bounded by the few chunks and batches in flight.

use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::{
    io::{self, Read},
    sync::Mutex,
    thread,
};

use hashbrown::DefaultHashBuilder;

use super::batch::{Batch, Stop};
use super::document::{Document, Sink};
use super::stream::{Chunk, Chunks};

/// The chunk size: large enough that names repeat, small compared with the resulting trace. Chunks of 64 KiB to 1 MiB
/// are equally fast for large files; small files need less time and memory with small chunks.
pub const CHUNK: usize = 128 << 10;

/// More threads would wait for the one that merges the batches.
const MOST_THREADS: usize = 8;

/// A parsed chunk.
struct Done {
    chunk: Chunk,
    batch: Batch,
    used: usize,
    stop: Stop,
}

/// The number of parser threads.
pub fn thread_count() -> usize {
    thread::available_parallelism().map_or(1, |count| count.get().min(MOST_THREADS))
}

/// Parses chunks on `threads` threads, which read them in turn, and merges them here in file order.
pub fn read_chunks(
    threads: usize,
    chunks: Chunks<impl Read + Send>,
    document: &mut Document,
    hasher: &DefaultHashBuilder,
    sink: &mut impl Sink,
) -> io::Result<()> {
    let source = Mutex::new(Some(chunks));
    thread::scope(|scope| {
        let (order_sender, order) = channel::<usize>();
        let (mut outputs, mut returns, mut parsers) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..threads {
            let (done_sender, done) = sync_channel::<Done>(1);
            let (used_sender, used) = sync_channel::<(Chunk, Batch)>(4);
            let (source, order, hasher) = (&source, order_sender.clone(), hasher.clone());
            let next = move |buffer| next_chunk(source, buffer, || order.send(number).is_ok());
            parsers.push(scope.spawn(move || work(next, &done_sender, &used, &hasher)));
            outputs.push(done);
            returns.push(used_sender);
        }
        drop(order_sender);
        for number in order {
            let Ok(mut done) = outputs[number].recv() else { break };
            take(&mut done, document, sink);
            let _ = returns[number].try_send((done.chunk, done.batch));
            if document.has_ended() || sink.is_full() {
                break;
            }
        }
        drop(outputs);
        let failed = |_| Err(io::Error::other("a reader thread failed"));
        parsers.into_iter().try_for_each(|parser| parser.join().unwrap_or_else(failed))
    })
}

/// Reads the next chunk, and announces it while no other thread can read one.
fn next_chunk(
    source: &Mutex<Option<Chunks<impl Read>>>,
    buffer: Chunk,
    announce: impl Fn() -> bool,
) -> io::Result<Option<Chunk>> {
    let mut source = source.lock().map_err(|_| io::Error::other("a reader thread failed"))?;
    let Some(chunks) = source.as_mut() else { return Ok(None) };
    let chunk = chunks.next(buffer);
    let is_wanted = matches!(chunk, Ok(Some(_))) && announce();
    if !is_wanted {
        *source = None;
    }
    chunk.map(|chunk| chunk.filter(|_| is_wanted))
}

/// Parses chunks until there are no more, or the receiver is gone.
fn work(
    next: impl Fn(Chunk) -> io::Result<Option<Chunk>>,
    done: &SyncSender<Done>,
    used: &Receiver<(Chunk, Batch)>,
    hasher: &DefaultHashBuilder,
) -> io::Result<()> {
    let fresh = |_| (Chunk::default(), Batch::new(hasher.clone()));
    loop {
        let (buffer, mut batch) = used.try_recv().unwrap_or_else(fresh);
        let Some(chunk) = next(buffer)? else { return Ok(()) };
        batch.clear();
        let (used, stop) = batch.read(chunk.bytes(), usize::MAX);
        if done.send(Done { chunk, batch, used, stop }).is_err() {
            return Ok(());
        }
    }
}

/// Accepts a parsed chunk: its batch if the guess was right, otherwise its bytes.
fn take(done: &mut Done, document: &mut Document, sink: &mut impl Sink) {
    let mut bytes = done.chunk.bytes();
    if document.is_between_events() {
        sink.events(&mut done.batch);
        document.pass(done.used, done.stop);
        bytes = &bytes[done.used..];
    }
    document.feed(bytes, sink);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{End, chrome::document::tests::Seen};

    /// Events that look like the start of another one.
    const TEXT: &str = r#"{"about": [{"a": 1}, {"b": 2}], "traceEvents": [
        {"name": "plain", "ph": "X"}, {"name": "},{\"name\": \"trap\"", "args": {"list": [{"x": "}, {"}, {"y": 1}]}},
        {"args": {"deep": [[{"a": "b"}, {"c": "d"}], {"e": "f"}]}, "name": "nested"},7,"text, {\"a\"", {"name": "last"}
        ], "more": {"x": [{"y": 1}, {"z": 2}]}, "n": 3}"#;

    struct Failing;

    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("gone"))
        }
    }

    fn in_pieces(text: &[u8]) -> (Seen, End) {
        let (mut seen, mut document) = (Seen::default(), Document::new(DefaultHashBuilder::default()));
        document.feed(text, &mut seen);
        (seen, document.finish())
    }

    fn in_parallel(text: &[u8], chunk: usize, threads: usize) -> (Seen, End) {
        let hasher = DefaultHashBuilder::default();
        let (mut seen, mut document) = (Seen::default(), Document::new(hasher.clone()));
        read_chunks(threads, Chunks::new(text, chunk), &mut document, &hasher, &mut seen).unwrap();
        (seen, document.finish())
    }

    #[test]
    fn a_file_split_into_chunks_anywhere_reads_the_same() {
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
        let input = b"[{},".chain(Failing);
        let read = read_chunks(2, Chunks::new(input, 2), &mut document, &hasher, &mut seen);
        assert_eq!(read.unwrap_err().to_string(), "gone");
    }
}
