//! The pure crates' lint configuration: what schedlab-sim and schedlab-bpf may not call.
//!
//! Clippy enforces the lists (`disallowed-methods`, `disallowed-types` in each crate's clippy.toml); this file makes
//! sure the lists are there and complete, because an absent list forbids nothing. That clippy really refuses a
//! planted call is tested by `suite`'s lint step, which runs clippy with warnings denied.

use super::Breach;
use std::path::Path;

/// Crates that read no clock, file, environment or thread, and iterate no hash order.
const PURE: &[&str] = &["crates/schedlab-sim", "crates/schedlab-bpf"];

/// What every pure crate's configuration must name.
const MUST_FORBID: &[&str] = &[
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::fs::read",
    "std::fs::write",
    "std::fs::File::open",
    "std::fs::File::create",
    "std::env::var",
    "std::env::var_os",
    "std::env::args",
    "std::thread::spawn",
    "std::thread::sleep",
    "std::thread::current",
    "std::collections::HashMap",
    "std::collections::HashSet",
    "std::hash::RandomState",
];

/// Breaches in the lint configuration below `root`.
pub fn check_tree(root: &Path) -> std::io::Result<Vec<Breach>> {
    let mut breaches = Vec::new();
    for krate in PURE {
        let path = Path::new(krate).join("clippy.toml");
        let text = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        for what in missing(&text) {
            breaches.push(Breach { path: path.clone(), line: 1, what: format!("does not forbid {what}") });
        }
    }
    Ok(breaches)
}

fn missing(config: &str) -> Vec<&'static str> {
    let named = |what: &str| config.contains(&format!("path = \"{what}\""));
    MUST_FORBID.iter().copied().filter(|what| !named(what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_configuration_that_forgets_one_is_refused() {
        assert_eq!(missing("").len(), MUST_FORBID.len());
        let all: String = MUST_FORBID.iter().map(|what| format!("{{ path = \"{what}\" }},\n")).collect();
        assert_eq!(missing(&all), Vec::<&str>::new());
        assert_eq!(missing(&all.replace("HashMap", "BTreeMap")), ["std::collections::HashMap"]);
    }

    /// Clippy, with the real configuration, on a crate that breaks each rule: every breach must be an error.
    #[test]
    fn clippy_refuses_what_the_configuration_forbids() {
        let root = crate::sys::root();
        let scratch = std::env::temp_dir().join(format!("schedlab-purity-{}", std::process::id()));
        std::fs::create_dir_all(scratch.join("src")).expect("scratch directory");
        let manifest =
            "[package]\nname = \"planted\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
        std::fs::write(scratch.join("Cargo.toml"), manifest).expect("scratch manifest");
        std::fs::write(scratch.join("src/lib.rs"), PLANTED).expect("scratch source");
        for krate in PURE {
            std::fs::copy(root.join(krate).join("clippy.toml"), scratch.join("clippy.toml"))
                .expect("configuration");
            let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
                .args(["clippy", "--offline", "--quiet", "--", "-D", "warnings"])
                .current_dir(&scratch)
                .env("CARGO_TARGET_DIR", scratch.join("target"))
                .output()
                .expect("cargo clippy runs");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            for name in ["Instant::now", "fs::read", "env::var", "thread::spawn", "HashMap"] {
                let refused = text
                    .lines()
                    .any(|line| line.starts_with("error: use of a disallowed") && line.contains(name));
                assert!(refused, "{krate}: clippy lets {name} pass:\n{text}");
            }
            std::fs::write(scratch.join("src/lib.rs"), format!("{PLANTED}// again\n"))
                .expect("scratch source");
        }
        std::fs::remove_dir_all(&scratch).expect("scratch directory");
    }

    const PLANTED: &str = r#"//! Breaks the rules.
/// A map in hash order.
pub type Order = std::collections::HashMap<u32, u32>;
/// Reads everything that is forbidden.
pub fn impure() -> bool {
    let now = std::time::Instant::now();
    let read = std::fs::read("x").is_ok();
    let variable = std::env::var("X").is_ok();
    std::thread::spawn(|| ()).join().is_ok() && read && variable && now.elapsed().as_nanos() > 0
}
"#;
}
