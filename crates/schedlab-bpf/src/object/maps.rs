//! Maps: those defined in `.maps` by BTF, and one for each data section and for configuration values.
//!
//! Offsets come from ELF symbols: an object that no linker has seen has zeros in its BTF data sections.

use object::elf;

use super::elf::{Elf, Section};
use super::error::LoadError;
use super::externs::{Extern, What};
use super::functions::{Functions, INSN_SIZE};
use crate::btf::{Btf, Kind, Member};
use crate::image::{Global, MapImage, MapOrigin};
use std::collections::BTreeMap;

const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_PROG_ARRAY: u32 = 3;
const MAP_TYPE_ARRAY_OF_MAPS: u32 = 12;
const MAP_TYPE_HASH_OF_MAPS: u32 = 13;
const MAP_TYPE_RINGBUF: u32 = 27;
const MAP_TYPE_USER_RINGBUF: u32 = 31;
pub(super) const MAP_TYPE_ARENA: u32 = 33;
/// Section of variables that live in the arena, from its start on.
pub(super) const ARENA_SECTION: &str = ".addr_space.1";
/// Programs cannot write it.
const BPF_F_RDONLY_PROG: u32 = 1 << 7;
/// User space may map its memory.
const BPF_F_MMAPABLE: u32 = 1 << 10;
/// Ring buffers are powers of two of it.
const PAGE_SIZE: u32 = 4096;
/// No real object has a data section near it; it bounds what damaged ones make us allocate.
const SECTION_SIZE_MAX: u64 = 1 << 28;

/// A map and where relocations find it.
#[derive(Clone, Debug)]
pub(super) struct MapEntry {
    pub image: MapImage,
    /// ELF section; for configuration values none.
    pub section: Option<usize>,
    /// Byte offset of its definition in `.maps`, 0 for a data section.
    pub offset: u64,
}

/// Collects maps in libbpf's order: `.maps` by offset, data sections by index, configuration values.
pub(super) fn collect(elf: &Elf<'_>, btf: &Btf, externs: &[Extern]) -> Result<Vec<MapEntry>, LoadError> {
    let mut maps = defined(elf, btf)?;
    for (index, section) in elf.sections.iter().enumerate() {
        let Some(origin) = data_origin(section) else { continue };
        if section.size == 0 {
            continue;
        }
        if section.size > SECTION_SIZE_MAX {
            return Err(LoadError::damaged(format!("section `{}` of {} bytes", section.name, section.size)));
        }
        let size = section.size as usize;
        let mut initial = section.data.to_vec();
        initial.resize(size, 0);
        let mut image = data_map(section.name, origin, initial);
        image.value_type = btf.named(section.name).next().unwrap_or(0);
        if has_global(elf, btf, image.value_type) {
            image.map_flags |= BPF_F_MMAPABLE;
        }
        maps.push(MapEntry { image, section: Some(index), offset: 0 });
    }
    let end = externs.iter().rev().find_map(|e| match e.what {
        What::Kconfig { offset, size, .. } => Some(offset.saturating_add(size)),
        What::Func { .. } | What::Var { .. } => None,
    });
    if let Some(end) = end {
        let mut image = data_map(".kconfig", MapOrigin::Kconfig, vec![0; end as usize]);
        image.value_type = btf.find_datasec(".kconfig").unwrap_or(0);
        image.map_flags |= BPF_F_MMAPABLE;
        maps.push(MapEntry { image, section: None, offset: 0 });
    }
    inner_maps(elf, btf, &mut maps)?;
    Ok(maps)
}

/// The origin of the map for a data section; `None` for other sections.
pub(super) fn data_origin(section: &Section<'_>) -> Option<MapOrigin> {
    let is = |name: &str| match section.name.strip_prefix(name) {
        Some(rest) => rest.is_empty() || rest.starts_with('.'),
        None => false,
    };
    match section.kind {
        elf::SHT_PROGBITS if section.executable => None,
        elf::SHT_PROGBITS if is(".data") => Some(MapOrigin::Data),
        elf::SHT_PROGBITS if is(".rodata") => Some(MapOrigin::Rodata),
        elf::SHT_NOBITS if is(".bss") => Some(MapOrigin::Bss),
        _ => None,
    }
}

fn data_map(name: &str, origin: MapOrigin, initial: Vec<u8>) -> MapImage {
    let frozen = matches!(origin, MapOrigin::Rodata | MapOrigin::Kconfig);
    MapImage {
        name: name.to_string(),
        origin,
        map_type: MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: initial.len() as u32,
        max_entries: 1,
        map_flags: if frozen { BPF_F_RDONLY_PROG } else { 0 },
        initial,
        ..MapImage::default()
    }
}

/// Variables of data sections, placed by their symbols; a static one is left out if its name is not unique.
pub(super) fn globals(elf: &Elf<'_>, btf: &Btf, maps: &[MapEntry]) -> Vec<Global> {
    let mut globals = Vec::new();
    for (map, entry) in maps.iter().enumerate() {
        let (Some(section), Kind::Datasec { vars, .. }) = (entry.section, btf.kind(entry.image.value_type))
        else {
            continue;
        };
        for var in vars {
            let name = btf.name(var.type_id);
            let Kind::Var { type_id, .. } = btf.kind(var.type_id) else { continue };
            let mut symbols = elf
                .symbols
                .iter()
                .filter(|s| s.kind == elf::STT_OBJECT && s.section_index() == section && s.name == name);
            let (Some(symbol), None) = (symbols.next(), symbols.next()) else { continue };
            let Ok(offset) = u32::try_from(symbol.value) else { continue };
            let size = btf.size_of(*type_id).unwrap_or(var.size);
            if u64::from(offset) + u64::from(size) <= u64::from(entry.image.value_size) {
                let (name, var, type_id) = (name.to_string(), var.type_id, *type_id);
                globals.push(Global { name, var, type_id, map, offset, size });
            }
        }
    }
    globals.sort_by_key(|g| (g.map, g.offset));
    globals
}

/// Only a section with a global variable that is not hidden is mapped into user space.
fn has_global(elf: &Elf<'_>, btf: &Btf, datasec: u32) -> bool {
    let Kind::Datasec { vars, .. } = btf.kind(datasec) else { return false };
    vars.iter().any(|v| {
        let is_global = matches!(btf.kind(v.type_id), Kind::Var { linkage, .. } if *linkage != 0);
        is_global && elf.variable(btf.name(v.type_id)).is_none_or(|s| !s.hidden)
    })
}

fn defined(elf: &Elf<'_>, btf: &Btf) -> Result<Vec<MapEntry>, LoadError> {
    let Some(index) = elf.section_index(".maps") else { return Ok(Vec::new()) };
    let section = &elf.sections[index];
    let Some(Kind::Datasec { vars, .. }) = btf.find_datasec(".maps").map(|id| btf.kind(id)) else {
        return Err(LoadError::damaged("`.maps` has no type information"));
    };
    let mut maps = Vec::new();
    for var in vars {
        let name = btf.name(var.type_id);
        let fail = |problem: &str| LoadError::Map { map: name.to_string(), problem: problem.to_string() };
        let Kind::Var { type_id, linkage } = btf.kind(var.type_id) else {
            return Err(fail("is no variable"));
        };
        if *linkage != 1 {
            return Err(fail("must be a global variable"));
        }
        let symbol = elf.variable(name).filter(|s| s.section_index() == index);
        let symbol = symbol.ok_or_else(|| fail("has no symbol in `.maps`"))?;
        let definition = btf.resolve(*type_id).ok_or_else(|| fail("has an endless type"))?;
        let Kind::Struct { size, .. } = btf.kind(definition) else {
            return Err(fail("is not defined by a struct"));
        };
        let end = symbol.value.checked_add(u64::from(*size).max(u64::from(var.size)));
        if end.is_none_or(|end| end > section.size) {
            return Err(fail("does not lie inside `.maps`"));
        }
        let image = definition_of(btf, name, definition, true)?;
        maps.push(MapEntry { image, section: Some(index), offset: symbol.value });
    }
    maps.sort_by_key(|m| m.offset);
    let arena = maps.iter_mut().find(|m| m.image.map_type == MAP_TYPE_ARENA);
    if let (Some(arena), Some(section)) = (arena, elf.section(ARENA_SECTION)) {
        arena.image.initial = section.data.to_vec();
    }
    Ok(maps)
}

/// Reads the members that `__uint`, `__type`, `__ulong` and `__array` make.
fn definition_of(btf: &Btf, name: &str, definition: u32, outer: bool) -> Result<MapImage, LoadError> {
    let mut map = MapImage { name: name.to_string(), ..MapImage::default() };
    let fail = |problem: String| LoadError::Map { map: name.to_string(), problem };
    let members = btf.members(definition);
    for (i, member) in members.iter().enumerate() {
        let field = btf.string(member.name_offset);
        let number =
            || number(btf, member).ok_or_else(|| fail(format!("`{field}` is not made by __uint or __ulong")));
        let pointee = || pointee(btf, member).ok_or_else(|| fail(format!("`{field}` is not made by __type")));
        match field {
            "type" => map.map_type = number()? as u32,
            "max_entries" => map.max_entries = number()? as u32,
            "map_flags" => map.map_flags = number()? as u32,
            "map_extra" => map.map_extra = number()?,
            "key_size" => set_size(&mut map.key_size, number()? as u32, "key").map_err(fail)?,
            "value_size" => set_size(&mut map.value_size, number()? as u32, "value").map_err(fail)?,
            "key" => {
                let (id, size) = pointee()?;
                set_size(&mut map.key_size, size, "key").map_err(fail)?;
                map.key_type = id;
            }
            "value" => {
                let (id, size) = pointee()?;
                set_size(&mut map.value_size, size, "value").map_err(fail)?;
                map.value_type = id;
            }
            "values" => {
                if !outer {
                    return Err(fail("maps of maps of maps are not supported".to_string()));
                }
                if i + 1 != members.len() {
                    return Err(fail("`values` must be the last member".to_string()));
                }
                set_size(&mut map.value_size, 4, "value").map_err(fail)?;
                map.inner_definition = inner_definition(btf, name, member, map.map_type)?;
            }
            // Placement and pinning mean nothing to a program that runs the object.
            "numa_node" | "pinning" => {}
            _ => return Err(fail(format!("unknown member `{field}`"))),
        }
    }
    if map.map_type == 0 {
        return Err(fail("has no type".to_string()));
    }
    if matches!(map.map_type, MAP_TYPE_RINGBUF | MAP_TYPE_USER_RINGBUF) {
        map.max_entries = ring_size(map.max_entries);
    }
    Ok(map)
}

fn set_size(slot: &mut u32, size: u32, what: &str) -> Result<(), String> {
    if *slot != 0 && *slot != size {
        return Err(format!("conflicting {what} sizes {slot} and {size}"));
    }
    *slot = size;
    Ok(())
}

/// `__uint(name, N)` is a pointer to an array of N; `__ulong` an enum with one value.
fn number(btf: &Btf, member: &Member) -> Option<u64> {
    match btf.resolved_kind(member.type_id) {
        Kind::Ptr(to) => match btf.kind(*to) {
            Kind::Array { length, .. } => Some(u64::from(*length)),
            _ => None,
        },
        Kind::Enum { values, .. } if values.len() == 1 => Some(values[0].value as u64),
        _ => None,
    }
}

fn pointee(btf: &Btf, member: &Member) -> Option<(u32, u32)> {
    match btf.kind(member.type_id) {
        Kind::Ptr(to) => Some((*to, btf.size_of(*to)?)),
        _ => None,
    }
}

/// `__array(values, struct { ... })` is an array of pointers, of no length.
fn inner_definition(
    btf: &Btf,
    name: &str,
    member: &Member,
    map_type: u32,
) -> Result<Option<Box<MapImage>>, LoadError> {
    let fail = |problem: &str| LoadError::Map { map: name.to_string(), problem: problem.to_string() };
    let of_maps = matches!(map_type, MAP_TYPE_ARRAY_OF_MAPS | MAP_TYPE_HASH_OF_MAPS);
    if !of_maps && map_type != MAP_TYPE_PROG_ARRAY {
        return Err(fail("`values` belongs to a map of maps or of programs"));
    }
    let Kind::Array { element, length: 0, .. } = btf.kind(member.type_id) else {
        return Err(fail("`values` is not made by __array"));
    };
    let Kind::Ptr(to) = btf.resolved_kind(*element) else {
        return Err(fail("`values` is not made by __array"));
    };
    if !of_maps {
        return Ok(None);
    }
    let definition = btf.resolve(*to).ok_or_else(|| fail("has an endless type"))?;
    if !matches!(btf.kind(definition), Kind::Struct { .. }) {
        return Err(fail("`values` does not define a map"));
    }
    Ok(Some(Box::new(definition_of(btf, &format!("{name}.inner"), definition, false)?)))
}

/// The next larger power of two of pages, if the size is none itself.
fn ring_size(size: u32) -> u32 {
    if size == 0 || size.is_multiple_of(PAGE_SIZE) && (size / PAGE_SIZE).is_power_of_two() {
        return size;
    }
    let mut pages = 1u32;
    while let Some(bytes) = pages.checked_mul(PAGE_SIZE) {
        if bytes > size {
            return bytes;
        }
        pages <<= 1;
    }
    size
}

/// Relocations inside `.maps` put maps into the slots of maps of maps.
fn inner_maps(elf: &Elf<'_>, btf: &Btf, maps: &mut [MapEntry]) -> Result<(), LoadError> {
    let Some(section) = elf.section(".maps") else { return Ok(()) };
    for relocation in &section.relocations {
        let symbol = &elf.symbols[relocation.symbol];
        let outer =
            maps.iter().rposition(|m| m.image.origin == MapOrigin::Defined && m.offset <= relocation.offset);
        let damaged = || LoadError::damaged("a relocation of `.maps` lies in no map");
        let outer = outer.ok_or_else(damaged)?;
        let name = maps[outer].image.name.clone();
        let fail = |problem: String| LoadError::Map { map: name.clone(), problem };
        if maps[outer].image.map_type == MAP_TYPE_PROG_ARRAY {
            continue;
        }
        if maps[outer].image.inner_definition.is_none() {
            return Err(fail("only a map of maps can hold maps".to_string()));
        }
        let inner = maps.iter().position(|m| m.image.name == symbol.name);
        let inner = inner.ok_or_else(|| fail(format!("`{}` is no map", symbol.name)))?;
        let values = values_offset(btf, &name).ok_or_else(damaged)?;
        let into = (relocation.offset - maps[outer].offset).checked_sub(values).ok_or_else(damaged)?;
        let slot = u32::try_from(into / 8).map_err(|_| damaged())?;
        maps[outer].image.inner.push((slot, inner as u32));
    }
    Ok(())
}

/// Relocations inside `.maps` put programs into the slots of arrays of programs.
pub(super) fn fill_programs(
    elf: &Elf<'_>,
    btf: &Btf,
    functions: &Functions,
    program_of: &BTreeMap<usize, usize>,
    maps: &mut [MapEntry],
) -> Result<(), LoadError> {
    let Some(section) = elf.section(".maps") else { return Ok(()) };
    for relocation in &section.relocations {
        let symbol = &elf.symbols[relocation.symbol];
        let outer =
            maps.iter().rposition(|m| m.image.origin == MapOrigin::Defined && m.offset <= relocation.offset);
        let Some(outer) = outer.filter(|outer| maps[*outer].image.map_type == MAP_TYPE_PROG_ARRAY) else {
            continue;
        };
        let name = maps[outer].image.name.clone();
        let fail = |problem: String| LoadError::Map { map: name.clone(), problem };
        let function = functions.at(symbol.section_index(), symbol.value / INSN_SIZE);
        let program = function.and_then(|function| program_of.get(&function));
        let program =
            program.ok_or_else(|| fail(format!("`{}` is no program that is loaded", symbol.name)))?;
        let damaged = || LoadError::damaged("a relocation of `.maps` lies in no map");
        let values = values_offset(btf, &name).ok_or_else(damaged)?;
        let into = (relocation.offset - maps[outer].offset).checked_sub(values).ok_or_else(damaged)?;
        let slot = u32::try_from(into / 8).map_err(|_| damaged())?;
        maps[outer].image.inner.push((slot, *program as u32));
    }
    Ok(())
}

/// Byte offset of the last member, `values`, in a map's definition.
fn values_offset(btf: &Btf, name: &str) -> Option<u64> {
    let Kind::Var { type_id, .. } = btf.kind(btf.find_var(name)?) else { return None };
    let last = btf.members(*type_id).last()?;
    (btf.string(last.name_offset) == "values").then_some(u64::from(last.bit_offset / 8))
}
