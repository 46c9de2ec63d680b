//! Helpers on task and cgroup storage.

use super::map::map_at;
use super::{Action, Cx, Host, call};
use crate::exec::FaultKind;

pub(super) fn find<H: Host>(id: u32) -> Option<(&'static str, Action)> {
    Some(match id {
        156 => ("bpf_task_storage_get", call::<H, _>(get::<H>)),
        157 => ("bpf_task_storage_delete", call::<H, _>(delete::<H>)),
        210 => ("bpf_cgrp_storage_get", call::<H, _>(get::<H>)),
        211 => ("bpf_cgrp_storage_delete", call::<H, _>(delete::<H>)),
        _ => return None,
    })
}

fn get<H: Host>(
    cx: &mut Cx<'_, H>,
    map: u64,
    owner: u64,
    initial: u64,
    flags: u64,
) -> Result<u64, FaultKind> {
    let map = map_at(cx, map, "bpf_task_storage_get")?;
    let state = cx.state();
    state.maps.storage_get(&mut state.memory, map, owner, initial, flags)
}

fn delete<H: Host>(cx: &mut Cx<'_, H>, map: u64, owner: u64) -> Result<i64, FaultKind> {
    let map = map_at(cx, map, "bpf_task_storage_delete")?;
    let state = cx.state();
    let error = state.maps.storage_delete(&mut state.memory, map, owner);
    super::map::settle(cx);
    Ok(error)
}
