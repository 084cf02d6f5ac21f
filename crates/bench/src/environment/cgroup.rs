//! CPU time and memory limits from control groups, versions 1 and 2.
//!
//! A limit applies to a group and all groups inside it, so the lowest limit on the path to this process applies. In a
//! container the path may be the host's and not exist; the process's own group is then the root.

use std::path::{Path, PathBuf};

use super::linux::{Linux, least};

/// The control groups of this process.
pub(super) struct Cgroups<'a> {
    linux: &'a Linux,
    /// The folders of the CPU groups, innermost first.
    cpu: Vec<PathBuf>,
    /// The folders of the memory groups, innermost first.
    memory: Vec<PathBuf>,
}

impl<'a> Cgroups<'a> {
    pub(super) fn of(linux: &'a Linux) -> Self {
        let lines = linux.text("proc/self/cgroup").unwrap_or_default();
        let folders = |controller| {
            let older = groups(&lines, controller, &format!("sys/fs/cgroup/{controller}"));
            groups(&lines, "", "sys/fs/cgroup").into_iter().chain(older).collect()
        };
        Self { linux, cpu: folders("cpu"), memory: folders("memory") }
    }

    /// The CPU time quota, in CPUs.
    pub(super) fn cpu_quota(&self) -> Option<f64> {
        let quotas = self.cpu.iter().filter_map(|group| self.quota(group).or_else(|| self.older_quota(group)));
        quotas.min_by(f64::total_cmp)
    }

    /// Version 2: `cpu.max` holds a quota, or `max`, and its period.
    fn quota(&self, group: &Path) -> Option<f64> {
        let text = self.linux.text(group.join("cpu.max"))?;
        let (quota, period) = text.split_once(char::is_whitespace)?;
        ratio(quota, period)
    }

    /// Version 1: a quota of -1 means no limit.
    fn older_quota(&self, group: &Path) -> Option<f64> {
        let quota = self.linux.text(group.join("cpu.cfs_quota_us"))?;
        ratio(&quota, &self.linux.text(group.join("cpu.cfs_period_us"))?)
    }

    /// The lowest memory limit.
    pub(super) fn memory_limit(&self) -> Option<u64> {
        self.memory.iter().filter_map(|group| self.limit(group)).min()
    }

    fn limit(&self, group: &Path) -> Option<u64> {
        least(self.number(group.join("memory.max")), self.number(group.join("memory.limit_in_bytes")))
    }

    /// The smallest amount of memory left in any limited group. Inactive file cache can be reclaimed, so it counts as
    /// free.
    pub(super) fn memory_left(&self) -> Option<u64> {
        let left = |group: &PathBuf| {
            let limit = self.limit(group)?;
            let current = self.number(group.join("memory.current"));
            let used = current.or_else(|| self.number(group.join("memory.usage_in_bytes")))?;
            Some(limit.saturating_sub(used.saturating_sub(self.idle_files(group))))
        };
        self.memory.iter().filter_map(left).min()
    }

    fn idle_files(&self, group: &Path) -> u64 {
        let text = self.linux.text(group.join("memory.stat")).unwrap_or_default();
        let value = |name| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value("total_inactive_file ").or_else(|| value("inactive_file ")).unwrap_or(0)
    }

    fn number(&self, path: PathBuf) -> Option<u64> {
        self.linux.text(path)?.parse().ok()
    }
}

/// The folders of the groups that limit this process, innermost first; `controller` is empty for version 2.
fn groups(lines: &str, controller: &str, mount: &str) -> Vec<PathBuf> {
    let mut lines = lines.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let Some((_, path)) = lines.find(|(names, _)| names.split(',').any(|name| name == controller)) else {
        return Vec::new();
    };
    let inside: PathBuf = path.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
    inside.ancestors().map(|group| Path::new(mount).join(group)).collect()
}

fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (u64, u64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}
