//! Prototypes of the kfuncs that belong to BPF itself, and the versions that have them: arenas, dynptrs,
//! iterators, objects with their lists and trees, locks, text, work queues.
//!
//! Those of sched_ext and cpumasks are in [`super::prototypes`]. Source: vmlinux BTF of 7.2.13, the vmlinux.h
//! files of sched-ext/scx for 6.16 and 7.0; hidden arguments are part of the `_impl` forms only.

use super::{Versioned, always, before, since};

/// Declared after the types.
pub(super) const GENERIC: &[Versioned] = &[
    always(MEMORY),
    always(ITERATORS),
    always(OBJECTS_IMPL),
    always("void bpf_throw(u64 cookie);"),
    since(7, 0, OBJECTS),
    since(6, 16, OBJECTS_616),
    since(7, 1, LISTS_71),
    always(TASKS),
    since(6, 14, "struct task_struct *bpf_task_from_vpid(s32 vpid);"),
    since(
        6,
        14,
        "void bpf_local_irq_save(unsigned long *flags__irq_flag); void bpf_local_irq_restore(unsigned long *flags__irq_flag);",
    ),
    since(6, 15, LOCKS_615),
    since(6, 17, TEXT_617),
    since(
        6,
        16,
        "int bpf_dynptr_copy(const struct bpf_dynptr *dst_ptr, u64 dst_off, const struct bpf_dynptr *src_ptr, u64 src_off, u64 size); int bpf_probe_read_kernel_dynptr(const struct bpf_dynptr *dptr, u64 off, u64 size, const void *unsafe_ptr__ign);",
    ),
    since(6, 17, "int bpf_dynptr_memset(const struct bpf_dynptr *p, u64 offset, u64 size, u8 val);"),
    since(
        7,
        0,
        "int bpf_strncasecmp(const char *s1__ign, const char *s2__ign, size_t len); int bpf_strcasestr(const char *s1__ign, const char *s2__ign); int bpf_strncasestr(const char *s1__ign, const char *s2__ign, size_t len); int bpf_stream_print_stack(int stream_id);",
    ),
    since(6, 17, "int bpf_arena_reserve_pages(void *p__map, void *ptr__ign, u32 page_cnt);"),
    since(
        7,
        0,
        "int bpf_stream_vprintk(int stream_id, const char *fmt__str, const void *args, u32 len__sz); int bpf_timer_cancel_async(struct bpf_timer *timer);",
    ),
    always(
        "int bpf_wq_init(struct bpf_wq *wq, void *p__map, unsigned int flags); int bpf_wq_start(struct bpf_wq *wq, unsigned int flags);",
    ),
    before(
        7,
        0,
        "int bpf_wq_set_callback_impl(struct bpf_wq *wq, int (*callback_fn)(void *map, int *key, void *value), unsigned int flags, void *aux__prog);",
    ),
    since(
        7,
        0,
        "int bpf_wq_set_callback(struct bpf_wq *wq, int (*callback_fn)(void *map, int *key, void *value), unsigned int flags);",
    ),
];

const MEMORY: &str = "
void *bpf_arena_alloc_pages(void *p__map, void *addr__ign, u32 page_cnt, int node_id, u64 flags);
void bpf_arena_free_pages(void *p__map, void *ptr__ign, u32 page_cnt);
int bpf_dynptr_adjust(const struct bpf_dynptr *p, u32 start, u32 end);
int bpf_dynptr_clone(const struct bpf_dynptr *p, struct bpf_dynptr *clone__uninit);
bool bpf_dynptr_is_null(const struct bpf_dynptr *p);
bool bpf_dynptr_is_rdonly(const struct bpf_dynptr *p);
u64 bpf_dynptr_size(const struct bpf_dynptr *p);
void *bpf_dynptr_slice(const struct bpf_dynptr *p, u64 offset, void *buffer__opt, u64 buffer__szk);
void *bpf_dynptr_slice_rdwr(const struct bpf_dynptr *p, u64 offset, void *buffer__opt, u64 buffer__szk);
void *bpf_rdonly_cast(const void *obj__ign, u32 btf_id__k);
void *bpf_cast_to_kern_ctx(void *obj);
";

const ITERATORS: &str = "
int bpf_iter_css_new(struct bpf_iter_css *it, struct cgroup_subsys_state *start, unsigned int flags);
struct cgroup_subsys_state *bpf_iter_css_next(struct bpf_iter_css *it);
void bpf_iter_css_destroy(struct bpf_iter_css *it);
int bpf_iter_css_task_new(struct bpf_iter_css_task *it, struct cgroup_subsys_state *css, unsigned int flags);
struct task_struct *bpf_iter_css_task_next(struct bpf_iter_css_task *it);
void bpf_iter_css_task_destroy(struct bpf_iter_css_task *it);
int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task__nullable, unsigned int flags);
struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it);
void bpf_iter_task_destroy(struct bpf_iter_task *it);
";

const OBJECTS_IMPL: &str = "
void *bpf_obj_new_impl(u64 local_type_id__k, void *meta__ign);
void bpf_obj_drop_impl(void *p__alloc, void *meta__ign);
void *bpf_percpu_obj_new_impl(u64 local_type_id__k, void *meta__ign);
void bpf_percpu_obj_drop_impl(void *p__alloc, void *meta__ign);
void *bpf_refcount_acquire_impl(void *p__refcounted_kptr, void *meta__ign);
int bpf_list_push_front_impl(struct bpf_list_head *head, struct bpf_list_node *node, void *meta__ign, u64 off);
int bpf_list_push_back_impl(struct bpf_list_head *head, struct bpf_list_node *node, void *meta__ign, u64 off);
struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head);
struct bpf_list_node *bpf_list_pop_back(struct bpf_list_head *head);
int bpf_rbtree_add_impl(struct bpf_rb_root *root, struct bpf_rb_node *node, bool (*less)(struct bpf_rb_node *a, const struct bpf_rb_node *b), void *meta__ign, u64 off);
struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *root);
struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *root, struct bpf_rb_node *node);
";

const OBJECTS: &str = "
void *bpf_obj_new(u64 local_type_id__k);
void bpf_obj_drop(void *p__alloc);
void *bpf_percpu_obj_new(u64 local_type_id__k);
void bpf_percpu_obj_drop(void *p__alloc);
void *bpf_refcount_acquire(void *p__refcounted_kptr);
int bpf_list_push_front(struct bpf_list_head *head, struct bpf_list_node *node);
int bpf_list_push_back(struct bpf_list_head *head, struct bpf_list_node *node);
int bpf_rbtree_add(struct bpf_rb_root *root, struct bpf_rb_node *node, bool (*less)(struct bpf_rb_node *a, const struct bpf_rb_node *b));
";

const OBJECTS_616: &str = "
struct bpf_list_node *bpf_list_front(struct bpf_list_head *head);
struct bpf_list_node *bpf_list_back(struct bpf_list_head *head);
struct bpf_rb_node *bpf_rbtree_root(struct bpf_rb_root *root);
struct bpf_rb_node *bpf_rbtree_left(struct bpf_rb_root *root, struct bpf_rb_node *node);
struct bpf_rb_node *bpf_rbtree_right(struct bpf_rb_root *root, struct bpf_rb_node *node);
";

const LISTS_71: &str = "
int bpf_list_add(struct bpf_list_head *head, struct bpf_list_node *new, struct bpf_list_node *prev__nonown_allowed);
struct bpf_list_node *bpf_list_del(struct bpf_list_head *head, struct bpf_list_node *node__nonown_allowed);
bool bpf_list_empty(struct bpf_list_head *head);
bool bpf_list_is_first(struct bpf_list_head *head, struct bpf_list_node *node__nonown_allowed);
bool bpf_list_is_last(struct bpf_list_head *head, struct bpf_list_node *node__nonown_allowed);
";

const TASKS: &str = "
long bpf_task_under_cgroup(struct task_struct *task, struct cgroup *ancestor);
struct cgroup *bpf_task_get_cgroup1(struct task_struct *task, int hierarchy_id);
";

const LOCKS_615: &str = "
int bpf_res_spin_lock(struct bpf_res_spin_lock *lock);
int bpf_res_spin_lock_irqsave(struct bpf_res_spin_lock *lock, unsigned long *flags__irq_flag);
void bpf_res_spin_unlock(struct bpf_res_spin_lock *lock);
void bpf_res_spin_unlock_irqrestore(struct bpf_res_spin_lock *lock, unsigned long *flags__irq_flag);
";

const TEXT_617: &str = "
int bpf_strcmp(const char *s1__ign, const char *s2__ign);
int bpf_strchr(const char *s__ign, char c);
int bpf_strrchr(const char *s__ign, int c);
int bpf_strlen(const char *s__ign);
int bpf_strnlen(const char *s__ign, size_t count);
int bpf_strstr(const char *s1__ign, const char *s2__ign);
int bpf_strnstr(const char *s1__ign, const char *s2__ign, size_t len);
int bpf_strcasecmp(const char *s1__ign, const char *s2__ign);
int bpf_strchrnul(const char *s__ign, char c);
int bpf_strnchr(const char *s__ign, size_t count, char c);
int bpf_strspn(const char *s__ign, const char *accept__ign);
int bpf_strcspn(const char *s__ign, const char *reject__ign);
";
