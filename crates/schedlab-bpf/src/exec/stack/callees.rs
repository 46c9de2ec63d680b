//! What helpers and kfuncs do with memory they are given: which arguments point to how many bytes, and which are
//! functions that they call. Only what every kernel from 6.12 on agrees about; what is not listed is not checked.
//!
//! Source: the argument types of the kernel's `struct bpf_func_proto`s, and the names of kfunc parameters
//! (`data__sz`). Not here: what helpers do when they run (`helpers`).

/// Bytes that an argument points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// A key of the map in r1.
    Key,
    /// A value of the map in r1.
    Value,
    /// As many as another register says.
    Register(u8),
    Bytes(u64),
}

/// Registers that point to memory.
pub(super) type Memory = &'static [(u8, Size)];

/// A function that a callee is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Callback {
    /// It runs before the call returns. `context` is the register it is passed in and the one it becomes.
    Within { register: u8, context: Option<(u8, u8)> },
    /// It runs some time later.
    Later { register: u8 },
}

use Size::{Bytes, Key, Register, Value};

/// `struct bpf_dynptr`.
const DYNPTR: Size = Bytes(16);

/// Memory that a helper is given, by its number.
pub(super) fn helper_memory(id: u32) -> Memory {
    match id {
        // Maps.
        1 | 3 | 195 => &[(2, Key)],
        2 => &[(2, Key), (3, Value)],
        87..=89 => &[(2, Value)],
        156 | 210 => &[(3, Value)],
        // bpf_probe_read*, bpf_trace_printk, bpf_get_current_comm, bpf_strncmp, bpf_copy_from_user*
        4 | 6 | 16 | 45 | 112..=115 | 148 | 182 | 191 => &[(1, Register(2))],
        // bpf_get_stack, bpf_ringbuf_output
        67 | 130 => &[(2, Register(3))],
        // bpf_perf_event_read_value, bpf_get_ns_current_pid_tgid
        55 | 120 => &[(3, Register(4))],
        25 => &[(4, Register(5))],
        105 | 106 => &[(1, Register(2)), (4, Bytes(8))],
        149 | 177 => &[(1, Register(2)), (3, Register(4))],
        165 => &[(1, Register(2)), (4, Register(5))],
        // Dynamic pointers.
        197 | 198 => &[(4, DYNPTR)],
        199 | 200 | 203 => &[(1, DYNPTR)],
        201 => &[(1, Register(2)), (3, DYNPTR)],
        202 => &[(1, DYNPTR), (3, Register(4))],
        _ => &[],
    }
}

/// Memory that a kfunc is given, by its name.
pub(super) fn kfunc_memory(name: &str) -> Memory {
    match name {
        "bpf_iter_num_new" => &[(1, Bytes(8))],
        "bpf_iter_bits_new" => &[(1, Bytes(16))],
        "bpf_iter_scx_dsq_new" => &[(1, Bytes(48))],
        // An iterator is at least one word.
        name if name.starts_with("bpf_iter_") && name.ends_with("_new") => &[(1, Bytes(8))],
        "scx_bpf_error_bstr" | "scx_bpf_dump_bstr" => &[(2, Register(3))],
        "scx_bpf_exit_bstr" | "bpf_stream_vprintk" => &[(3, Register(4))],
        "scx_bpf_select_cpu_dfl" => &[(4, Bytes(1))],
        "bpf_local_irq_save" => &[(1, Bytes(8))],
        "bpf_res_spin_lock_irqsave" => &[(2, Bytes(8))],
        "bpf_dynptr_slice" | "bpf_dynptr_slice_rdwr" => &[(1, DYNPTR), (3, Register(4))],
        _ => &[],
    }
}

/// The function that a helper is given.
pub(super) fn helper_callback(id: u32) -> Option<Callback> {
    match id {
        // bpf_loop, bpf_user_ringbuf_drain
        181 | 209 => Some(Callback::Within { register: 2, context: Some((3, 2)) }),
        // bpf_for_each_map_elem
        164 => Some(Callback::Within { register: 2, context: Some((3, 4)) }),
        // bpf_find_vma
        180 => Some(Callback::Within { register: 3, context: Some((4, 3)) }),
        // bpf_timer_set_callback
        170 => Some(Callback::Later { register: 2 }),
        _ => None,
    }
}

/// The function that a kfunc is given.
pub(super) fn kfunc_callback(name: &str) -> Option<Callback> {
    match name {
        "bpf_rbtree_add_impl" | "bpf_rbtree_add" => Some(Callback::Within { register: 3, context: None }),
        "bpf_wq_set_callback_impl" | "bpf_wq_set_callback" => Some(Callback::Later { register: 2 }),
        name if name.starts_with("bpf_task_work_schedule_") => Some(Callback::Later { register: 4 }),
        _ => None,
    }
}
