use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

/// A simulated stream: work takes device time, and each reading of the host clock takes host time.
#[derive(Debug, Default, Clone)]
struct Fake(Arc<Mutex<FakeState>>);

#[derive(Debug)]
struct FakeEvent(usize, Fake);

impl Drop for FakeEvent {
    fn drop(&mut self) {
        assert!(self.1.state().alive.remove(&self.0), "event {} is destroyed twice", self.0);
    }
}

#[derive(Debug, Default)]
struct FakeState {
    now: u64,
    busy_until: u64,
    /// When each event is reached, by its number.
    events: Vec<u64>,
    alive: HashSet<usize>,
    look_nanos: u64,
    /// How long after an event the host can see it.
    late: u64,
    is_broken: bool,
    is_capturing: bool,
}

impl Fake {
    fn state(&self) -> MutexGuard<'_, FakeState> {
        self.0.lock().unwrap()
    }

    fn submit(&self, nanos: u64) {
        let mut state = self.state();
        state.busy_until = state.busy_until.max(state.now) + nanos;
    }

    /// When work put on the stream now would begin.
    fn due(&self) -> u64 {
        let state = self.state();
        state.busy_until.max(state.now)
    }

    fn finish(&self) {
        let mut state = self.state();
        state.now = state.now.max(state.busy_until);
    }
}

impl Events for Fake {
    type Event = Arc<FakeEvent>;

    fn record(&self, reused: Option<Arc<FakeEvent>>) -> Option<Arc<FakeEvent>> {
        let mut state = self.state();
        if state.is_capturing {
            return None;
        }
        let at = state.busy_until.max(state.now);
        let number = reused.as_ref().map_or(state.events.len(), |event| event.0);
        if number == state.events.len() {
            state.events.push(at);
        }
        state.events[number] = at;
        state.alive.insert(number);
        drop(state);
        Some(reused.unwrap_or_else(|| Arc::new(FakeEvent(number, self.clone()))))
    }

    fn reached(&self, event: &Arc<FakeEvent>) -> Reached {
        let state = self.state();
        match state.events[event.0] + state.late <= state.now {
            _ if state.is_broken => Reached::Never,
            true => Reached::Yes,
            false => Reached::NotYet,
        }
    }

    fn nanos_between(&self, from: &Arc<FakeEvent>, to: &Arc<FakeEvent>) -> Option<i64> {
        let state = self.state();
        Some(state.events[to.0] as i64 - state.events[from.0] as i64)
    }

    fn is_idle(&self) -> bool {
        let state = self.state();
        state.busy_until <= state.now
    }

    fn host_time(&self) -> HostTime {
        let mut state = self.state();
        let nanos = state.now;
        state.now += state.look_nanos;
        HostTime { ticks: Ticks(nanos * 2), nanos }
    }
}

fn clock() -> Clock<Fake> {
    let clock = Clock::over(Fake::default());
    clock.anchor();
    clock
}

fn at(resolved: Resolved) -> (u64, i64) {
    match resolved {
        Resolved::At(moment) => (moment.anchor.before.0, moment.nanos),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_mark_is_pending_until_the_device_gets_there() {
    let clock = clock();
    clock.events.submit(500);
    let stamp = clock.mark().unwrap();
    assert_eq!(clock.resolve(stamp), Resolved::Pending);
    clock.events.finish();
    assert_eq!(at(clock.resolve(stamp)), (0, 500));
    assert_eq!(clock.resolve(stamp), Resolved::Never);
}

#[test]
fn a_time_is_reported_from_the_nearer_of_the_anchors_around_it() {
    let clock = clock();
    clock.events.submit(900);
    let stamp = clock.mark().unwrap();
    clock.events.submit(100);
    clock.events.finish();
    clock.anchor();
    assert_eq!(at(clock.resolve(stamp)), (2_000, -100));
}

#[test]
fn a_stream_at_work_gets_no_anchor() {
    let clock = clock();
    clock.events.submit(900);
    clock.anchor();
    assert_eq!(clock.state().anchors.len(), 1);
}

#[test]
fn a_stream_that_is_captured_takes_no_mark() {
    let clock = clock();
    clock.events.state().is_capturing = true;
    assert_eq!(clock.mark(), None);
}

#[test]
fn a_device_that_failed_never_answers() {
    let clock = clock();
    let stamp = clock.mark().unwrap();
    clock.events.state().is_broken = true;
    assert_eq!(clock.resolve(stamp), Resolved::Never);
}

#[test]
fn events_are_used_again() {
    let clock = clock();
    for _ in 0..1_000 {
        let stamps = [clock.mark().unwrap(), clock.mark().unwrap()];
        clock.events.finish();
        clock.anchor();
        for stamp in stamps {
            at(clock.resolve(stamp));
        }
    }
    let made = clock.events.state().events.len();
    assert!(made <= 8, "{made} events were made");
    assert_eq!(clock.state().anchors.len(), 1);
}

#[test]
fn the_uncertainty_is_half_of_what_the_host_saw_pass_and_the_resolution() {
    let clock = Clock::over(Fake::default());
    clock.events.state().look_nanos = 4_000;
    clock.anchor();
    assert_eq!(clock.uncertainty_nanos(), 2_000 + EVENT_RESOLUTION_NANOS);
}

#[test]
fn a_new_clock_gets_an_anchor_however_late_the_host_sees_the_event() {
    let late = Clock::over(Fake::default());
    late.events.state().look_nanos = 1_000;
    late.events.state().late = 3_000_000;
    assert!(late.first_anchor());
    let uncertainty = late.uncertainty_nanos();
    assert!((1_500_000..1_600_000).contains(&uncertainty), "{uncertainty}");
    let broken = Clock::over(Fake::default());
    broken.events.state().is_broken = true;
    assert!(!broken.first_anchor());
}

#[test]
fn a_time_far_from_its_anchor_is_less_certain() {
    let clock = clock();
    clock.events.submit(10_000_000_000);
    let stamp = clock.mark().unwrap();
    clock.events.finish();
    at(clock.resolve(stamp));
    assert_eq!(clock.uncertainty_nanos(), EVENT_RESOLUTION_NANOS + 200_000 + 596);
}

#[test]
fn every_event_is_destroyed_with_the_clock() {
    let fake = Fake::default();
    let clock = Clock::over(fake.clone());
    clock.anchor();
    let stamp = clock.mark().unwrap();
    clock.mark().unwrap();
    at(clock.resolve(stamp));
    drop(clock);
    assert!(fake.state().alive.is_empty());
}

proptest! {
    #[test]
    fn every_mark_is_reported_at_its_time_whatever_the_order(
        steps in prop::collection::vec((0_u8..4, 0_u64..5_000), 1..200),
    ) {
        let clock = clock();
        let mut open: Vec<(Stamp, u64)> = Vec::new();
        for (kind, number) in steps {
            match kind {
                0 => clock.events.submit(number),
                1 => {
                    clock.events.finish();
                    clock.anchor();
                }
                2 => {
                    let due = clock.events.due();
                    open.push((clock.mark().unwrap(), due));
                }
                _ if open.is_empty() => {}
                _ => {
                    let (stamp, due) = open[number as usize % open.len()];
                    match clock.resolve(stamp) {
                        Resolved::Pending => prop_assert!(due > clock.events.state().now),
                        Resolved::At(moment) => {
                            prop_assert_eq!(moment.anchor.before.0 as i64 / 2 + moment.nanos, due as i64);
                            open.retain(|(known, _)| *known != stamp);
                        }
                        Resolved::Never => prop_assert!(false, "a mark was lost"),
                    }
                }
            }
        }
    }
}
