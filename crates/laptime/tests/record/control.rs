//! Windows, and control from another terminal.

use laptime_trace::Activity;

use crate::stand_in::Place;

#[test]
fn a_paused_recording_is_started_and_stopped_from_another_terminal() {
    let place = Place::new();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| place.text(name));
    let words = [
        "init",
        "kernels",
        "3",
        "push",
        "before",
        "pop",
        "touch",
        &a,
        "await",
        &b,
        "kernels",
        "8",
        "until-flushed",
        "touch",
        &c,
        "await",
        &d,
        "kernels",
        "2",
    ];
    let child = place.command(&["--paused"], &words).spawn().unwrap();
    place.await_file("a");
    assert_eq!(place.ask(&["start"]), "recording\n");
    // The process has switched when it says so in its part.
    place.await_state("Recording");
    place.touch("b");
    place.await_file("c");
    assert_eq!(place.ask(&["stop", &child.id().to_string()]), "stopped\n");
    place.await_state("Paused");
    place.touch("d");
    let recorded = place.finished(child).good();
    let trace = recorded.trace();
    assert_eq!(crate::stand_in::count(&trace, Activity::Kernel), 8, "{}", recorded.err);
    // Calls too can be switched on after CUDA has started.
    assert_eq!(crate::stand_in::count(&trace, Activity::Launch), 8);
    assert!(!trace.spans().any(|span| span.name == "before"));
    assert!(trace.metadata.get("notRecorded").is_some());
}

#[test]
fn the_flight_recorder_is_dumped_on_request_and_kept_after_a_kill() {
    let place = Place::new();
    let [a, b] = ["a", "b"].map(|name| place.text(name));
    let words = ["init", "kernels", "4", "touch", &a, "await", &b, "kernels", "5", "until-flushed", "kill"];
    let child = place.command(&["--keep", "1000s"], &words).spawn().unwrap();
    let memory = format!("/dev/shm/laptime-{}-{}", user(), child.id());
    place.await_file("a");
    assert!(std::path::Path::new(&memory).is_dir());
    let told = place.ask(&["dump"]);
    assert!(told.contains("4 kernels written to") && told.contains("dump-1/trace.pftrace"), "{told}");
    place.touch("b");
    let recorded = place.finished(child);
    assert_eq!((recorded.status, recorded.count(Activity::Kernel)), (Some(137), 9), "{}", recorded.err);
    assert!(!std::path::Path::new(&memory).exists());
    let dumped = laptime_trace::read(place.path("run/dump-1/trace.pftrace")).unwrap();
    assert_eq!(crate::stand_in::count(&dumped, Activity::Kernel), 4);
}

#[test]
fn a_flight_recorder_drops_records_older_than_requested() {
    let place = Place::new();
    // The time to keep is so short that every flush begins another part and removes the one before.
    let words =
        ["init", "kernels", "40", "until-flushed", "until-flushed", "until-flushed", "kernels", "2", "exit", "0"];
    let recorded = place.record(&["--keep", "0.2s"], &words).good();
    let kernels = recorded.count(Activity::Kernel);
    assert!(kernels <= 2, "{kernels}: {}", recorded.err);
}

#[test]
fn asking_where_nothing_is_recorded_is_an_error_with_a_hint() {
    let place = Place::new();
    let output = place.laptime().args(["record", "stop"]).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(told.starts_with("error: nothing is being recorded\n\nhint: "), "{told}");
}

#[test]
fn a_window_that_begins_later_than_the_program_ends_records_nothing() {
    let recorded = Place::new().record(&["--after", "1000s"], &["init", "kernels", "3"]).good();
    assert!(recorded.err.contains("ran no kernels while recording was on"), "{}", recorded.err);
    assert_eq!(recorded.count(Activity::Kernel), 0);
}

#[test]
fn a_window_of_laps_is_cut_out_of_the_recording() {
    let flags = ["--after-laps", "2", "--for-laps", "5", "--no-overhead"];
    let recorded = Place::new().record(&flags, &["init", "kernels", "10", "steps", "20"]).good();
    let trace = recorded.trace();
    assert_eq!(trace.spans().filter(|span| span.name == "step").count(), 5, "{}", recorded.err);
    assert_eq!(crate::stand_in::count(&trace, Activity::Kernel), 30);
    assert!(recorded.err.contains("Window: laps 3 to 7 of 20 (`step`)"), "{}", recorded.err);
}

#[test]
fn laps_outside_a_window_of_a_named_range_are_not_even_recorded() {
    let step = ["push", "step", "kernels", "6", "pop"];
    let mut words = vec!["init", "kernels", "10"];
    // Recording is switched off at the first lap, on at the fourth and off at the eighth. Each switch is over after a flush.
    for lap in 1..=10 {
        words.extend(step);
        if [1, 4, 8].contains(&lap) {
            words.push("until-flushed");
        }
    }
    let recorded = Place::new().record(&["--lap", "step", "--after-laps", "4", "--for-laps", "2"], &words).good();
    let trace = recorded.trace();
    assert_eq!(trace.spans().filter(|span| span.name == "step").count(), 2, "{}", recorded.err);
    assert_eq!(crate::stand_in::count(&trace, Activity::Kernel), 12, "{}", recorded.err);
    assert!(recorded.err.contains("Window: laps 5 to 6 of 10 (`step`)"), "{}", recorded.err);
    // At the start, in the first and fourth lap (while recording is switched), in laps 5 to 8, and after them, while the rest
    // of the work comes back: laps 2 and 3 are missing.
    let kernels = recorded.json()["processes"][0]["kernels"].as_u64().unwrap();
    assert!((10 + 18..=10 + 48).contains(&kernels), "{kernels}");
}

#[test]
fn kernels_that_run_after_the_last_lap_of_a_window_belong_to_the_lap_that_launched_them() {
    let flags = ["--lap", "step", "--after-laps", "4", "--for-laps", "20"];
    let recorded = Place::new().record(&flags, &["init", "behind", "40"]).good();
    let trace = recorded.trace();
    assert_eq!(trace.spans().filter(|span| span.name == "step").count(), 20, "{}", recorded.err);
    assert_eq!(crate::stand_in::count(&trace, Activity::Kernel), 20, "{}", recorded.err);
}

fn user() -> u32 {
    laptime_capture::process::user()
}

impl Place {
    /// Waits until a part of the recording says that the process is in this state.
    fn await_state(&self, state: &str) {
        use laptime_capture::part::{self, Event};
        let is_in_state = || {
            let parts = std::fs::read_dir(self.path("run/parts")).ok()?;
            let events = parts.flatten().filter_map(|entry| std::fs::read(entry.path()).ok());
            let events: Vec<Event> = events.flat_map(|bytes| part::read(&bytes).events).collect();
            let last = events.iter().rev().find_map(|event| match event {
                Event::State { state, .. } => Some(format!("{state:?}")),
                _ => None,
            });
            (last? == state).then_some(())
        };
        while is_in_state().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
