//! A plan file: TOML with the workload, the values on its axes and the settings.

use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, fmt::Display, str::FromStr};

use laptime_trace::run::{Depth, L2, Timing, WarmUp};
use laptime_trace::small_file;
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use crate::given::{GivenSettings, Seconds, Share, parse_warm_up};

/// The content of a plan file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlanFile {
    /// The workload, if given.
    pub workload: Option<String>,
    /// The device, if given.
    pub device: Option<String>,
    /// The axes with the words a user would write after the flag.
    pub axes: Vec<(String, Vec<String>)>,
    /// The settings.
    pub settings: GivenSettings,
}

/// Why a plan file cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the errors are")]
pub enum PlanFileError {
    #[error("cannot read the plan file `{path}`", path = path.display())]
    Open { path: PathBuf, source: std::io::Error },
    #[error("plan file `{path}`, line {line}: {reason}", path = path.display())]
    Content { path: PathBuf, line: usize, reason: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Content {
    workload: Option<String>,
    device: Option<String>,
    #[serde(default)]
    axes: BTreeMap<String, Spanned<toml::Value>>,
    #[serde(alias = "warmup-steps", alias = "warmup_steps", default, deserialize_with = "warmup")]
    warmup: Option<WarmUp>,
    #[serde(alias = "measure-steps", alias = "measure_steps", alias = "takes")]
    iterations: Option<usize>,
    #[serde(default, deserialize_with = "parsed")]
    within: Option<Share>,
    #[serde(alias = "min_time", default, deserialize_with = "parsed")]
    min_time: Option<Seconds>,
    #[serde(alias = "max_time", default, deserialize_with = "parsed")]
    max_time: Option<Seconds>,
    runs: Option<u32>,
    isolate: Option<bool>,
    #[serde(default, deserialize_with = "parsed")]
    timeout: Option<Seconds>,
    #[serde(default, deserialize_with = "parsed")]
    timing: Option<Timing>,
    #[serde(default, deserialize_with = "parsed")]
    l2: Option<L2>,
    #[serde(default, deserialize_with = "parsed")]
    depth: Option<Depth>,
}

fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<Option<T>, D::Error> {
    text(from)?.parse().map(Some).map_err(de::Error::custom)
}

fn warmup<'de, D: Deserializer<'de>>(from: D) -> Result<Option<WarmUp>, D::Error> {
    parse_warm_up(&text(from)?).map(Some).map_err(de::Error::custom)
}

/// A number or a string, as text.
fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let value = toml::Value::deserialize(from)?;
    word(&value).ok_or_else(|| de::Error::custom("expected a number or a string"))
}

fn word(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(yes) => Some(yes.to_string()),
        _ => None,
    }
}

impl PlanFile {
    /// Reads a plan file.
    pub fn read(path: &Path) -> Result<Self, PlanFileError> {
        let open = |source| PlanFileError::Open { path: path.to_owned(), source };
        let text = small_file::read_text(path, small_file::LARGEST_SMALL_FILE).map_err(open)?;
        Self::parse(&text).map_err(|Wrong { at, reason }| PlanFileError::Content {
            path: path.to_owned(),
            line: 1 + text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count(),
            reason,
        })
    }

    fn parse(text: &str) -> Result<Self, Wrong> {
        let content: Content = toml::from_str(text)?;
        let axes = content.axes.into_iter().map(|(axis, value)| {
            let reason = || format!("axis `{axis}` needs a value or a list of values");
            let words = words(value.get_ref()).ok_or_else(|| Wrong { at: value.span().start, reason: reason() })?;
            Ok((axis, words))
        });
        Ok(Self {
            workload: content.workload,
            device: content.device,
            axes: axes.collect::<Result<_, Wrong>>()?,
            settings: GivenSettings {
                warmup: content.warmup,
                iterations: content.iterations,
                within: content.within,
                min_time: content.min_time,
                max_time: content.max_time,
                runs: content.runs,
                isolate: content.isolate,
                timeout: content.timeout,
                timing: content.timing,
                l2: content.l2,
                depth: content.depth,
            },
        })
    }
}

fn words(value: &toml::Value) -> Option<Vec<String>> {
    match value {
        toml::Value::Array(values) if !values.is_empty() => values.iter().map(word).collect(),
        value => Some(vec![word(value)?]),
    }
}

/// An error and its byte offset.
struct Wrong {
    at: usize,
    reason: String,
}

impl From<toml::de::Error> for Wrong {
    fn from(error: toml::de::Error) -> Self {
        Self { at: error.span().unwrap_or_default().start, reason: error.message().replace('\n', " ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<PlanFile, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        std::fs::write(&path, text).unwrap();
        PlanFile::read(&path).map_err(|error| error.to_string().replace(&path.display().to_string(), "plan.toml"))
    }

    #[test]
    fn a_plan_has_everything_that_flags_have() {
        let text = "workload = 'matmul'\nwarmup = 'auto'\nwithin = '1%'\nmax-time = 5\nruns = 3\nisolate = true\n\
                    timeout = '2m'\ntiming = 'sync'\n[axes]\nsize = '128-512*2'\ndtype = ['f32', 'bf16']\nthreads = [1, 2]\n";
        let plan = read(text).unwrap();
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(
            plan.axes,
            [
                ("dtype".to_owned(), words(&["f32", "bf16"])),
                ("size".to_owned(), words(&["128-512*2"])),
                ("threads".to_owned(), words(&["1", "2"])),
            ]
        );
        let GivenSettings { warmup, within, max_time, runs, isolate, timeout, iterations, timing, .. } = plan.settings;
        assert_eq!((warmup, within, max_time), (Some(WarmUp::Auto), Some(Share(0.01)), Some(Seconds(5.0))));
        assert_eq!((runs, isolate, timeout, iterations), (Some(3), Some(true), Some(Seconds(120.0)), None));
        assert_eq!(timing, Some(Timing::Sync));
    }

    #[test]
    fn a_typo_is_reported_with_its_line() {
        let message = read("workload = 'matmul'\nwarmpu = 3\n").unwrap_err();
        assert!(message.starts_with("plan file `plan.toml`, line 2: unknown field `warmpu`, expected"), "{message}");
        assert_eq!(
            read("takes = 3\nmax-time = 'soon'\n").unwrap_err(),
            "plan file `plan.toml`, line 2: `soon` is not a duration; examples: `10s`, `500ms` or `2m`"
        );
        let cut = read("workload = 'mat").unwrap_err();
        assert!(cut.starts_with("plan file `plan.toml`, line 1: "), "{cut}");
        for wrong in ["{ from = 1 }", "[]"] {
            assert_eq!(
                read(&format!("[axes]\nsize = {wrong}\n")).unwrap_err(),
                "plan file `plan.toml`, line 2: axis `size` needs a value or a list of values"
            );
        }
    }
}
