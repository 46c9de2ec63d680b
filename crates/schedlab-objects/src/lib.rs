//! The BPF objects of bpf/, compiled when this crate is built and embedded in it.
//!
//! Not here: loading them (schedlab-bpf into the simulator, schedlab-host into the kernel). The sources and
//! the flags are in bpf/ and build.rs. A new file `bpf/schedulers/NAME.bpf.c` appears in [`SCHEDULERS`], a
//! new `bpf/NAME.bpf.c` as a constant `NAME`.

/// One compiled object.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Name of the source file without `.bpf.c`.
    pub name: &'static str,
    /// The ELF object.
    pub bytes: &'static [u8],
    /// Text of the source file; it begins with the scheduler's essay.
    pub source: &'static str,
}

pub mod conformance;

include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// The object of a scheduler, by name.
pub fn scheduler(name: &str) -> Option<&'static [u8]> {
    SCHEDULERS.iter().find(|o| o.name == name).map(|o| o.bytes)
}

/// The object of a test, by name.
pub fn test_object(name: &str) -> Option<&'static [u8]> {
    TESTS.iter().chain(CONFORMANCE).find(|o| o.name == name).map(|o| o.bytes)
}

/// Test objects that use much stack, and what the verifier of Linux 7.2 says of those that use too much. The simulated
/// kernel is held to the same.
pub const STACKS: &[(&str, Option<&str>)] = &[
    ("stack_fits", None),
    ("stack_dispatch", None),
    ("stack_chain", Some("combined stack size of 3 calls is 528. Too large")),
    ("stack_loop", Some("combined stack size of 2 calls is 528. Too large")),
    ("stack_pointer", Some("invalid write to stack R1 off=0 size=8")),
    ("stack_key", Some("invalid read from stack R2 off=-32 size=64")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheduler_is_an_elf_object_with_an_essay() {
        assert!(scheduler("vtime").is_some() && scheduler("absent").is_none());
        for object in SCHEDULERS {
            assert_eq!(&object.bytes[..4], b"\x7fELF", "{}", object.name);
            assert!(object.source.starts_with("// SPDX-License-Identifier: GPL-2.0-only\n/*\n"));
        }
    }
}
