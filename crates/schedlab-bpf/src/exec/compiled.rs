//! An object made ready to run: linked and compiled once, shared by any number of instances and threads.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use super::context::{HostFn, MainEntry};
use super::fault::BpfError;
use super::layout::Layout;
use super::link::{Linked, link};
use super::stack::PrivateStacks;
use super::target::{Action, CallTarget, ContextField, TargetTable};
use super::{Host, Instance};
use crate::helpers;
use crate::image::ObjectImage;
use crate::jit::{self, NativeCode, NativeEntry};
use crate::maps;

/// Code of a call, and the source register that makes it one of a kfunc.
const CALL: u8 = 0x85;
const PSEUDO_KFUNC_CALL: u8 = 2;

/// Choices made when an object is compiled; instances share them.
#[derive(Clone, Debug)]
pub struct Options {
    /// Possible CPUs: copies of per-CPU values, bits of a cpumask.
    pub nr_cpus: u32,
    /// Bytes of an instance's region as a power of two, 19 to 31. The region is touched lazily.
    pub memory_bytes_log2: u32,
    /// Bytes at [`HOST_AREA`](super::HOST_AREA) for objects whose addresses the code must know.
    pub host_bytes: u64,
    /// Kernel variables: name to address, inside the host's area.
    pub symbols: BTreeMap<String, u64>,
    /// Bytes from one CPU's copy of a per-CPU kernel variable to the next.
    pub percpu_stride: u64,
    /// Instructions one call from the host may execute, nested calls included.
    pub budget: u64,
    /// Whether a helper or kfunc that does not exist is refused now; else it is a fault when called.
    pub refuse_absent: bool,
    /// Which programs have frames that count to no chain of functions. `None` lets stacks overflow: programs then change
    /// each other's frames, and nothing else.
    pub private_stacks: Option<PrivateStacks>,
    /// Whether to generate native code; else the interpreter runs.
    pub native: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            nr_cpus: 1,
            memory_bytes_log2: 26,
            host_bytes: 0,
            symbols: BTreeMap::new(),
            percpu_stride: 0,
            budget: 100_000_000,
            refuse_absent: true,
            private_stacks: Some(PrivateStacks::default()),
            native: true,
        }
    }
}

/// What the host's kfuncs do: name to function.
pub struct KfuncTable<H> {
    targets: BTreeMap<String, Action>,
    host: PhantomData<fn(&mut H)>,
}

impl<H: Host> Default for KfuncTable<H> {
    fn default() -> KfuncTable<H> {
        KfuncTable::new()
    }
}

impl<H: Host> KfuncTable<H> {
    /// A table with the generic kfuncs that are not the host's business (`bpf_cpumask_*`,
    /// `bpf_iter_num_*`, locks). Later entries replace earlier ones.
    #[must_use]
    pub fn new() -> KfuncTable<H> {
        let mut table = KfuncTable { targets: BTreeMap::new(), host: PhantomData };
        helpers::generic_kfuncs(&mut table);
        table
    }

    /// Calls `function` for `name`: a function or a closure without captures,
    /// `fn(&mut CallContext<H>, u64, ...) -> impl Outcome`.
    pub fn add<Signature>(&mut self, name: &str, function: impl HostFn<H, Signature>) -> &mut Self {
        self.insert(name, Action::Function(function.entry()))
    }

    /// Answers `name` with a field of the context, without a call.
    pub fn add_context(&mut self, name: &str, field: ContextField) -> &mut Self {
        self.insert(name, Action::Context(field))
    }

    /// Answers `name` with the 1, 2, 4 or 8 bytes at an offset from its first argument, without a call.
    pub fn add_load(&mut self, name: &str, offset: i16, bytes: u8, signed: bool) -> &mut Self {
        assert!(matches!(bytes, 1 | 2 | 4 | 8), "a load has 1, 2, 4 or 8 bytes");
        self.insert(name, Action::Load { offset, bytes, signed })
    }

    /// Answers `name` with a constant, without a call.
    pub fn add_constant(&mut self, name: &str, value: u64) -> &mut Self {
        self.insert(name, Action::Constant(value))
    }

    /// Whether programs can call `name`.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.targets.contains_key(name)
    }

    /// All names, ascending.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.targets.keys().map(String::as_str)
    }

    fn insert(&mut self, name: &str, action: Action) -> &mut Self {
        self.targets.insert(name.to_owned(), action);
        self
    }

    fn find(&self, name: &str) -> Option<CallTarget> {
        let action = *self.targets.get(name)?;
        Some(CallTarget { name: format!("kfunc {name}"), action })
    }
}

/// Everything about a compiled object that does not depend on the host's type.
pub(crate) struct Code {
    pub linked: Linked,
    pub layout: Layout,
    pub image: ObjectImage,
    pub options: Options,
    native: Option<NativeCode>,
}

impl Code {
    /// The native entry of a function.
    #[inline]
    pub(crate) fn native_entry(&self, function: u32) -> Option<NativeEntry> {
        self.native.as_ref().map(|native| native.entry(function))
    }

    /// Native code of a program's main function.
    pub(crate) fn main_entry(&self, program: u32) -> Option<MainEntry> {
        self.native_entry(self.linked.programs[program as usize].entry)?.main()
    }

    /// Whether there is native code.
    pub(crate) fn is_native(&self) -> bool {
        self.native.is_some()
    }
}

/// An object compiled for hosts of type `H`.
pub struct Compiled<H> {
    pub(crate) code: Arc<Code>,
    host: PhantomData<fn(&mut H)>,
}

impl<H> Clone for Compiled<H> {
    fn clone(&self) -> Compiled<H> {
        Compiled { code: Arc::clone(&self.code), host: PhantomData }
    }
}

impl<H: Host> Compiled<H> {
    /// Links and compiles every program of the image.
    ///
    /// # Errors
    /// Instructions no kernel would load, stacks that overflow, callees or variables that do not exist, maps that do not fit.
    pub fn new(
        image: ObjectImage,
        kfuncs: &KfuncTable<H>,
        options: Options,
    ) -> Result<Compiled<H>, BpfError> {
        assert!((19..=31).contains(&options.memory_bytes_log2), "a region has 2^19 to 2^31 bytes");
        assert!(options.nr_cpus > 0, "a machine has a CPU");
        maps::check(&image)?;
        let layout = Layout::new(&image, options.memory_bytes_log2, options.host_bytes, options.nr_cpus)?;
        let table = TargetTable {
            helpers: &helpers::find::<H>,
            kfuncs: &|name| kfuncs.find(name),
            refuse_absent: options.refuse_absent,
        };
        let linked = link(&image, &layout, &table, &options)?;
        let native = if options.native {
            Some(jit::compile(&linked, &layout, &image, options.nr_cpus)?)
        } else {
            None
        };
        let code = Code { linked, layout, image, options, native };
        Ok(Compiled { code: Arc::new(code), host: PhantomData })
    }

    /// Helpers and kfuncs that programs of an image can reach and nobody provides: program, instruction, callee, each
    /// callee once. Calls that the loader found impossible are its [`Poison`](crate::image::Poison)s.
    #[must_use]
    pub fn absent(image: &ObjectImage, kfuncs: &KfuncTable<H>) -> Vec<(String, u32, String)> {
        let table = TargetTable {
            helpers: &helpers::find::<H>,
            kfuncs: &|name| kfuncs.find(name),
            refuse_absent: false,
        };
        let mut absent: Vec<(String, u32, String)> = Vec::new();
        for program in &image.programs {
            let reachable = program.reachable();
            let calls =
                program.insns.iter().enumerate().filter(|(at, insn)| insn.code == CALL && reachable[*at]);
            for (insn, callee) in calls {
                let poisoned = program.poisons.iter().any(|poison| poison.insn as usize == insn);
                let target = match callee.regs >> 4 {
                    0 => table.helper(callee.imm as u32),
                    PSEUDO_KFUNC_CALL => match image.kfuncs.iter().find(|(id, _)| *id == callee.imm as u32) {
                        Some((_, name)) => table.kfunc(name),
                        None => continue,
                    },
                    _ => continue,
                };
                if !poisoned && target.is_absent() && !absent.iter().any(|(.., name)| *name == target.name) {
                    absent.push((program.name.clone(), insn as u32, target.name));
                }
            }
        }
        absent
    }

    /// Bytes that the maps of an object need on a machine with so many tasks, for [`Options::memory_bytes_log2`].
    #[must_use]
    pub fn map_bytes(image: &ObjectImage, nr_cpus: u32, tasks: u64) -> u64 {
        Layout::map_bytes(image, nr_cpus, tasks)
    }

    /// A fresh instance; `seed` determines its random numbers.
    #[must_use]
    pub fn instance(&self, seed: u64) -> Instance<H> {
        Instance::new(&self.code, seed)
    }

    /// The image it was compiled from.
    #[must_use]
    pub fn image(&self) -> &ObjectImage {
        &self.code.image
    }

    /// Machine code of a program's main function, for whoever wants to read it; `None` without native code.
    #[must_use]
    pub fn machine_code(&self, program: usize) -> Option<&[u8]> {
        let entry = self.code.linked.programs.get(program)?.entry;
        self.code.native.as_ref().map(|native| native.bytes(entry))
    }

    /// Index of a program by the name of its C function.
    #[must_use]
    pub fn program(&self, name: &str) -> Option<usize> {
        self.code.image.programs.iter().position(|program| program.name == name)
    }

    /// Index of a map by name.
    #[must_use]
    pub fn map(&self, name: &str) -> Option<usize> {
        self.code.image.maps.iter().position(|map| map.name == name)
    }
}
