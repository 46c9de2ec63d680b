//! The scheduler core: when which class function is called, and the switch itself (kernel/sched/core.c).
//!
//! [`class`] dispatches to the classes, [`schedule`] picks and switches, [`wakeup`] wakes and forks,
//! [`tick`] is the periodic tick, [`machine`] what happens to CPUs and cgroups,
//! [`switching`] how schedulers come and go. The event loop that drives it all is in [`crate::simulation`].

pub(crate) mod class;
pub(crate) mod flags;
pub(crate) mod machine;
pub(crate) mod schedule;
pub(crate) mod switching;
pub(crate) mod tick;
pub(crate) mod wakeup;

use crate::ext::Ext;
use crate::kernel::Kernel;

/// The kernel with its policies.
pub(crate) struct Core {
    /// What the classes share.
    pub(crate) k: Kernel,
    /// The ext class, which owns its state.
    pub(crate) ext: Ext,
}
