//! What `cargo deny check licenses bans sources` checks, by the same `deny.toml`, with nothing to install: the answer of
//! `cargo metadata` is enough.

mod licence;

use serde::Deserialize;

pub use licence::is_allowed;

/// `deny.toml`, as far as it is used here. A key that is not known is an error, so that no rule is passed over.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Which packages are looked at.
    pub graph: Graph,
    /// The licences.
    pub licenses: Licences,
    /// The versions.
    pub bans: Bans,
    /// Where packages come from.
    pub sources: Sources,
}

/// Which packages are looked at.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Graph {
    /// Whether those of every feature are.
    pub all_features: bool,
}

/// The licences.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Licences {
    /// Those that are fine.
    pub allow: Vec<String>,
}

/// The versions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bans {
    /// Several versions of one package.
    pub multiple_versions: Level,
    /// Any version at all (`*`).
    pub wildcards: Level,
    /// Whether a package of the workspace may be asked for in any version.
    pub allow_wildcard_paths: bool,
}

/// Where packages come from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sources {
    /// Another registry than that of the language.
    pub unknown_registry: Level,
    /// A Git repository.
    pub unknown_git: Level,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It is fine.
    Allow,
    /// It is an error.
    Deny,
}

/// The answer of `cargo metadata`, as far as it is used here.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// None for a package of the workspace.
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    req: String,
    path: Option<String>,
}

/// The registry of the language, as `Cargo.lock` names it.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// What the rules forbid, each in a sentence.
pub fn violations(metadata: &Metadata, rules: &Rules) -> Vec<String> {
    let packages = || metadata.packages.iter();
    let mut found: Vec<String> = packages().filter_map(|package| licence(package, rules)).collect();
    found.extend(packages().filter_map(|package| source(package, rules)));
    found.extend(packages().flat_map(|package| wildcards(package, rules)));
    if rules.bans.multiple_versions == Level::Deny {
        found.extend(several_versions(metadata));
    }
    found
}

fn licence(package: &Package, rules: &Rules) -> Option<String> {
    let Package { name, version, license, .. } = package;
    match license {
        None => Some(format!("{name} {version} states no licence")),
        Some(text) if is_allowed(text, &rules.licenses.allow) => None,
        Some(text) => Some(format!("{name} {version} has the licence `{text}`, which deny.toml does not allow")),
    }
}

fn source(package: &Package, rules: &Rules) -> Option<String> {
    let Package { name, version, source, .. } = package;
    let source = source.as_deref().filter(|source| *source != REGISTRY)?;
    let level = if source.starts_with("git+") { rules.sources.unknown_git } else { rules.sources.unknown_registry };
    (level == Level::Deny).then(|| format!("{name} {version} comes from `{source}`"))
}

fn wildcards(package: &Package, rules: &Rules) -> Vec<String> {
    // Only what we ask for ourselves is ours to change.
    if package.source.is_some() || rules.bans.wildcards == Level::Allow {
        return Vec::new();
    }
    let is_fine = |asked: &&Dependency| rules.bans.allow_wildcard_paths && asked.path.is_some();
    let wild = package.dependencies.iter().filter(|asked| asked.req == "*" && !is_fine(asked));
    wild.map(|asked| format!("{} asks for any version of {}", package.name, asked.name)).collect()
}

fn several_versions(metadata: &Metadata) -> Vec<String> {
    let mut names: Vec<&str> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    names.sort_unstable();
    let mut twice: Vec<&str> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    twice.dedup();
    twice.into_iter().map(|name| format!("there are several versions of {name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let text = r#"
            graph = { all-features = true }
            licenses = { allow = ["MIT"] }
            bans = { multiple-versions = "deny", wildcards = "deny", allow-wildcard-paths = true }
            sources = { unknown-registry = "deny", unknown-git = "deny" }
        "#;
        toml::from_str(text).unwrap()
    }

    fn found(packages: serde_json::Value) -> Vec<String> {
        violations(&serde_json::from_value(serde_json::json!({ "packages": packages })).unwrap(), &rules())
    }

    fn package(license: Option<&str>, source: Option<&str>, asked: &[(&str, Option<&str>)]) -> serde_json::Value {
        let asked: Vec<_> =
            asked.iter().map(|(req, path)| serde_json::json!({ "name": "b", "req": req, "path": path })).collect();
        serde_json::json!({ "name": "a", "version": "1.0.0", "license": license, "source": source, "dependencies": asked })
    }

    #[test]
    fn what_keeps_to_the_rules_is_fine() {
        let path = Some("/somewhere");
        assert_eq!(found(serde_json::json!([package(Some("MIT"), None, &[("^1", None), ("*", path)])])), [""; 0]);
        assert_eq!(found(serde_json::json!([package(Some("MIT"), Some(REGISTRY), &[("*", None)])])), [""; 0]);
    }

    #[test]
    fn every_rule_finds_what_breaks_it() {
        let of = |package| found(serde_json::json!([package]));
        assert_eq!(of(package(None, None, &[])), ["a 1.0.0 states no licence"]);
        assert_eq!(
            of(package(Some("GPL-3.0"), None, &[])),
            ["a 1.0.0 has the licence `GPL-3.0`, which deny.toml does not allow"]
        );
        assert_eq!(of(package(Some("MIT"), Some("git+x"), &[])), ["a 1.0.0 comes from `git+x`"]);
        assert_eq!(of(package(Some("MIT"), Some("registry+x"), &[])), ["a 1.0.0 comes from `registry+x`"]);
        assert_eq!(of(package(Some("MIT"), None, &[("*", None)])), ["a asks for any version of b"]);
        let one = package(Some("MIT"), None, &[]);
        assert_eq!(found(serde_json::json!([one, one])), ["there are several versions of a"]);
    }

    #[test]
    fn a_rule_that_is_not_known_is_refused() {
        let unknown = toml::from_str::<Rules>("[advisories]\nversion = 2\n").unwrap_err().to_string();
        assert!(unknown.contains("unknown field `advisories`"), "{unknown}");
    }
}
