//! A sweep as a Slurm job array: its shards, its submission, and the state of the queue.
//!
//! Nothing here starts a process. Arguments are lists of words and never go through a shell.

use std::path::{Path, PathBuf};
use std::{collections::BTreeSet, ffi::OsString};

use laptime_trace::run::{Case, RunFileError};
use laptime_trace::{format::write_whole, small_file};
use serde::{Deserialize, Serialize};

/// The file of a run folder that describes the submission.
pub const SLURM_FILE: &str = "slurm.json";

/// The version of that file.
const SCHEMA: u32 = 1;

/// The script of a task: it runs its arguments, and again on the same node if they are killed, up to three times.
pub const TASK_SCRIPT: &str = r#"#!/bin/sh
for attempt in 1 2 3 4; do
    "$@"
    status=$?
    [ "$status" -eq 137 ] || break
    echo "killed, attempt $attempt of 4" >&2
done
exit "$status"
"#;

/// A submission, as stored in the folder of its run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    schema: u32,
    /// The arguments of `laptime bench`.
    pub command: Vec<String>,
    /// How tasks are submitted.
    pub options: SlurmOptions,
    /// The shards; a task of the array runs one of them.
    pub shards: Vec<Shard>,
    /// The arrays that were submitted, in order.
    pub jobs: Vec<ArrayJob>,
}

/// Cases that run in one task, and so on one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// What distinguishes it, such as `seq_len=512` or `process 3`.
    pub name: String,
    /// Its cases.
    pub cases: Vec<Case>,
    /// The processes that measure each case, counted from 0.
    pub runs: Vec<u32>,
}

impl Shard {
    /// The number of results that it should have.
    pub fn expected(&self) -> usize {
        self.cases.len() * self.runs.len()
    }
}

/// A job array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayJob {
    /// Its number.
    pub id: u64,
    /// The shards that it was submitted for.
    pub shards: Vec<usize>,
}

/// How tasks are submitted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SlurmOptions {
    /// The partition; the default one if none.
    pub partition: Option<String>,
    /// The time limit of a task, as `sbatch` takes it.
    pub time: Option<String>,
    /// The number of tasks that may run at once.
    pub max_parallel: Option<u32>,
    /// The GPUs of a task, as `sbatch` takes them.
    pub gpus: Option<String>,
    /// Whether other jobs may run on the node of a task.
    pub is_shared: bool,
    /// More arguments of `sbatch`.
    pub more: Vec<String>,
}

impl SlurmOptions {
    /// The arguments of `sbatch` for an array of these shards, on one node if it is given. The words of the task follow.
    pub fn array(&self, name: &str, shards: &[usize], node: Option<&str>, log: &Path) -> Vec<OsString> {
        let limit = self.max_parallel.map_or_else(String::new, |most| format!("%{most}"));
        let mut words = self.common(name, log);
        words.push(format!("--array={}{limit}", ranges(shards)).into());
        words.extend((!self.is_shared).then(|| "--exclusive".into()));
        words.extend(self.time.iter().map(|time| format!("--time={time}").into()));
        words.extend(self.gpus.iter().map(|gpus| format!("--gpus={gpus}").into()));
        words.extend(self.more.iter().map(Into::into));
        words.extend(node.map(|node| format!("--nodelist={node}").into()));
        words
    }

    /// The arguments of `sbatch` for a job that begins when an array has ended.
    pub fn after(&self, job: u64, name: &str, log: &Path) -> Vec<OsString> {
        let mut words = self.common(name, log);
        words.push(format!("--dependency=afterany:{job}").into());
        words
    }

    fn common(&self, name: &str, log: &Path) -> Vec<OsString> {
        let mut output = OsString::from("--output=");
        output.push(log);
        let job_name = format!("--job-name={name}");
        let mut words: Vec<OsString> = vec!["--parsable".into(), "--requeue".into(), "--open-mode=append".into()];
        words.extend([job_name.into(), output]);
        words.extend(self.partition.iter().map(|partition| format!("--partition={partition}").into()));
        words
    }
}

/// Numbers as Slurm writes them: `0-3,7`.
fn ranges(numbers: &[usize]) -> String {
    let numbers: BTreeSet<usize> = numbers.iter().copied().collect();
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let words =
        parts.iter().map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    words.collect::<Vec<_>>().join(",")
}

/// An axis by which cases cannot be divided.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the cases have no axis `{axis}`")]
pub struct NoSuchAxis {
    /// The axis.
    pub axis: String,
    /// The axes that they have.
    pub known: Vec<String>,
}

/// Divides cases into shards.
///
/// Cases of one shard run on one node and can be compared with one another. With an axis, a shard has the cases with one
/// value of it. Without, a shard has all cases in one process: every node runs all of them.
pub fn shards(cases: &[Case], runs: u32, by: Option<&str>) -> Result<Vec<Shard>, NoSuchAxis> {
    let Some(axis) = by else {
        let shard = |run| Shard { name: format!("process {run}"), cases: cases.to_vec(), runs: vec![run] };
        return Ok((0..runs.max(1)).map(shard).collect());
    };
    let mut shards: Vec<Shard> = Vec::new();
    for case in cases {
        let value = case.get(axis).ok_or_else(|| NoSuchAxis {
            axis: axis.to_owned(),
            known: case.values().map(|(axis, _)| axis.to_owned()).collect(),
        })?;
        let name = format!("{axis}={value}");
        match shards.iter_mut().find(|shard| shard.name == name) {
            Some(shard) => shard.cases.push(case.clone()),
            None => shards.push(Shard { name, cases: vec![case.clone()], runs: (0..runs.max(1)).collect() }),
        }
    }
    Ok(shards)
}

impl Submission {
    /// What is to be submitted.
    pub fn new(command: Vec<String>, options: SlurmOptions, shards: Vec<Shard>) -> Self {
        Self { schema: SCHEMA, command, options, shards, jobs: Vec::new() }
    }

    /// Writes it into the folder of its run, completely or not at all.
    pub fn write(&self, folder: &Path) -> Result<(), RunFileError> {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        write_whole(&folder.join(SLURM_FILE), |out| writeln!(out, "{text}")).map_err(Into::into)
    }

    /// Reads it from the folder of its run.
    pub fn read(folder: &Path) -> Result<Self, RunFileError> {
        let path = folder.join(SLURM_FILE);
        let open = |source| RunFileError::Open { path: path.clone(), source };
        let text = small_file::read_bytes(&path, small_file::LARGEST_SMALL_FILE).map_err(open)?;
        let wrong = |source| RunFileError::Content { path: path.clone(), line: None, source };
        serde_json::from_slice(&text).map_err(wrong)
    }

    /// The folder in which a shard's tasks save their results, one folder per node.
    pub fn shard_folder(folder: &Path, shard: usize) -> PathBuf {
        folder.join("shards").join(shard.to_string())
    }
}

/// A task in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The job array.
    pub job: u64,
    /// Its number in the array: the shard.
    pub shard: usize,
    /// Its state in Slurm's words, such as `RUNNING`.
    pub state: String,
    /// Its node, if it has one.
    pub node: Option<String>,
    /// Why it waits, if it does.
    pub reason: Option<String>,
}

/// The output format for `squeue`.
pub const QUEUE_FORMAT: &str = "%F|%K|%T|%N|%r";

/// Parses the output of `squeue` in [`QUEUE_FORMAT`]; other lines are ignored.
pub fn parse_queue(text: &str) -> Vec<Task> {
    let task = |line: &str| {
        let mut words = line.trim().split('|');
        let (job, shard) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let mut next = || words.next().map(str::to_owned);
        let state = next()?;
        let node = next().filter(|node| !node.is_empty());
        let reason = next().filter(|reason| !reason.is_empty() && reason != "None");
        Some(Task { job, shard, state, node, reason })
    };
    text.lines().filter_map(task).collect()
}

/// Parses the number of a job from the output of `sbatch --parsable`: `123` or `123;cluster`.
pub fn parse_job(text: &str) -> Option<u64> {
    text.lines().rev().find_map(|line| line.trim().split(';').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(size: i64, dtype: &str) -> Case {
        Case::new(vec![("size".into(), size.into()), ("dtype".into(), dtype.into())])
    }

    #[test]
    fn without_an_axis_every_shard_runs_all_cases_in_one_process() {
        let cases = [case(1, "f32"), case(2, "f32")];
        let found = shards(&cases, 3, None).unwrap();
        assert_eq!(found.len(), 3);
        assert!(found.iter().enumerate().all(|(run, shard)| shard.cases == cases && shard.runs == [run as u32]));
        assert_eq!(shards(&cases, 0, None).unwrap()[0].runs, [0]);
    }

    #[test]
    fn cases_with_one_value_of_the_axis_stay_together() {
        let cases = [case(1, "f32"), case(2, "f32"), case(1, "bf16"), case(2, "bf16")];
        let found = shards(&cases, 2, Some("size")).unwrap();
        assert_eq!(found.iter().map(|shard| shard.name.as_str()).collect::<Vec<_>>(), ["size=1", "size=2"]);
        assert_eq!(found[0].cases, [case(1, "f32"), case(1, "bf16")]);
        assert_eq!((found[1].runs.as_slice(), found[1].expected()), ([0, 1].as_slice(), 4));
        let error = shards(&cases, 1, Some("batch")).unwrap_err();
        assert_eq!((error.axis.as_str(), error.known), ("batch", vec!["size".to_owned(), "dtype".to_owned()]));
    }

    #[test]
    fn an_option_is_one_argument_whatever_it_contains() {
        let options = SlurmOptions {
            partition: Some("a; rm -rf /".into()),
            time: Some("10:00".into()),
            max_parallel: Some(2),
            gpus: Some("1".into()),
            is_shared: false,
            more: vec!["--comment=two words".into()],
        };
        let words = options.array("laptime-matmul", &[0, 1, 2, 5], Some("n1"), Path::new("/runs/a b/%a.log"));
        let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
        let expected = [
            "--parsable",
            "--requeue",
            "--open-mode=append",
            "--job-name=laptime-matmul",
            "--output=/runs/a b/%a.log",
            "--partition=a; rm -rf /",
            "--array=0-2,5%2",
            "--exclusive",
            "--time=10:00",
            "--gpus=1",
            "--comment=two words",
            "--nodelist=n1",
        ];
        assert_eq!(words, expected);
        let after = options.after(7, "merge", Path::new("log"));
        assert!(after.contains(&"--dependency=afterany:7".into()) && !after.contains(&"--exclusive".into()));
    }

    #[test]
    fn the_queue_is_read_and_other_lines_are_ignored() {
        let text =
            "12|0|RUNNING|n1|None\n12|3|PENDING||Resources\nslurm_load_jobs error: something\n12|4-7%2|PENDING||x\n";
        let found = parse_queue(text);
        let task = |shard, state: &str, node: Option<&str>, reason: Option<&str>| Task {
            job: 12,
            shard,
            state: state.into(),
            node: node.map(Into::into),
            reason: reason.map(Into::into),
        };
        assert_eq!(found, [task(0, "RUNNING", Some("n1"), None), task(3, "PENDING", None, Some("Resources"))]);
        assert_eq!(
            (parse_job("123\n"), parse_job("warning: x\n45;lap\n"), parse_job("no")),
            (Some(123), Some(45), None)
        );
    }

    #[test]
    fn a_submission_is_read_back_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let shards = shards(&[case(1, "a b")], 2, None).unwrap();
        let mut submission =
            Submission::new(vec!["matmul".into(), "--size".into(), "1".into()], SlurmOptions::default(), shards);
        submission.jobs.push(ArrayJob { id: 5, shards: vec![0, 1] });
        submission.write(folder.path()).unwrap();
        assert_eq!(Submission::read(folder.path()).unwrap(), submission);
        std::fs::write(folder.path().join(SLURM_FILE), "{").unwrap();
        assert!(Submission::read(folder.path()).is_err());
    }
}
