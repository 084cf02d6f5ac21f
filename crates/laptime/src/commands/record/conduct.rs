//! Controls when processes record: windows, requests from other terminals, and short pauses to measure the overhead.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use laptime_capture::control::{Control, RecordingMode};

use super::socket::{Asked, Request};

/// The range of the length of a pause that measures the overhead.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Time around the switches at both ends of a pause, which is not compared.
const SWITCHING: Duration = Duration::from_millis(40);
/// Beats per pause. Beats are syncs, copies and NVTX ranges.
const BEATS_PER_PAUSE: f64 = 5.0;
/// Some pauses are longer, since a step of the program may contain several beats.
const FACTORS: [u32; 8] = [1, 1, 1, 2, 1, 1, 1, 4];
/// Ratio of recording to pauses: 5 % of the GPU work is not recorded.
const ON_PER_OFF: u32 = 20;
/// The first pauses come sooner if they are short, to know the overhead of short runs too.
const ON_PER_EARLY_OFF: u32 = 10;
const EARLY_PAUSES: u32 = 8;
/// After this many pauses the overhead is known, and recording no longer pauses.
const MOST_PAUSES: u32 = 36;
/// How often the conductor checks whether the program uses the GPU.
const SHORTEST_POLL: Duration = Duration::from_millis(100);
const LONGEST_POLL: Duration = Duration::from_millis(2200);
/// Processes report once per second. Without a report for this long, the GPU is idle.
const REPORT_INTERVAL: Duration = Duration::from_millis(1100);

/// When to record.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// Begin after this time.
    pub after: Option<Duration>,
    /// Stop after recording for this long.
    pub during: Option<Duration>,
    /// Wait for `laptime record start`.
    pub is_paused: bool,
    /// Pause now and then to measure the overhead.
    pub measures_overhead: bool,
}

impl Plan {
    /// The initial mode.
    pub fn first(&self) -> RecordingMode {
        if self.is_paused || self.after.is_some() { RecordingMode::Nothing } else { RecordingMode::Everything }
    }
}

pub enum Message {
    /// A request from another terminal.
    Asked(Asked),
    ProgramEnded,
}

#[derive(Debug)]
pub struct Conductor {
    to: Sender<Message>,
    thread: JoinHandle<()>,
}

impl Conductor {
    /// Starts the thread. `dump` writes what was recorded so far, and returns a message.
    pub fn start(plan: Plan, control: Control, dump: impl Fn() -> String + Send + 'static) -> Self {
        let (to, from) = channel();
        let thread = thread::spawn(move || State::new(plan, control).run(&from, &dump));
        Self { to, thread }
    }

    /// A channel for requests.
    pub fn sender(&self) -> Sender<Message> {
        self.to.clone()
    }

    /// Stops the thread when the program has ended.
    pub fn finish(self) {
        let _ = self.to.send(Message::ProgramEnded);
        let _ = self.thread.join();
    }
}

struct State {
    control: Control,
    /// The next scheduled step.
    next: Option<(Instant, Step)>,
    plan: Plan,
    window_end: Option<Instant>,
    pauses: Pauses,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Begin,
    End,
    Poll,
    Pause,
    Resume,
}

impl State {
    fn new(plan: Plan, control: Control) -> Self {
        let now = Instant::now();
        let pauses = Pauses { random: u64::from(std::process::id()) | 1, ..Pauses::default() };
        let mut state = Self { control, next: None, plan, window_end: None, pauses };
        match plan.after.filter(|_| !plan.is_paused) {
            Some(after) => state.next = Some((now + after, Step::Begin)),
            None if !plan.is_paused => state.begun(now),
            None => {}
        }
        state
    }

    fn run(mut self, from: &Receiver<Message>, dump: &impl Fn() -> String) {
        loop {
            let message = match self.next {
                Some((at, _)) => from.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => from.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Asked((request, answer))) => {
                    let _ = answer.send(self.answer(request, dump));
                }
                Err(RecvTimeoutError::Timeout) => self.step(),
                Ok(Message::ProgramEnded) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn answer(&mut self, request: Request, dump: &impl Fn() -> String) -> String {
        match request {
            Request::Start if self.control.mode() == RecordingMode::Nothing => {
                self.control.request_mode(RecordingMode::Everything);
                self.begun(Instant::now());
                "recording".to_owned()
            }
            Request::Start => "already recording".to_owned(),
            Request::Stop if self.control.mode() == RecordingMode::Nothing => "not recording".to_owned(),
            Request::Stop => {
                self.control.request_mode(RecordingMode::Nothing);
                self.next = None;
                "stopped".to_owned()
            }
            Request::Dump => {
                self.control.wake();
                dump()
            }
        }
    }

    fn step(&mut self) {
        let now = Instant::now();
        match self.next.take().map(|(_, step)| step) {
            Some(Step::Begin) => {
                self.control.request_mode(RecordingMode::Everything);
                self.begun(now);
            }
            Some(Step::Resume) => {
                self.control.request_mode(RecordingMode::Everything);
                self.pauses.resume(now, self.control.recorded());
                self.schedule(now);
            }
            Some(Step::Poll) => {
                self.pauses.poll(now, self.control.recorded());
                self.schedule(now);
            }
            Some(Step::Pause) => {
                self.control.request_mode(RecordingMode::Light);
                self.next = Some((now + self.pauses.begin(), Step::Resume));
            }
            Some(Step::End) => self.control.request_mode(RecordingMode::Nothing),
            None => {}
        }
    }

    fn begun(&mut self, now: Instant) {
        self.window_end = self.plan.during.map(|during| now + during);
        self.pauses.resume(now, self.control.recorded());
        self.schedule(now);
    }

    /// Schedules the next poll or pause, unless the window ends before.
    fn schedule(&mut self, now: Instant) {
        let is_measuring = self.plan.measures_overhead && self.pauses.count < MOST_PAUSES;
        let pause = is_measuring.then(|| match self.pauses.due_in() {
            Duration::ZERO => (now, self.pauses.length(), Step::Pause),
            wait => (now + wait, Duration::ZERO, Step::Poll),
        });
        self.next = match (pause, self.window_end) {
            (Some((at, length, step)), end) if end.is_none_or(|end| at + length < end) => Some((at, step)),
            (_, end) => end.map(|end| (end, Step::End)),
        };
    }
}

/// Decides when and how long to pause: only while the program uses the GPU, for a few beats, and for a small share of
/// that time.
#[derive(Debug, Default)]
struct Pauses {
    count: u32,
    random: u64,
    /// Time of the last poll, and the kernels and beats until then.
    last: Option<(Instant, (u64, u64))>,
    /// Recording time with kernels since the last pause.
    active: Duration,
    /// Beats per second at the last poll with new kernels.
    rate: f64,
    /// Random factor of the recording time before the next pause.
    jitter: f64,
}

impl Pauses {
    /// Updates from the number of kernels and beats recorded so far.
    fn poll(&mut self, now: Instant, recorded: (u64, u64)) {
        let Some((before, known)) = self.last else { return self.resume(now, recorded) };
        let elapsed = now.saturating_duration_since(before);
        if recorded.0 > known.0 {
            self.active += elapsed;
            self.rate = (recorded.1 - known.1) as f64 / elapsed.as_secs_f64().max(1e-9);
        } else if elapsed < REPORT_INTERVAL {
            return;
        }
        self.last = Some((now, recorded));
    }

    /// Recording begins, or continues after a pause.
    fn resume(&mut self, now: Instant, recorded: (u64, u64)) {
        self.last = Some((now, recorded));
    }

    /// Time until the next poll; zero if a pause is due.
    fn due_in(&self) -> Duration {
        let jitter = if self.count == 0 { 1.0 } else { self.jitter };
        let is_early = self.count < EARLY_PAUSES && self.length() <= 2 * SHORTEST_PAUSE;
        let on_per_off = if is_early { ON_PER_EARLY_OFF } else { ON_PER_OFF };
        let missing = (self.length() * on_per_off).mul_f64(jitter).saturating_sub(self.active);
        if missing.is_zero() { missing } else { missing.clamp(SHORTEST_POLL, LONGEST_POLL) }
    }

    fn length(&self) -> Duration {
        let beats = if self.rate > 0.0 { BEATS_PER_PAUSE / self.rate } else { f64::INFINITY };
        let longest = LONGEST_PAUSE.as_secs_f64();
        let usual = (SWITCHING + Duration::from_secs_f64(beats.min(longest))).max(SHORTEST_PAUSE);
        (usual * FACTORS[self.count as usize % FACTORS.len()]).min(LONGEST_PAUSE)
    }

    /// Begins a pause and returns its length.
    fn begin(&mut self) -> Duration {
        let length = self.length();
        self.count += 1;
        self.active = Duration::ZERO;
        // ±20 %, so that pauses do not coincide with a period of the program.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.jitter = 0.8 + 0.4 * ((self.random >> 40) as f64 / f64::from(1 << 24));
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pauses of a program with these numbers of kernels and beats per second.
    fn paused(seconds: u32, kernels: u64, beats: u64) -> Vec<Duration> {
        let (start, mut pauses) = (Instant::now(), Pauses { random: 7, ..Pauses::default() });
        let mut found = Vec::new();
        let mut now = Duration::ZERO;
        while now < Duration::from_secs(seconds.into()) && pauses.count < MOST_PAUSES {
            let so_far = |now: Duration| [kernels, beats].map(|rate| (now.as_secs_f64() * rate as f64) as u64).into();
            pauses.poll(start + now, so_far(now));
            match pauses.due_in() {
                Duration::ZERO => {
                    found.push(pauses.begin());
                    now += found[found.len() - 1];
                    pauses.resume(start + now, so_far(now));
                }
                wait => now += wait,
            }
        }
        found
    }

    #[test]
    fn pauses_take_at_most_5_percent_and_are_longer_for_long_steps() {
        for beats in [1000, 40, 10, 1, 0] {
            let lengths = paused(300, 1000, beats);
            let share = lengths.iter().sum::<Duration>().as_secs_f64() / 300.0;
            assert!(!lengths.is_empty() && share <= 0.05, "{beats} beats per second: {share}, {lengths:?}");
        }
        assert_eq!(paused(60, 1000, 1000)[0], SHORTEST_PAUSE);
        assert_eq!(paused(60, 1000, 10)[0], Duration::from_millis(540));
    }

    #[test]
    fn twenty_seconds_of_short_steps_have_enough_pauses_for_an_interval() {
        assert!(paused(20, 50_000, 50).len() >= super::super::overhead::LEAST_PAUSES);
    }

    #[test]
    fn a_program_without_gpu_work_is_recorded_without_pauses() {
        assert_eq!(paused(300, 0, 50), []);
        assert_eq!(paused(2, 1000, 50), []);
    }

    #[test]
    fn pauses_end_when_the_overhead_is_known() {
        assert_eq!(paused(3600, 1000, 50).len(), MOST_PAUSES as usize);
    }
}
