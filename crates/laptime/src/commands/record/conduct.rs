//! Decides when processes record: windows, requests from other terminals, and short pauses to measure the cost.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use laptime_capture::control::{Control, Wanted};

use super::socket::{Asked, Request};

/// The first pause that measures the cost comes after this much recording.
const FIRST_ON: Duration = Duration::from_secs(4);
/// How long the first pauses are. Later ones are longer, for programs whose steps are.
const FIRST_OFF: Duration = Duration::from_millis(300);
const LONGEST_OFF: Duration = Duration::from_millis(2400);
/// Recording lasts this many times as long as the pause after it: 6 % is not recorded.
const ON_PER_OFF: u32 = 15;
/// Pauses of each length.
const PAUSES_PER_LENGTH: u32 = 8;

/// When to record.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    /// Begin after this much time.
    pub after: Option<Duration>,
    /// Stop after recording for this long.
    pub during: Option<Duration>,
    /// Wait for `laptime record start`.
    pub is_paused: bool,
    /// Switch recording off now and then, to measure what it costs.
    pub measures_cost: bool,
}

impl Plan {
    /// What is wanted at the start.
    pub fn first(&self) -> Wanted {
        if self.is_paused || self.after.is_some() { Wanted::Nothing } else { Wanted::Everything }
    }
}

/// A message to the conductor.
pub enum Message {
    /// Somebody asks from another terminal.
    Asked(Asked),
    /// The program has ended.
    Ended,
}

/// The thread that decides.
#[derive(Debug)]
pub struct Conductor {
    to: Sender<Message>,
    thread: JoinHandle<()>,
}

impl Conductor {
    /// Starts it. `dump` writes what was recorded so far and says where.
    pub fn start(plan: Plan, control: Control, dump: impl Fn() -> String + Send + 'static) -> Self {
        let (to, from) = channel();
        let thread = thread::spawn(move || State::new(plan, control).run(&from, &dump));
        Self { to, thread }
    }

    /// Where requests go.
    pub fn requests(&self) -> Sender<Asked> {
        let (requests, asked) = channel();
        let to = self.to.clone();
        thread::spawn(move || {
            while let Ok(asked) = asked.recv() {
                if to.send(Message::Asked(asked)).is_err() {
                    return;
                }
            }
        });
        requests
    }

    /// The program has ended: nothing changes any more.
    pub fn finish(self) {
        let _ = self.to.send(Message::Ended);
        let _ = self.thread.join();
    }
}

struct State {
    control: Control,
    wanted: Wanted,
    /// What happens next by itself, and when.
    next: Option<(Instant, Step)>,
    plan: Plan,
    window_end: Option<Instant>,
    pauses: u32,
    random: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Begin,
    End,
    PauseForCost,
    GoOn,
}

impl State {
    fn new(plan: Plan, control: Control) -> Self {
        let now = Instant::now();
        let random = u64::from(std::process::id()) | 1;
        let mut state = Self { control, wanted: plan.first(), next: None, plan, window_end: None, pauses: 0, random };
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
                Ok(Message::Ended) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn answer(&mut self, request: Request, dump: &impl Fn() -> String) -> String {
        match request {
            Request::Start if self.wanted == Wanted::Nothing => {
                self.want(Wanted::Everything);
                self.begun(Instant::now());
                "recording".to_owned()
            }
            Request::Start => "already recording".to_owned(),
            Request::Stop if self.wanted == Wanted::Nothing => "not recording".to_owned(),
            Request::Stop => {
                self.want(Wanted::Nothing);
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
                self.want(Wanted::Everything);
                self.begun(now);
            }
            Some(Step::GoOn) => {
                self.want(Wanted::Everything);
                self.schedule(now);
            }
            Some(Step::PauseForCost) => {
                self.want(Wanted::Light);
                self.next = Some((now + self.pause(), Step::GoOn));
                self.pauses += 1;
            }
            Some(Step::End) => self.want(Wanted::Nothing),
            None => {}
        }
    }

    fn begun(&mut self, now: Instant) {
        self.window_end = self.plan.during.map(|during| now + during);
        self.schedule(now);
    }

    /// The next pause, unless the window ends before it is over.
    fn schedule(&mut self, now: Instant) {
        let end = self.window_end.map(|end| (end, Step::End));
        let on = if self.pauses == 0 { FIRST_ON } else { self.jitter(self.pause() * ON_PER_OFF) };
        let pause = self.plan.measures_cost.then_some((now + on, Step::PauseForCost));
        self.next = match (pause, end) {
            (Some((at, _)), Some((end, step))) if at + self.pause() >= end => Some((end, step)),
            (None, end) => end,
            (pause, _) => pause,
        };
    }

    fn pause(&self) -> Duration {
        (FIRST_OFF * 2_u32.pow((self.pauses / PAUSES_PER_LENGTH).min(8))).min(LONGEST_OFF)
    }

    /// A fifth more or less, so that pauses do not keep step with the program.
    fn jitter(&mut self, length: Duration) -> Duration {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        length.mul_f64(0.8 + 0.4 * ((self.random >> 40) as f64 / f64::from(1 << 24)))
    }

    fn want(&mut self, wanted: Wanted) {
        self.wanted = wanted;
        self.control.want(wanted);
    }
}
