//! Where the class finds fields of kernel objects: byte offsets, read once from the simulated kernel's BTF.

use schedlab_bpf::btf::Btf;

macro_rules! offsets {
    ($(#[$doc:meta])* $name:ident in $root:literal { $($field:ident = $path:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $name { $(pub $field: u64,)* }

        impl $name {
            fn of(btf: &Btf) -> $name {
                $name { $($field: offset(btf, $root, $path),)* }
            }
        }
    };
}

offsets!(
    /// Fields of `struct task_struct`.
    TaskOffsets in "task_struct" {
        cpu = "thread_info.cpu",
        slice = "scx.slice",
        dsq_vtime = "scx.dsq_vtime",
        scx_flags = "scx.flags",
        weight = "scx.weight",
        selected_cpu = "scx.selected_cpu",
        sticky_cpu = "scx.sticky_cpu",
        holding_cpu = "scx.holding_cpu",
        disallow = "scx.disallow",
        state = "__state",
        flags = "flags",
        on_cpu = "on_cpu",
        on_rq = "on_rq",
        recent_used_cpu = "recent_used_cpu",
        wake_cpu = "wake_cpu",
        prio = "prio",
        static_prio = "static_prio",
        normal_prio = "normal_prio",
        rt_priority = "rt_priority",
        policy = "policy",
        nr_cpus_allowed = "nr_cpus_allowed",
        cpus_ptr = "cpus_ptr",
        cpus_mask = "cpus_mask",
        load_weight = "se.load.weight",
        exec_start = "se.exec_start",
        sum_exec_runtime = "se.sum_exec_runtime",
        pid = "pid",
        tgid = "tgid",
        mm = "mm",
        real_parent = "real_parent",
        parent = "parent",
        group_leader = "group_leader",
        sched_task_group = "sched_task_group",
        cgroups = "cgroups",
        utime = "utime",
        stime = "stime",
        nvcsw = "nvcsw",
        nivcsw = "nivcsw",
        start_time = "start_time",
        start_boottime = "start_boottime",
        comm = "comm",
    }
);

offsets!(
    /// Fields of `struct rq`.
    RqOffsets in "rq" {
        nr_running = "nr_running",
        scx_nr_running = "scx.nr_running",
        curr = "curr",
        idle = "idle",
        clock = "clock",
        clock_task = "clock_task",
        cpu = "cpu",
        online = "online",
    }
);

offsets!(
    /// Fields of `struct scx_exit_info`.
    ExitOffsets in "scx_exit_info" {
        kind = "kind",
        exit_cpu = "exit_cpu",
        exit_code = "exit_code",
        flags = "flags",
        reason = "reason",
        msg = "msg",
        dump = "dump",
    }
);

offsets!(
    /// Fields of `struct cgroup`.
    CgroupOffsets in "cgroup" {
        css_cgroup = "self.cgroup",
        dom_cgrp = "dom_cgrp",
        css_parent = "self.parent",
        level = "level",
        kn = "kn",
        ancestors = "ancestors",
    }
);

offsets!(
    /// Fields of `struct scx_dump_ctx`.
    DumpOffsets in "scx_dump_ctx" {
        kind = "kind",
        exit_code = "exit_code",
        reason = "reason",
        at_ns = "at_ns",
        at_jiffies = "at_jiffies",
    }
);

/// Offsets and sizes of every kernel object in the region.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub task: TaskOffsets,
    pub task_size: u64,
    /// Offset of `scx.tid`, where tasks have one (7.0 and later).
    pub task_tid: Option<u64>,
    pub rq: RqOffsets,
    pub rq_size: u64,
    pub exit: ExitOffsets,
    pub exit_size: u64,
    pub dump: DumpOffsets,
    pub dump_size: u64,
    pub cgroup: CgroupOffsets,
    pub cgroup_size: u64,
    pub kernfs_size: u64,
    pub kernfs_id: u64,
    pub task_group_size: u64,
    pub task_group_cgroup: u64,
    pub css_set_size: u64,
    pub css_set_cgroup: u64,
    /// Offset of `cgroup` in `struct scx_init_task_args`.
    pub init_task_cgroup: u64,
}

impl Layout {
    /// Reads the offsets out of a kernel's BTF.
    ///
    /// # Panics
    /// If the BTF is not one of [`super::kernel_btf`].
    pub fn of(btf: &Btf) -> Layout {
        Layout {
            task: TaskOffsets::of(btf),
            task_size: size(btf, "task_struct"),
            task_tid: has_member(btf, "sched_ext_entity", "tid")
                .then(|| offset(btf, "task_struct", "scx.tid")),
            rq: RqOffsets::of(btf),
            rq_size: size(btf, "rq"),
            exit: ExitOffsets::of(btf),
            exit_size: size(btf, "scx_exit_info"),
            dump: DumpOffsets::of(btf),
            dump_size: size(btf, "scx_dump_ctx"),
            cgroup: CgroupOffsets::of(btf),
            cgroup_size: size(btf, "cgroup"),
            kernfs_size: size(btf, "kernfs_node"),
            kernfs_id: offset(btf, "kernfs_node", "id"),
            task_group_size: size(btf, "task_group"),
            task_group_cgroup: offset(btf, "task_group", "css.cgroup"),
            css_set_size: size(btf, "css_set"),
            css_set_cgroup: offset(btf, "css_set", "dfl_cgrp"),
            init_task_cgroup: offset(btf, "scx_init_task_args", "cgroup"),
        }
    }
}

fn has_member(btf: &Btf, root: &str, name: &str) -> bool {
    btf.find_struct(root).is_some_and(|ty| btf.member(ty, name).is_some())
}

fn size(btf: &Btf, name: &str) -> u64 {
    let id = btf.find_struct(name).expect("declared in the kernel's types");
    u64::from(btf.size_of(id).expect("a struct has a size"))
}

fn offset(btf: &Btf, root: &str, path: &str) -> u64 {
    let mut ty = btf.find_struct(root).expect("declared in the kernel's types");
    path.split('.')
        .map(|name| {
            let member = btf.member(ty, name).expect("declared in the kernel's types");
            ty = member.type_id;
            u64::from(member.byte_offset())
        })
        .sum()
}
