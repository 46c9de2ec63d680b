//! What a call instruction can reach: host functions, and the few answers that need no call at all.
//!
//! Host functions are generic over the host's state type; here that is erased. The typed border is
//! `context::HostFn`.

use super::context::{Answer, RawContext};

/// A value of the calling context that a kfunc or helper merely returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextField {
    /// Time in nanoseconds, as set by [`CallContext::set_now`](super::CallContext::set_now).
    Now,
    /// The current CPU, as set by [`CallContext::set_cpu`](super::CallContext::set_cpu).
    Cpu,
    /// Address of the current task, as set by
    /// [`CallContext::set_current`](super::CallContext::set_current).
    Current,
}

/// Entry point of a host function with its arguments, callable from native code.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    Args0(unsafe extern "C" fn(*mut RawContext) -> Answer),
    Args1(unsafe extern "C" fn(*mut RawContext, u64) -> Answer),
    Args2(unsafe extern "C" fn(*mut RawContext, u64, u64) -> Answer),
    Args3(unsafe extern "C" fn(*mut RawContext, u64, u64, u64) -> Answer),
    Args4(unsafe extern "C" fn(*mut RawContext, u64, u64, u64, u64) -> Answer),
    Args5(unsafe extern "C" fn(*mut RawContext, u64, u64, u64, u64, u64) -> Answer),
}

impl Entry {
    /// Address and number of arguments.
    pub(crate) fn address(self) -> (*const u8, u8) {
        match self {
            Entry::Args0(entry) => (entry as *const u8, 0),
            Entry::Args1(entry) => (entry as *const u8, 1),
            Entry::Args2(entry) => (entry as *const u8, 2),
            Entry::Args3(entry) => (entry as *const u8, 3),
            Entry::Args4(entry) => (entry as *const u8, 4),
            Entry::Args5(entry) => (entry as *const u8, 5),
        }
    }

    /// Calls it with registers r1 to r5.
    ///
    /// # Safety
    /// `raw` must be the live context of the running instance, entered by the host this entry was made for.
    pub(crate) unsafe fn call(self, raw: *mut RawContext, r: &[u64; 5]) -> Answer {
        // SAFETY: passed on to the caller.
        unsafe {
            match self {
                Entry::Args0(entry) => entry(raw),
                Entry::Args1(entry) => entry(raw, r[0]),
                Entry::Args2(entry) => entry(raw, r[0], r[1]),
                Entry::Args3(entry) => entry(raw, r[0], r[1], r[2]),
                Entry::Args4(entry) => entry(raw, r[0], r[1], r[2], r[3]),
                Entry::Args5(entry) => entry(raw, r[0], r[1], r[2], r[3], r[4]),
            }
        }
    }
}

/// What a call does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// Calls a host function.
    Function(Entry),
    /// Calls it too, but native code may look an array element up by itself.
    MapLookup(Entry),
    /// Goes on in another program, which the calling one does not outlive.
    TailCall,
    /// Returns a value of the context.
    Context(ContextField),
    /// Returns what the first argument points to, at an offset.
    Load { offset: i16, bytes: u8, signed: bool },
    /// Returns a constant.
    Constant(u64),
    /// Ends the program with a fault.
    Absent,
}

/// A callee and its name.
#[derive(Clone, Debug)]
pub(crate) struct CallTarget {
    pub name: String,
    pub action: Action,
}

impl CallTarget {
    /// Argument registers it reads: r1 to this one.
    pub(crate) fn arguments(&self) -> u8 {
        match self.action {
            Action::Function(entry) | Action::MapLookup(entry) => entry.address().1,
            Action::TailCall => 3,
            Action::Load { .. } => 1,
            Action::Context(_) | Action::Constant(_) | Action::Absent => 0,
        }
    }

    pub(crate) fn absent(name: String) -> CallTarget {
        CallTarget { name, action: Action::Absent }
    }

    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.action, Action::Absent)
    }
}

/// Finds callees by number or name.
pub(crate) struct TargetTable<'a> {
    pub helpers: &'a dyn Fn(u32) -> Option<CallTarget>,
    pub kfuncs: &'a dyn Fn(&str) -> Option<CallTarget>,
    /// Whether an absent callee in reachable code is an error already when linking.
    pub refuse_absent: bool,
}

impl TargetTable<'_> {
    pub(crate) fn helper(&self, id: u32) -> CallTarget {
        (self.helpers)(id).unwrap_or_else(|| match crate::helpers::helper_name(id) {
            Some(name) => CallTarget::absent(format!("helper {name}")),
            None => CallTarget::absent(format!("helper {id}, which no Linux has")),
        })
    }

    pub(crate) fn kfunc(&self, name: &str) -> CallTarget {
        (self.kfuncs)(name).unwrap_or_else(|| CallTarget::absent(format!("kfunc {name}")))
    }
}
