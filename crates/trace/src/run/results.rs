//! `results.jsonl`: one case result per line, written so that an interrupted run keeps everything it finished.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, de::DeserializeOwned};

use super::{CaseResult, OLDEST_SCHEMA, SCHEMA};
use crate::{format::WriteError, small_file};

/// The name of the file in a run folder.
pub const RESULTS_FILE: &str = "results.jsonl";

/// Why a file of a run cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the errors are")]
pub enum RunFileError {
    #[error("cannot read `{path}`", path = path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot write `{path}`", path = path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{path}`{place} is not a run record", path = path.display(), place = place(*line))]
    Content { path: PathBuf, line: Option<usize>, source: serde_json::Error },
    #[error("`{path}` has schema {found}; this build reads schemas {OLDEST_SCHEMA} to {SCHEMA}", path = path.display())]
    Schema { path: PathBuf, found: u32 },
}

fn place(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line},"))
}

impl From<WriteError> for RunFileError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Write { path, source } => Self::Write { path, source },
            other => Self::Write { path: PathBuf::new(), source: io::Error::other(other) },
        }
    }
}

/// Parses one record after checking its schema.
pub(super) fn parse<T: DeserializeOwned>(text: &[u8], path: &Path, line: Option<usize>) -> Result<T, RunFileError> {
    #[derive(Deserialize)]
    struct Versioned {
        schema: u32,
    }
    let wrong = |source| RunFileError::Content { path: path.to_owned(), line, source };
    let Versioned { schema } = serde_json::from_slice(text).map_err(wrong)?;
    if !(OLDEST_SCHEMA..=SCHEMA).contains(&schema) {
        return Err(RunFileError::Schema { path: path.to_owned(), found: schema });
    }
    serde_json::from_slice(text).map_err(wrong)
}

/// The results of a folder.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Results {
    /// The results in the order in which cases were first measured; for a case measured again, the last result.
    pub results: Vec<CaseResult>,
    /// Whether the last line was incomplete and dropped.
    pub was_cut: bool,
}

/// Reads the results of a run folder. An unterminated last line, left by a killed process, is dropped.
pub fn read_results(path: &Path) -> Result<Results, RunFileError> {
    let text = small_file::read_bytes(path, small_file::LARGEST_RESULTS)
        .map_err(|source| RunFileError::Open { path: path.to_owned(), source })?;
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    let mut read = Results { was_cut: whole < text.len(), ..Results::default() };
    let mut places = HashMap::new();
    for (at, line) in text[..whole].split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        let result: CaseResult = parse(line, path, Some(at + 1))?;
        let place = *places.entry(result.key()).or_insert(read.results.len());
        if place < read.results.len() {
            read.results[place] = result;
        } else {
            read.results.push(result);
        }
    }
    Ok(read)
}

/// Appends results to a file, each flushed to the disk before the next case begins.
#[derive(Debug)]
pub struct ResultsWriter<F = File> {
    path: PathBuf,
    file: F,
    /// The end of the last complete line.
    end: u64,
}

/// The target of results: a file, or a test double that fails on request.
pub trait ResultsFile: Write {
    /// Flushes the written data to the disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Truncates the file at `end` and continues there.
    fn cut(&mut self, end: u64) -> io::Result<()>;
}

impl ResultsFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, end: u64) -> io::Result<()> {
        self.set_len(end)?;
        self.seek(SeekFrom::Start(end)).map(drop)
    }
}

impl ResultsWriter {
    /// Opens the results of a folder for appending. An incomplete last line is truncated.
    pub fn open(folder: &Path) -> Result<Self, RunFileError> {
        let path = folder.join(RESULTS_FILE);
        let failed = |source| RunFileError::Write { path: path.clone(), source };
        let open = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let mut file = open.map_err(failed)?;
        // Two writers on one file would truncate each other's lines.
        file.try_lock().map_err(|error| failed(error.into()))?;
        let end = whole_lines(&mut file).and_then(|end| file.cut(end).map(|()| end)).map_err(failed)?;
        Ok(Self { path, file, end })
    }
}

fn whole_lines(file: &mut File) -> io::Result<u64> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end as u64 + 1))
}

impl<F: ResultsFile> ResultsWriter<F> {
    /// Writes to another target than the file of a folder.
    pub fn to(path: PathBuf, file: F, end: u64) -> Self {
        Self { path, file, end }
    }

    /// Appends a result as one line and flushes it to the disk. If that fails, the incomplete line is truncated.
    pub fn append(&mut self, result: &CaseResult) -> Result<(), RunFileError> {
        let mut line = serde_json::to_vec(result).unwrap_or_default();
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync());
        written.map_err(|source| {
            // If the disk rejects this too, a reader still drops an unterminated line.
            let _ = self.file.cut(self.end);
            RunFileError::Write { path: self.path.clone(), source }
        })?;
        self.end += line.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Case, Outcome};

    fn result(size: i64, run: u32, reason: &str) -> CaseResult {
        let case = Case::new(vec![("size".into(), size.into())]);
        CaseResult::new("matmul", "cpu", case, run, "", Outcome::Skipped { reason: reason.into() })
    }

    #[test]
    fn appended_results_are_read_and_the_last_of_a_case_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = ResultsWriter::open(folder.path()).unwrap();
        for result in [result(1, 0, "a"), result(2, 0, "b"), result(1, 1, "c"), result(1, 0, "d")] {
            writer.append(&result).unwrap();
        }
        let read = read_results(&folder.path().join(RESULTS_FILE)).unwrap();
        assert_eq!(read.results, [result(1, 0, "d"), result(2, 0, "b"), result(1, 1, "c")]);
        assert!(!read.was_cut);
    }

    #[test]
    fn two_do_not_write_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let _first = ResultsWriter::open(folder.path()).unwrap();
        let second = ResultsWriter::open(folder.path()).unwrap_err();
        assert!(matches!(second, RunFileError::Write { source, .. } if source.kind() == io::ErrorKind::WouldBlock));
    }

    #[test]
    fn a_file_cut_at_any_byte_reads_its_whole_lines_and_goes_on_from_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RESULTS_FILE);
        let mut writer = ResultsWriter::open(folder.path()).unwrap();
        let all: Vec<CaseResult> = (0..3).map(|size| result(size, 0, "ä")).collect();
        all.iter().for_each(|result| writer.append(result).unwrap());
        drop(writer);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..=whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let lines = whole[..cut].iter().filter(|&&byte| byte == b'\n').count();
            let read = read_results(&path).unwrap();
            assert_eq!(read.results, all[..lines], "cut at {cut}");
            let mut writer = ResultsWriter::open(folder.path()).unwrap();
            all[lines..].iter().for_each(|result| writer.append(result).unwrap());
            assert_eq!(std::fs::read(&path).unwrap(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn an_invalid_line_is_reported_with_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RESULTS_FILE);
        std::fs::write(&path, "{\"schema\":1}\n").unwrap();
        let message = read_results(&path).unwrap_err().to_string();
        assert!(message.ends_with("`, line 1, is not a run record"), "{message}");
    }

    #[test]
    fn a_newer_schema_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RESULTS_FILE);
        std::fs::write(&path, "{\"schema\":9}\n").unwrap();
        assert!(matches!(read_results(&path), Err(RunFileError::Schema { found: 9, .. })));
    }

    /// Accepts a limited number of bytes, like a full disk.
    struct Full {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room - self.bytes.len());
            self.bytes.extend(&bytes[..taken]);
            if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl ResultsFile for Full {
        fn sync(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn cut(&mut self, end: u64) -> io::Result<()> {
            self.bytes.truncate(end as usize);
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_leaves_the_lines_before_it_whole() {
        let line = serde_json::to_vec(&result(1, 0, "a")).unwrap().len() + 1;
        let full = Full { bytes: Vec::new(), room: 2 * line + line / 2 };
        let mut writer = ResultsWriter::to("results.jsonl".into(), full, 0);
        assert!(writer.append(&result(1, 0, "a")).is_ok() && writer.append(&result(2, 0, "a")).is_ok());
        let message = writer.append(&result(3, 0, "a")).unwrap_err();
        assert!(matches!(message, RunFileError::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull));
        assert_eq!(writer.file.bytes.len(), 2 * line);
    }
}
