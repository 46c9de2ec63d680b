//! Flags of enqueue, dequeue and wake-up, as kernel/sched/sched.h names them. The numbers are the kernel's
//! where sched_ext programs see them.

/// Wake-up after a sleep (`ENQUEUE_WAKEUP`, `SCX_ENQ_WAKEUP`).
pub(crate) const ENQUEUE_WAKEUP: u32 = 0x01;
/// To the head of its priority.
pub(crate) const ENQUEUE_HEAD: u32 = 0x10;
/// The task changed CPU on the way.
pub(crate) const ENQUEUE_MIGRATED: u32 = 0x40;
/// First time ever.
pub(crate) const ENQUEUE_INITIAL: u32 = 0x80;
/// A delayed sleeper wakes.
pub(crate) const ENQUEUE_DELAYED: u32 = 0x200;
/// Back after a change of attributes (`ENQUEUE_RESTORE`).
pub(crate) const ENQUEUE_RESTORE: u32 = 0x02;

/// A change moves the task within its queue (`DEQUEUE_MOVE`, `ENQUEUE_MOVE`).
pub(crate) const MOVE: u32 = 0x04;
/// A change of class (`DEQUEUE_CLASS`, `ENQUEUE_CLASS`); the number is ours.
pub(crate) const CLASS: u32 = 0x1000;

/// The task goes to sleep.
pub(crate) const DEQUEUE_SLEEP: u32 = 0x01;
/// It will be put back after a change of attributes (`DEQUEUE_SAVE`).
pub(crate) const DEQUEUE_SAVE: u32 = 0x02;
/// It must really go: it ends or is stopped.
pub(crate) const DEQUEUE_SPECIAL: u32 = 0x10;
/// A delayed sleeper goes.
pub(crate) const DEQUEUE_DELAYED: u32 = 0x200;

/// Wake-up of an existing task.
pub(crate) const WF_TTWU: u32 = 0x08;
/// First placement of a new task.
pub(crate) const WF_FORK: u32 = 0x04;
/// The waker is about to sleep.
pub(crate) const WF_SYNC: u32 = 0x10;
/// The task's group has no quota left (`DEQUEUE_THROTTLE`).
pub(crate) const DEQUEUE_THROTTLE: u32 = 0x800;
