//! What the benchmarks of `vtime` share: a host, kernel functions that do next to nothing, a clock. `clang.rs`
//! compares with the same functions in C (`native/kernel.c`).

#[expect(clippy::disallowed_types, reason = "a benchmark reads the clock")]
use std::time::Instant;

use schedlab_bpf::exec::{CallContext, Host, KfuncTable};

/// A host that counts.
#[derive(Default)]
pub struct Counter {
    inserted: u64,
}

impl Host for Counter {}

type Cx<'a> = CallContext<'a, Counter>;

/// Offset of `static_prio` in the invented kernel's task.
pub const STATIC_PRIO: u64 = 120;
/// Offset of `scx.dsq_vtime` there.
const DSQ_VTIME: u64 = 1400 + 168;

/// The kernel functions that `vtime` calls.
pub fn kfuncs() -> KfuncTable<Counter> {
    let mut table = KfuncTable::new();
    table.add("scx_bpf_select_cpu_dfl", |cx: &mut Cx<'_>, _p: u64, prev: u64, _flags: u64, is_idle: u64| {
        cx.memory().write_u8(is_idle, 1);
        prev
    });
    table.add("scx_bpf_create_dsq", |_: &mut Cx<'_>, _dsq: u64, _node: u64| 0_u64);
    table.add_constant("scx_bpf_dsq_insert", 0);
    table.add("scx_bpf_dsq_insert___v2", |cx: &mut Cx<'_>, _p: u64, _dsq: u64, slice: u64, _flags: u64| {
        cx.host().inserted += slice;
        true
    });
    table.add("__scx_bpf_dsq_insert_vtime", |cx: &mut Cx<'_>, _p: u64, args: u64| {
        let slice = cx.memory().read_u64(args + 8);
        cx.host().inserted += slice;
        true
    });
    table.add("scx_bpf_dsq_move_to_local", |_: &mut Cx<'_>, _dsq: u64| true);
    table.add("scx_bpf_task_set_dsq_vtime", |cx: &mut Cx<'_>, p: u64, vtime: u64| {
        cx.memory().write_u64(p + DSQ_VTIME, vtime);
        true
    });
    table.add("scx_bpf_task_cpu", |cx: &mut Cx<'_>, p: u64| cx.memory().read_u32(p + 24));
    table.add("scx_bpf_pick_idle_cpu", |_: &mut Cx<'_>, _mask: u64, _flags: u64| -16_i64);
    table.add("scx_bpf_kick_cpu", |_: &mut Cx<'_>, _cpu: u64, _flags: u64| ());
    table.add("bpf_iter_scx_dsq_new", |_: &mut Cx<'_>, _it: u64, _dsq: u64, _flags: u64| 0_u64);
    table.add("bpf_iter_scx_dsq_next", |_: &mut Cx<'_>, _it: u64| 0_u64);
    table.add("bpf_iter_scx_dsq_destroy", |_: &mut Cx<'_>, _it: u64| ());
    table
}

/// The time now.
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a benchmark reads the clock")]
pub fn now() -> Instant {
    Instant::now()
}
