//! The kernel's types, as far as scheduler objects touch them, and the versions that have them.
//!
//! Member order is ours: what the class touches at every switch lies together. Sizes and layouts are the
//! kernel's where programs put the type on their stack (iterators, argument structs, event counters) and where
//! a program can walk it (cpumask). Source: vmlinux BTF of 7.2.13, include/linux/sched/ext.h of each version.

use super::{Versioned, always, before, between, since};

/// Declared in order: what is used by value comes first.
pub(super) const TYPES: &[Versioned] = &[
    always(BASIC),
    always(ENUMS),
    before(7, 0, ENQ_FLAGS_612),
    since(7, 0, ENQ_FLAGS_70),
    before(7, 0, DEQ_FLAGS_612),
    since(7, 0, DEQ_FLAGS_70),
    before(6, 14, OPS_FLAGS_612),
    between((6, 14), (7, 0), OPS_FLAGS_614),
    since(7, 0, OPS_FLAGS_70),
    before(7, 0, EXIT_KIND_612),
    since(7, 0, EXIT_KIND_70),
    before(7, 0, TASK_FLAGS_612),
    since(7, 0, TASK_FLAGS_70),
    since(6, 15, PICK_IDLE_IN_NODE),
    before(6, 15, PICK_IDLE_612),
    since(7, 0, REENQ_FLAGS),
    before(7, 0, ENTITY_612),
    since(7, 0, ENTITY_70),
    always(TASK),
    always(ARGUMENTS),
    since(6, 15, EVENT_STATS),
    since(6, 19, ARGUMENT_STRUCTS),
    before(6, 17, OPS_612),
    between((6, 17), (6, 19), OPS_617),
    between((6, 19), (7, 0), OPS_619),
    since(7, 0, OPS_70),
];

const BASIC: &str = "
typedef signed char __s8;
typedef unsigned char __u8;
typedef short int __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __s8 s8;
typedef __u8 u8;
typedef __s16 s16;
typedef __u16 u16;
typedef __s32 s32;
typedef __u32 u32;
typedef __s64 s64;
typedef __u64 u64;
typedef unsigned long __kernel_ulong_t;
typedef __kernel_ulong_t __kernel_size_t;
typedef __kernel_size_t size_t;
typedef int __kernel_pid_t;
typedef __kernel_pid_t pid_t;
typedef struct { int counter; } atomic_t;
typedef struct { s64 counter; } atomic64_t;
typedef atomic64_t atomic_long_t;
struct refcount_struct { atomic_t refs; };
typedef struct refcount_struct refcount_t;
struct list_head { struct list_head *next; struct list_head *prev; };
struct rb_node { unsigned long __rb_parent_color; struct rb_node *rb_right; struct rb_node *rb_left; };
struct cpumask { unsigned long bits[128]; };
typedef struct cpumask cpumask_t;
typedef cpumask_t *cpumask_var_t;
struct bpf_cpumask { cpumask_t cpumask; refcount_t usage; };
struct bpf_spin_lock { __u32 val; };
struct bpf_timer { __u64 __opaque[2]; };
struct bpf_list_head { __u64 __opaque[2]; };
struct bpf_list_node { __u64 __opaque[3]; };
struct bpf_rb_root { __u64 __opaque[2]; };
struct bpf_rb_node { __u64 __opaque[4]; };
struct bpf_refcount { __u32 __opaque[1]; };
struct bpf_iter_num { __u64 __opaque[1]; };
struct bpf_iter_bits { __u64 __opaque[2]; };
struct bpf_iter_task { __u64 __opaque[3]; };
struct bpf_iter_css { __u64 __opaque[3]; };
struct bpf_iter_css_task { __u64 __opaque[1]; };
struct bpf_wq { __u64 __opaque[2]; };
struct bpf_dynptr { __u64 __opaque[2]; };
struct bpf_res_spin_lock { u32 val; };
struct bpf_iter_scx_dsq { u64 __opaque[6]; };
typedef struct { void *lock; } class_rcu_t;
struct bpf_prog_aux;
struct bpf_map;
struct scx_sched;
struct mm_struct { atomic_t mm_users; atomic_t mm_count; };
struct kernfs_node { u64 id; const char *name; };
struct cgroup;
struct percpu_ref { unsigned long percpu_count_ptr; };
struct cgroup_subsys_state { struct cgroup *cgroup; struct cgroup_subsys_state *parent; u64 serial_nr; struct percpu_ref refcnt; };
struct cgroup { struct cgroup_subsys_state self; unsigned long flags; int level; struct kernfs_node *kn; struct cgroup *dom_cgrp; struct cgroup *ancestors[1]; };
struct task_group { struct cgroup_subsys_state css; };
struct css_set { struct cgroup *dfl_cgrp; };
struct thread_info { unsigned long flags; u32 status; u32 cpu; };
typedef struct { unsigned long bits[16]; } nodemask_t;
struct mempolicy { atomic_t refcnt; unsigned short mode; unsigned short flags; nodemask_t nodes; int home_node; };
struct seq_file;
struct bpf_iter_meta { struct seq_file *seq; u64 session_id; u64 seq_num; };
struct bpf_iter__task { struct bpf_iter_meta *meta; struct task_struct *task; };
struct trace_entry { unsigned short type; unsigned char flags; unsigned char preempt_count; int pid; };
struct trace_event_raw_sched_switch { struct trace_entry ent; char prev_comm[16]; pid_t prev_pid; int prev_prio; long prev_state; char next_comm[16]; pid_t next_pid; int next_prio; };
";

const ENUMS: &str = "
enum { TASK_COMM_LEN = 16 };
enum scx_public_consts { SCX_OPS_NAME_LEN = 128, SCX_SLICE_DFL = 20000000, SCX_SLICE_BYPASS = 5000000, SCX_SLICE_INF = 0xffffffffffffffffLLU };
enum scx_consts { SCX_DSP_DFL_MAX_BATCH = 32, SCX_DSP_MAX_LOOPS = 32, SCX_WATCHDOG_MAX_TIMEOUT = 7500, SCX_EXIT_BT_LEN = 64, SCX_EXIT_MSG_LEN = 1024, SCX_EXIT_DUMP_DFL_LEN = 32768, SCX_CPUPERF_ONE = 1024, SCX_TASK_ITER_BATCH = 32 };
enum scx_dsq_id_flags { SCX_DSQ_FLAG_BUILTIN = 0x8000000000000000LLU, SCX_DSQ_FLAG_LOCAL_ON = 0x4000000000000000LLU, SCX_DSQ_INVALID = 0x8000000000000000LLU, SCX_DSQ_GLOBAL = 0x8000000000000001LLU, SCX_DSQ_LOCAL = 0x8000000000000002LLU, SCX_DSQ_BYPASS = 0x8000000000000003LLU, SCX_DSQ_LOCAL_ON = 0xc000000000000000LLU, SCX_DSQ_LOCAL_CPU_MASK = 0xffffffffLLU };
enum scx_exit_code { SCX_ECODE_RSN_HOTPLUG = 0x100000000LLU, SCX_ECODE_ACT_RESTART = 0x1000000000000LLU };
enum scx_exit_flags { SCX_EFLAG_INITIALIZED = 1 };
enum scx_wake_flags { SCX_WAKE_FORK = 4, SCX_WAKE_TTWU = 8, SCX_WAKE_SYNC = 16 };
enum scx_kick_flags { SCX_KICK_IDLE = 1, SCX_KICK_PREEMPT = 2, SCX_KICK_WAIT = 4 };
enum scx_tg_flags { SCX_TG_ONLINE = 1, SCX_TG_INITED = 2 };
enum scx_ops_state { SCX_OPSS_NONE, SCX_OPSS_QUEUEING, SCX_OPSS_QUEUED, SCX_OPSS_DISPATCHING, SCX_OPSS_QSEQ_SHIFT = 2 };
enum scx_ent_dsq_flags { SCX_TASK_DSQ_ON_PRIQ = 1 };
enum scx_dsq_iter_flags { SCX_DSQ_ITER_REV = 65536, __SCX_DSQ_ITER_HAS_SLICE = 1073741824, __SCX_DSQ_ITER_HAS_VTIME = 0x80000000LLU, __SCX_DSQ_ITER_USER_FLAGS = 65536, __SCX_DSQ_ITER_ALL_FLAGS = 0xc0010000LLU };
enum scx_cpu_preempt_reason { SCX_CPU_PREEMPT_RT, SCX_CPU_PREEMPT_DL, SCX_CPU_PREEMPT_STOP, SCX_CPU_PREEMPT_UNKNOWN };
enum scx_enable_state { SCX_ENABLING, SCX_ENABLED, SCX_DISABLING, SCX_DISABLED };
enum scx_rq_flags { SCX_RQ_ONLINE = 1, SCX_RQ_CAN_STOP_TICK = 2, SCX_RQ_BAL_PENDING = 4, SCX_RQ_BAL_KEEP = 8, SCX_RQ_CLK_VALID = 32, SCX_RQ_BAL_CB_PENDING = 64, SCX_RQ_IN_WAKEUP = 65536, SCX_RQ_IN_BALANCE = 131072 };
";

const ENQ_FLAGS_612: &str = "enum scx_enq_flags { SCX_ENQ_WAKEUP = 1, SCX_ENQ_HEAD = 0x10, SCX_ENQ_CPU_SELECTED = 0x400, SCX_ENQ_PREEMPT = 0x100000000LLU, SCX_ENQ_REENQ = 0x10000000000LLU, SCX_ENQ_LAST = 0x20000000000LLU, SCX_ENQ_CLEAR_OPSS = 0x100000000000000LLU, SCX_ENQ_DSQ_PRIQ = 0x200000000000000LLU };";
const ENQ_FLAGS_70: &str = "enum scx_enq_flags { SCX_ENQ_WAKEUP = 1, SCX_ENQ_HEAD = 0x10000, SCX_ENQ_CPU_SELECTED = 0x100000, SCX_ENQ_PREEMPT = 0x100000000LLU, SCX_ENQ_IMMED = 0x200000000LLU, SCX_ENQ_REENQ = 0x10000000000LLU, SCX_ENQ_LAST = 0x20000000000LLU, __SCX_ENQ_INTERNAL_MASK = 0xff00000000000000LLU, SCX_ENQ_CLEAR_OPSS = 0x100000000000000LLU, SCX_ENQ_DSQ_PRIQ = 0x200000000000000LLU, SCX_ENQ_NESTED = 0x400000000000000LLU, SCX_ENQ_GDSQ_FALLBACK = 0x800000000000000LLU };";
const DEQ_FLAGS_612: &str =
    "enum scx_deq_flags { SCX_DEQ_SLEEP = 1, SCX_DEQ_CORE_SCHED_EXEC = 0x100000000LLU };";
const DEQ_FLAGS_70: &str = "enum scx_deq_flags { SCX_DEQ_SLEEP = 1, SCX_DEQ_CORE_SCHED_EXEC = 0x100000000LLU, SCX_DEQ_SCHED_CHANGE = 0x200000000LLU };";
const OPS_FLAGS_612: &str = "enum scx_ops_flags { SCX_OPS_KEEP_BUILTIN_IDLE = 1, SCX_OPS_ENQ_LAST = 2, SCX_OPS_ENQ_EXITING = 4, SCX_OPS_SWITCH_PARTIAL = 8, SCX_OPS_HAS_CGROUP_WEIGHT = 65536, SCX_OPS_ALL_FLAGS = 65551 };";
const OPS_FLAGS_614: &str = "enum scx_ops_flags { SCX_OPS_KEEP_BUILTIN_IDLE = 1, SCX_OPS_ENQ_LAST = 2, SCX_OPS_ENQ_EXITING = 4, SCX_OPS_SWITCH_PARTIAL = 8, SCX_OPS_ENQ_MIGRATION_DISABLED = 16, SCX_OPS_ALLOW_QUEUED_WAKEUP = 32, SCX_OPS_BUILTIN_IDLE_PER_NODE = 64, SCX_OPS_HAS_CGROUP_WEIGHT = 65536, SCX_OPS_ALL_FLAGS = 65663, __SCX_OPS_INTERNAL_MASK = 0xff00000000000000LLU, SCX_OPS_HAS_CPU_PREEMPT = 0x100000000000000LLU };";
const OPS_FLAGS_70: &str = "enum scx_ops_flags { SCX_OPS_KEEP_BUILTIN_IDLE = 1, SCX_OPS_ENQ_LAST = 2, SCX_OPS_ENQ_EXITING = 4, SCX_OPS_SWITCH_PARTIAL = 8, SCX_OPS_ENQ_MIGRATION_DISABLED = 16, SCX_OPS_ALLOW_QUEUED_WAKEUP = 32, SCX_OPS_BUILTIN_IDLE_PER_NODE = 64, SCX_OPS_ALWAYS_ENQ_IMMED = 128, SCX_OPS_TID_TO_TASK = 256, SCX_OPS_ALL_FLAGS = 511, __SCX_OPS_INTERNAL_MASK = 0xff00000000000000LLU, SCX_OPS_HAS_CPU_PREEMPT = 0x100000000000000LLU };";
const EXIT_KIND_612: &str = "enum scx_exit_kind { SCX_EXIT_NONE, SCX_EXIT_DONE, SCX_EXIT_UNREG = 64, SCX_EXIT_UNREG_BPF, SCX_EXIT_UNREG_KERN, SCX_EXIT_SYSRQ, SCX_EXIT_ERROR = 1024, SCX_EXIT_ERROR_BPF, SCX_EXIT_ERROR_STALL };";
const EXIT_KIND_70: &str = "enum scx_exit_kind { SCX_EXIT_NONE, SCX_EXIT_DONE, SCX_EXIT_UNREG = 64, SCX_EXIT_UNREG_BPF, SCX_EXIT_UNREG_KERN, SCX_EXIT_SYSRQ, SCX_EXIT_PARENT, SCX_EXIT_ERROR = 1024, SCX_EXIT_ERROR_BPF, SCX_EXIT_ERROR_STALL };";
const TASK_FLAGS_612: &str = "enum scx_ent_flags { SCX_TASK_QUEUED = 1, SCX_TASK_RESET_RUNNABLE_AT = 4, SCX_TASK_DEQD_FOR_SLEEP = 8, SCX_TASK_STATE_SHIFT = 8, SCX_TASK_STATE_BITS = 2, SCX_TASK_STATE_MASK = 768, SCX_TASK_CURSOR = 0x80000000LLU };";
const TASK_FLAGS_70: &str = "enum scx_ent_flags { SCX_TASK_QUEUED = 1, SCX_TASK_IN_CUSTODY = 2, SCX_TASK_RESET_RUNNABLE_AT = 4, SCX_TASK_DEQD_FOR_SLEEP = 8, SCX_TASK_SUB_INIT = 16, SCX_TASK_IMMED = 32, SCX_TASK_STATE_SHIFT = 8, SCX_TASK_STATE_BITS = 3, SCX_TASK_STATE_MASK = 1792, SCX_TASK_NONE = 0, SCX_TASK_INIT_BEGIN = 256, SCX_TASK_INIT = 512, SCX_TASK_READY = 768, SCX_TASK_ENABLED = 1024, SCX_TASK_DEAD = 1280, SCX_TASK_REENQ_REASON_SHIFT = 12, SCX_TASK_REENQ_REASON_BITS = 2, SCX_TASK_REENQ_REASON_MASK = 12288, SCX_TASK_REENQ_NONE = 0, SCX_TASK_REENQ_KFUNC = 4096, SCX_TASK_REENQ_IMMED = 8192, SCX_TASK_REENQ_PREEMPTED = 12288, SCX_TASK_CURSOR = 0x80000000LLU };";
const PICK_IDLE_612: &str = "enum scx_pick_idle_cpu_flags { SCX_PICK_IDLE_CORE = 1 };";
const PICK_IDLE_IN_NODE: &str =
    "enum scx_pick_idle_cpu_flags { SCX_PICK_IDLE_CORE = 1, SCX_PICK_IDLE_IN_NODE = 2 };";
const REENQ_FLAGS: &str = "enum scx_reenq_flags { SCX_REENQ_ANY = 1, __SCX_REENQ_FILTER_MASK = 65535, __SCX_REENQ_USER_MASK = 1, SCX_REENQ_TSR_RQ_OPEN = 0x100000000LLU, SCX_REENQ_TSR_NOT_FIRST = 0x200000000LLU, __SCX_REENQ_TSR_MASK = 0xf00000000LLU };";

const ENTITY_612: &str = "
struct scx_dispatch_q { struct list_head list; u32 nr; u32 seq; u64 id; };
struct sched_ext_entity { u64 slice; u64 dsq_vtime; u32 flags; u32 weight; s32 selected_cpu; s32 sticky_cpu; s32 holding_cpu; u32 dsq_flags; u32 dsq_seq; u32 ops_qseq; struct scx_dispatch_q *dsq; unsigned long runnable_at; u64 ddsp_dsq_id; u64 ddsp_enq_flags; bool disallow; };
";
const ENTITY_70: &str = "
struct scx_dispatch_q { struct task_struct *first_task; struct list_head list; u32 nr; u32 seq; u64 id; struct scx_sched *sched; };
struct sched_ext_entity { u64 slice; u64 dsq_vtime; u32 flags; u32 weight; s32 selected_cpu; s32 sticky_cpu; s32 holding_cpu; u32 dsq_flags; u32 dsq_seq; u32 ops_qseq; struct scx_dispatch_q *dsq; struct scx_sched *sched; unsigned long runnable_at; u64 ddsp_dsq_id; u64 ddsp_enq_flags; u64 tid; bool disallow; };
";

/// The task, the run queue and what they embed.
const TASK: &str = "
typedef struct { unsigned int val; } kuid_t;
typedef struct { unsigned int val; } kgid_t;
struct cred { kuid_t uid; kgid_t gid; kuid_t euid; kgid_t egid; };
struct ns_common { unsigned int inum; };
struct pid_namespace { unsigned int level; struct ns_common ns; };
struct upid { int nr; struct pid_namespace *ns; };
struct pid { unsigned int level; struct upid numbers[1]; };
struct signal_struct { struct list_head thread_head; struct pid *pids[4]; };
struct sched_avg { unsigned long load_avg; unsigned long runnable_avg; unsigned long util_avg; };
struct sched_class;
struct bpf_perf_event_value { __u64 counter; __u64 enabled; __u64 running; };
struct load_weight { unsigned long weight; u32 inv_weight; };
struct sched_entity { struct load_weight load; u64 exec_start; u64 sum_exec_runtime; u64 prev_sum_exec_runtime; u64 vruntime; u64 nr_migrations; struct sched_avg avg; };
struct task_struct {
    struct thread_info thread_info;
    unsigned int __state;
    unsigned int flags;
    u8 on_cpu;
    u8 on_rq;
    int static_prio;
    struct sched_ext_entity scx;
    unsigned long nvcsw;
    unsigned long nivcsw;
    struct sched_entity se;
    int recent_used_cpu;
    int wake_cpu;
    int prio;
    int normal_prio;
    unsigned int rt_priority;
    unsigned int policy;
    int nr_cpus_allowed;
    const cpumask_t *cpus_ptr;
    cpumask_t *user_cpus_ptr;
    pid_t pid;
    pid_t tgid;
    unsigned short migration_disabled;
    unsigned int wakee_flips;
    struct task_struct *last_wakee;
    struct mm_struct *mm;
    int exit_state;
    struct task_struct *real_parent;
    struct task_struct *parent;
    struct task_struct *group_leader;
    struct task_group *sched_task_group;
    struct css_set *cgroups;
    u64 utime;
    u64 stime;
    u64 start_time;
    u64 start_boottime;
    char comm[16];
    refcount_t usage;
    refcount_t rcu_users;
    struct pid *thread_pid;
    const struct cred *real_cred;
    const struct cred *cred;
    struct signal_struct *signal;
    struct list_head thread_node;
    struct mempolicy *mempolicy;
    const struct sched_class *sched_class;
    cpumask_t cpus_mask;
};
struct scx_rq { struct scx_dispatch_q local_dsq; u32 nr_running; u32 cpuperf_target; bool cpu_released; u32 flags; u64 clock; };
struct cfs_rq { unsigned int nr_queued; unsigned int h_nr_queued; };
struct rt_rq { unsigned int rt_nr_running; };
struct cpufreq_cpuinfo { unsigned int max_freq; unsigned int min_freq; unsigned int transition_latency; };
struct cpufreq_policy { struct cpufreq_cpuinfo cpuinfo; unsigned int cpu; unsigned int min; unsigned int max; unsigned int cur; };
struct rq { unsigned int nr_running; struct scx_rq scx; struct cfs_rq cfs; struct rt_rq rt; struct task_struct *curr; struct task_struct *idle; u64 clock; u64 clock_task; u64 clock_pelt; u64 lost_idle_time; int cpu; int online; u64 nr_switches; };
extern struct rq runqueues;
extern struct cpufreq_policy *cpufreq_cpu_data;
extern int sd_llc_id;
extern int sd_llc_size;
";

const ARGUMENTS: &str = "
struct scx_init_task_args { bool fork; struct cgroup *cgroup; };
struct scx_exit_task_args { bool cancelled; };
struct scx_cgroup_init_args { u32 weight; u64 bw_period_us; u64 bw_quota_us; u64 bw_burst_us; };
struct scx_cpu_acquire_args { };
struct scx_cpu_release_args { enum scx_cpu_preempt_reason reason; struct task_struct *task; };
struct scx_dump_ctx { enum scx_exit_kind kind; s64 exit_code; const char *reason; u64 at_ns; u64 at_jiffies; };
struct scx_exit_info { enum scx_exit_kind kind; s32 exit_cpu; s64 exit_code; u64 flags; const char *reason; unsigned long *bt; u32 bt_len; char *msg; char *dump; };
";

const EVENT_STATS: &str = "struct scx_event_stats { s64 SCX_EV_SELECT_CPU_FALLBACK; s64 SCX_EV_DISPATCH_LOCAL_DSQ_OFFLINE; s64 SCX_EV_DISPATCH_KEEP_LAST; s64 SCX_EV_ENQ_SKIP_EXITING; s64 SCX_EV_ENQ_SKIP_MIGRATION_DISABLED; s64 SCX_EV_REENQ_IMMED; s64 SCX_EV_REENQ_LOCAL_REPEAT; s64 SCX_EV_REFILL_SLICE_DFL; s64 SCX_EV_BYPASS_DURATION; s64 SCX_EV_BYPASS_DISPATCH; s64 SCX_EV_BYPASS_ACTIVATE; s64 SCX_EV_INSERT_NOT_OWNED; s64 SCX_EV_SUB_BYPASS_DISPATCH; };";

const ARGUMENT_STRUCTS: &str = "
struct scx_bpf_dsq_insert_vtime_args { u64 dsq_id; u64 slice; u64 vtime; u64 enq_flags; };
struct scx_bpf_select_cpu_and_args { s32 prev_cpu; u64 wake_flags; u64 flags; };
";

/// Callbacks up to and without the tail that changes with versions.
macro_rules! ops {
    ($after_idle:literal, $cgroup:literal, $tail:literal, $data:literal) => {
        concat!(
            "struct sched_ext_ops {
    s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
    void (*enqueue)(struct task_struct *p, u64 enq_flags);
    void (*dequeue)(struct task_struct *p, u64 deq_flags);
    void (*dispatch)(s32 cpu, struct task_struct *prev);
    void (*tick)(struct task_struct *p);
    void (*runnable)(struct task_struct *p, u64 enq_flags);
    void (*running)(struct task_struct *p);
    void (*stopping)(struct task_struct *p, bool runnable);
    void (*quiescent)(struct task_struct *p, u64 deq_flags);
    bool (*yield)(struct task_struct *from, struct task_struct *to);
    bool (*core_sched_before)(struct task_struct *a, struct task_struct *b);
    void (*set_weight)(struct task_struct *p, u32 weight);
    void (*set_cpumask)(struct task_struct *p, const struct cpumask *cpumask);
    void (*update_idle)(s32 cpu, bool idle);",
            $after_idle,
            "s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
    void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
    void (*enable)(struct task_struct *p);
    void (*disable)(struct task_struct *p);
    void (*dump)(struct scx_dump_ctx *ctx);
    void (*dump_cpu)(struct scx_dump_ctx *ctx, s32 cpu, bool idle);
    void (*dump_task)(struct scx_dump_ctx *ctx, struct task_struct *p);
    s32 (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
    void (*cgroup_exit)(struct cgroup *cgrp);
    s32 (*cgroup_prep_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
    void (*cgroup_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
    void (*cgroup_cancel_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
    void (*cgroup_set_weight)(struct cgroup *cgrp, u32 weight);",
            $cgroup,
            "void (*cpu_online)(s32 cpu);
    void (*cpu_offline)(s32 cpu);
    s32 (*init)(void);
    void (*exit)(struct scx_exit_info *info);
    u32 dispatch_max_batch;
    u64 flags;
    u32 timeout_ms;
    u32 exit_dump_len;
    u64 hotplug_seq;",
            $data,
            "char name[128];
    void *priv;",
            $tail,
            "};"
        )
    };
}

const OPS_612: &str = ops!(
    "void (*cpu_acquire)(s32 cpu, struct scx_cpu_acquire_args *args);
    void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);",
    "",
    "",
    ""
);
const OPS_617: &str = ops!(
    "void (*cpu_acquire)(s32 cpu, struct scx_cpu_acquire_args *args);
    void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);",
    "void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us);",
    "",
    ""
);
const OPS_619: &str = ops!(
    "void (*cpu_acquire)(s32 cpu, struct scx_cpu_acquire_args *args);
    void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);",
    "void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us);
    void (*cgroup_set_idle)(struct cgroup *cgrp, bool idle);",
    "",
    ""
);
const OPS_70: &str = concat!(
    "struct sched_ext_ops;
struct scx_sub_attach_args { struct sched_ext_ops *ops; char *cgroup_path; };
struct scx_sub_detach_args { struct sched_ext_ops *ops; char *cgroup_path; };",
    ops!(
        "",
        "void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us);
    void (*cgroup_set_idle)(struct cgroup *cgrp, bool idle);
    s32 (*sub_attach)(struct scx_sub_attach_args *args);
    void (*sub_detach)(struct scx_sub_detach_args *args);",
        "void (*cpu_acquire)(s32 cpu, struct scx_cpu_acquire_args *args);
    void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);",
        "u64 sub_cgroup_id;"
    )
);
