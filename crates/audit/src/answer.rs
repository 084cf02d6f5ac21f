//! Audit results: of one text, and of many files together.

use crate::rules_file::{Allow, RulesFile};
use crate::{paths::Language, rules::Certainty, site::Site};

/// What was found in one text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audited {
    /// The sites in text order.
    pub sites: Vec<Site>,
    /// Copies to a device that cannot be determined from the source: `to_device(device)`, `.to(device)`.
    pub unknown: u64,
    /// The part that could not be parsed, if any.
    pub problem: Option<Problem>,
    /// Test modules in separate files.
    pub test_modules: Vec<String>,
}

/// Why a text was not read completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, if it applies to one.
    pub line: Option<u32>,
    /// The reason.
    pub reason: String,
}

/// An audited file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedFile {
    /// The path as given or found, separated by `/`.
    pub path: String,
    /// Its language.
    pub language: Language,
    /// Whether the file contains tests, by its path or because another file declares it as a test module.
    pub is_test: bool,
    /// What was found.
    pub audited: Audited,
}

/// A site with its file.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The file.
    pub path: String,
    /// The site.
    pub site: Site,
    /// What a run recorded for it; none if no run was given.
    pub seen: Option<Seen>,
    /// Whether it exceeds the limit on loop depth.
    pub is_too_deep: bool,
}

impl Placed {
    /// Whether it counts towards budgets: it is not in a test and not allowed.
    pub fn counts(&self) -> bool {
        !self.site.is_test && self.site.allowed.is_none()
    }
}

/// What a run recorded for a site.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// The number of host syncs.
    pub count: u64,
    /// The total duration in nanoseconds; none if unknown.
    pub total: Option<u64>,
    /// Host syncs inside laps, divided by the number of laps.
    pub a_lap: Option<f64>,
    /// The host syncs of this site are reported at this line of the same function, because the trace cannot distinguish
    /// them.
    pub reported_at: Option<u32>,
}

/// Host syncs at one place, as a run recorded them.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// The file.
    pub file: String,
    /// The line; for a Python function, its first line.
    pub line: u32,
    /// The function, if the line may be the start of the function.
    pub function: Option<String>,
    /// The method or function called there.
    pub method: Option<String>,
    /// The call that synced, or the name of the mark.
    pub call: String,
    /// What was recorded.
    pub seen: Seen,
}

/// Host syncs that a run recorded and no site explains.
#[derive(Debug, Clone, PartialEq)]
pub struct Unplaced {
    /// Where they occurred, as far as the trace shows; empty if unknown.
    pub place: String,
    /// The call that synced, or the name of the mark.
    pub call: String,
    /// What was recorded.
    pub seen: Seen,
}

/// The limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of sites.
    pub budget: Option<u64>,
    /// The maximum number of loops around a site.
    pub loop_depth: Option<u32>,
}

/// The result of auditing files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// Every site by file and line; with a run, the most expensive ones first.
    pub sites: Vec<Placed>,
    /// Host syncs of a run that no site explains; none if no run was given.
    pub unplaced: Option<Vec<Unplaced>>,
    /// Rust files.
    pub rust_files: u64,
    /// Python files.
    pub python_files: u64,
    /// Files that were not read completely.
    pub unread: Vec<(String, Problem)>,
    /// Copies to a device that cannot be determined from the source.
    pub unknown: u64,
    /// Entries of rules files that allow nothing.
    pub unused: Vec<Allow>,
    /// The limits.
    pub limits: Limits,
}

impl Answer {
    /// Combines files. Likely sites are left out if only certain ones were requested.
    pub fn of(files: Vec<AuditedFile>, rules_files: &[RulesFile], limits: Limits, only_certain: bool) -> Self {
        let mut answer = Self { limits, ..Self::default() };
        let allows: Vec<&Allow> = rules_files.iter().flat_map(|file| &file.allow).collect();
        let mut is_used = vec![false; allows.len()];
        for file in files {
            match file.language {
                Language::Rust => answer.rust_files += 1,
                Language::Python => answer.python_files += 1,
            }
            answer.unknown += file.audited.unknown;
            answer.unread.extend(file.audited.problem.map(|problem| (file.path.clone(), problem)));
            for mut site in file.audited.sites {
                if only_certain && site.certainty != Certainty::Certain {
                    continue;
                }
                site.is_test |= file.is_test;
                if let Some(at) = allows.iter().position(|allow| allow.fits(&file.path, &site)) {
                    is_used[at] = true;
                    site.allowed.get_or_insert_with(|| allows[at].reason.clone());
                }
                answer.push(file.path.clone(), site);
            }
        }
        answer.unused =
            std::iter::zip(&allows, is_used).filter(|(_, used)| !used).map(|(allow, _)| (*allow).clone()).collect();
        answer
    }

    fn push(&mut self, path: String, site: Site) {
        let is_too_deep = self.limits.loop_depth.is_some_and(|most| site.loop_depth > most);
        let mut placed = Placed { path, site, seen: None, is_too_deep };
        placed.is_too_deep &= placed.counts();
        self.sites.push(placed);
    }

    /// Sites that count towards budgets.
    pub fn counted(&self) -> impl Iterator<Item = &Placed> {
        self.sites.iter().filter(|placed| placed.counts())
    }

    /// Sites in tests.
    pub fn in_tests(&self) -> u64 {
        self.sites.iter().filter(|placed| placed.site.is_test).count() as u64
    }

    /// Allowed sites outside of tests.
    pub fn allowed(&self) -> u64 {
        self.sites.iter().filter(|placed| !placed.site.is_test && placed.site.allowed.is_some()).count() as u64
    }

    /// Sites in more loops than allowed.
    pub fn too_deep(&self) -> u64 {
        self.sites.iter().filter(|placed| placed.is_too_deep).count() as u64
    }

    /// Sites above the budget.
    pub fn over_budget(&self) -> u64 {
        self.limits.budget.map_or(0, |budget| (self.counted().count() as u64).saturating_sub(budget))
    }

    /// Whether both limits are met.
    pub fn is_kept(&self) -> bool {
        self.over_budget() == 0 && self.too_deep() == 0
    }
}
