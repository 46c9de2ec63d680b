//! Types of an invented kernel for tests of the loader: what bpf/tests and bpf/schedulers refer to.

use schedlab_bpf::btf::{Btf, BtfBuilder};

/// Layouts on purpose unlike those in bpf/include and bpf/tests.
const DECLARATIONS: &str = "
    typedef int pid_t;
    typedef struct cpumask { unsigned long bits[1]; } cpumask_t;
    struct list_head { struct list_head *next; struct list_head *prev; };
    struct sched_ext_entity @ 256 { u32 weight @ 24; u64 slice @ 160; u64 dsq_vtime @ 168; bool disallow; u32 flags @ 192; };
    struct task_struct @ 4096 {
        unsigned int __state @ 24; int static_prio @ 120; pid_t pid @ 1256;
        const cpumask_t *cpus_ptr @ 300; struct sched_ext_entity scx @ 1400; char comm[16] @ 2000;
    };
    enum scx_exit_kind { SCX_EXIT_NONE, SCX_EXIT_DONE, SCX_EXIT_ERROR = 1024 };
    struct scx_exit_info { enum scx_exit_kind kind; s64 exit_code; const char *reason; char *msg; char *dump; };
    enum scx_dsq_id_flags { SCX_DSQ_GLOBAL = 0x8000000000000001LLU, SCX_DSQ_LOCAL = 0x8000000000000002LLU };
    enum scx_kick_flags { SCX_KICK_IDLE = 4, SCX_KICK_PREEMPT = 8 };
    enum scx_enq_flags { SCX_ENQ_WAKEUP = 2, SCX_ENQ_CPU_SELECTED = 0x800 };
    enum scx_ent_flags { SCX_TASK_QUEUED = 16 };
    struct bpf_iter_scx_dsq { u64 __opaque[6]; };
    struct sched_ext_ops {
        s32 (*select_cpu)(struct task_struct *, s32, u64);
        void (*enqueue)(struct task_struct *, u64);
        void (*dispatch)(s32, struct task_struct *);
        void (*running)(struct task_struct *);
        void (*stopping)(struct task_struct *, bool);
        void (*enable)(struct task_struct *);
        s32 (*init)(void);
        void (*exit)(struct scx_exit_info *);
        u64 flags; u32 timeout_ms; char name[128];
    };
    struct bpf_struct_ops_sched_ext_ops { u64 common; struct sched_ext_ops data @ 64; };
    struct scx_bpf_dsq_insert_vtime_args { u64 dsq_id; u64 slice; u64 vtime; u64 enq_flags; };
    s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle);
    s32 scx_bpf_create_dsq(u64 dsq_id, s32 node);
    bool scx_bpf_dsq_insert___v2(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags);
    void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags);
    bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args);
    bool scx_bpf_dsq_move_to_local(u64 dsq_id);
    s32 scx_bpf_task_cpu(const struct task_struct *p);
    s32 scx_bpf_pick_idle_cpu(const cpumask_t *cpus_allowed, u64 flags);
    void scx_bpf_kick_cpu(s32 cpu, u64 flags);
    int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags);
    struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it);
    void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it);
    bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, u64 vtime);

    struct core_inner @ 64 { char text[8] @ 8; s64 b @ 32; int a @ 40; };
    struct core_sample @ 1024 {
        u64 narrow @ 8; int flag_signed : 7 @ 20; unsigned int flag_low : 2 @ 20; u64 first_but_wider;
        int first @ 64; struct core_inner many[8] @ 128; struct core_inner inner @ 704;
        struct { union { u32 in_union; u64 in_union_wide; }; } @ 800; struct core_sample *next @ 900;
    };
    enum core_enum { CORE_B = 77, CORE_A = 1, CORE_MORE };
    enum core_wide { CORE_WIDE = 0x200000002ULL };
    struct core_exact { u32 x; struct core_inner *inner; int more; };
    struct core_inexact { u32 x; u32 other; };

    struct test_object { int x; };
    extern struct test_object test_variable;
    u64 test_present(u64 x);
    u64 test_versioned(u64 x);
    u64 test_incompatible(struct test_object *x, u64 y);
";

/// The invented kernel.
pub fn kernel() -> Btf {
    let mut builder = BtfBuilder::new();
    builder.declare(DECLARATIONS).expect("the declarations are well formed");
    builder.finish()
}

/// The invented kernel without the declarations that contain any of some words.
#[allow(dead_code)]
pub fn kernel_without(words: &[&str]) -> Btf {
    let kept: Vec<&str> =
        DECLARATIONS.split_inclusive(";\n").filter(|d| !words.iter().any(|w| d.contains(w))).collect();
    let mut builder = BtfBuilder::new();
    builder.declare(&kept.concat()).expect("the declarations are well formed");
    builder.finish()
}
