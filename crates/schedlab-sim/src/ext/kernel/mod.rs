//! The simulated kernel as programs see it: its types (BTF) and where fields lie in the region.
//!
//! One table of declarations says which kernel version has what; from it [`kernel_btf`] generates the BTF an
//! object is relocated against, and [`Layout`] the offsets the class itself reads and writes by. Not here:
//! what the kfuncs do ([`super::kfunc`]), the objects themselves ([`super::task`]).

mod generic;
mod layout;
mod prototypes;
mod types;

pub(crate) use layout::{Layout, TaskOffsets};

use schedlab_bpf::btf::{Btf, BtfBuilder};
use schedlab_model::machine::KernelVersion;

/// First version after the newest modelled one.
const NEVER: (u16, u16) = (u16::MAX, 0);

/// Declarations of C for the versions from `since` to before `until`.
struct Versioned {
    since: (u16, u16),
    until: (u16, u16),
    text: &'static str,
}

const fn always(text: &'static str) -> Versioned {
    Versioned { since: (6, 12), until: NEVER, text }
}

const fn since(major: u16, minor: u16, text: &'static str) -> Versioned {
    Versioned { since: (major, minor), until: NEVER, text }
}

const fn before(major: u16, minor: u16, text: &'static str) -> Versioned {
    Versioned { since: (6, 12), until: (major, minor), text }
}

const fn between(since: (u16, u16), until: (u16, u16), text: &'static str) -> Versioned {
    Versioned { since, until, text }
}

/// BTF of the simulated kernel of a version: what CO-RE, existence tests and kfunc prototypes are held against.
///
/// # Panics
/// If the table of declarations is malformed, which is our own mistake and what the tests check.
#[must_use]
pub fn kernel_btf(version: KernelVersion) -> Btf {
    let at = (version.major, version.minor);
    let mut builder = BtfBuilder::new();
    for entry in types::TYPES.iter().chain(prototypes::PROTOTYPES).chain(generic::GENERIC) {
        if entry.since <= at && at < entry.until {
            builder.declare(entry.text).expect("the kernel's declarations are well formed");
        }
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_has_a_btf_and_a_layout() {
        for version in [KernelVersion::V6_12, KernelVersion::V6_18, KernelVersion::V7_2] {
            let btf = kernel_btf(version);
            let layout = Layout::of(&btf);
            assert!(layout.task_size >= layout.task.cpus_mask + 1024);
            assert!(btf.find_func("scx_bpf_kick_cpu").is_some());
        }
    }

    #[test]
    fn kfuncs_come_and_go_with_the_version() {
        let has = |version, name| kernel_btf(version).find_func(name).is_some();
        assert!(has(KernelVersion::V6_12, "scx_bpf_dispatch"));
        assert!(!has(KernelVersion::V6_18, "scx_bpf_dispatch"));
        assert!(!has(KernelVersion::V6_18, "scx_bpf_dsq_insert___v2"));
        assert!(has(KernelVersion::V7_2, "scx_bpf_dsq_insert___v2"));
        assert!(has(KernelVersion::V6_18, "scx_bpf_cpu_curr"));
        assert!(!has(KernelVersion::V6_18, "scx_bpf_dsq_peek"));
    }

    #[test]
    fn enumerators_are_the_class_s_own_numbers() {
        use super::super::consts::*;
        let btf = kernel_btf(KernelVersion::V7_2);
        let expected: [(&str, u64); 14] = [
            ("SCX_SLICE_DFL", SCX_SLICE_DFL),
            ("SCX_SLICE_INF", SCX_SLICE_INF),
            ("SCX_DSQ_GLOBAL", SCX_DSQ_GLOBAL),
            ("SCX_DSQ_LOCAL", SCX_DSQ_LOCAL),
            ("SCX_DSQ_LOCAL_ON", SCX_DSQ_LOCAL_ON),
            ("SCX_ENQ_WAKEUP", SCX_ENQ_WAKEUP),
            ("SCX_ENQ_HEAD", SCX_ENQ_HEAD),
            ("SCX_ENQ_PREEMPT", SCX_ENQ_PREEMPT),
            ("SCX_ENQ_CPU_SELECTED", SCX_ENQ_CPU_SELECTED),
            ("SCX_ENQ_LAST", SCX_ENQ_LAST),
            ("SCX_KICK_WAIT", SCX_KICK_WAIT),
            ("SCX_DEQ_SCHED_CHANGE", SCX_DEQ_SCHED_CHANGE),
            ("SCX_OPS_ALWAYS_ENQ_IMMED", SCX_OPS_ALWAYS_ENQ_IMMED),
            ("SCX_EXIT_ERROR_STALL", u64::from(SCX_EXIT_ERROR_STALL)),
        ];
        for (name, value) in expected {
            assert_eq!(btf.enumerator_value(name), Some(value as i64), "{name}");
        }
    }
}
