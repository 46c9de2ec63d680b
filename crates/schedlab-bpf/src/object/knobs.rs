//! Global variables of an object by name: knobs that users turn, and anything else in `.data`, `.rodata`
//! and `.bss`.
//!
//! A [`Place`] says where a variable, or a part of it like `table[3].weight`, lies in its map; it reads and
//! writes both the image's initial bytes and the bytes of a running instance. bpf/include/knob.bpf.h says
//! how a scheduler declares units, bounds and meaning.

use thiserror::Error;

use crate::btf::{Btf, INT_BOOL, INT_SIGNED, Kind};
use crate::image::{Global, MapOrigin, ObjectImage};

/// So many members are said to be there where a name is none of them.
const MEMBERS_SAID: usize = 12;
/// So many members of one variable are listed ([`ObjectImage::members`]).
pub const MEMBERS_LISTED: usize = 64;
/// Structs are followed so deep into each other.
const DEPTH_LISTED: u32 = 4;

/// Why a variable cannot be read or set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KnobError {
    /// No variable has this name.
    #[error("no global variable `{name}`{near}; `schedlab show` lists them")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Names that are near, as [`nearest`] says them.
        near: String,
    },
    /// The path does not fit the type of the variable.
    #[error("`{path}`: {problem}")]
    Path {
        /// What was asked for.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// The value does not fit the type or the declared bounds.
    #[error("{path} = {value} is out of bounds: {min} to {max}{unit}")]
    Range {
        /// What was to be set.
        path: String,
        /// The value.
        value: i128,
        /// Least value.
        min: i128,
        /// Greatest value.
        max: i128,
        /// Unit with a space before it, or empty.
        unit: String,
    },
}

/// Where a number lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index into [`ObjectImage::maps`].
    pub map: usize,
    /// Bytes from the start of the map's value.
    pub offset: u32,
    /// Bytes of the storage, 1 to 8 for a number.
    pub size: u32,
    /// Type in the object's BTF.
    pub type_id: u32,
    /// First bit inside the storage and width, for a bitfield.
    pub bits: Option<(u32, u32)>,
    /// The number is signed.
    pub signed: bool,
}

/// A setting of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knob {
    /// Name of the variable.
    pub name: String,
    /// Type as C spells it.
    pub c_type: String,
    /// Where it lies.
    pub place: Place,
    /// Unit, e.g. `ns`; empty if none is declared.
    pub unit: String,
    /// Least allowed value.
    pub min: i128,
    /// Greatest allowed value.
    pub max: i128,
    /// A running scheduler heeds a change; otherwise the value is fixed at load.
    pub live: bool,
    /// Meaning in one sentence.
    pub meaning: String,
    /// Value that the object has now.
    pub value: i128,
}

impl Place {
    /// The number in the bytes of the map's value; 0 beyond their end.
    pub fn read(&self, bytes: &[u8]) -> i128 {
        let (start, size) = (self.offset as usize, (self.size as usize).min(8));
        let mut raw = [0u8; 8];
        if let Some(found) = bytes.get(start..start + size) {
            raw[..size].copy_from_slice(found);
        }
        let word = u64::from_le_bytes(raw);
        let (shift, width) = self.bits.unwrap_or((0, 8 * size as u32));
        let value = (u128::from(word) >> shift) & ((1u128 << width) - 1);
        let negative = self.signed && width > 0 && value >> (width - 1) & 1 == 1;
        if negative { value as i128 - (1i128 << width) } else { value as i128 }
    }

    /// Writes a number into the bytes of the map's value. `false`: it does not fit.
    #[must_use]
    pub fn write(&self, bytes: &mut [u8], value: i128) -> bool {
        let (min, max) = self.range();
        let (start, size) = (self.offset as usize, (self.size as usize).min(8));
        let Some(slot) = bytes.get_mut(start..start + size) else { return false };
        if value < min || value > max {
            return false;
        }
        let (shift, width) = self.bits.unwrap_or((0, 8 * size as u32));
        let mut raw = [0u8; 8];
        raw[..size].copy_from_slice(slot);
        let mask = ((1u128 << width) - 1) << shift;
        let kept = u128::from(u64::from_le_bytes(raw)) & !mask;
        let word = (kept | ((value as u128) << shift & mask)) as u64;
        slot.copy_from_slice(&word.to_le_bytes()[..size]);
        true
    }

    /// Whether it is a number: an integer, a truth value or an enumeration.
    #[must_use]
    pub fn is_number(&self, types: &Btf) -> bool {
        self.size <= 8 && matches!(types.resolved_kind(self.type_id), Kind::Int { .. } | Kind::Enum { .. })
    }

    /// Least and greatest number that the type holds.
    pub fn range(&self) -> (i128, i128) {
        let width = self.bits.map_or(8 * self.size.min(8), |(_, width)| width);
        match self.signed {
            true if width > 0 => (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1),
            _ => (0, (1i128 << width) - 1),
        }
    }
}

impl ObjectImage {
    /// Every setting that the object declares (knob.bpf.h), in the order of the file.
    pub fn knobs(&self) -> Vec<Knob> {
        self.globals.iter().filter_map(|g| self.knob(g)).collect()
    }

    /// Where a variable or a part of it lies, e.g. `slice_ns`, `table[3].weight`.
    pub fn locate(&self, path: &str) -> Result<Place, KnobError> {
        let steps = Steps { path, rest: path };
        let (name, steps) = steps.name();
        let global = self.globals.iter().find(|g| g.name == name);
        let global = global.ok_or_else(|| KnobError::Unknown {
            name: name.to_string(),
            near: nearest(name, self.globals.iter().map(|g| g.name.as_str())),
        })?;
        steps.walk(&self.btf, global)
    }

    /// The number that a variable has before the object runs.
    pub fn global(&self, path: &str) -> Result<i128, KnobError> {
        let place = self.number(path)?;
        Ok(place.read(&self.maps[place.map].initial))
    }

    /// Members of a struct, or of the first element of an array of structs: the path of each as [`ObjectImage::locate`] takes
    /// it, and its type. At most [`MEMBERS_LISTED`], and structs at most four deep; the rest can be set, too.
    pub fn members(&self, global: &Global) -> Vec<(String, u32)> {
        let mut found = Vec::new();
        // Structs without members are never found: what is looked at is bounded, too.
        let mut looks = 16 * MEMBERS_LISTED;
        self.add_members(global.name.clone(), global.type_id, 0, &mut looks, &mut found);
        found.retain(|(path, _)| *path != global.name);
        found
    }

    fn add_members(
        &self,
        path: String,
        id: u32,
        depth: u32,
        looks: &mut usize,
        found: &mut Vec<(String, u32)>,
    ) {
        if found.len() >= MEMBERS_LISTED || *looks == 0 {
            return;
        }
        *looks -= 1;
        match self.btf.resolved_kind(id) {
            Kind::Struct { members, .. } | Kind::Union { members, .. } if depth < DEPTH_LISTED => {
                for member in members {
                    let inner = match self.btf.string(member.name_offset) {
                        "" => path.clone(),
                        name => format!("{path}.{name}"),
                    };
                    self.add_members(inner, member.type_id, depth + 1, looks, found);
                }
            }
            Kind::Array { length: 0, .. } => {}
            Kind::Array { element, .. } if self.holds_structs(*element) => {
                self.add_members(format!("{path}[0]"), *element, depth, looks, found);
            }
            _ => found.push((path, id)),
        }
    }

    /// Whether it is a struct, a union, or an array of them.
    fn holds_structs(&self, mut id: u32) -> bool {
        for _ in 0..DEPTH_LISTED {
            match self.btf.resolved_kind(id) {
                Kind::Array { element, .. } => id = *element,
                _ => return !self.btf.members(id).is_empty(),
            }
        }
        false
    }

    /// Sets the number that a variable has when the object starts, within its type and declared bounds.
    pub fn set_global(&mut self, path: &str, value: i128) -> Result<(), KnobError> {
        let place = self.number(path)?;
        let knob = self.globals.iter().find(|g| g.name == path).and_then(|g| self.knob(g));
        let (mut min, mut max) = place.range();
        let mut unit = String::new();
        if let Some(knob) = knob {
            (min, max) = (min.max(knob.min), max.min(knob.max));
            unit = format!(" {}", knob.unit);
        }
        let fits = (min..=max).contains(&value);
        if fits && place.write(&mut self.maps[place.map].initial, value) {
            return Ok(());
        }
        Err(KnobError::Range { path: path.to_string(), value, min, max, unit })
    }

    /// Gives a global array that is alone in its section another number of elements, as a user half does with
    /// `bpf_map__set_value_size()`; the new ones are 0.
    ///
    /// # Errors
    /// A variable that is no such array.
    pub fn resize_array(&mut self, name: &str, length: u32) -> Result<(), KnobError> {
        let fail = |problem: &str| KnobError::Path { path: name.to_owned(), problem: problem.to_owned() };
        self.locate(name)?;
        let index = self.globals.iter().position(|g| g.name == name).ok_or_else(|| fail("is no variable"))?;
        let (map, offset) = (self.globals[index].map, self.globals[index].offset);
        let Kind::Array { element, .. } = *self.btf.resolved_kind(self.globals[index].type_id) else {
            return Err(fail("is no array"));
        };
        if offset != 0 || self.globals.iter().filter(|g| g.map == map).count() != 1 {
            return Err(fail("is not alone in its section, so it cannot be resized"));
        }
        let size = self.btf.size_of(element).and_then(|size| size.checked_mul(length));
        let size =
            size.filter(|size| (1..1 << 28).contains(size)).ok_or_else(|| fail("becomes too large"))?;
        self.globals[index].size = size;
        self.maps[map].value_size = size;
        self.maps[map].initial.resize(size as usize, 0);
        Ok(())
    }

    /// Creates maps in the first slots of an array of maps, as a user half does; `false` if the map is none.
    pub fn fill_inner(&mut self, map: usize, slots: u32) -> bool {
        let Some(definition) = self.maps[map].inner_definition.clone() else { return false };
        for slot in 0..slots.min(self.maps[map].max_entries) {
            if self.maps[map].inner.iter().any(|(taken, _)| *taken == slot) {
                continue;
            }
            let inner = self.maps.len() as u32;
            let mut made = (*definition).clone();
            made.name = format!("{}.{slot}", self.maps[map].name);
            self.maps.push(made);
            self.maps[map].inner.push((slot, inner));
        }
        true
    }

    /// The unit of a variable: as it declares it, else what its name ends in (`_ns`, `_us`, `_ms`, `_sec`);
    /// empty if neither tells.
    #[must_use]
    pub fn unit_of(&self, path: &str) -> String {
        let knob = self.globals.iter().find(|g| g.name == path).and_then(|g| self.knob(g));
        if let Some(knob) = knob.filter(|knob| !knob.unit.is_empty()) {
            return knob.unit;
        }
        let word = path.split('[').next().unwrap_or(path);
        let ends = [("_ns", "ns"), ("_us", "us"), ("_ms", "ms"), ("_sec", "s"), ("_secs", "s")];
        ends.iter().find(|(end, _)| word.ends_with(end)).map_or(String::new(), |(_, unit)| (*unit).to_owned())
    }

    fn number(&self, path: &str) -> Result<Place, KnobError> {
        let place = self.locate(path)?;
        match place.is_number(&self.btf) {
            true => Ok(place),
            false => Err(KnobError::Path {
                path: path.to_string(),
                problem: format!("is a {}, not a number", self.btf.c_type(place.type_id)),
            }),
        }
    }

    fn knob(&self, global: &Global) -> Option<Knob> {
        let tag = self.btf.decl_tags(global.var).into_iter().find_map(|t| t.strip_prefix("knob:"))?;
        let place = self.number(&global.name).ok()?;
        let (attributes, meaning) = tag.split_once(';').unwrap_or((tag, ""));
        let (min, max) = place.range();
        let mut knob = Knob {
            name: global.name.clone(),
            c_type: self.btf.c_type(global.type_id),
            place,
            unit: String::new(),
            min,
            max,
            live: false,
            meaning: meaning.trim().to_string(),
            value: place.read(&self.maps[place.map].initial),
        };
        for attribute in attributes.split(',').map(str::trim) {
            match attribute.split_once('=') {
                Some(("unit", unit)) => knob.unit = unit.to_string(),
                Some(("min", number)) => knob.min = number.parse().unwrap_or(min),
                Some(("max", number)) => knob.max = number.parse().unwrap_or(max),
                // What the compiler may have folded into constants cannot change later.
                None if attribute == "live" => {
                    knob.live = self.maps[place.map].origin != MapOrigin::Rodata;
                }
                _ => {}
            }
        }
        Some(knob)
    }
}

/// `; did you mean A or B?` for the names nearest to one that does not exist; nothing if none is near.
#[must_use]
pub fn nearest<'n>(wanted: &str, known: impl Iterator<Item = &'n str>) -> String {
    let limit = wanted.len() / 3 + 1;
    let far = |name: &str| {
        let part = !wanted.is_empty() && name.contains(wanted);
        let distance = distance(wanted, name);
        if part { distance.min(limit) } else { distance }
    };
    let mut near: Vec<(usize, &str)> =
        known.filter(|name| !name.is_empty()).map(|name| (far(name), name)).collect();
    near.retain(|(distance, _)| *distance <= limit);
    near.sort_unstable();
    near.dedup();
    let names: Vec<&str> = near.iter().take(3).map(|(_, name)| *name).collect();
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(" or ")) }
}

/// Letters to insert, remove or replace to make one word of another.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// What is left of a path.
#[derive(Clone, Copy)]
struct Steps<'p> {
    path: &'p str,
    rest: &'p str,
}

impl<'p> Steps<'p> {
    /// Splits the word before the next `.` or `[`.
    fn name(self) -> (&'p str, Steps<'p>) {
        let end = self.rest.find(['.', '[']).unwrap_or(self.rest.len());
        (&self.rest[..end], Steps { rest: &self.rest[end..], ..self })
    }

    fn fail(&self, problem: impl Into<String>) -> KnobError {
        KnobError::Path { path: self.path.to_string(), problem: problem.into() }
    }

    fn walk(mut self, btf: &Btf, global: &Global) -> Result<Place, KnobError> {
        let (mut id, mut bit_offset, mut bit_size) = (global.type_id, 8 * u64::from(global.offset), 0);
        while !self.rest.is_empty() {
            bit_size = 0;
            if let Some(rest) = self.rest.strip_prefix('[') {
                let (number, rest) = rest.split_once(']').ok_or_else(|| self.fail("`[` without `]`"))?;
                let Kind::Array { element, length, .. } = btf.resolved_kind(id) else {
                    return Err(self.fail(format!("a {} has no elements", btf.c_type(id))));
                };
                let index: u32 = number.parse().map_err(|_| self.fail(format!("`{number}` is no index")))?;
                let size = btf.size_of(*element).ok_or_else(|| self.fail("elements without a size"))?;
                // A global that was resized has more elements than its type says.
                let length = match id == global.type_id && size > 0 {
                    true => (global.size / size).max(*length),
                    false => *length,
                };
                if index >= length {
                    return Err(self.fail(format!("index {index} of {length} elements")));
                }
                bit_offset += 8 * u64::from(index) * u64::from(size);
                (id, self.rest) = (*element, rest);
                continue;
            }
            let step = Steps { rest: self.rest.trim_start_matches('.'), ..self };
            let (name, rest) = step.name();
            let member = btf.member(id, name);
            let member = member.ok_or_else(|| self.no_member(btf, id, name))?;
            bit_offset += u64::from(member.bit_offset);
            (id, bit_size) = (member.type_id, member.bit_size);
            self = rest;
        }
        self.place(btf, global.map, id, bit_offset, bit_size)
    }

    /// Says what is near, else what there is.
    fn no_member(&self, btf: &Btf, id: u32, name: &str) -> KnobError {
        let known = || btf.members(id).iter().map(|member| btf.string(member.name_offset));
        let names: Vec<&str> = known().filter(|known| !known.is_empty()).take(MEMBERS_SAID + 1).collect();
        let more = if names.len() > MEMBERS_SAID { " and more" } else { "" };
        let help = match nearest(name, known()) {
            near if near.is_empty() && !names.is_empty() => {
                format!("; it has {}{more}", names[..names.len().min(MEMBERS_SAID)].join(", "))
            }
            near => near,
        };
        self.fail(format!("a {} has no member `{name}`{help}", btf.c_type(id)))
    }

    fn place(&self, btf: &Btf, map: usize, id: u32, bit_offset: u64, width: u32) -> Result<Place, KnobError> {
        let size = btf.size_of(id).ok_or_else(|| self.fail("has no size"))?;
        let signed = match btf.resolved_kind(id) {
            Kind::Int { encoding, .. } => encoding & INT_SIGNED != 0,
            Kind::Enum { signed, .. } => *signed,
            _ => false,
        };
        let is_bool = matches!(btf.resolved_kind(id), Kind::Int { encoding, .. } if encoding & INT_BOOL != 0);
        let storage = 8 * u64::from(size.max(1));
        let (start, bits) = match width {
            0 if is_bool => (bit_offset / 8, Some((0, 1))),
            0 => (bit_offset / 8, None),
            _ => (bit_offset / storage * storage / 8, Some(((bit_offset % storage) as u32, width))),
        };
        if bits.is_some_and(|(shift, width)| u64::from(shift + width) > storage) {
            return Err(self.fail("a packed bitfield that crosses its storage"));
        }
        let offset = u32::try_from(start).map_err(|_| self.fail("lies too far from the start"))?;
        Ok(Place { map, offset, size, type_id: id, bits, signed })
    }
}
