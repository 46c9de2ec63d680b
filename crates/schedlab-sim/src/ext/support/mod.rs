//! What of sched_ext the simulated kernel has: every callback, kfunc, flag, dispatch queue, exit kind, event counter
//! and rule of cpu-form schedulers from 6.12 to 7.2, since which kernel, and the test that shows it.
//!
//! Data and the page made of it (docs/sched-ext-support.md, by `cargo xtask docs`). Tests hold it against what is
//! really registered: a claim without a registered callback or kfunc fails, and so does one without its test.

mod callbacks;
mod kfuncs;
mod rules;
mod selftests;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

/// Kernel version as (major, minor).
pub type Version = (u16, u16);

/// Whether the simulated kernel has something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// As Linux has it.
    Yes,
    /// With this difference.
    Partly(&'static str),
    /// Not, for this reason.
    No(&'static str),
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// As the kernel spells it.
    pub name: &'static str,
    /// First kernel that has it; 6.12 is the first with sched_ext.
    pub since: Version,
    /// First kernel that no longer has it.
    pub until: Option<Version>,
    /// Whether it is there.
    pub support: Support,
    /// The test that shows it: a conformance case (tests/conformance), or FILE::FUNCTION of crates/schedlab-sim/tests.
    pub test: &'static str,
}

impl Item {
    const fn new(name: &'static str, since: Version, support: Support, test: &'static str) -> Item {
        Item { name, since, until: None, support, test }
    }

    const fn before(self, until: Version) -> Item {
        Item { until: Some(until), ..self }
    }
}

/// There since the first kernel.
const fn yes(name: &'static str, test: &'static str) -> Item {
    Item::new(name, (6, 12), Support::Yes, test)
}

/// There since a later kernel.
const fn since(major: u16, minor: u16, name: &'static str, test: &'static str) -> Item {
    Item::new(name, (major, minor), Support::Yes, test)
}

const fn partly(name: &'static str, since: Version, what: &'static str, test: &'static str) -> Item {
    Item::new(name, since, Support::Partly(what), test)
}

const fn no(name: &'static str, since: Version, why: &'static str) -> Item {
    Item::new(name, since, Support::No(why), "")
}

/// A group of rows.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Its title.
    pub title: &'static str,
    /// Its rows.
    pub items: &'static [Item],
}

/// Everything, in the order of the page.
pub const GROUPS: &[Group] = &[
    Group { title: "Callbacks", items: callbacks::CALLBACKS },
    Group { title: "Kfuncs", items: kfuncs::KFUNCS },
    Group { title: "Flags of a scheduler", items: rules::OPS_FLAGS },
    Group { title: "Flags of enqueue, dequeue, wake-up and kicks", items: rules::FLAGS },
    Group { title: "Dispatch queues", items: rules::QUEUES },
    Group { title: "Exit kinds and codes", items: rules::EXITS },
    Group { title: "Event counters", items: rules::EVENTS },
    Group { title: "Rules", items: rules::RULES },
    Group { title: "Selftests of the kernel", items: selftests::SELFTESTS },
];

/// The page of it all, in Markdown.
#[must_use]
pub fn page() -> String {
    let mut text = String::from(
        "# What of sched_ext the simulated kernel has\n\n\
         <!-- Made from crates/schedlab-sim/src/ext/support by `cargo xtask docs`: edit it there. -->\n\n\
         Every callback, kfunc, flag, queue, exit kind and counter of cpu-form schedulers from Linux 6.12 to 7.2, the \
         kernel\nthat has it first, and the test that shows it. `--kernel` chooses the version: what is newer is not \
         there then.\nTests are cases of `crates/schedlab-objects/src/conformance.rs`, which run in the simulated \
         kernel and on Linux 7.2 in\na virtual machine, or `FILE::FUNCTION` of `crates/schedlab-sim/tests`. \
         [model.md](model.md) has the differences that are\nnobody's row here.\n",
    );
    let count = |wanted: fn(&Support) -> bool| {
        GROUPS.iter().flat_map(|group| group.items).filter(|item| wanted(&item.support)).count()
    };
    let _ = write!(
        text,
        "\n{} supported, {} partly, {} not.\n",
        count(|support| *support == Support::Yes),
        count(|support| matches!(support, Support::Partly(_))),
        count(|support| matches!(support, Support::No(_))),
    );
    for group in GROUPS {
        let _ =
            write!(text, "\n## {}\n\n| Item | Since | Supported | Test |\n|---|---|---|---|\n", group.title);
        group.items.iter().for_each(|item| row(&mut text, item));
    }
    text
}

fn row(text: &mut String, item: &Item) {
    let (major, minor) = item.since;
    let until = item.until.map_or_else(String::new, |(major, minor)| format!(", gone in {major}.{minor}"));
    let support = match item.support {
        Support::Yes => "yes".to_owned(),
        Support::Partly(what) => format!("partly: {what}"),
        Support::No(why) => format!("no: {why}"),
    };
    let test = if item.test.is_empty() { String::new() } else { format!("`{}`", item.test) };
    let name = if item.name.contains(' ') { item.name.to_owned() } else { format!("`{}`", item.name) };
    let _ = writeln!(text, "| {name} | {major}.{minor}{until} | {support} | {test} |");
}
