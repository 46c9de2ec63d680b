//! Values printed by their types, as `bpf_snprintf_btf()` does: `(struct list_head){.next = ...,}`.
//!
//! Everything follows kernel/bpf/btf.c (`btf_type_show` and what it calls), its oddities included: arrays of pointers
//! and of arrays show their first element again and again, elements of arrays carry no braces, an enumerator
//! of value 0 counts as something to show. Differs from Linux: a pointer prints as it is, where Linux hashes it
//! without `BTF_F_PTR_RAW`. Types as C spells them are in `print`.

use super::{Btf, INT_SIGNED, Kind};

/// No newlines and indents.
pub const BTF_F_COMPACT: u64 = 1;
/// No names of members and types.
pub const BTF_F_NONAME: u64 = 2;
/// Pointers as they are.
pub const BTF_F_PTR_RAW: u64 = 4;
/// Members that are zero too.
pub const BTF_F_ZERO: u64 = 8;

const EFAULT: i64 = 14;
const EINVAL: i64 = 22;
const ERANGE: i64 = 34;
/// Addresses below are no kernel's: `copy_from_kernel_nofault_allowed()` refuses them.
const KERNEL_FROM: u64 = crate::memory::ZERO_BYTES;
/// Stars, brackets and typedefs that a name is followed through (`BTF_SHOW_MAX_ITER`).
const NAME_STEPS_MAX: u32 = 10;
/// Bytes of a name with its end (`BTF_SHOW_NAME_BUFSIZE`).
const NAME_BYTES_MAX: usize = 80;
/// Widest indent.
const INDENT_MAX: usize = 32;
/// Values looked at, and depth: only damaged types have more.
const STEPS_MAX: u32 = 1 << 20;
const DEPTH_MAX: usize = 64;

/// Reads bytes of the object's memory; `None` if they are not there.
pub type Read<'a> = &'a dyn Fn(u64, u64) -> Option<&'a [u8]>;

/// Text of the value at `address` of a type, or the number of an error (positive) that reading met last.
pub fn show<'a>(
    btf: &'a Btf,
    type_id: u32,
    address: u64,
    flags: u64,
    read: Read<'a>,
) -> (Vec<u8>, Option<i64>) {
    let mut show = Show {
        btf,
        read,
        flags,
        out: Vec::new(),
        status: 0,
        steps: STEPS_MAX,
        depth: 0,
        depth_check: 0,
        depth_to_show: 0,
        characters: false,
        terminated: false,
        element: false,
        member: None,
        of: None,
        type_id: 0,
    };
    show.value(type_id, type_id, address, 0);
    (show.out, (show.status != 0).then_some(show.status))
}

/// `struct btf_show`.
struct Show<'a> {
    btf: &'a Btf,
    read: Read<'a>,
    flags: u64,
    out: Vec<u8>,
    status: i64,
    steps: u32,
    depth: usize,
    /// Depth at which it is looked whether there is anything to show, plus one; 0 while printing.
    depth_check: usize,
    depth_to_show: usize,
    /// Inside an array of characters.
    characters: bool,
    terminated: bool,
    /// What is shown is an element of an array, at any depth.
    element: bool,
    /// Name and type of the member that is shown.
    member: Option<(u32, u32)>,
    /// The type that is shown, without modifiers.
    of: Option<u32>,
    /// The same with modifiers.
    type_id: u32,
}

impl Show<'_> {
    fn print(&mut self, parts: &[&[u8]]) {
        if self.depth_check == 0 {
            parts.iter().for_each(|part| self.out.extend_from_slice(part));
        }
    }

    fn indent(&self) -> Vec<u8> {
        if self.flags & BTF_F_COMPACT != 0 { Vec::new() } else { vec![b' '; self.depth.min(INDENT_MAX)] }
    }

    fn newline(&self) -> &'static [u8] {
        if self.flags & BTF_F_COMPACT != 0 { b"" } else { b"\n" }
    }

    fn delimiter(&self) -> &'static [u8] {
        let of_union = self.of.is_some_and(|of| matches!(self.btf.kind(of), Kind::Union { .. }));
        match self.depth {
            0 => b"",
            _ if self.flags & BTF_F_COMPACT != 0 && of_union => b"|",
            _ => b",",
        }
    }

    /// `.member = (type)` and what opens a struct or an array.
    fn name(&self) -> Vec<u8> {
        if self.element {
            return Vec::new();
        }
        let (member, start) =
            self.member.map_or(("", self.type_id), |(name, id)| (self.btf.string(name), id));
        let Some((named, of, stars, brackets)) = self.follow(start) else { return Vec::new() };
        let (prefix, mut opening) = match self.btf.kind(of) {
            Kind::Struct { .. } => ("struct", if brackets > 0 { "[" } else { "{" }),
            Kind::Union { .. } => ("union", if brackets > 0 { "[" } else { "{" }),
            Kind::Enum { .. } => ("enum", if brackets > 0 { "[" } else { "" }),
            _ => ("", if brackets > 0 { "[" } else { "" }),
        };
        if stars > 0 {
            opening = "";
        }
        let prefix = if named.is_some() { "" } else { prefix };
        let name = named.unwrap_or(self.btf.name(of));
        let mut text = opening.to_string();
        if self.flags & BTF_F_NONAME == 0 {
            let member = if member.is_empty() { String::new() } else { format!(".{member} = ") };
            let space = if prefix.is_empty() || name.is_empty() { "" } else { " " };
            let star = if stars > 0 { " " } else { "" };
            let (stars, brackets) = ("*".repeat(stars), "[]".repeat(brackets));
            text = format!("{member}({prefix}{space}{name}{star}{stars}{brackets}){opening}");
        }
        let mut text = text.into_bytes();
        text.truncate(NAME_BYTES_MAX - 1);
        text
    }

    /// The first typedef's name, the type at the end, stars and brackets on the way there; `None` if it is too long.
    fn follow(&self, start: u32) -> Option<(Option<&str>, u32, usize, usize)> {
        let (mut id, mut named, mut stars, mut brackets) = (start, None, 0, 0);
        for _ in 0..NAME_STEPS_MAX {
            let next = match self.btf.kind(id) {
                Kind::Typedef(to) => {
                    named = named.or(Some(self.btf.name(id)));
                    *to
                }
                Kind::Array { element, .. } => {
                    brackets += 1;
                    *element
                }
                Kind::Ptr(to) => {
                    stars += 1;
                    *to
                }
                _ => 0,
            };
            if next == 0 {
                return Some((named, id, stars, brackets));
            }
            id = self.unqualified(next);
        }
        None
    }

    /// Past `const`, `volatile`, `restrict` and type tags, but not typedefs.
    fn unqualified(&self, mut id: u32) -> u32 {
        for _ in 0..DEPTH_MAX {
            id = match self.btf.kind(id) {
                Kind::Const(to) | Kind::Volatile(to) | Kind::Restrict(to) => *to,
                Kind::TypeTag { target, .. } => *target,
                _ => return id,
            };
        }
        id
    }

    /// Prints a value that is one word; what is zero only where it is asked for.
    fn word(&mut self, text: &[u8], zero: bool) {
        if !zero || self.flags & BTF_F_ZERO != 0 || self.depth == 0 {
            let (indent, name) = (self.indent(), self.name());
            self.print(&[&indent, &name, text, self.delimiter(), self.newline()]);
            self.depth_to_show = self.depth_to_show.max(self.depth);
        }
    }

    /// Notes what is shown next; its first bytes, or `None` if it cannot be read.
    fn begin(&mut self, of: u32, type_id: u32, address: u64, bytes: u64) -> Option<[u8; 16]> {
        (self.of, self.type_id) = (Some(of), type_id);
        if self.btf.size_of(of).is_none() {
            self.status = EINVAL;
            return None;
        }
        let mut value = [0; 16];
        match (self.read)(address, bytes.min(16)).filter(|_| address >= KERNEL_FROM) {
            Some(found) => {
                value[..found.len()].copy_from_slice(found);
                self.status = 0;
                Some(value)
            }
            None => {
                self.status = if address < KERNEL_FROM { ERANGE } else { EFAULT };
                None
            }
        }
    }

    fn end(&mut self) {
        (self.of, self.type_id) = (None, 0);
    }

    /// Shows a value of type `of`, which modifiers made `type_id`.
    fn value(&mut self, of: u32, type_id: u32, address: u64, bit: u32) {
        self.steps = self.steps.saturating_sub(1);
        if self.steps == 0 || self.depth > DEPTH_MAX {
            return;
        }
        match self.btf.kind(of) {
            Kind::Void => {}
            Kind::Int { .. } => self.integer(of, type_id, address, bit),
            Kind::Ptr(_) => {
                let Some(value) = self.begin(of, type_id, address, 8) else { return };
                let pointer = low(value) as u64;
                self.word(format!("0x{pointer:016x}").as_bytes(), pointer == 0);
                self.end();
            }
            Kind::Enum { size, signed, values, .. } => {
                let bytes = if *size == 8 { 8 } else { 4 };
                let Some(value) = self.begin(of, type_id, address, bytes) else { return };
                let found = low(value);
                let found = if bytes == 8 { found as i64 } else { i64::from(found as i32) };
                let same =
                    |known: i64| if bytes == 8 { known == found } else { known as i32 == found as i32 };
                match values.iter().find(|known| same(known.value)) {
                    Some(known) => self.word(self.btf.string(known.name_offset).as_bytes(), false),
                    None if *signed => self.word(found.to_string().as_bytes(), found == 0),
                    None if bytes == 8 => self.word((found as u64).to_string().as_bytes(), found == 0),
                    None => self.word((found as u32).to_string().as_bytes(), found == 0),
                }
                self.end();
            }
            Kind::Array { .. } | Kind::Struct { .. } | Kind::Union { .. } => {
                self.aggregate(of, type_id, address);
            }
            Kind::Var { type_id, .. } => self.value(*type_id, *type_id, address, bit),
            Kind::Typedef(_)
            | Kind::Const(_)
            | Kind::Volatile(_)
            | Kind::Restrict(_)
            | Kind::TypeTag { .. } => {
                self.value(self.btf.resolve(of).unwrap_or(0), type_id, address, bit);
            }
            Kind::Fwd { .. } => self.unsupported(7),
            Kind::Func { .. } => self.unsupported(12),
            Kind::FuncProto { .. } => self.unsupported(13),
            Kind::Datasec { .. } => self.unsupported(15),
            Kind::Float { .. } => self.unsupported(16),
            Kind::DeclTag { .. } => self.unsupported(17),
        }
    }

    fn unsupported(&mut self, kind: u32) {
        self.print(&[format!("<unsupported kind:{kind}>").as_bytes()]);
    }

    fn integer(&mut self, of: u32, type_id: u32, address: u64, bit: u32) {
        let Kind::Int { size, encoding, bit_offset, bits } = *self.btf.kind(of) else { return };
        let Some(value) = self.begin(of, type_id, address, u64::from(size)) else { return };
        let value = u128::from_le_bytes(value);
        let start = bit + u32::from(bit_offset);
        let whole = start == 0 && matches!(bits, 8 | 16 | 32 | 64);
        if !whole {
            self.hexadecimal(value, start, u32::from(bits));
        } else if self.characters && bits == 8 && (self.terminated || value as u8 == 0) {
            self.terminated = true;
        } else if self.characters && bits == 8 && matches!(value as u8, b' '..=b'~' | 0xa0..) {
            self.word(&[b'\'', value as u8, b'\''], false);
        } else {
            let unused = 128 - u32::from(bits);
            let (unsigned, signed) = (value << unused >> unused, (value << unused) as i128 >> unused);
            let text = if encoding & INT_SIGNED != 0 { signed.to_string() } else { unsigned.to_string() };
            self.word(text.as_bytes(), unsigned == 0);
        }
        self.end();
    }

    /// Some bits of a value, as bitfields and what is wider than a register are shown.
    fn hexadecimal(&mut self, value: u128, start: u32, bits: u32) {
        let value = value.checked_shr(start).unwrap_or(0);
        let value = if bits < 128 { value & ((1 << bits) - 1) } else { value };
        self.word(format!("{value:#x}").as_bytes(), value == 0);
    }

    /// Shows a struct, union or array if there is anything in it, which is looked for first.
    fn aggregate(&mut self, of: u32, type_id: u32, address: u64) {
        let member = self.member;
        if self.depth > 0 && self.flags & BTF_F_ZERO == 0 {
            if self.depth_check == 0 {
                self.depth_check = self.depth + 1;
                self.depth_to_show = 0;
            }
            self.contents(of, type_id, address);
            self.member = member;
            if self.depth_check != self.depth + 1 {
                return;
            }
            self.depth_check = 0;
            if self.depth_to_show <= self.depth {
                return;
            }
        }
        self.contents(of, type_id, address);
    }

    fn contents(&mut self, of: u32, type_id: u32, address: u64) {
        let btf = self.btf;
        let array = match btf.kind(of) {
            Kind::Array { element, length, .. } => Some((*element, *length)),
            _ => None,
        };
        if let Some((element, _)) = array {
            self.characters = matches!(btf.resolved_kind(element), Kind::Int { size: 1, .. });
            self.terminated = false;
        }
        let bytes = u64::from(btf.size_of(of).unwrap_or(0));
        if self.begin(of, type_id, address, bytes).is_none() {
            return;
        }
        let (indent, name) = (self.indent(), self.name());
        self.print(&[&indent, &name, self.newline()]);
        self.depth += 1;
        match array {
            Some((element, length)) => self.elements(element, length, address),
            None => self.members(of, address),
        }
        if array.is_some() {
            (self.characters, self.terminated) = (false, false);
        }
        self.depth -= 1;
        let indent = self.indent();
        let closing: &[u8] = if array.is_some() { b"]" } else { b"}" };
        self.print(&[&indent, closing, self.delimiter(), self.newline()]);
        self.end();
    }

    fn elements(&mut self, element: u32, length: u32, address: u64) {
        let of = self.btf.resolve(element).unwrap_or(0);
        let bytes = match self.btf.kind(of) {
            Kind::Ptr(_) | Kind::Array { .. } => 0,
            _ => u64::from(self.btf.size_of(of).unwrap_or(0)),
        };
        for index in 0..u64::from(length) {
            (self.element, self.member) = (true, None);
            self.value(of, element, address.wrapping_add(index * bytes), 0);
            (self.element, self.member) = (false, None);
            if self.terminated || self.steps == 0 {
                break;
            }
        }
    }

    fn members(&mut self, of: u32, address: u64) {
        for member in self.btf.members(of) {
            self.member = Some((member.name_offset, member.type_id));
            let at = address.wrapping_add(u64::from(member.bit_offset / 8));
            let bit = member.bit_offset % 8;
            if member.bit_size == 0 {
                self.value(member.type_id, member.type_id, at, bit);
            } else {
                let bytes = u64::from((bit + member.bit_size).div_ceil(8));
                if let Some(value) = self.begin(member.type_id, member.type_id, at, bytes) {
                    self.hexadecimal(u128::from_le_bytes(value), bit, member.bit_size);
                }
                self.end();
            }
            self.member = None;
        }
    }
}

fn low(value: [u8; 16]) -> u128 {
    u128::from_le_bytes(value)
}
