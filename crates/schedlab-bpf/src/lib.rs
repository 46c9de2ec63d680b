//! Executes BPF object files in user space: ELF, BTF, CO-RE, maps, helpers, just-in-time code.
//!
//! Knows nothing of scheduling and reads no clock, file, environment or thread.

pub mod asm;
pub mod btf;
pub mod exec;
mod helpers;
pub mod image;
mod jit;
pub mod maps;
pub mod memory;
pub mod object;
