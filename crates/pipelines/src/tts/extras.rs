//! The extras of `tts`: audio files, the record of qwen3-tts-rs, and stages compared with their limits.

use std::{io::Write, path::Path};

use laptime_bench::{Case, CaseResult};

use super::{audio, files, profile};
use crate::extras::{
    COMPAT, COMPAT_FILES, Command, Context, Extras, FlagSpec, Flags, ProfiledCase, Written, files::measured_cases,
    refuse,
};

const WAV: FlagSpec = FlagSpec::path(
    "wav",
    "FILE|DIR",
    "Write the audio to this file or into this folder; several cases get one file each, named by their labels",
);

const RECORD: FlagSpec =
    FlagSpec::path("json-output", "FILE", "Also write the results to this file, in the JSON format of qwen3-tts-rs");

/// Audio that is written while it is generated.
const STREAM: FlagSpec = FlagSpec::path(
    "stream-to",
    "FILE|-",
    "With `--streaming`: after measuring, generate the audio once more and write it as WAV while it is generated; `-` is \
     standard output",
);

pub struct TtsExtras;

impl Extras for TtsExtras {
    fn workload(&self) -> &'static str {
        "tts"
    }

    fn flags(&self, command: Command) -> Vec<FlagSpec> {
        match command {
            Command::Bench => vec![RECORD, WAV, STREAM, COMPAT],
            Command::Profile => vec![WAV, COMPAT_FILES],
            Command::Warmup => Vec::new(),
        }
    }

    fn check(&self, flags: &Flags, cases: &[Case]) -> anyhow::Result<()> {
        flags.path(STREAM.name).map_or(Ok(()), |place| check_stream(place, cases))
    }

    fn uses_standard_output(&self, flags: &Flags) -> bool {
        flags.path(STREAM.name).is_some_and(audio::is_standard_output)
    }

    fn begin(&self, context: &Context<'_>, _: &[Case], out: &mut dyn Write) -> anyhow::Result<()> {
        if context.command == Command::Bench && context.is_for_people {
            files::write_header(context, out)?;
        }
        Ok(())
    }

    fn finish_bench(&self, context: &Context<'_>, results: &[CaseResult], _: &mut dyn Write) -> Written {
        let mut outside = files::write_record(context, results, context.flags.path(RECORD.name))?;
        let cases = measured_cases(results);
        if cases.is_empty() {
            return Ok(outside);
        }
        if let Some(path) = context.flags.path(WAV.name) {
            outside.extend(audio::write(&cases, &*context.device()?, path)?);
        }
        if let Some(path) = context.flags.path(STREAM.name) {
            outside.extend(audio::stream(&cases, &*context.device()?, path, context.screen)?);
        }
        Ok(outside)
    }

    fn finish_profile(&self, context: &Context<'_>, profiled: ProfiledCase<'_>, out: &mut dyn Write) -> Written {
        let ProfiledCase { results, trace } = profiled;
        let (Some(result), Some(trace)) = (results.first(), trace) else { return Ok(Vec::new()) };
        if context.is_for_people {
            profile::write_lines(context, trace, result, out)?;
        }
        let mut outside = Vec::new();
        if context.flags.has_compat_files() {
            outside.extend(profile::copy_files(context.folder)?);
        }
        if let Some(path) = context.flags.path(WAV.name) {
            outside.extend(audio::write(&[&result.case], &*context.device()?, path)?);
        }
        Ok(outside)
    }
}

/// Refuses to stream without `--streaming`, and several cases to standard output.
fn check_stream(place: &Path, cases: &[Case]) -> anyhow::Result<()> {
    let is_streamed = |case: &Case| case.get("streaming").is_some_and(|streaming| streaming.to_string() == "true");
    if !cases.iter().all(is_streamed) {
        let reason = "`--stream-to` writes audio while it is generated, and needs `--streaming`";
        return refuse(reason, "add `--streaming`, or write the audio with `--wav`");
    }
    if audio::is_standard_output(place) && cases.len() > 1 {
        let reason = format!("standard output can take the audio of one case, and there are {}", cases.len());
        return refuse(reason, "choose one, such as `--label short`, or name a file");
    }
    Ok(())
}
