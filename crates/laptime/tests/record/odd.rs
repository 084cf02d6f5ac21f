//! Odd programs and odd machines.

use std::{fs, process::Command};

use laptime_trace::Activity;

use crate::stand_in::{Place, stand_in};

#[test]
fn a_program_without_cuda_gives_one_note() {
    let place = Place::new();
    let mut command = place.laptime();
    let recorded =
        place.recorded(command.args(["record", "--out", "run", "--", "sh", "-c", "exit 3"]).output().unwrap());
    assert_eq!((recorded.status, recorded.out.as_str()), (Some(3), ""));
    assert_eq!(recorded.err, "\nnote: the program did not use CUDA, so nothing was recorded\n");
}

#[test]
fn without_libcupti_the_package_is_named_and_the_program_runs() {
    let place = Place::new();
    let mut command = place.command(&[], &["init", "say", "done"]);
    let recorded = place.recorded(command.env("LD_LIBRARY_PATH", &stand_in().driver).output().unwrap()).good();
    assert_eq!(recorded.out, "done\n");
    assert!(recorded.err.contains("pip install nvidia-cuda-cupti"), "{}", recorded.err);
}

#[test]
fn an_older_cupti_records_calls_through_callbacks_and_another_profiler_gets_the_subscription() {
    let place = Place::new();
    let mut command = place.command(&[], &["init", "kernels", "12"]);
    let recorded = place.recorded(command.env("LD_LIBRARY_PATH", &stand_in().old).output().unwrap()).good();
    assert_eq!((recorded.count(Activity::Kernel), recorded.count(Activity::Launch)), (12, 12), "{}", recorded.err);
    let place = Place::new();
    let kineto = stand_in().kineto.to_str().unwrap();
    let mut command = place.command(&[], &["init", "kernels", "5", "kineto", kineto]);
    let recorded = place.recorded(command.env("LD_LIBRARY_PATH", &stand_in().old).output().unwrap()).good();
    assert_eq!(recorded.out, "kineto saw 9 kernels, 0 strange buffers\n", "{}", recorded.err);
    assert_eq!((recorded.count(Activity::Kernel), recorded.count(Activity::Launch)), (9, 9), "{}", recorded.err);
}

#[test]
fn without_a_gpu_the_failure_of_the_program_is_kept() {
    let place = Place::new();
    let recorded = place.recorded(place.command(&[], &["init"]).env("STAND_IN_NO_GPU", "1").output().unwrap());
    assert_eq!(recorded.status, Some(3));
    assert!(recorded.err.starts_with("no CUDA\n"), "{}", recorded.err);
    assert!(recorded.err.contains("ran no kernels"), "{}", recorded.err);
}

#[test]
fn another_profiler_in_the_program_keeps_its_profile_and_we_step_aside() {
    // One imports CUPTI's functions, the other looks them up.
    for profiler in [&stand_in().kineto, &stand_in().jax] {
        let words = ["init", "kernels", "5", "kineto", profiler.to_str().unwrap(), "kernels", "2"];
        let recorded = Place::new().record(&[], &words).good();
        assert_eq!(recorded.out, "kineto saw 9 kernels, 0 strange buffers\n", "{profiler:?}: {}", recorded.err);
        assert!(recorded.err.contains("torch.profiler (or another profiler) started inside"), "{}", recorded.err);
        // What ran before is ours.
        assert_eq!(recorded.count(Activity::Kernel), 9);
    }
}

#[test]
fn another_injected_library_is_refused() {
    for name in ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"] {
        let place = Place::new();
        let recorded = place.recorded(place.command(&[], &["init"]).env(name, "/other.so").output().unwrap());
        assert_eq!(recorded.status, Some(2));
        assert!(recorded.err.starts_with(&format!("error: {name} is set to `/other.so`")), "{}", recorded.err);
        assert!(recorded.err.contains("\nhint: "), "{}", recorded.err);
    }
}

#[test]
fn a_missing_command_is_an_error_with_a_hint() {
    let place = Place::new();
    let mut command = place.laptime();
    let recorded = place.recorded(command.args(["record", "--out", "run", "--", "no-such-program"]).output().unwrap());
    assert_eq!((recorded.status, recorded.out.as_str()), (Some(2), ""));
    assert!(recorded.err.starts_with("error: cannot start `no-such-program`"), "{}", recorded.err);
    assert!(recorded.err.contains("\nhint: check the name"), "{}", recorded.err);
}

#[test]
fn a_program_that_closes_every_file_or_clears_its_environment_is_recorded() {
    let recorded = Place::new().record(&[], &["init", "close-all", "kernels", "7", "until-flushed", "kernels", "1"]);
    assert_eq!(recorded.good().count(Activity::Kernel), 8);
    let recorded = Place::new().record(&[], &["init", "clear-environment", "kernels", "7"]).good();
    assert_eq!(recorded.count(Activity::Kernel), 7);
}

#[test]
fn records_that_cannot_be_written_are_counted_and_the_program_continues() {
    let place = Place::new();
    let words = [
        "init",
        "kernels",
        "4",
        "until-flushed",
        "touch",
        "a",
        "await",
        "b",
        "kernels",
        "6",
        "until-flushed",
        "touch",
        "c",
        "await",
        "d",
        "kernels",
        "5",
    ];
    let absolute: Vec<String> = words
        .iter()
        .map(|word| {
            if word.len() == 1 && word.chars().all(char::is_alphabetic) { place.text(word) } else { (*word).to_owned() }
        })
        .collect();
    let absolute: Vec<&str> = absolute.iter().map(String::as_str).collect();
    let child = place.command(&["--no-overhead"], &absolute).spawn().unwrap();
    place.await_file("a");
    fs::rename(place.path("run/parts"), place.path("run/away")).unwrap();
    place.touch("b");
    place.await_file("c");
    fs::rename(place.path("run/away"), place.path("run/parts")).unwrap();
    place.touch("d");
    let recorded = place.finished(child).good();
    assert_eq!(recorded.count(Activity::Kernel), 9, "{}", recorded.err);
    assert_eq!(recorded.json()["dropped"]["kernels"], 6, "{}", recorded.json());
    assert!(recorded.err.contains("dropped: 6 kernels"), "{}", recorded.err);
    assert_eq!(recorded.trace().lost, 6 + recorded.json()["dropped"]["calls"].as_u64().unwrap());
}

#[test]
fn an_interrupt_reaches_the_program_and_the_trace_is_kept() {
    let place = Place::new();
    let ready = place.text("ready");
    let words = ["init", "kernels", "6", "until-flushed", "touch", &ready, "interruptible"];
    let child = place.command(&[], &words).spawn().unwrap();
    place.await_file("ready");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let recorded = place.finished(child);
    assert_eq!(recorded.status, Some(130), "{}", recorded.err);
    assert_eq!(recorded.count(Activity::Kernel), 6);
}

#[test]
fn the_injected_library_exports_its_two_entry_points_only() {
    let place = Place::new();
    place.record(&[], &["say", "x"]).good();
    let folder = fs::read_dir(place.path("home/inject")).unwrap();
    let library = folder.map(|entry| entry.unwrap().path()).find(|path| path.extension().is_some_and(|e| e == "so"));
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library.unwrap()).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(names, ["InitializeInjection", "InitializeInjectionNvtx2"]);
}

#[test]
fn a_recorder_that_was_killed_leaves_parts_that_can_be_merged() {
    let place = Place::new();
    let (ready, go) = (place.text("ready"), place.text("go"));
    let words = ["init", "kernels", "11", "until-flushed", "touch", &ready, "await", &go];
    let mut child = place.command(&[], &words).stdout(std::process::Stdio::null()).spawn().unwrap();
    place.await_file("ready");
    child.kill().unwrap();
    child.wait().unwrap();
    place.touch("go");
    let told = place.ask(&["merge", "run"]);
    assert!(told.contains("11 kernels"), "{told}");
    let trace = laptime_trace::read(place.path("run/trace.pftrace")).unwrap();
    assert_eq!(crate::stand_in::count(&trace, Activity::Kernel), 11);
}

#[test]
fn many_starts_kills_and_forks_change_no_exit_status() {
    let kinds: [(&[&str], i32); 4] = [
        (&["init", "push", "a", "kernels", "20", "pop", "exit", "5"], 5),
        (&["init", "kernels", "20", "fork", "kill"], 137),
        (&["init", "fork", "fork", "kernels", "3"], 0),
        (&["push", "a", "fork", "pop", "spawn", "init", "kernels", "2", ".", "quick-exit", "8"], 8),
    ];
    for round in 0..6 {
        let places: Vec<Place> = kinds.iter().map(|_| Place::new()).collect();
        let children: Vec<_> =
            places.iter().zip(kinds).map(|(place, (words, _))| place.command(&[], words).spawn().unwrap()).collect();
        for ((place, child), (words, status)) in places.iter().zip(children).zip(kinds) {
            let recorded = place.finished(child);
            assert_eq!(recorded.status, Some(status), "round {round}, {words:?}: {}", recorded.err);
        }
    }
}
