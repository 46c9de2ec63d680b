//! Names of CPUs, tasks and channels: small dense numbers that index tables.
//!
//! They are positions in the tables of one recording or one simulation, not kernel pids; the task table
//! ([`crate::recording::TaskInfo`]) maps to pids.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! dense_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// Position in the table of its kind.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

dense_id!(
    /// A logical CPU, numbered as the kernel numbers it.
    CpuId,
    "cpu"
);
dense_id!(
    /// A task (thread). 0 is every CPU's idle task.
    TaskId,
    "task"
);
dense_id!(
    /// A channel between tasks: pipe, socket, futex, condition.
    ChannelId,
    "channel"
);

impl TaskId {
    /// The idle task (`swapper`), one identity for all CPUs.
    pub const IDLE: TaskId = TaskId(0);

    /// Whether this is the idle task.
    #[inline]
    pub const fn is_idle(self) -> bool {
        self.0 == 0
    }
}
