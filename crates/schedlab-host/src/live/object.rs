//! An object between opening and loading: who implements which callback, and initial values.
//!
//! The `unsafe` of this module reads what libbpf documents for skeletons: the initial value of a struct_ops map holds,
//! at each callback's place, a pointer to the program that implements it.

use super::Error;
use super::variables::Variables;
use crate::verifier::{self, is_privilege};
use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{AsRawLibbpf, MapType, Object, ObjectBuilder, OpenObject, PrintLevel, Program};
use std::ffi::OsStr;

/// `SCX_OPS_SWITCH_PARTIAL` of the kernel's `enum scx_ops_flags`: the same in every version since 6.12.
pub const SWITCH_PARTIAL: u64 = 1 << 3;

/// An object that is not in the kernel yet.
pub struct Opened {
    object: OpenObject,
}

impl Opened {
    /// Opens an ELF object.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        verifier::listen(PrintLevel::Info);
        let object = ObjectBuilder::default().open_memory(bytes);
        let object =
            object.map_err(|error| Error::Open(format!("{error}; {}", verifier::messages().trim())))?;
        Ok(Self { object })
    }

    /// libbpf's object, for what has no wrapper of its own.
    pub fn inner(&mut self) -> &mut OpenObject {
        &mut self.object
    }

    /// Its variables; none if it has no BTF.
    pub fn variables(&self) -> Variables {
        self.with_btf(Variables::read).unwrap_or_default()
    }

    /// Sets a variable's initial value.
    fn set(&mut self, variables: &Variables, name: &str, value: i64) -> Result<(), Error> {
        let variable = variables.find(name)?;
        for mut map in self.object.maps_mut() {
            if variable.is_in(&name_of(map.name()))
                && let Some(bytes) = map.initial_value_mut()
            {
                return variable.write(bytes, value);
            }
        }
        Err(variables.unknown(name))
    }

    /// Sets initial values: those of the machine, if the object asks for them, and knobs by name.
    pub fn set_all(&mut self, knobs: &[(&str, i64)]) -> Result<(), Error> {
        let variables = self.variables();
        self.set_topology(&variables)?;
        knobs.iter().try_for_each(|(name, value)| self.set(&variables, name, *value))
    }

    /// Tells the object which CPUs share a cache, if it asks as bpf/include/placement.bpf.h does.
    fn set_topology(&mut self, variables: &Variables) -> Result<(), Error> {
        let (Ok(llcs), Ok(_)) = (variables.find("llc_of_cpu"), variables.find("llc_count")) else {
            return Ok(());
        };
        let machine = crate::machine::describe();
        let of_cpus: Vec<u32> = machine.topology.cpus().iter().map(|cpu| cpu.llc).collect();
        for mut map in self.object.maps_mut() {
            if llcs.is_in(&name_of(map.name()))
                && let Some(bytes) = map.initial_value_mut()
            {
                llcs.write_elements(bytes, 1, &of_cpus);
            }
        }
        self.set(variables, "llc_count", machine.topology.llcs().len() as i64)
    }

    /// The callbacks of the scheduler's table: (member of `sched_ext_ops`, program).
    pub fn callbacks(&self) -> Result<Vec<(String, String)>, Error> {
        let members =
            self.with_btf(members).filter(|members| !members.is_empty()).ok_or(Error::NoScheduler)?;
        let table =
            self.object.maps().find(|map| map.map_type() == MapType::StructOps).ok_or(Error::NoScheduler)?;
        let value = table.initial_value().ok_or(Error::NoScheduler)?;
        let programs: Vec<(usize, String)> = self
            .object
            .progs()
            .map(|program| (program.as_libbpf_object().as_ptr() as usize, name_of(program.name())))
            .collect();
        let implemented = members.into_iter().filter_map(|(member, offset)| {
            let word = value.get(offset..offset + size_of::<usize>())?;
            let pointer = usize::from_ne_bytes(word.try_into().ok()?);
            let program = programs.iter().find(|(at, _)| *at == pointer)?;
            Some((member, program.1.clone()))
        });
        Ok(implemented.collect())
    }

    /// The flags of the scheduler's table; 0 if it has none.
    pub fn flags(&self) -> u64 {
        let place = self.flags_at();
        let table = self.object.maps().find(|map| map.map_type() == MapType::StructOps);
        let word = place.and_then(|at| table?.initial_value()?.get(at..at + 8)?.try_into().ok());
        word.map_or(0, u64::from_ne_bytes)
    }

    /// Makes the scheduler one for tasks that ask for `SCHED_EXT`.
    pub fn ask_first(&mut self) -> Result<(), Error> {
        let flags = self.flags() | SWITCH_PARTIAL;
        let at = self.flags_at().ok_or(Error::NoScheduler)?;
        let mut table = self.object.maps_mut().find(|map| map.map_type() == MapType::StructOps);
        let value = table.as_mut().and_then(|table| table.initial_value_mut()).ok_or(Error::NoScheduler)?;
        let word = value.get_mut(at..at + 8).ok_or(Error::NoScheduler)?;
        word.copy_from_slice(&flags.to_ne_bytes());
        Ok(())
    }

    fn flags_at(&self) -> Option<usize> {
        let members = self.with_btf(members)?;
        members.into_iter().find(|(member, _)| member == "flags").map(|(_, at)| at)
    }

    /// Gives the programs to the kernel, and what was said meanwhile.
    pub fn load_aloud(self, level: PrintLevel) -> (Result<Object, libbpf_rs::Error>, String) {
        verifier::listen(level);
        let loaded = self.object.load();
        (loaded, verifier::messages())
    }

    /// Gives the programs to the kernel.
    pub fn load(self) -> Result<Object, Error> {
        let (loaded, log) = self.load_aloud(PrintLevel::Info);
        loaded.map_err(|error| {
            if is_privilege(&error, &log) {
                return Error::Privilege;
            }
            Error::Load(Box::new(verifier::refusal(&log)))
        })
    }

    fn with_btf<T>(&self, read: impl FnOnce(&Btf<'_>) -> T) -> Option<T> {
        // SAFETY: libbpf's object lives as long as `self`, and the BTF does not leave this function.
        let object = unsafe { self.object.as_libbpf_object().as_ref() };
        Btf::from_bpf_object(object).ok().flatten().map(|btf| read(&btf))
    }
}

/// The variables of an object that is in the kernel.
pub fn variables_of(object: &Object) -> Variables {
    // SAFETY: libbpf's object lives as long as `object`, and the BTF does not leave this function.
    let object = unsafe { object.as_libbpf_object().as_ref() };
    Btf::from_bpf_object(object).ok().flatten().map(|btf| Variables::read(&btf)).unwrap_or_default()
}

/// The members of the object's own `struct sched_ext_ops` that are pointers, with their byte offsets.
fn members(btf: &Btf<'_>) -> Vec<(String, usize)> {
    let Some(table) = btf.type_by_name::<types::Struct<'_>>("sched_ext_ops") else { return Vec::new() };
    let members = table.iter().filter_map(|member| {
        let offset = match member.attr {
            types::MemberAttr::Normal { offset } | types::MemberAttr::BitField { offset, .. } => offset,
        };
        Some((member.name?.to_string_lossy().into_owned(), offset as usize / 8))
    });
    members.collect()
}

/// The instructions of a loaded program.
pub fn instructions(program: &Program<'_>) -> Vec<[u8; 8]> {
    let instructions = program.insns();
    // SAFETY: an instruction is 8 bytes without padding (code, registers, offset, immediate).
    let bytes =
        unsafe { std::slice::from_raw_parts(instructions.as_ptr().cast::<[u8; 8]>(), instructions.len()) };
    bytes.to_vec()
}

/// libbpf's names are ASCII.
pub fn name_of(name: &OsStr) -> String {
    name.to_string_lossy().into_owned()
}
