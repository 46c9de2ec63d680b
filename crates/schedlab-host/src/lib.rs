//! The machine under our feet: loading BPF objects, virtual machines, and what runs inside them.
//!
//! Everything that needs root and nearly all `unsafe` lives here; nothing here knows the simulator. Start at [`vm`]
//! for real kernels in QEMU, [`guest`] for the program that is process 1 of those machines,
//! [`mod@calibrate`] for what things cost on it, [`live`] for sched_ext objects in the running kernel, [`player`] for
//! workloads with real threads, [`verifier`] for what the kernel says of programs it refuses, [`load`] for a disk and memory under load, [`guarded`] for programs that end with us, [`mod@record`] for what the running kernel does, [`machine`] for what it runs on,
//! [`doctor`] for what it permits.

pub mod calibrate;
pub mod capability;
pub mod doctor;
pub mod guarded;
pub mod guest;
pub mod live;
pub mod load;
pub mod machine;
pub mod player;
mod process;
pub mod record;
pub mod top;
pub mod verifier;
pub mod vm;

pub use process::{ending_signals, set_nice};
