//! Files that are missing, are not files, or cannot be written.

use std::{fs, path::Path};

use laptime_trace::{Format, ReadError, WriteError, read, write};

use crate::complete_trace::complete_trace;

/// The name of every format's file in a folder.
fn names(folder: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    Format::ALL.into_iter().map(|format| folder.join(format!("trace{}", format.extensions()[0])))
}

#[test]
fn empty_files_and_white_space_are_not_traces() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    for content in ["", " ", "\n", "\n\n \t\r\n", "\u{feff}"] {
        fs::write(&file, content).unwrap();
        let error = read(&file).unwrap_err();
        match content {
            "" => assert!(matches!(error, ReadError::Empty)),
            _ => assert_eq!(error.to_string(), "this is not a trace: only white space", "{content:?}"),
        }
    }
}

#[test]
fn a_folder_and_a_missing_file_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let shown = folder.path().display().to_string();
    assert_eq!(read(folder.path()).unwrap_err().to_string(), format!("`{shown}` is a folder, not a trace"));
    let missing = read(folder.path().join("missing.json")).unwrap_err();
    assert_eq!(missing.to_string(), format!("cannot open `{shown}/missing.json`"));
    let ReadError::Open { source, .. } = missing else { panic!("{missing:?}") };
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
}

#[cfg(unix)]
#[test]
fn a_file_that_may_not_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    fs::write(&file, "[]").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o0)).unwrap();
    // The superuser may read it anyway.
    match fs::File::open(&file) {
        Ok(_) => assert!(read(&file).is_ok()),
        Err(_) => assert!(matches!(read(&file), Err(ReadError::Open { .. }))),
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_whose_reading_fails_says_so() {
    assert!(matches!(read("/proc/self/mem"), Err(ReadError::Read(_))));
}

#[test]
fn other_files_are_reported_with_their_format() {
    let cases: [(&[u8], &str); 5] = [
        (b"SQLite format 3\0rest", "this is not a trace: an SQLite database, which can be read from a file only"),
        (b"hello world", "this is not a trace: it begins with `hello world`"),
        (&[0x28, 0xb5, 0x2f, 0xfd, 1], "this is zstd data, which cannot be read"),
        (&[1, 2, 3], "this is not a trace: it begins with the bytes 01 02 03"),
        (b"main;prefill 12\n", "folded stacks contain only part of a trace and cannot be read"),
    ];
    for (bytes, message) in cases {
        assert_eq!(crate::read(bytes).unwrap_err().to_string(), message);
    }
}

#[test]
fn a_written_trace_reads_back_under_every_name() {
    let folder = tempfile::tempdir().unwrap();
    let trace = complete_trace();
    for name in names(folder.path()) {
        write(&trace, &name).unwrap();
        match Format::from_path(&name) {
            Some(Format::Folded | Format::Speedscope) => assert!(matches!(read(&name), Err(ReadError::OneWay { .. }))),
            _ => assert!(read(&name).unwrap() == trace, "{}", name.display()),
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), Format::ALL.len(), "nothing is left beside them");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    for name in names(folder.path()) {
        std::os::unix::fs::symlink("/dev/full", &name).unwrap();
        let Err(WriteError::Write { path, source }) = write(&complete_trace(), &name) else { panic!("{name:?}") };
        assert_eq!((path, source.kind()), (name, std::io::ErrorKind::StorageFull));
    }
}

#[test]
fn an_unwritable_folder_is_an_error_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing/trace.json");
    assert!(matches!(write(&complete_trace(), missing), Err(WriteError::Write { .. })));
    let beneath_a_file = folder.path().join("file");
    fs::write(&beneath_a_file, "").unwrap();
    assert!(matches!(write(&complete_trace(), beneath_a_file.join("trace.json")), Err(WriteError::Write { .. })));
    if cfg!(target_os = "linux") {
        assert!(matches!(write(&complete_trace(), "/proc/trace.json"), Err(WriteError::Write { .. })));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_file_name_without_a_format_is_refused() {
    for name in ["trace", "trace.txt", "trace.pftrace.bak", ""] {
        assert!(matches!(write(&complete_trace(), name), Err(WriteError::Extension { .. })), "{name}");
    }
}
