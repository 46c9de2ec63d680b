//! Running programs: from an image to compiled code ([`Compiled`]), instances of it ([`Instance`]) and the
//! border to the host that calls them and answers their kfuncs ([`CallContext`], [`Host`]).
//!
//! Not here: ELF and BTF (`object`, `btf`), native code generation (`jit`), maps, helpers.

mod arguments;
pub(crate) mod compiled;
pub(crate) mod context;
pub(crate) mod fault;
mod instance;
pub(crate) mod interp;
pub(crate) mod layout;
pub(crate) mod link;
pub(crate) mod op;
pub(crate) mod run;
mod stack;
pub(crate) mod state;
pub(crate) mod target;

pub use crate::maps::MapError;
pub use compiled::{Compiled, KfuncTable, Options};
pub use context::{CallContext, Faulted, HostFn, Outcome, SLOTS};
pub use fault::{BpfError, Fault, FaultKind};
pub use instance::Instance;
pub use layout::HOST_AREA;
pub use stack::PrivateStacks;
pub use state::Log;
pub use target::ContextField;

pub(crate) use arguments::WORDS;
pub(crate) use context::{REGION_OFFSET, RawContext};
pub(crate) use interp::MAY_GOTO_MAX;

/// What the generic helpers ask of the host. Every method has an answer for hosts that have none.
pub trait Host: Sized + 'static {
    /// `bpf_get_current_pid_tgid()`: thread group in the high half, thread in the low one.
    fn current_pid_tgid(_context: &mut CallContext<'_, Self>) -> u64 {
        0
    }

    /// `bpf_get_current_comm()`: name of the current task, ended by zeros.
    fn current_comm(_context: &mut CallContext<'_, Self>) -> [u8; 16] {
        [0; 16]
    }

    /// `bpf_get_current_cgroup_id()`.
    fn current_cgroup_id(_context: &mut CallContext<'_, Self>) -> u64 {
        0
    }

    /// Nanoseconds of a jiffy: `1 / CONFIG_HZ`.
    fn jiffy_ns(_context: &mut CallContext<'_, Self>) -> u64 {
        1_000_000
    }

    /// `bpf_get_numa_node_id()`: node of the current CPU.
    fn numa_node(_context: &mut CallContext<'_, Self>) -> u32 {
        0
    }

    /// `bpf_timer_start()`: call [`CallContext::fire_timer`] with this timer at `expires_ns` (absolute, in the
    /// clock of [`CallContext::now`]); with `pinned` on the CPU that is current now. Starting an armed timer
    /// moves it.
    fn timer_start(_context: &mut CallContext<'_, Self>, _timer: u64, _expires_ns: u64, _pinned: bool) {}

    /// `bpf_timer_cancel()`: the timer must not fire any more.
    fn timer_cancel(_context: &mut CallContext<'_, Self>, _timer: u64) {}
}
