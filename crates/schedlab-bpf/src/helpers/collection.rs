//! Objects that programs allocate (`bpf_obj_new`) and the lists and trees that own them.
//!
//! Differs from Linux: nodes are kept in order beside the region, so the content of `bpf_list_node` and
//! `bpf_rb_node` stays zero, and `bpf_rbtree_root/left/right` walk a balanced tree over that order, whose shape
//! may differ from the kernel's. The order of nodes, and who is first, is the kernel's: equal tree nodes stay
//! in the order they came.

use super::{Cx, Host, bad};
use crate::exec::{FaultKind, Faulted, KfuncTable};
use crate::maps::EINVAL;

/// Largest object with a copy for each CPU.
const PERCPU_BYTES_MAX: u32 = 512;

pub(super) fn add<H: Host>(table: &mut KfuncTable<H>) {
    // Newer kernels drop `_impl` and pass the last arguments in secret; nothing here needs them.
    for suffix in ["", "_impl"] {
        table.add(&format!("bpf_obj_new{suffix}"), new::<H>);
        table.add(&format!("bpf_obj_drop{suffix}"), drop_reference::<H>);
        table.add(&format!("bpf_percpu_obj_new{suffix}"), new_percpu::<H>);
        table.add(&format!("bpf_percpu_obj_drop{suffix}"), drop_percpu::<H>);
        table.add(&format!("bpf_refcount_acquire{suffix}"), acquire::<H>);
        table.add(&format!("bpf_list_push_front{suffix}"), |cx: &mut Cx<'_, H>, head: u64, node: u64| {
            push(cx, head, node, true)
        });
        table.add(&format!("bpf_list_push_back{suffix}"), |cx: &mut Cx<'_, H>, head: u64, node: u64| {
            push(cx, head, node, false)
        });
        table.add(&format!("bpf_rbtree_add{suffix}"), tree_add::<H>);
    }
    table
        .add("bpf_list_pop_front", |cx: &mut Cx<'_, H>, head: u64| take(cx, head, |nodes| nodes.pop_front()));
    table.add("bpf_list_pop_back", |cx: &mut Cx<'_, H>, head: u64| take(cx, head, |nodes| nodes.pop_back()));
    for name in ["bpf_list_front", "bpf_rbtree_first"] {
        table.add(name, |cx: &mut Cx<'_, H>, head: u64| take(cx, head, |nodes| nodes.front().copied()));
    }
    table.add("bpf_list_back", |cx: &mut Cx<'_, H>, head: u64| take(cx, head, |nodes| nodes.back().copied()));
    table.add("bpf_rbtree_remove", tree_remove::<H>);
    table.add("bpf_rbtree_root", |cx: &mut Cx<'_, H>, root: u64| tree_walk(cx, root, 0, None));
    table.add("bpf_rbtree_left", |cx: &mut Cx<'_, H>, root: u64, node: u64| {
        tree_walk(cx, root, node, Some(false))
    });
    table.add("bpf_rbtree_right", |cx: &mut Cx<'_, H>, root: u64, node: u64| {
        tree_walk(cx, root, node, Some(true))
    });
    table.add("bpf_list_add", list_add::<H>);
    table.add("bpf_list_del", tree_remove::<H>);
    table.add("bpf_list_empty", |cx: &mut Cx<'_, H>, head: u64| {
        cx.state().collections.get(&head).is_none_or(|nodes| nodes.is_empty())
    });
    table.add("bpf_list_is_first", |cx: &mut Cx<'_, H>, head: u64, node: u64| {
        cx.state().collections.get(&head).is_some_and(|nodes| nodes.front() == Some(&node))
    });
    table.add("bpf_list_is_last", |cx: &mut Cx<'_, H>, head: u64, node: u64| {
        cx.state().collections.get(&head).is_some_and(|nodes| nodes.back() == Some(&node))
    });
    table.add("bpf_throw", |cx: &mut Cx<'_, H>, cookie: u64| -> Result<(), Faulted> {
        Err(cx.fault(FaultKind::Thrown(cookie)))
    });
    table.add("bpf_rdonly_cast", |_: &mut Cx<'_, H>, object: u64, _type: u64| object);
    table.add("bpf_cast_to_kern_ctx", |_: &mut Cx<'_, H>, object: u64| object);
}

/// A zeroed object of a type of the object file; 0 when the region is full.
fn new<H: Host>(cx: &mut Cx<'_, H>, type_id: u64) -> Result<u64, FaultKind> {
    let Some(bytes) = cx.state().code.image.btf.size_of(type_id as u32) else {
        return Err(bad("bpf_obj_new", format!("type {type_id} of the object has no size")));
    };
    let bytes = u64::from(bytes);
    let Some(address) = cx.memory().alloc(bytes, 8) else { return Ok(0) };
    cx.state().objects.insert(address, (bytes, 1));
    Ok(address)
}

/// A zeroed object for each CPU, at most `BPF_GLOBAL_PERCPU_MA_MAX_SIZE` bytes each; 0 when the region is full.
fn new_percpu<H: Host>(cx: &mut Cx<'_, H>, type_id: u64) -> Result<u64, FaultKind> {
    let size = cx.state().code.image.btf.size_of(type_id as u32);
    let Some(bytes) = size.filter(|bytes| *bytes <= PERCPU_BYTES_MAX) else {
        let what = format!("type {type_id} of the object has no size up to {PERCPU_BYTES_MAX} bytes");
        return Err(bad("bpf_percpu_obj_new", what));
    };
    let (bytes, cpus) = (u64::from(bytes).next_multiple_of(8), u64::from(cx.nr_cpus()));
    let Some(address) = cx.memory().alloc(bytes * cpus, 8) else { return Ok(0) };
    cx.state().percpu.insert(address, bytes);
    Ok(address)
}

fn drop_percpu<H: Host>(cx: &mut Cx<'_, H>, object: u64) -> Result<(), FaultKind> {
    if cx.state().drop_percpu(object) {
        return Ok(());
    }
    Err(bad("bpf_percpu_obj_drop", format!("{object:#x} is no live object: dropped twice?")))
}

fn acquire<H: Host>(cx: &mut Cx<'_, H>, object: u64) -> Result<u64, FaultKind> {
    match cx.state().objects.get_mut(&object) {
        Some((_, references)) => {
            *references += 1;
            Ok(object)
        }
        None => Err(bad("bpf_refcount_acquire", format!("{object:#x} is no live object"))),
    }
}

fn drop_reference<H: Host>(cx: &mut Cx<'_, H>, object: u64) -> Result<(), FaultKind> {
    if cx.state().drop_object(object) {
        return Ok(());
    }
    Err(bad("bpf_obj_drop", format!("{object:#x} is no live object: dropped twice?")))
}

/// Whether some list or tree owns the node.
fn owned<H: Host>(cx: &mut Cx<'_, H>, node: u64) -> bool {
    cx.state().collections.values().any(|nodes| nodes.contains(&node))
}

fn push<H: Host>(cx: &mut Cx<'_, H>, head: u64, node: u64, front: bool) -> i64 {
    if owned(cx, node) {
        return -EINVAL;
    }
    let nodes = cx.state().collections.entry(head).or_default();
    if front {
        nodes.push_front(node)
    } else {
        nodes.push_back(node)
    }
    0
}

fn take<H: Host>(
    cx: &mut Cx<'_, H>,
    head: u64,
    from: fn(&mut std::collections::VecDeque<u64>) -> Option<u64>,
) -> u64 {
    cx.state().collections.get_mut(&head).and_then(from).unwrap_or(0)
}

/// Inserts behind all nodes that the new one is not less than, found by halving.
fn tree_add<H: Host>(cx: &mut Cx<'_, H>, root: u64, node: u64, less: u64) -> Result<i64, Faulted> {
    if owned(cx, node) {
        return Ok(-EINVAL);
    }
    let (mut low, mut high) = (0, cx.state().collections.entry(root).or_default().len());
    while low < high {
        let middle = low.midpoint(high);
        let nodes = cx.state().collections.get(&root);
        let other = nodes.and_then(|nodes| nodes.get(middle)).copied().unwrap_or(0);
        if cx.callback(less, [node, other, 0, 0, 0])? & 0xff != 0 {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let nodes = cx.state().collections.entry(root).or_default();
    nodes.insert(low.min(nodes.len()), node);
    Ok(0)
}

fn tree_remove<H: Host>(cx: &mut Cx<'_, H>, root: u64, node: u64) -> u64 {
    let Some(nodes) = cx.state().collections.get_mut(&root) else { return 0 };
    match nodes.iter().position(|other| *other == node) {
        Some(at) => nodes.remove(at).unwrap_or(0),
        None => 0,
    }
}

/// Inserts a node behind another of the list.
fn list_add<H: Host>(cx: &mut Cx<'_, H>, head: u64, node: u64, previous: u64) -> i64 {
    if owned(cx, node) {
        return -EINVAL;
    }
    let Some(nodes) = cx.state().collections.get_mut(&head) else { return -EINVAL };
    match nodes.iter().position(|other| *other == previous) {
        Some(at) => {
            nodes.insert(at + 1, node);
            0
        }
        None => -EINVAL,
    }
}

/// A step in the balanced tree over the nodes in order: its root, or a child of a node; 0 if there is none.
fn tree_walk<H: Host>(cx: &mut Cx<'_, H>, root: u64, node: u64, right: Option<bool>) -> u64 {
    let Some(nodes) = cx.state().collections.get(&root) else { return 0 };
    let at = |low: usize, high: usize| if low < high { nodes[low.midpoint(high)] } else { 0 };
    let Some(right) = right else { return at(0, nodes.len()) };
    let Some(wanted) = nodes.iter().position(|other| *other == node) else { return 0 };
    let (mut low, mut high) = (0, nodes.len());
    while low < high {
        let middle = low.midpoint(high);
        match wanted.cmp(&middle) {
            std::cmp::Ordering::Less => high = middle,
            std::cmp::Ordering::Greater => low = middle + 1,
            std::cmp::Ordering::Equal if right => return at(middle + 1, high),
            std::cmp::Ordering::Equal => return at(low, middle),
        }
    }
    0
}
