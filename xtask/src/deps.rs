//! The dependency rule of ARCHITECTURE.md, checked from `cargo metadata`.
//!
//! A table says which of our crates each crate may use; a crate that is not in the table is an error, so a new one
//! must be placed. Dependencies on other people's crates are not judged here.

use crate::sys;
use anyhow::{Context, Result};

/// One crate: what it may use of ours, and what its tests may use beyond that.
struct Rule {
    krate: &'static str,
    may_use: &'static [&'static str],
    tests_may_use: &'static [&'static str],
}

const ALL: &[&str] = &["*"];

const RULES: &[Rule] = &[
    Rule { krate: "schedlab-model", may_use: &[], tests_may_use: &[] },
    Rule { krate: "schedlab-objects", may_use: &[], tests_may_use: &["schedlab-bpf"] },
    Rule { krate: "schedlab-bpf", may_use: &[], tests_may_use: &["schedlab-objects"] },
    Rule {
        krate: "schedlab-sim",
        may_use: &["schedlab-model", "schedlab-bpf"],
        tests_may_use: &["schedlab-objects"],
    },
    Rule { krate: "schedlab-host", may_use: &["schedlab-model", "schedlab-objects"], tests_may_use: &[] },
    Rule { krate: "schedlab-report", may_use: &["schedlab-model"], tests_may_use: &[] },
    Rule { krate: "schedlab-import", may_use: &["schedlab-model"], tests_may_use: &[] },
    Rule { krate: "schedlab-programs", may_use: &[], tests_may_use: &[] },
    Rule { krate: "schedlab-control", may_use: &["schedlab-model"], tests_may_use: &[] },
    Rule { krate: "schedlab", may_use: ALL, tests_may_use: &[] },
    Rule { krate: "schedlab-fuzz", may_use: ALL, tests_may_use: &[] },
    Rule { krate: "schedlab-py", may_use: ALL, tests_may_use: &[] },
    Rule { krate: "xtask", may_use: &[], tests_may_use: &[] },
];

/// Every breach of the rule, as sentences; empty when the workspace keeps it.
pub fn check() -> Result<Vec<String>> {
    breaches(&sys::metadata()?)
}

fn breaches(metadata: &serde_json::Value) -> Result<Vec<String>> {
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let ours: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut found = Vec::new();
    for package in packages {
        let name = package["name"].as_str().context("a package without name")?;
        let Some(rule) = RULES.iter().find(|rule| rule.krate == name) else {
            found.push(format!("{name} has no rule: place it in the table of xtask/src/deps.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let target = dependency["name"].as_str().unwrap_or_default();
            let in_tests = dependency["kind"].as_str() == Some("dev");
            if ours.contains(&target) && !rule.allows(target, in_tests) {
                found
                    .push(format!("{name} may not depend on {target} (ARCHITECTURE.md, invariants 2 and 3)"));
            }
        }
    }
    Ok(found)
}

impl Rule {
    fn allows(&self, target: &str, in_tests: bool) -> bool {
        let listed = |list: &[&str]| list.contains(&target) || list == ALL;
        listed(self.may_use) || (in_tests && listed(self.tests_may_use))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(name: &str, target: &str, kind: Option<&str>) -> serde_json::Value {
        let package =
            |name: &str, dependencies| serde_json::json!({"name": name, "dependencies": dependencies});
        serde_json::json!({"packages": [
            package(name, serde_json::json!([{"name": target, "kind": kind}])),
            package(target, serde_json::json!([])),
        ]})
    }

    #[test]
    fn the_workspace_keeps_the_rule() {
        assert_eq!(check().expect("metadata"), Vec::<String>::new());
    }

    #[test]
    fn forbidden_edges_are_found() {
        for (from, to) in [
            ("schedlab-sim", "schedlab-host"),
            ("schedlab-sim", "schedlab-report"),
            ("schedlab-host", "schedlab-sim"),
            ("schedlab-control", "schedlab-sim"),
            ("schedlab-bpf", "schedlab-model"),
            ("schedlab-model", "schedlab-bpf"),
        ] {
            for kind in [None, Some("dev"), Some("build")] {
                let found = breaches(&workspace(from, to, kind)).expect("well formed");
                assert_eq!(found.len(), 1, "{from} -> {to} ({kind:?}) must be refused: {found:?}");
            }
        }
    }

    #[test]
    fn only_tests_may_use_what_is_for_tests() {
        let found =
            |kind| breaches(&workspace("schedlab-bpf", "schedlab-objects", kind)).expect("well formed");
        assert!(found(Some("dev")).is_empty());
        assert_eq!(found(None).len(), 1);
    }

    #[test]
    fn a_crate_without_rule_is_an_error() {
        let found = breaches(&workspace("schedlab-new", "schedlab-model", None)).expect("well formed");
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
