//! `struct_ops` variables: tables of callbacks and settings, matched with the kernel's type by member name.

use super::elf::Elf;
use super::error::LoadError;
use super::functions::{Functions, INSN_SIZE};
use crate::btf::{Btf, Kind, Member, essential_name};

/// Sections that hold them; those with `?` are not registered by default.
const SECTIONS: [&str; 4] = [".struct_ops", ".struct_ops.link", "?.struct_ops", "?.struct_ops.link"];

/// One variable, callbacks as indices of functions.
#[derive(Clone, Debug)]
pub(super) struct StructOps {
    pub name: String,
    /// Type as the kernel names it.
    pub type_name: String,
    pub type_id: u32,
    /// Registered when the object is loaded.
    pub autocreate: bool,
    data: Vec<u8>,
    /// (member, function), in the order of members.
    pub callbacks: Vec<(String, usize)>,
    /// Members that are not callbacks and not zero.
    pub scalars: Vec<(String, Vec<u8>)>,
}

/// Finds the variables and the functions that their members point to.
pub(super) fn collect(elf: &Elf<'_>, btf: &Btf, functions: &Functions) -> Result<Vec<StructOps>, LoadError> {
    let mut list = Vec::new();
    for (index, section) in elf.sections.iter().enumerate() {
        if !SECTIONS.contains(&section.name) || section.data.is_empty() {
            continue;
        }
        let vars = match btf.find_datasec(section.name).map(|id| btf.kind(id)) {
            Some(Kind::Datasec { vars, .. }) => vars,
            _ => return Err(LoadError::damaged(format!("`{}` has no type information", section.name))),
        };
        for var in vars {
            let name = btf.name(var.type_id);
            let symbol = elf.variable(name).filter(|s| s.section_index() == index);
            let start = match symbol {
                Some(symbol) => symbol.value,
                None => return Err(fail(name, "has no symbol in its section")),
            };
            let mut ops = variable(btf, name, var.type_id, section.data, start)?;
            ops.autocreate = !section.name.starts_with('?');
            for relocation in &section.relocations {
                let inside = relocation.offset.checked_sub(start).filter(|o| *o < ops.data.len() as u64);
                let Some(offset) = inside else { continue };
                let symbol = &elf.symbols[relocation.symbol];
                let function = functions.at(symbol.section_index(), symbol.value / INSN_SIZE);
                let callback = callback(btf, functions, &ops, offset, function)?;
                ops.callbacks.push(callback);
            }
            ops.callbacks.sort_by_key(|(member, _)| member_index(btf, ops.type_id, member));
            ops.scalars = scalars(btf, &ops)?;
            list.push(ops);
        }
    }
    Ok(list)
}

fn fail(variable: &str, problem: impl Into<String>) -> LoadError {
    LoadError::StructOps { variable: variable.to_string(), problem: problem.into() }
}

fn variable(btf: &Btf, name: &str, var: u32, section: &[u8], start: u64) -> Result<StructOps, LoadError> {
    let Kind::Var { type_id, .. } = btf.kind(var) else { return Err(fail(name, "is no variable")) };
    let type_id = btf.resolve(*type_id).ok_or_else(|| fail(name, "has an endless type"))?;
    let type_name = btf.name(type_id);
    let Kind::Struct { size, .. } = btf.kind(type_id) else { return Err(fail(name, "is no struct")) };
    if type_name.is_empty() {
        return Err(fail(name, "is of an anonymous type"));
    }
    let data = usize::try_from(start)
        .ok()
        .and_then(|start| section.get(start..start.checked_add(*size as usize)?))
        .ok_or_else(|| fail(name, "does not lie inside its section"))?;
    Ok(StructOps {
        name: name.to_string(),
        type_name: essential_name(type_name).to_string(),
        type_id,
        autocreate: true,
        data: data.to_vec(),
        callbacks: Vec::new(),
        scalars: Vec::new(),
    })
}

fn member_index(btf: &Btf, type_id: u32, name: &str) -> Option<usize> {
    btf.members(type_id).iter().position(|m| btf.string(m.name_offset) == name)
}

fn callback(
    btf: &Btf,
    functions: &Functions,
    ops: &StructOps,
    offset: u64,
    function: Option<usize>,
) -> Result<(String, usize), LoadError> {
    let member = btf.members(ops.type_id).iter().find(|m| u64::from(m.bit_offset) == 8 * offset);
    let member = member.ok_or_else(|| fail(&ops.name, format!("nothing lies at byte {offset}")))?;
    let name = btf.string(member.name_offset);
    if !is_function_pointer(btf, member.type_id) {
        return Err(fail(&ops.name, format!("`{name}` points to a function but is no function pointer")));
    }
    let function = function.ok_or_else(|| fail(&ops.name, format!("`{name}` points to no function")))?;
    let section = &functions.list[function].section_name;
    let is_ops = ["struct_ops", "struct_ops.s"]
        .iter()
        .any(|prefix| section.strip_prefix(prefix).is_some_and(|r| r.is_empty() || r.starts_with('/')));
    match is_ops {
        true => Ok((name.to_string(), function)),
        false => Err(fail(&ops.name, format!("`{name}` is in section `{section}`, not in `struct_ops/...`"))),
    }
}

fn is_function_pointer(btf: &Btf, type_id: u32) -> bool {
    match btf.resolved_kind(type_id) {
        Kind::Ptr(to) => matches!(btf.resolved_kind(*to), Kind::FuncProto { .. }),
        _ => false,
    }
}

/// Bytes of a member, and whether one is set.
fn bytes_of<'a>(btf: &Btf, ops: &'a StructOps, member: &Member) -> Result<(&'a [u8], bool), LoadError> {
    let name = btf.string(member.name_offset);
    let size = btf.size_of(member.type_id).ok_or_else(|| fail(&ops.name, format!("`{name}` has no size")))?;
    let start = (member.bit_offset / 8) as usize;
    let bytes = start.checked_add(size as usize).and_then(|end| ops.data.get(start..end));
    let bytes = bytes.ok_or_else(|| fail(&ops.name, format!("`{name}` lies outside its struct")))?;
    Ok((bytes, bytes.iter().any(|&b| b != 0)))
}

fn scalars(btf: &Btf, ops: &StructOps) -> Result<Vec<(String, Vec<u8>)>, LoadError> {
    let mut scalars = Vec::new();
    for member in btf.members(ops.type_id) {
        let (bytes, set) = bytes_of(btf, ops, member)?;
        let is_pointer = matches!(btf.resolved_kind(member.type_id), Kind::Ptr(_));
        let name = btf.string(member.name_offset);
        let assigned = ops.callbacks.iter().any(|(callback, _)| callback == name);
        if set && is_pointer && !assigned {
            return Err(fail(&ops.name, format!("`{name}` is a pointer to something that is no program")));
        }
        if set && !assigned {
            scalars.push((name.to_string(), bytes.to_vec()));
        }
    }
    Ok(scalars)
}

/// Checks every member against the kernel's type and says what is wrong with any of them. A member that the kernel
/// lacks must be zero.
pub(super) fn check(ops: &StructOps, btf: &Btf, kernel: &Btf) -> Vec<LoadError> {
    let Some(kernel_type) = kernel.find_struct(&ops.type_name) else {
        return vec![fail(&ops.name, format!("this kernel has no struct {}", ops.type_name))];
    };
    let mut problems = Vec::new();
    for member in btf.members(ops.type_id) {
        let name = btf.string(member.name_offset);
        let is_callback = ops.callbacks.iter().any(|(callback, _)| callback == name);
        let is_set = is_callback || ops.scalars.iter().any(|(scalar, _)| scalar == name);
        let mut candidates = kernel.members(kernel_type).iter();
        let Some(found) = candidates.find(|m| kernel.string(m.name_offset) == name) else {
            if is_set {
                let what = if is_callback { "callback" } else { "member" };
                let problem = format!(
                    "this kernel's {} has no {what} `{name}`, but the object sets it; \
                     leave it zero or use a newer kernel",
                    ops.type_name
                );
                problems.push(fail(&ops.name, problem));
            }
            continue;
        };
        problems.extend(check_member(ops, btf, member, kernel, found, is_callback).err());
    }
    problems
}

fn check_member(
    ops: &StructOps,
    btf: &Btf,
    member: &Member,
    kernel: &Btf,
    found: &Member,
    is_callback: bool,
) -> Result<(), LoadError> {
    let name = btf.string(member.name_offset);
    if member.bit_size != 0 || found.bit_size != 0 {
        return Err(fail(&ops.name, format!("`{name}` is a bitfield, which struct_ops do not support")));
    }
    let (local, target) = (btf.resolved_kind(member.type_id), kernel.resolved_kind(found.type_id));
    let differs = || {
        let wanted = btf.c_declaration(member.type_id, name);
        let found = kernel.c_declaration(found.type_id, name);
        fail(&ops.name, format!("the object declares `{wanted}`, this kernel has `{found}`"))
    };
    if std::mem::discriminant(local) != std::mem::discriminant(target) {
        return Err(differs());
    }
    if is_callback && !is_function_pointer(kernel, found.type_id) {
        return Err(differs());
    }
    let is_pointer = matches!(local, Kind::Ptr(_));
    if !is_pointer && btf.size_of(member.type_id) != kernel.size_of(found.type_id) {
        return Err(differs());
    }
    Ok(())
}

/// Decides which callbacks are loaded: those of a registered variable, not those of unregistered ones only.
pub(super) fn adjust_autoload(list: &[StructOps], functions: &mut Functions) {
    for (index, function) in functions.list.iter_mut().enumerate() {
        let mut users = list.iter().filter(|ops| ops.callbacks.iter().any(|(_, f)| *f == index)).peekable();
        if users.peek().is_some() {
            function.autoload = users.any(|ops| ops.autocreate);
        }
    }
}
