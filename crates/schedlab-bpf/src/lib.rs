//! Executes BPF object files in user space: ELF, BTF, CO-RE, maps, helpers, just-in-time code.
//!
//! Knows nothing of scheduling and reads no clock, file, environment or thread.

pub mod btf;
pub mod image;
