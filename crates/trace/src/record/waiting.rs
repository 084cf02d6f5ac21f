//! The queue between the threads' buffers and the encoder.

use std::collections::VecDeque;

use laptime_probe::{Batch, Config, Recorder, Ticks, now};

/// The maximum number of words in the queue: 256 MiB.
const MOST_WAITING: usize = 32 << 20;

/// Batches that wait to be encoded, in rounds: one round per drain of all buffers.
pub struct Waiting {
    /// Batches and the start of their round.
    batches: VecDeque<(Ticks, Batch)>,
    /// The round of the last popped batch, and the one before it.
    encoding: Ticks,
    encoded: Ticks,
    last_round: Ticks,
    words: usize,
    /// The number of words per drain that means that a thread records faster than the encoder.
    busy: usize,
}

impl Waiting {
    pub fn new(config: Config) -> Self {
        let words = config.bytes_per_thread / size_of::<u64>();
        let (batches, none) = (VecDeque::new(), Ticks(0));
        Self { batches, encoding: none, encoded: none, last_round: none, words: 0, busy: (words / 64).max(1) }
    }

    /// Drains the threads' buffers; while the threads are busy, repeatedly, until the queue is half full.
    ///
    /// Above the limit nothing is taken: the buffers fill up and count dropped events.
    pub fn drain(&mut self, recorder: &mut Recorder) {
        while self.take(recorder) >= self.busy && self.words < MOST_WAITING / 2 {}
    }

    fn take(&mut self, recorder: &mut Recorder) -> usize {
        if self.words >= MOST_WAITING {
            return 0;
        }
        let mut batches = Vec::new();
        let round = now();
        recorder.drain(&mut batches);
        let taken = batches.iter().map(|batch| batch.words.len()).sum::<usize>();
        self.words += taken;
        self.last_round = round;
        self.batches.extend(batches.into_iter().map(|batch| (round, batch)));
        taken
    }

    /// The next batch; the batch popped before has been encoded.
    pub fn pop(&mut self) -> Option<Batch> {
        let (round, batch) = self.batches.pop_front()?;
        if round != self.encoding {
            self.encoded = self.encoding;
            self.encoding = round;
        }
        self.words -= batch.words.len();
        Some(batch)
    }

    /// A time before which every event of every thread has been encoded.
    pub fn encoded_until(&self) -> Ticks {
        if self.batches.is_empty() { self.last_round } else { self.encoded }
    }
}
