//! The audio of text to speech: as files, or handed on while it is made.

use std::{
    fs::File,
    io::{self, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use anyhow::Context;
use laptime_bench::{Case, Device};
use laptime_models::tts::WavStream;
use laptime_pipelines::TextToSpeech;

use crate::{failure::Hinted, kit_files::make_folder_of, output::say};

/// The name of standard output.
const STANDARD_OUTPUT: &str = "-";

/// What a full disk and a broken place are told by.
const KEPT: &str = "the results are kept, and the audio is not";

/// Whether audio goes to standard output.
pub fn is_standard_output(path: &Path) -> bool {
    path.as_os_str() == STANDARD_OUTPUT
}

/// Says each case once more and writes what is heard: draws start from a seed, so it is the audio of every take.
pub fn write(cases: &[&Case], device: &dyn Device, path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (file, case) in files(path, cases)? {
        let audio = TextToSpeech::speak(case, device)?;
        let done = audio.write_wav(&file).context(KEPT);
        done.map_err(|error| Hinted::wrap(error, "make room, or name another place with `--wav`"))?;
        written.push(file);
    }
    Ok(written)
}

/// Says each case once more and writes each chunk as soon as it is made. Gives the files.
pub fn stream(cases: &[&Case], device: &dyn Device, path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if is_standard_output(path) {
        cases.iter().try_for_each(|case| hand_on(case, device, &mut io::stdout().lock(), "standard output"))?;
        return Ok(Vec::new());
    }
    let mut written = Vec::new();
    for (file, case) in files(path, cases)? {
        let name = file.display().to_string();
        let mut to = File::create(&file).map_err(|error| not_written(error, &name))?;
        hand_on(case, device, &mut to, &name)?;
        written.push(file);
    }
    Ok(written)
}

/// Somewhere that audio goes while it is made.
trait Place: Write {
    /// Puts the true lengths into the header, where that can be gone back to.
    fn finish(stream: WavStream<&mut Self>) -> io::Result<()>;
}

impl Place for io::StdoutLock<'_> {
    fn finish(_: WavStream<&mut Self>) -> io::Result<()> {
        Ok(())
    }
}

impl Place for File {
    fn finish(stream: WavStream<&mut Self>) -> io::Result<()> {
        match stream.finish() {
            // A named pipe or a device has no beginning to go back to.
            Err(error) if error.kind() == io::ErrorKind::NotSeekable => Ok(()),
            done => done,
        }
    }
}

/// Says a case and writes it chunk by chunk, until it ends or nobody listens any more.
fn hand_on<P: Place>(case: &Case, device: &dyn Device, to: &mut P, name: &str) -> anyhow::Result<()> {
    let rate = TextToSpeech::sample_rate(case).context("the case has no audio")?;
    let (mut stream, mut failure, mut heard) = (None, None, 0);
    let mut begun = Some(to);
    let made = TextToSpeech::stream(case, device, &mut |chunk| {
        let result = write_chunk(&mut stream, &mut begun, rate, chunk);
        match result {
            Ok(()) => heard += chunk.len(),
            Err(error) => failure = Some(error),
        }
        if failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    match (failure, stream) {
        (Some(error), _) if error.kind() == io::ErrorKind::BrokenPipe => {
            let seconds = |samples: usize| samples as f64 / f64::from(rate.max(1));
            let [heard, made] = [heard, made].map(seconds);
            say(&format!("Nobody reads {name} any more: {heard:.2} s of audio were read, {made:.2} s were made."));
            Ok(())
        }
        (Some(error), _) => Err(not_written(error, name)),
        (None, Some(stream)) => P::finish(stream).map_err(|error| not_written(error, name)),
        (None, None) => Ok(()),
    }
}

/// Writes a chunk, behind the header if it is the first.
fn write_chunk<'a, P: Place>(
    stream: &mut Option<WavStream<&'a mut P>>,
    to: &mut Option<&'a mut P>,
    rate: u32,
    chunk: &[f32],
) -> io::Result<()> {
    if let Some(to) = to.take() {
        *stream = Some(WavStream::begin(to, rate)?);
    }
    stream.as_mut().map_or(Ok(()), |stream| stream.write(chunk))
}

fn not_written(error: io::Error, name: &str) -> anyhow::Error {
    let error = anyhow::Error::new(error).context(format!("cannot write `{name}`")).context(KEPT);
    Hinted::wrap(error, "make room, or name another place with `--stream-to`")
}

/// The file of each case: the path itself, or in a folder or beside others one with the label of the case.
fn files<'a>(path: &Path, cases: &[&'a Case]) -> anyhow::Result<Vec<(PathBuf, &'a Case)>> {
    let is_folder = path.is_dir() || path.as_os_str().to_string_lossy().ends_with(std::path::MAIN_SEPARATOR);
    let file = |at: usize, case: &Case| match (is_folder, cases.len()) {
        (true, _) => path.join(format!("{}.wav", label(case, at, cases))),
        (false, 1) => path.to_owned(),
        (false, _) => before_ending(path, &label(case, at, cases)),
    };
    let files: Vec<(PathBuf, &Case)> = cases.iter().enumerate().map(|(at, case)| (file(at, case), *case)).collect();
    files.first().map_or(Ok(()), |(file, _)| make_folder_of(file))?;
    Ok(files)
}

/// The label of a case, with its number where labels are the same.
fn label(case: &Case, at: usize, all: &[&Case]) -> String {
    let label = case.get("label").map(ToString::to_string).unwrap_or_default();
    let is_alone = all.iter().filter(|other| other.get("label") == case.get("label")).count() == 1;
    if is_alone { label } else { format!("{label}-{}", at + 1) }
}

fn before_ending(path: &Path, label: &str) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{label}"));
    if let Some(ending) = path.extension() {
        name.push(".");
        name.push(ending);
    }
    path.with_file_name(name)
}
