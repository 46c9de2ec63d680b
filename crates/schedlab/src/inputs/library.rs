//! Workload, machine and set-up files that come inside the program, so that it works without its repository.

/// A file of the library: name and text.
pub type Entry = (&'static str, &'static str);

/// Workload files (workloads/*.toml).
pub const WORKLOADS: &[Entry] = &[
    ("streaming", include_str!("../../../../workloads/streaming.toml")),
    ("locks", include_str!("../../../../workloads/locks.toml")),
    ("fork-storm", include_str!("../../../../workloads/fork-storm.toml")),
];

/// Machine files (machines/*.toml).
pub const MACHINES: &[Entry] = &[
    ("vm-2cpu", include_str!("../../../../machines/vm-2cpu.toml")),
    ("desktop-smt", include_str!("../../../../machines/desktop-smt.toml")),
    ("two-socket", include_str!("../../../../machines/two-socket.toml")),
    ("chiplet-server", include_str!("../../../../machines/chiplet-server.toml")),
    ("hybrid-laptop", include_str!("../../../../machines/hybrid-laptop.toml")),
    ("paper-plugsched", include_str!("../../../../machines/paper-plugsched.toml")),
    ("paper-weights", include_str!("../../../../machines/paper-weights.toml")),
    ("paper-stun", include_str!("../../../../machines/paper-stun.toml")),
    ("paper-net-placement", include_str!("../../../../machines/paper-net-placement.toml")),
    ("paper-vm-timers", include_str!("../../../../machines/paper-vm-timers.toml")),
];

/// Set-up files (setups/*.setup.toml) for schedulers of others, by the name in their `struct sched_ext_ops`; those of
/// older versions, where one file cannot serve both, after them as `NAME-VERSION`.
pub const SETUPS: &[Entry] = &[
    ("beerland", include_str!("../../../../setups/beerland.setup.toml")),
    ("bpfland", include_str!("../../../../setups/bpfland.setup.toml")),
    ("cake", include_str!("../../../../setups/cake.setup.toml")),
    ("central", include_str!("../../../../setups/central.setup.toml")),
    ("chaos", include_str!("../../../../setups/chaos.setup.toml")),
    ("flash", include_str!("../../../../setups/flash.setup.toml")),
    ("flatcg", include_str!("../../../../setups/flatcg.setup.toml")),
    ("forge", include_str!("../../../../setups/forge.setup.toml")),
    ("lavd", include_str!("../../../../setups/lavd.setup.toml")),
    ("lavd-1.0.17", include_str!("../../../../setups/lavd-1.0.17.setup.toml")),
    ("layered", include_str!("../../../../setups/layered.setup.toml")),
    ("layered-1.0.17", include_str!("../../../../setups/layered-1.0.17.setup.toml")),
    ("nest", include_str!("../../../../setups/nest.setup.toml")),
    ("p2dq", include_str!("../../../../setups/p2dq.setup.toml")),
    ("pair", include_str!("../../../../setups/pair.setup.toml")),
    ("rusty", include_str!("../../../../setups/rusty.setup.toml")),
    ("tickless", include_str!("../../../../setups/tickless.setup.toml")),
];

/// Finds an entry by name.
pub fn find(entries: &[Entry], name: &str) -> Option<&'static str> {
    entries.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Names, separated by commas, for messages.
pub fn names(entries: &[Entry]) -> String {
    entries.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_model::workload::file;
    use std::collections::BTreeSet;

    fn files_in(directory: &str) -> BTreeSet<String> {
        let path = format!("{}/../../{directory}", env!("CARGO_MANIFEST_DIR"));
        let entries = std::fs::read_dir(path).expect("the repository's directory");
        let name = |entry: std::io::Result<std::fs::DirEntry>| {
            entry
                .expect("readable")
                .file_name()
                .to_string_lossy()
                .trim_end_matches(".toml")
                .trim_end_matches(".setup")
                .to_owned()
        };
        entries.map(name).collect()
    }

    #[test]
    fn the_newest_version_of_a_scheduler_is_tried_first() {
        let paths = |name: &str| {
            let found = crate::setup::SetupFile::all_of_library(name);
            found.map(|setup| setup.path().display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(paths("lavd"), ["setups/lavd.setup.toml", "setups/lavd-1.0.17.setup.toml"]);
        assert_eq!(paths("p2dq"), ["setups/p2dq.setup.toml"]);
        assert!(paths("lav").is_empty() && paths("").is_empty());
    }

    #[test]
    fn every_file_of_the_repository_is_inside_and_reads() {
        let names = |entries: &[Entry]| entries.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(files_in("workloads"), names(WORKLOADS));
        assert_eq!(files_in("machines"), names(MACHINES));
        assert_eq!(files_in("setups"), names(SETUPS));
        for (name, _) in SETUPS {
            assert!(crate::setup::SetupFile::of_library(name).is_some(), "{name}");
        }
        for (name, text) in WORKLOADS {
            assert_eq!(file::parse(text).expect(name).name, *name);
        }
        for (name, text) in MACHINES {
            assert_eq!(super::super::machines::parse(text, name).expect(name).name, *name);
        }
    }
}
