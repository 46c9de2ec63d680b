//! The ext class: runs a sched_ext scheduler from its BPF object file, with the semantics of Linux's
//! kernel/sched/ext.
//!
//! [`ExtScheduler`] is an object made ready once; each simulation attaches a copy. [`class`] is the seam to
//! the core: the functions of `struct sched_class`. Behind it: [`enqueue`] and [`dispatch`] move tasks between
//! queues ([`dsq`]) and call the scheduler ([`call`]); [`kfunc`] is what it may call back; [`idle`] tracks
//! idle CPUs; [`lifecycle`] is beginning and end, [`enable`] how a scheduler comes, [`bypass`] how
//! tasks pass it by; [`machine`] what happens to the machine meanwhile; [`exit`] why it ended; [`kernel`] the simulated kernel's
//! types. docs/model.md says where all this differs from Linux.
//!
//! An error is remembered; the core asks [`Ext::take_exit`] after every event and, if there is one, moves
//! every ext task to the fair class (dequeue, change class, enqueue) and calls [`Ext::disabled`]. From then on
//! [`Ext::takes`] answers no.

mod attach;
mod bypass;
mod call;
pub(crate) mod cgroup;
mod class;
mod consts;
mod dispatch;
mod dsq;
mod dump;
mod enable;
mod enqueue;
mod exit;
mod flags;
mod host;
mod idle;
mod inspect;
mod kernel;
mod kfunc;
mod kick;
mod lifecycle;
mod lock;
mod machine;
mod mask;
mod objects;
mod order;
mod priorities;
mod reenq;
mod scheduler;
mod select;
mod setup;
pub mod support;
mod switch;
mod task;
mod trace;
mod wakeup;

pub(crate) use class::Ext;
pub(crate) use enable::existing as existing_tasks;
pub use kernel::kernel_btf;
pub use scheduler::{ExtOptions, ExtScheduler};
pub use setup::{SetUp, UserHalf};
pub use trace::{CallRecord, CallTrace};
