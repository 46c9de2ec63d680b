//! What the object expects from the kernel by name: functions and variables (`.ksyms`), configuration
//! values (`.kconfig`). They exist as undefined symbols and as BTF data sections without an ELF section.

use super::core::types_are_compatible;
use super::elf::Elf;
use super::error::LoadError;
use super::since;
use crate::btf::{Btf, INT_BOOL, Kind, essential_name};
use crate::image::KconfigExtern;

/// One expectation.
#[derive(Clone, Debug)]
pub(super) struct Extern {
    pub name: String,
    /// Index of the ELF symbol.
    pub symbol: usize,
    pub weak: bool,
    pub what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// Configuration value: place in the `.kconfig` map.
    Kconfig { offset: u32, size: u32, align: u32 },
    /// Kernel function: its prototype in the object, and its number in the kernel once resolved.
    Func { proto: u32, kernel_id: Option<u32> },
    /// Kernel variable: its type in the object (0: none), and its number in the kernel once resolved.
    Var { type_id: u32, kernel_id: Option<u32> },
}

/// Collects them in libbpf's order, which the numbers in poisoned calls follow.
pub(super) fn collect(elf: &Elf<'_>, btf: &Btf) -> Result<Vec<Extern>, LoadError> {
    let (mut externs, mut problems) = (Vec::new(), Vec::new());
    for (index, symbol) in elf.symbols.iter().enumerate() {
        if !symbol.is_extern() || symbol.name.is_empty() {
            continue;
        }
        match describe(btf, symbol.name) {
            Ok(what) => externs.push(Extern {
                name: symbol.name.to_string(),
                symbol: index,
                weak: symbol.is_weak(),
                what,
            }),
            Err(problem) => problems.push(problem),
        }
    }
    LoadError::unless_none(problems)?;
    externs.sort_by(|a, b| order(a).cmp(&order(b)));
    let mut next = 0u32;
    for e in &mut externs {
        if let What::Kconfig { offset, size, align } = &mut e.what {
            *offset = next.next_multiple_of(*align);
            next = offset.saturating_add(*size);
        }
    }
    Ok(externs)
}

/// Configuration values first, by falling alignment, then size; then all by name.
fn order(e: &Extern) -> (u32, u32, u32, &str) {
    match e.what {
        What::Kconfig { size, align, .. } => (0, u32::MAX - align, size, &e.name),
        What::Func { .. } | What::Var { .. } => (1, 0, 0, &e.name),
    }
}

fn describe(btf: &Btf, name: &str) -> Result<What, LoadError> {
    let missing = || LoadError::damaged(format!("extern `{name}` has no type information"));
    let is_extern =
        |id: &u32| matches!(btf.kind(*id), Kind::Var { linkage: 2, .. } | Kind::Func { linkage: 2, .. });
    let id = btf.named(name).find(is_extern).ok_or_else(missing)?;
    let holds = |kind: &Kind| match kind {
        Kind::Datasec { vars, .. } => vars.iter().any(|v| v.type_id == id),
        _ => false,
    };
    let section = btf.types().find(|(_, t)| holds(&t.kind)).map(|(id, _)| btf.name(id));
    let section = section.ok_or_else(|| LoadError::NotLinked { name: name.to_string() })?;
    match (section, btf.kind(id)) {
        (".ksyms", Kind::Func { proto, .. }) => Ok(What::Func { proto: *proto, kernel_id: None }),
        (".ksyms", Kind::Var { type_id, .. }) => {
            let type_id = btf.resolve(*type_id).ok_or_else(missing)?;
            Ok(What::Var { type_id, kernel_id: None })
        }
        (".kconfig", Kind::Var { type_id, .. }) => kconfig(btf, name, *type_id),
        (section, _) => Err(LoadError::Unsupported(format!("extern `{name}` in section `{section}`"))),
    }
}

fn kconfig(btf: &Btf, name: &str, type_id: u32) -> Result<What, LoadError> {
    let unsupported = || LoadError::Unsupported(format!("kconfig extern `{name}` of this type"));
    let (size, align) = match btf.resolved_kind(type_id) {
        Kind::Int { size, encoding, .. } if encoding & INT_BOOL == 0 || *size == 1 => (*size, *size),
        Kind::Enum { size, .. } => (*size, *size),
        Kind::Array { element, length, .. } if btf.size_of(*element) == Some(1) => (*length, 1),
        _ => return Err(unsupported()),
    };
    let valid = size > 0 && size <= 1 << 20 && align.is_power_of_two() && align <= 8;
    valid.then_some(What::Kconfig { offset: 0, size, align }).ok_or_else(unsupported)
}

/// Looks every function and variable up in the kernel's types; what is wrong with any of them.
pub(super) fn resolve(externs: &mut [Extern], local: &Btf, kernel: &Btf) -> Vec<LoadError> {
    let mut problems = Vec::new();
    let mut keep = |found: Result<Option<u32>, LoadError>, place: &mut Option<u32>| match found {
        Ok(id) => *place = id,
        Err(problem) => problems.push(problem),
    };
    for e in externs {
        match &mut e.what {
            What::Kconfig { .. } => {}
            What::Func { proto, kernel_id } => {
                keep(resolve_func(&e.name, *proto, e.weak, local, kernel), kernel_id);
            }
            What::Var { type_id, kernel_id } => {
                keep(resolve_var(&e.name, *type_id, e.weak, local, kernel), kernel_id);
            }
        }
    }
    problems
}

fn resolve_func(
    name: &str,
    proto: u32,
    weak: bool,
    local: &Btf,
    kernel: &Btf,
) -> Result<Option<u32>, LoadError> {
    let kernel_name = essential_name(name);
    let Some(id) = kernel.find_func(kernel_name) else {
        return unresolved(name, "function", since::kfunc(kernel_name), weak);
    };
    let Kind::Func { proto: kernel_proto, .. } = *kernel.kind(id) else { return Ok(None) };
    if types_are_compatible(local, proto, kernel, kernel_proto) == Ok(true) {
        return Ok(Some(id));
    }
    if weak {
        return Ok(None);
    }
    Err(LoadError::Incompatible {
        name: name.to_string(),
        wanted: local.c_declaration(proto, name),
        found: kernel.c_declaration(kernel_proto, kernel_name),
    })
}

fn resolve_var(
    name: &str,
    type_id: u32,
    weak: bool,
    local: &Btf,
    kernel: &Btf,
) -> Result<Option<u32>, LoadError> {
    if type_id == 0 {
        // An untyped symbol is an address from /proc/kallsyms, which no simulated kernel has.
        return unresolved(name, "address of an untyped variable", None, weak);
    }
    let Some(id) = kernel.find_var(name) else { return unresolved(name, "variable", None, weak) };
    let Kind::Var { type_id: kernel_type, .. } = *kernel.kind(id) else { return Ok(None) };
    let kernel_type = kernel.resolve(kernel_type).unwrap_or(0);
    match types_are_compatible(local, type_id, kernel, kernel_type) {
        Ok(true) => Ok(Some(id)),
        _ => Err(LoadError::Incompatible {
            name: name.to_string(),
            wanted: local.c_declaration(type_id, name),
            found: kernel.c_declaration(kernel_type, name),
        }),
    }
}

fn unresolved(
    name: &str,
    what: &'static str,
    since: Option<&str>,
    weak: bool,
) -> Result<Option<u32>, LoadError> {
    match weak {
        true => Ok(None),
        false => Err(LoadError::Unresolved {
            name: name.to_string(),
            what,
            since: since.map_or(String::new(), |v| format!(" (Linux {v} and later have it)")),
        }),
    }
}

/// The configuration values, for the image.
pub(super) fn kconfig_list(externs: &[Extern]) -> Vec<KconfigExtern> {
    externs
        .iter()
        .filter_map(|e| match e.what {
            What::Kconfig { offset, size, .. } => {
                Some(KconfigExtern { name: e.name.clone(), offset, size, weak: e.weak, set: false })
            }
            What::Func { .. } | What::Var { .. } => None,
        })
        .collect()
}
