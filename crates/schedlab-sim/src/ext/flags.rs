//! The core's flags of enqueue and dequeue as kernels of each version tell them to programs.
//!
//! The core's own are in [`crate::core::flags`], what the class does with them in [`super::enqueue`].

use super::consts::*;
use super::host::Host;
use crate::core::flags;

/// The kernel's enqueue flags of this version, as programs see them.
#[inline(always)]
pub(super) fn enqueue_flags(host: &mut Host, task: u32, core: u32) -> u64 {
    let new = host.at_least(7, 0);
    let mut flags = 0;
    if core & flags::ENQUEUE_WAKEUP != 0 {
        flags |= SCX_ENQ_WAKEUP | ENQUEUE_NOCLOCK;
    }
    if core & flags::ENQUEUE_INITIAL != 0 {
        flags |= ENQUEUE_NOCLOCK | if new { ENQUEUE_INITIAL } else { 0x80 };
    }
    if core & flags::ENQUEUE_MIGRATED != 0 {
        flags |= if new { 0x0004_0000 } else { 0x40 };
    }
    if core & flags::ENQUEUE_RESTORE != 0 {
        flags |= ENQUEUE_RESTORE | ENQUEUE_NOCLOCK;
        if core & flags::ENQUEUE_HEAD != 0 {
            flags |= host.rules.head_flag;
        }
        flags |= change_flags(new, core);
    }
    if std::mem::take(&mut host.task_mut(task).selected) && core & flags::ENQUEUE_WAKEUP != 0 {
        flags |= host.rules.cpu_selected_flag;
    }
    flags
}

/// The kernel's dequeue flags.
pub(super) fn dequeue_flags(host: &Host, core: u32) -> u64 {
    let mut flags = ENQUEUE_NOCLOCK;
    if core & flags::DEQUEUE_SLEEP != 0 {
        flags |= SCX_DEQ_SLEEP;
    }
    if core & flags::DEQUEUE_SAVE != 0 {
        flags |= DEQUEUE_SAVE | change_flags(host.at_least(7, 0), core);
    }
    flags
}

/// What both ends of a change are told about it.
fn change_flags(new: bool, core: u32) -> u64 {
    let class = if new && core & flags::CLASS != 0 { ENQUEUE_CLASS } else { 0 };
    class | if core & flags::MOVE != 0 { ENQUEUE_MOVE } else { 0 }
}
