//! One sample: a variant with or without fields, at a depth, on some threads.

use std::{
    fmt,
    str::FromStr,
    sync::{
        Barrier,
        atomic::{
            AtomicUsize,
            Ordering::{Acquire, Release},
        },
    },
    thread,
    time::{Duration, Instant},
};

use laptime_probe::{Batch, Config, Recorder};

use crate::variant::Variant;

/// Chunks that run before the timed ones.
const WARM_UP: usize = 3;
const CHUNKS: usize = 15;

/// The measurements of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sample {
    pub variant: Variant,
    pub fields: bool,
    pub depth: u32,
    pub threads: usize,
}

/// The measurements of a process.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub nanos_a_span: f64,
    /// Bytes of buffer per span; none if the spans do not go to a laptime recording.
    pub bytes_a_span: Option<f64>,
}

impl Sample {
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for variant in Variant::ALL {
            for (threads, depth, fields) in shapes() {
                if !variant.is_clock() || (depth == 1 && !fields) {
                    all.push(Self { variant, fields, depth, threads });
                }
            }
        }
        all
    }

    /// Measures the spans of this process.
    pub fn measure(&self) -> Measured {
        // Never dropped: tracing-chrome's guard would wait for its whole queue.
        std::mem::forget(self.variant.set_up());
        let mut recording = self.variant.is_recorded().then(Recording::start);
        let barrier = Barrier::new(self.threads + 1);
        let running = AtomicUsize::new(self.threads);
        let chunks = thread::scope(|scope| {
            let workers: Vec<_> =
                (0..self.threads).map(|_| scope.spawn(|| self.time_chunks(&barrier, &running))).collect();
            for _ in 0..WARM_UP + CHUNKS {
                barrier.wait();
                if let Some(recording) = &mut recording {
                    recording.drain_while(|| running.load(Acquire) > 0);
                    running.store(self.threads, Release);
                }
                barrier.wait();
            }
            workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect::<Vec<_>>()
        });
        let spans = self.variant.chunk() * (self.threads * (WARM_UP + CHUNKS)) as u64;
        let nanos: f64 = chunks.iter().map(|times| median(times).as_nanos() as f64).sum::<f64>() / chunks.len() as f64;
        Measured {
            nanos_a_span: nanos / self.variant.chunk() as f64,
            bytes_a_span: recording.map(|recording| recording.bytes_a_span(spans)),
        }
    }

    /// Runs all chunks, each started by all threads together, and returns the times of those after the warm-up.
    fn time_chunks(&self, barrier: &Barrier, running: &AtomicUsize) -> Vec<Duration> {
        let mut times = Vec::with_capacity(WARM_UP + CHUNKS);
        for _ in 0..WARM_UP + CHUNKS {
            barrier.wait();
            let begin = Instant::now();
            self.variant.repeat(self.variant.chunk(), self.depth, self.fields);
            times.push(begin.elapsed());
            running.fetch_sub(1, Release);
            barrier.wait();
        }
        times.split_off(WARM_UP)
    }
}

/// All combinations of threads, depth and fields, in the order of the table.
pub fn shapes() -> impl Iterator<Item = (usize, u32, bool)> {
    let depths = |threads| [1, 3].into_iter().map(move |depth| (threads, depth));
    [1, 2].into_iter().flat_map(depths).flat_map(|(threads, depth)| [(threads, depth, false), (threads, depth, true)])
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2]
}

/// A recording whose buffers hold a chunk; drained while the threads record, as a writer would, and between chunks.
struct Recording {
    recorder: Recorder,
    batches: Vec<Batch>,
    words: usize,
    lost: u64,
}

impl Recording {
    fn start() -> Self {
        let recorder = Recorder::new(Config { bytes_per_thread: 4 << 20 });
        recorder.make_default().expect("nothing else records in this process");
        Self { recorder, batches: Vec::new(), words: 0, lost: 0 }
    }

    fn drain_while(&mut self, recording: impl Fn() -> bool) {
        while recording() {
            self.drain();
            thread::sleep(Duration::from_micros(200));
        }
        self.drain();
    }

    fn drain(&mut self) {
        self.recorder.drain(&mut self.batches);
        for batch in self.batches.drain(..) {
            self.words += batch.words.len();
            self.lost = self.lost.max(batch.lost);
        }
    }

    fn bytes_a_span(mut self, spans: u64) -> f64 {
        self.drain();
        assert_eq!(self.lost, 0, "the buffer holds a chunk");
        // Each thread ends with a word that marks its exit.
        (self.words * size_of::<u64>()) as f64 / spans as f64
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{}/{}/{}", self.variant, self.fields, self.depth, self.threads)
    }
}

impl FromStr for Sample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::all().into_iter().find(|sample| sample.to_string() == text);
        known.ok_or_else(|| format!("unknown sample `{text}`"))
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.nanos_a_span, self.bytes_a_span.unwrap_or(f64::NAN))
    }
}

impl FromStr for Measured {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a measurement");
        let (nanos, bytes) = text.split_once(' ').ok_or_else(wrong)?;
        let bytes: f64 = bytes.parse().map_err(|_| wrong())?;
        let nanos_a_span = nanos.parse().map_err(|_| wrong())?;
        Ok(Self { nanos_a_span, bytes_a_span: (!bytes.is_nan()).then_some(bytes) })
    }
}
