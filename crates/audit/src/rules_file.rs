//! Rules files: additional calls that sync, allowed sites, and folders to skip.

use serde::Deserialize;

use crate::pattern::{matches, matches_path};
use crate::rules::{Certainty, Rule};
use crate::{paths::Language, site::Site};

/// The content of a rules file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulesFile {
    /// Calls that sync.
    pub calls: Vec<Rule>,
    /// Allowed sites.
    pub allow: Vec<Allow>,
    /// Patterns of files and folders to skip.
    pub skip: Vec<String>,
}

/// Allowed sites: those that match all given patterns.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allow {
    /// The file, by the end of its path; `*` matches anything.
    pub path: Option<String>,
    /// The function; `*` matches anything.
    pub function: Option<String>,
    /// The call; `*` matches anything.
    pub call: Option<String>,
    /// The reason.
    pub reason: String,
}

impl Allow {
    /// Whether a site matches.
    pub fn fits(&self, path: &str, site: &Site) -> bool {
        let is = |pattern: &Option<String>, text: &str| pattern.as_ref().is_none_or(|pattern| matches(pattern, text));
        self.path.as_ref().is_none_or(|pattern| matches_path(pattern, path))
            && is(&self.function, &site.function)
            && (is(&self.call, &site.call) || is(&self.call, &site.name))
    }
}

/// Why a rules file is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct RulesFileError {
    /// The line.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    #[serde(default)]
    call: Vec<toml::Spanned<Call>>,
    #[serde(default)]
    allow: Vec<toml::Spanned<Allow>>,
    #[serde(default)]
    skip: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    name: String,
    language: Option<Language>,
    #[serde(default)]
    likely: bool,
}

impl RulesFile {
    /// Parses a rules file.
    ///
    /// # Errors
    ///
    /// If it is not TOML or contains an unknown key.
    pub fn parse(text: &str) -> Result<Self, RulesFileError> {
        let line = |at: usize| 1 + text.as_bytes().iter().take(at).filter(|&&byte| byte == b'\n').count();
        let wrong = |at: usize, reason: &str| RulesFileError { line: line(at), reason: reason.to_owned() };
        let content: Content = toml::from_str(text).map_err(|error| {
            wrong(error.span().map_or(0, |span| span.start), error.message().lines().next().unwrap_or_default())
        })?;
        for call in &content.call {
            if call.get_ref().name.trim().is_empty() {
                return Err(wrong(call.span().start, "the `name` of a call is empty"));
            }
        }
        for allow in &content.allow {
            let Allow { path, function, call, .. } = allow.get_ref();
            if path.is_none() && function.is_none() && call.is_none() {
                return Err(wrong(allow.span().start, "an `allow` needs `path`, `function` or `call`"));
            }
        }
        Ok(Self {
            calls: content.call.into_iter().map(|call| rule(call.into_inner())).collect(),
            allow: content.allow.into_iter().map(toml::Spanned::into_inner).collect(),
            skip: content.skip,
        })
    }

    /// Whether a file or folder is skipped.
    pub fn skips(&self, path: &str) -> bool {
        self.skip.iter().any(|pattern| matches_path(pattern, path))
    }
}

fn rule(call: Call) -> Rule {
    let certainty = if call.likely { Certainty::Likely } else { Certainty::Certain };
    Rule { language: call.language, certainty, ..Rule::named(&call.name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_adds_calls_and_allows_sites() {
        let file = RulesFile::parse(
            "skip = [\"vendor\"]\n[[call]]\nname = \"read_back\"\nlanguage = \"rust\"\nlikely = true\n\
             [[allow]]\npath = \"src/sampler.rs\"\ncall = \"to_vec1\"\nreason = \"one read per token\"\n",
        )
        .unwrap();
        assert_eq!(file.calls[0].name, "read_back");
        assert_eq!((file.calls[0].language, file.calls[0].certainty), (Some(Language::Rust), Certainty::Likely));
        assert_eq!(file.allow[0].reason, "one read per token");
        assert!(file.skips("a/vendor") && !file.skips("a/vendored"));
    }

    #[test]
    fn errors_are_reported_with_their_line() {
        let error_of = |text: &str| RulesFile::parse(text).unwrap_err().to_string();
        assert!(error_of("[[call]]\nname = 7\n").starts_with("line 2: "), "{}", error_of("[[call]]\nname = 7\n"));
        assert!(error_of("\n[[allow]]\npath = \"x\"\n").contains("missing field `reason`"));
        assert_eq!(error_of("\n[[allow]]\nreason = \"x\"\n"), "line 2: an `allow` needs `path`, `function` or `call`");
        assert_eq!(error_of("[[call]]\nname = \" \"\n"), "line 1: the `name` of a call is empty");
        assert!(error_of("[[calls]]\nname = \"x\"\n").contains("unknown field `calls`"));
    }
}
