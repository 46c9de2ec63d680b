//! Writes a `.BTF` section, byte for byte reproducible from the same types.

use super::{Btf, Kind, Member, Type};

const HEADER_LEN: u32 = 24;

impl Btf {
    /// The `.BTF` section (little-endian, version 1) with these types and strings.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut types = Words::default();
        for t in &self.types[1..] {
            types.type_header(t);
            types.type_tail(&t.kind);
        }
        let types = types.0;
        let mut out = vec![0x9f, 0xeb, 1, 0];
        let (types_len, strings_len) = (types.len() as u32, self.strings.len() as u32);
        for word in [HEADER_LEN, 0, types_len, types_len, strings_len] {
            out.extend(word.to_le_bytes());
        }
        out.extend(types);
        out.extend(&self.strings);
        out
    }
}

#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn put(&mut self, words: &[u32]) {
        for word in words {
            self.0.extend(word.to_le_bytes());
        }
    }

    fn type_header(&mut self, t: &Type) {
        let (kind, vlen, flag, size_or_type) = match &t.kind {
            Kind::Void => (0, 0, false, 0),
            Kind::Int { size, .. } => (1, 0, false, *size),
            Kind::Ptr(to) => (2, 0, false, *to),
            Kind::Array { .. } => (3, 0, false, 0),
            Kind::Struct { size, members } => (4, members.len(), has_bitfield(members), *size),
            Kind::Union { size, members } => (5, members.len(), has_bitfield(members), *size),
            Kind::Enum { size, signed, wide, values } => {
                (if *wide { 19 } else { 6 }, values.len(), *signed, *size)
            }
            Kind::Fwd { is_union } => (7, 0, *is_union, 0),
            Kind::Typedef(to) => (8, 0, false, *to),
            Kind::Volatile(to) => (9, 0, false, *to),
            Kind::Const(to) => (10, 0, false, *to),
            Kind::Restrict(to) => (11, 0, false, *to),
            Kind::Func { proto, linkage } => (12, *linkage as usize, false, *proto),
            Kind::FuncProto { returns, params } => (13, params.len(), false, *returns),
            Kind::Var { type_id, .. } => (14, 0, false, *type_id),
            Kind::Datasec { size, vars } => (15, vars.len(), false, *size),
            Kind::Float { size } => (16, 0, false, *size),
            Kind::DeclTag { target, attribute, .. } => (17, 0, *attribute, *target),
            Kind::TypeTag { target, attribute } => (18, 0, *attribute, *target),
        };
        let info = (vlen as u32 & 0xffff) | kind << 24 | u32::from(flag) << 31;
        self.put(&[t.name_offset, info, size_or_type]);
    }

    fn type_tail(&mut self, kind: &Kind) {
        match kind {
            Kind::Int { encoding, bit_offset, bits, .. } => {
                self.put(&[u32::from_le_bytes([*bits, 0, *bit_offset, *encoding])]);
            }
            Kind::Array { element, index, length } => self.put(&[*element, *index, *length]),
            Kind::Struct { members, .. } | Kind::Union { members, .. } => self.members(members),
            Kind::Enum { wide, values, .. } => {
                for v in values {
                    self.put(&[v.name_offset, v.value as u32]);
                    if *wide {
                        self.put(&[(v.value >> 32) as u32]);
                    }
                }
            }
            Kind::FuncProto { params, .. } => {
                params.iter().for_each(|p| self.put(&[p.name_offset, p.type_id]));
            }
            Kind::Var { linkage, .. } => self.put(&[*linkage]),
            Kind::Datasec { vars, .. } => {
                vars.iter().for_each(|v| self.put(&[v.type_id, v.offset, v.size]));
            }
            Kind::DeclTag { component, .. } => self.put(&[*component as u32]),
            Kind::Void
            | Kind::Ptr(_)
            | Kind::Fwd { .. }
            | Kind::Typedef(_)
            | Kind::Volatile(_)
            | Kind::Const(_)
            | Kind::Restrict(_)
            | Kind::Func { .. }
            | Kind::Float { .. }
            | Kind::TypeTag { .. } => {}
        }
    }

    fn members(&mut self, members: &[Member]) {
        let bitfields = has_bitfield(members);
        for m in members {
            let offset = if bitfields { m.bit_offset & 0xff_ffff | m.bit_size << 24 } else { m.bit_offset };
            self.put(&[m.name_offset, m.type_id, offset]);
        }
    }
}

/// The kind flag says that offsets carry a width in their upper eight bits.
fn has_bitfield(members: &[Member]) -> bool {
    members.iter().any(|m| m.bit_size != 0)
}
