//! What the loader hands to the engine: a BPF object after relocation, in the kernel's own instruction
//! encoding, exactly as libbpf would pass it to `bpf(BPF_PROG_LOAD)`.
//!
//! Not here: reading ELF (`object`), running anything (`exec`). The pseudo source registers keep the
//! kernel's meaning (`include/uapi/linux/bpf.h`), with these readings:
//! `BPF_PSEUDO_MAP_FD` and `BPF_PSEUDO_MAP_VALUE` carry an index into [`ObjectImage::maps`] where the
//! kernel has a file descriptor; `BPF_PSEUDO_KFUNC_CALL` carries the BTF id of the kfunc in the kernel's
//! BTF, `BPF_PSEUDO_BTF_ID` that of a kernel variable or (an address that is only compared with zero) of a
//! kfunc; `BPF_PSEUDO_CALL` and `BPF_PSEUDO_FUNC` carry instruction offsets inside the same program.

use std::sync::Arc;

use crate::btf::Btf;

/// One instruction slot of eight bytes, as in the ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Insn {
    /// Operation code: class, size or operation, mode or source.
    pub code: u8,
    /// Destination register in the low nibble, source register in the high one.
    pub regs: u8,
    /// Jump or memory offset; for kfunc calls the BTF file index (0 is the kernel).
    pub off: i16,
    /// Immediate operand.
    pub imm: i32,
}

/// One program: the main function first, then every subprogram it reaches, as libbpf appends them.
#[derive(Clone, Debug, Default)]
pub struct ProgramImage {
    /// Name of the C function.
    pub name: String,
    /// ELF section it came from, e.g. `struct_ops/vtime_enqueue`.
    pub section: String,
    /// Relocated instructions.
    pub insns: Vec<Insn>,
    /// Where each function starts in `insns`: (instruction index, BTF function name), main first.
    pub functions: Vec<(u32, String)>,
    /// Source lines: (instruction index, file, line, column), ascending.
    pub lines: Vec<SourceLine>,
    /// Where the function starts that runs when the program throws, if it has one.
    pub exception: Option<u32>,
    /// Instructions that must not be reached, because what they need does not exist in this kernel.
    pub poisons: Vec<Poison>,
}

/// An instruction that the loader replaced by a call of a helper that does not exist, as libbpf does.
///
/// It is an error only if it is executed: most lie behind an existence test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poison {
    /// Index of the instruction (of the first of a two-slot one).
    pub insn: u32,
    /// What is missing, e.g. `calls kfunc scx_bpf_now, which this kernel lacks`.
    pub reason: String,
}

/// One entry of `.BTF.ext` line information.
#[derive(Clone, Debug)]
pub struct SourceLine {
    /// First instruction this line covers.
    pub insn: u32,
    /// File name.
    pub file: String,
    /// Text of the source line as clang stored it.
    pub text: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// What a map is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapOrigin {
    /// Defined in `.maps`.
    #[default]
    Defined,
    /// A `.rodata*` section: one element, frozen at load.
    Rodata,
    /// A `.data*` section: one element.
    Data,
    /// A `.bss*` section: one element, zeroed.
    Bss,
    /// Values of [`ObjectImage::kconfig`]: one element, frozen at load.
    Kconfig,
}

/// A map to create.
#[derive(Clone, Debug, Default)]
pub struct MapImage {
    /// Name of the C variable or of the section.
    pub name: String,
    /// Where it comes from.
    pub origin: MapOrigin,
    /// `enum bpf_map_type` value.
    pub map_type: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Number of elements.
    pub max_entries: u32,
    /// `BPF_F_*` flags.
    pub map_flags: u32,
    /// BTF type of the value in the object's BTF, 0 if unknown.
    pub value_type: u32,
    /// BTF type of the key in the object's BTF, 0 if unknown.
    pub key_type: u32,
    /// First content of a data section.
    pub initial: Vec<u8>,
    /// Maps that fill a map of maps: (slot, index into [`ObjectImage::maps`]); for an array of programs to
    /// tail-call the programs: (slot, index into [`ObjectImage::programs`]).
    pub inner: Vec<(u32, u32)>,
    /// What the maps inside a map of maps look like.
    pub inner_definition: Option<Box<MapImage>>,
    /// Extra parameter of some map types, e.g. the user address of an arena.
    pub map_extra: u64,
}

/// A kernel configuration value or virtual constant that an object reads, e.g. `CONFIG_HZ`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KconfigExtern {
    /// Name of the variable.
    pub name: String,
    /// Bytes from the start of the `Kconfig` map.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// May stay unset (and read as 0).
    pub weak: bool,
    /// Has been given a value.
    pub set: bool,
}

/// A global variable of a data section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Name of the C variable.
    pub name: String,
    /// The `Var` type in the object's BTF.
    pub var: u32,
    /// Its type in the object's BTF.
    pub type_id: u32,
    /// Index into [`ObjectImage::maps`].
    pub map: usize,
    /// Bytes from the start of the section.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

/// A `struct_ops` variable, e.g. `struct sched_ext_ops vtime_ops`.
#[derive(Clone, Debug, Default)]
pub struct StructOpsImage {
    /// Name of the variable.
    pub name: String,
    /// Name of its type, e.g. `sched_ext_ops`.
    pub type_name: String,
    /// Member name and the index into [`ObjectImage::programs`] it points to.
    pub callbacks: Vec<(String, usize)>,
    /// Scalar members and arrays: name, bytes in the object's layout. Zero members are left out.
    pub scalars: Vec<(String, Vec<u8>)>,
}

/// An object ready to be instantiated.
#[derive(Clone, Debug, Default)]
pub struct ObjectImage {
    /// File or object name, for messages.
    pub name: String,
    /// Content of the `license` section.
    pub license: String,
    /// Every entry program.
    pub programs: Vec<ProgramImage>,
    /// Every map; the index is what instructions carry.
    pub maps: Vec<MapImage>,
    /// Every `struct_ops` variable.
    pub struct_ops: Vec<StructOpsImage>,
    /// Kfuncs referenced and resolved: BTF id in the kernel's BTF and name there.
    pub kfuncs: Vec<(u32, String)>,
    /// Kernel variables referenced and resolved: BTF id in the kernel's BTF and name there.
    pub ksym_vars: Vec<(u32, String)>,
    /// Configuration values that the object reads; see [`ObjectImage::set_kconfig`].
    pub kconfig: Vec<KconfigExtern>,
    /// Global variables whose place is known, by map, then offset.
    pub globals: Vec<Global>,
    /// The object's own BTF.
    pub btf: Btf,
    /// The kernel's types, of an object that prints values by them (`bpf_snprintf_btf()`).
    pub kernel: Option<Arc<Btf>>,
}

impl ObjectImage {
    /// Gives a configuration value. `false`: the object does not read it.
    pub fn set_kconfig(&mut self, name: &str, value: u64) -> bool {
        let Some(wanted) = self.kconfig.iter_mut().find(|k| k.name == name) else { return false };
        let Some(map) = self.maps.iter_mut().find(|m| m.origin == MapOrigin::Kconfig) else { return false };
        let bytes = value.to_le_bytes();
        let size = (wanted.size as usize).min(bytes.len());
        let start = wanted.offset as usize;
        if let Some(slot) = map.initial.get_mut(start..start + size) {
            slot.copy_from_slice(&bytes[..size]);
            wanted.set = true;
        }
        wanted.set
    }
}
