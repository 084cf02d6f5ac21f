//! What an audit found: of one text, and of many files together.

use crate::{
    paths::Language,
    rules::Certainty,
    rules_file::{Allow, RulesFile},
    site::Site,
};

/// What was found in one text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audited {
    /// The sites in order of the text.
    pub sites: Vec<Site>,
    /// Copies to a device that a parse does not know: `to_device(device)`, `.to(device)`.
    pub unknown: u64,
    /// What did not parse, if anything.
    pub problem: Option<Problem>,
    /// Modules of tests that lie in files of their own.
    pub test_modules: Vec<String>,
}

/// Why a text was not read as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, where it is one.
    pub line: Option<u32>,
    /// The reason.
    pub reason: String,
}

/// A file that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedFile {
    /// The path as it was given or found, parts divided by `/`.
    pub path: String,
    /// Its language.
    pub language: Language,
    /// It holds tests, by its path or because another file names it so.
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
    /// What a run recorded of it; none if no run was asked.
    pub seen: Option<Seen>,
    /// It breaks the limit on loops.
    pub is_too_deep: bool,
}

impl Placed {
    /// It counts against budgets: in no test and not allowed.
    pub fn counts(&self) -> bool {
        !self.site.is_test && self.site.allowed.is_none()
    }
}

/// What a run recorded of a site.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// How many waits.
    pub count: u64,
    /// How long they took, in nanoseconds; none if no length is known.
    pub total: Option<u64>,
    /// Waits in laps over the number of laps.
    pub a_lap: Option<f64>,
    /// The waits of this site are told with those at this line of the same function: the trace does not tell them apart.
    pub told_at: Option<u32>,
}

/// Waits at one place, as a run recorded them.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// The file.
    pub file: String,
    /// The line; of a function of Python the first one.
    pub line: u32,
    /// The function, where the line may be that of its beginning.
    pub function: Option<String>,
    /// The method or function that was called there.
    pub method: Option<String>,
    /// The call that waited, or the name of the mark.
    pub call: String,
    /// What was recorded.
    pub seen: Seen,
}

/// Waits that a run recorded and no site explains.
#[derive(Debug, Clone, PartialEq)]
pub struct Unplaced {
    /// Where they stand, as far as the trace says; empty if it does not.
    pub place: String,
    /// The call that waited, or the name of the mark.
    pub call: String,
    /// What was recorded.
    pub seen: Seen,
}

/// How much is allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most sites.
    pub budget: Option<u64>,
    /// The most loops around a site.
    pub loop_depth: Option<u32>,
}

/// What an audit of files found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// Every site, by file and line; with a run those that cost most first.
    pub sites: Vec<Placed>,
    /// Waits of a run that no site explains; none if no run was asked.
    pub unplaced: Option<Vec<Unplaced>>,
    /// Files of Rust.
    pub rust_files: u64,
    /// Files of Python.
    pub python_files: u64,
    /// Files that were not read as a whole.
    pub unread: Vec<(String, Problem)>,
    /// Copies to a device that a parse does not know.
    pub unknown: u64,
    /// Entries of rules files that allow nothing.
    pub unused: Vec<Allow>,
    /// How much is allowed.
    pub limits: Limits,
}

impl Answer {
    /// Puts files together. Sites that are only likely are left out if only certain ones are asked for.
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

    /// Sites that count against budgets.
    pub fn counted(&self) -> impl Iterator<Item = &Placed> {
        self.sites.iter().filter(|placed| placed.counts())
    }

    /// Sites in tests.
    pub fn in_tests(&self) -> u64 {
        self.sites.iter().filter(|placed| placed.site.is_test).count() as u64
    }

    /// Sites that are allowed, outside of tests.
    pub fn allowed(&self) -> u64 {
        self.sites.iter().filter(|placed| !placed.site.is_test && placed.site.allowed.is_some()).count() as u64
    }

    /// Sites that stand in more loops than are allowed.
    pub fn too_deep(&self) -> u64 {
        self.sites.iter().filter(|placed| placed.is_too_deep).count() as u64
    }

    /// Sites beyond the budget.
    pub fn over_budget(&self) -> u64 {
        self.limits.budget.map_or(0, |budget| (self.counted().count() as u64).saturating_sub(budget))
    }

    /// Whether both limits are kept.
    pub fn is_kept(&self) -> bool {
        self.over_budget() == 0 && self.too_deep() == 0
    }
}
