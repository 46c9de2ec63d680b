//! Timers in map values: `bpf_timer_init()`, `_set_callback()`, `_start()`, `_cancel()`; and work queues
//! (`bpf_wq_*`).
//!
//! The host keeps the queue; it calls [`CallContext::fire_timer`] when one expires.

use super::map::{key_address, map_at};
use super::{Action, Cx, Host, bad, call};
use crate::exec::state::Timer;
use crate::exec::{CallContext, Fault, FaultKind, KfuncTable};
use crate::maps::{EBUSY, EINVAL};

/// `BPF_F_TIMER_ABS` and `BPF_F_TIMER_CPU_PIN`.
const ABSOLUTE: u64 = 1;
const PINNED: u64 = 2;

pub(super) fn find<H: Host>(id: u32) -> Option<(&'static str, Action)> {
    Some(match id {
        169 => ("bpf_timer_init", call::<H, _>(init::<H>)),
        170 => ("bpf_timer_set_callback", call::<H, _>(set_callback::<H>)),
        171 => ("bpf_timer_start", call::<H, _>(start::<H>)),
        172 => ("bpf_timer_cancel", call::<H, _>(cancel::<H>)),
        _ => return None,
    })
}

fn init<H: Host>(cx: &mut Cx<'_, H>, timer: u64, map: u64, _flags: u64) -> Result<i64, FaultKind> {
    let map = map_at(cx, map, "bpf_timer_init")?;
    if cx.state().maps.key_of(map, timer).is_none() {
        return Err(bad("bpf_timer_init", "the timer does not lie in a value of the map"));
    }
    let timers = &mut cx.state().timers;
    if timers.contains_key(&timer) {
        return Ok(-EBUSY);
    }
    timers.insert(timer, Timer { map, ..Timer::default() });
    Ok(0)
}

fn set_callback<H: Host>(cx: &mut Cx<'_, H>, timer: u64, function: u64) -> i64 {
    match cx.state().timers.get_mut(&timer) {
        Some(timer) => {
            timer.callback = function;
            0
        }
        None => -EINVAL,
    }
}

fn start<H: Host>(cx: &mut Cx<'_, H>, timer: u64, nanos: u64, flags: u64) -> i64 {
    if flags & !(ABSOLUTE | PINNED) != 0 {
        return -EINVAL;
    }
    match cx.state().timers.get_mut(&timer) {
        Some(timer) if timer.callback != 0 => timer.armed = true,
        _ => return -EINVAL,
    }
    let expires = if flags & ABSOLUTE != 0 { nanos } else { cx.now().saturating_add(nanos) };
    H::timer_start(cx, timer, expires, flags & PINNED != 0);
    0
}

/// 1 if it was armed, 0 if not.
fn cancel<H: Host>(cx: &mut Cx<'_, H>, timer: u64) -> i64 {
    let armed = match cx.state().timers.get_mut(&timer) {
        Some(timer) => std::mem::take(&mut timer.armed),
        None => return -EINVAL,
    };
    if armed {
        H::timer_cancel(cx, timer);
    }
    i64::from(armed)
}

/// Work queue items are timers that expire at once.
pub(super) fn add<H: Host>(table: &mut KfuncTable<H>) {
    table.add("bpf_wq_init", |cx: &mut Cx<'_, H>, work: u64, map: u64, flags: u64| {
        if flags != 0 {
            return Ok::<i64, FaultKind>(-EINVAL);
        }
        let error = init(cx, work, map, 0)?;
        if error == 0
            && let Some(item) = cx.state().timers.get_mut(&work)
        {
            item.work = true;
        }
        Ok(error)
    });
    for name in ["bpf_wq_set_callback", "bpf_wq_set_callback_impl"] {
        table.add(
            name,
            |cx: &mut Cx<'_, H>, work: u64, function: u64, flags: u64| {
                if flags as u32 == 0 { set_callback(cx, work, function) } else { -EINVAL }
            },
        );
    }
    table.add("bpf_wq_start", |cx: &mut Cx<'_, H>, work: u64, flags: u64| {
        let known = cx.state().timers.get(&work).is_some_and(|item| item.work);
        if known && flags as u32 == 0 { start(cx, work, 0, 0) } else { -EINVAL }
    });
    table.add("bpf_timer_cancel_async", cancel::<H>);
}

impl<H: Host> CallContext<'_, H> {
    /// Runs the callback of a timer that expired. Does nothing if the timer is no longer armed.
    ///
    /// # Errors
    /// A fault in the callback.
    pub fn fire_timer(&mut self, timer: u64) -> Result<(), Fault> {
        let Some(known) = self.state().timers.get_mut(&timer) else { return Ok(()) };
        if !std::mem::take(&mut known.armed) {
            return Ok(());
        }
        let (map, function) = (known.map, known.callback);
        let Some((visit, value)) = self.state().maps.key_of(map, timer) else { return Ok(()) };
        let Some(key) = key_address(self, map, visit) else { return Ok(()) };
        let object = self.state().code.layout.maps[map].object;
        self.call_function(function, [object, key, value, 0, 0]).map(drop)
    }
}
