//! The table held against what is registered, what the kernel's types declare, and what tests there are.

use super::{GROUPS, Item, Support, Version, callbacks::CALLBACKS, kfuncs::KFUNCS};
use crate::ext::call::Op;
use crate::ext::dump::EVENT_NAMES;
use crate::ext::kernel::{Layout, kernel_btf};
use crate::ext::kfunc;
use schedlab_bpf::btf::{Btf, Kind};
use schedlab_model::machine::KernelVersion;
use std::collections::BTreeSet;

const VERSIONS: [Version; 11] =
    [(6, 12), (6, 13), (6, 14), (6, 15), (6, 16), (6, 17), (6, 18), (6, 19), (7, 0), (7, 1), (7, 2)];

fn btf(version: Version) -> Btf {
    kernel_btf(KernelVersion { major: version.0, minor: version.1 })
}

fn items() -> impl Iterator<Item = &'static Item> {
    GROUPS.iter().flat_map(|group| group.items)
}

fn there(item: &Item, version: Version) -> bool {
    item.since <= version && item.until.is_none_or(|until| version < until)
}

fn claimed(item: &Item) -> bool {
    !matches!(item.support, Support::No(_))
}

#[test]
fn every_name_is_listed_once() {
    let mut seen = BTreeSet::new();
    for item in items() {
        assert!(seen.insert(item.name), "{} twice", item.name);
        assert!(VERSIONS.contains(&item.since), "{}", item.name);
    }
}

#[test]
fn callbacks_claimed_are_called_and_declared_since_then() {
    for item in CALLBACKS {
        let registered = Op::ALL.iter().any(|op| op.name() == item.name);
        assert!(registered || !claimed(item), "{} is claimed, but nothing calls it", item.name);
        for version in VERSIONS {
            let btf = btf(version);
            let ops = btf.find_struct("sched_ext_ops").expect("declared");
            assert_eq!(
                btf.member(ops, item.name).is_some(),
                there(item, version),
                "{} in {version:?}",
                item.name
            );
        }
    }
    for op in Op::ALL {
        assert!(CALLBACKS.iter().any(|item| item.name == op.name()), "{} is not listed", op.name());
    }
}

#[test]
fn every_member_of_the_kernel_s_table_is_listed() {
    let data = [
        "dispatch_max_batch",
        "flags",
        "timeout_ms",
        "exit_dump_len",
        "hotplug_seq",
        "name",
        "priv",
        "sub_cgroup_id",
    ];
    for version in VERSIONS {
        let btf = btf(version);
        let ops = btf.find_struct("sched_ext_ops").expect("declared");
        for member in btf.members(ops) {
            let name = btf.string(member.name_offset);
            let listed = CALLBACKS.iter().any(|item| item.name == name && there(item, version));
            assert!(listed || data.contains(&name), "{name} in {version:?}");
        }
    }
}

#[test]
fn kfuncs_claimed_are_registered_and_declared_since_then() {
    let table = kfunc::table(&Layout::of(&btf((7, 2))), 4, 1);
    for item in KFUNCS {
        assert_eq!(table.contains(item.name), claimed(item), "{}: claim and registration differ", item.name);
        for version in VERSIONS.into_iter().filter(|_| claimed(item)) {
            let declared = btf(version).find_func(item.name).is_some();
            assert_eq!(declared, there(item, version), "{} in {version:?}", item.name);
        }
    }
    for name in table.names().filter(|name| name.contains("scx_")) {
        assert!(KFUNCS.iter().any(|item| item.name == name), "{name} is registered, but not listed");
    }
    for version in VERSIONS {
        let btf = btf(version);
        let functions =
            btf.types().filter(|(_, ty)| matches!(ty.kind, Kind::Func { .. })).map(|(id, _)| btf.name(id));
        for name in functions.filter(|name| name.contains("scx_")) {
            assert!(
                KFUNCS.iter().any(|item| item.name == name && there(item, version)),
                "{name} in {version:?}"
            );
        }
    }
}

#[test]
fn enumerators_are_listed() {
    let internal =
        ["_ALL_FLAGS", "_MASK", "SCX_OPS_HAS_CPU_PREEMPT", "SCX_ENQ_CLEAR_OPSS", "SCX_ENQ_DSQ_PRIQ"];
    let internal = internal.into_iter().chain([
        "SCX_ENQ_NESTED",
        "SCX_ENQ_GDSQ_FALLBACK",
        "SCX_EXIT_NONE",
        "SCX_EXIT_DONE",
    ]);
    let internal: Vec<&str> =
        internal.chain(["SCX_DSQ_FLAG", "SCX_DSQ_INVALID", "__SCX_", "SCX_REENQ_TSR"]).collect();
    let enums = [
        "scx_ops_flags",
        "scx_enq_flags",
        "scx_deq_flags",
        "scx_wake_flags",
        "scx_kick_flags",
        "scx_pick_idle_cpu_flags",
        "scx_exit_kind",
        "scx_exit_code",
        "scx_exit_flags",
        "scx_dsq_id_flags",
        "scx_reenq_flags",
        "scx_dsq_iter_flags",
    ];
    for version in VERSIONS {
        let btf = btf(version);
        for values in enums.iter().filter_map(|name| btf.find_enum(name)) {
            for value in btf.enumerators(values) {
                let name = btf.string(value.name_offset);
                let known =
                    internal.iter().any(|part| name.contains(part)) || items().any(|item| item.name == name);
                assert!(known, "{name} in {version:?}");
            }
        }
    }
    for name in EVENT_NAMES {
        assert!(items().any(|item| item.name == name), "{name}");
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test may read files; the simulator may not")]
fn every_claim_has_a_test_that_exists() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for item in items() {
        let harmless = item.until.is_some() && item.test.is_empty();
        assert_eq!(
            item.test.is_empty(),
            !claimed(item) || harmless,
            "{}: no claim without a test",
            item.name
        );
        if item.test.is_empty() {
            continue;
        }
        let exists = match item.test.split_once("::") {
            None => schedlab_objects::conformance::case(item.test).is_some(),
            Some((file, function)) => {
                let text = std::fs::read_to_string(directory.join(format!("{file}.rs"))).unwrap_or_default();
                text.contains(&format!("#[test]\nfn {function}()"))
            }
        };
        assert!(exists, "{}: there is no test {}", item.name, item.test);
    }
}

#[test]
fn the_page_has_every_row() {
    let page = super::page();
    assert_eq!(page.lines().filter(|line| line.starts_with("| ")).count(), items().count() + GROUPS.len());
    assert!(page.contains("| `select_cpu` | 6.12 | yes | `select_cpu_dispatch` |"), "{page}");
}
