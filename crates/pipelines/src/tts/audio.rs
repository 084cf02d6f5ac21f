//! The audio of text to speech: as files, or streamed while it is generated.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::{fs::File, ops::ControlFlow};

use anyhow::Context;
use laptime_bench::{Case, Device};
use laptime_models::tts::WavStream;

use super::TextToSpeech;
use crate::extras::{Hinted, Screen, files::create_parent};

const STANDARD_OUTPUT: &str = "-";

/// The context of errors while writing audio.
const KEPT: &str = "the results were saved, but not the audio";

pub fn is_standard_output(path: &Path) -> bool {
    path.as_os_str() == STANDARD_OUTPUT
}

/// Generates each case once more and writes its audio. Sampling is seeded, so it is the audio of every iteration.
pub fn write(cases: &[&Case], device: &dyn Device, path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (file, case) in files(path, cases)? {
        let mut runner = TextToSpeech::runner(case, device)?;
        let spoken = runner.speak()?;
        let done = runner.audio(spoken.samples).write_wav(&file).context(KEPT);
        done.map_err(|error| Hinted::wrap(error, "free some space, or name another place with `--wav`"))?;
        written.push(file);
    }
    Ok(written)
}

/// Generates each case once more and writes each chunk as soon as it is generated. Returns the files.
pub fn stream(cases: &[&Case], device: &dyn Device, path: &Path, screen: &dyn Screen) -> anyhow::Result<Vec<PathBuf>> {
    if is_standard_output(path) {
        for case in cases {
            stream_case(case, device, (&mut io::stdout().lock(), "standard output"), |_| Ok(()), screen)?;
        }
        return Ok(Vec::new());
    }
    let mut written = Vec::new();
    for (file, case) in files(path, cases)? {
        let name = file.display().to_string();
        let mut to = File::create(&file).map_err(|error| not_written(error, &name))?;
        stream_case(case, device, (&mut to, &name), finish, screen)?;
        written.push(file);
    }
    Ok(written)
}

/// Writes the final lengths into the header, unless the file cannot seek, like a named pipe.
fn finish(stream: WavStream<&mut File>) -> io::Result<()> {
    match stream.finish() {
        Err(error) if error.kind() == io::ErrorKind::NotSeekable => Ok(()),
        done => done,
    }
}

/// Generates a case and writes it chunk by chunk, until it ends or the reader closes.
fn stream_case<'a, P: Write>(
    case: &Case,
    device: &dyn Device,
    (to, name): (&'a mut P, &str),
    finish: fn(WavStream<&'a mut P>) -> io::Result<()>,
    screen: &dyn Screen,
) -> anyhow::Result<()> {
    let mut runner = TextToSpeech::runner(case, device)?;
    let rate = runner.speech.config.codec.sample_rate;
    let (mut stream, mut failure, mut read) = (None, None, 0);
    let mut begun = Some(to);
    let spoken = runner.speak_to(&mut |chunk| {
        let result = write_chunk(&mut stream, &mut begun, rate, chunk);
        match result {
            Ok(()) => read += chunk.len(),
            Err(error) => failure = Some(error),
        }
        if failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    match (failure, stream) {
        (Some(error), _) if error.kind() == io::ErrorKind::BrokenPipe => {
            let seconds = |samples: usize| samples as f64 / f64::from(rate.max(1));
            let [read, generated] = [read, spoken.samples.len()].map(seconds);
            screen.say(&format!("The reader of {name} stopped: it read {read:.2} s of {generated:.2} s of audio."));
            Ok(())
        }
        (Some(error), _) => Err(not_written(error, name)),
        (None, Some(stream)) => finish(stream).map_err(|error| not_written(error, name)),
        (None, None) => Ok(()),
    }
}

/// Writes a chunk; the header comes before the first one.
fn write_chunk<'a, P: Write>(
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
    Hinted::wrap(error, "free some space, or name another place with `--stream-to`")
}

/// The file of each case: the path itself, or a name with the case's label for a folder or several cases.
fn files<'a>(path: &Path, cases: &[&'a Case]) -> anyhow::Result<Vec<(PathBuf, &'a Case)>> {
    let is_folder = path.is_dir() || path.as_os_str().to_string_lossy().ends_with(std::path::MAIN_SEPARATOR);
    let file = |at: usize, case: &Case| match (is_folder, cases.len()) {
        (true, _) => path.join(format!("{}.wav", label(case, at, cases))),
        (false, 1) => path.to_owned(),
        (false, _) => before_ending(path, &label(case, at, cases)),
    };
    let files: Vec<(PathBuf, &Case)> = cases.iter().enumerate().map(|(at, case)| (file(at, case), *case)).collect();
    files.first().map_or(Ok(()), |(file, _)| create_parent(file))?;
    Ok(files)
}

/// The label of a case, with its number if labels repeat.
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
