//! Recordings that cannot be started or finished.

use laptime_probe::stage;
use laptime_trace::{RecordError, read, record_to};

use crate::alone::{alone, on_thread, shape};

#[test]
fn a_second_recording_is_refused_and_the_first_goes_on() {
    let alone = alone();
    let first = alone.start();
    for name in ["trace.pftrace", "other.pftrace"] {
        let error = record_to(alone.path(name)).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot record to `{}`", alone.path(name).display()));
        let RecordError::Taken { source, .. } = error else { panic!("{error:?}") };
        assert_eq!(source.to_string(), "a recording is already running in this process");
    }
    on_thread("pipeline", || drop(stage!("stage")));
    first.finish().unwrap();
    assert_eq!(shape(&read(alone.path("trace.pftrace")).unwrap(), "pipeline"), "stage\n");
    assert!(!alone.path("other.pftrace").exists());
}

#[test]
fn a_missing_folder_is_an_error_and_leaves_the_process_free() {
    let alone = alone();
    let error = record_to(alone.path("missing/trace.pftrace")).unwrap_err();
    assert!(matches!(error, RecordError::Write { .. }), "{error:?}");
    assert!(!laptime_probe::recording());
    let (trace, _) = alone.record(|| on_thread("pipeline", || drop(stage!("stage"))));
    assert_eq!(shape(&trace, "pipeline"), "stage\n");
}

#[test]
fn a_file_name_without_a_lossless_format_is_refused() {
    let alone = alone();
    for name in ["trace", "trace.txt", "trace.folded", "trace.speedscope.json"] {
        let error = record_to(alone.path(name)).unwrap_err();
        assert!(matches!(error, RecordError::Extension { .. }), "{name}: {error:?}");
        assert!(!alone.path(name).exists());
    }
    assert!(!laptime_probe::recording());
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported_at_the_end_and_the_program_goes_on() {
    let alone = alone();
    for name in ["trace.pftrace", "other.json.pftrace"] {
        std::os::unix::fs::symlink("/dev/full", alone.path(name)).unwrap();
    }
    for (name, written) in [("trace.pftrace", "trace.pftrace"), ("other.json", "other.json.pftrace")] {
        let recording = record_to(alone.path(name)).unwrap();
        (0..1_000).for_each(|_| drop(stage!("stage")));
        let error = recording.finish().unwrap_err();
        let RecordError::Write { path, source } = error else { panic!("{error:?}") };
        assert_eq!((path, source.kind()), (alone.path(written), std::io::ErrorKind::StorageFull));
    }
    assert!(!laptime_probe::recording());
    assert!(!alone.path("other.json").exists());
}

#[test]
fn a_recording_that_cannot_be_converted_is_kept() {
    let alone = alone();
    let path = alone.path("trace.json");
    let recording = record_to(&path).unwrap();
    on_thread("pipeline", || drop(stage!("stage")));
    // A folder with the same name: the file cannot be created.
    std::fs::create_dir(&path).unwrap();
    let error = recording.finish().unwrap_err();
    let RecordError::Convert { recorded, .. } = error else { panic!("{error:?}") };
    assert_eq!(shape(&read(recorded).unwrap(), "pipeline"), "stage\n");
}
