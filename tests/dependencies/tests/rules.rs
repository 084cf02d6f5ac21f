//! Everything that the workspace depends on, on any system, keeps to `deny.toml`.

use std::{path::Path, process::Command};

use laptime_dependencies::{Metadata, Rules, violations};

#[test]
fn licences_sources_and_versions_keep_to_the_rules() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rules: Rules = toml::from_str(&std::fs::read_to_string(workspace.join("deny.toml")).unwrap()).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--locked"]).current_dir(&workspace);
    if rules.graph.all_features {
        cargo.arg("--all-features");
    }
    let told = cargo.output().unwrap();
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let metadata: Metadata = serde_json::from_slice(&told.stdout).unwrap();
    let found = violations(&metadata, &rules);
    assert!(found.is_empty(), "{}", found.join("\n"));
}
