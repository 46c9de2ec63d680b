//! Reads a `.BTF` section. Every reference is checked here, so lookups need not fail later.

use super::{Btf, BtfError, Enumerator, Kind, Member, Param, SectionVar, Type};

const MAGIC: u16 = 0xeb9f;
const HEADER_LEN_MIN: usize = 24;

/// A cursor that cannot run past the end.
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(len)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }
}

impl Btf {
    /// Parses a little-endian `.BTF` section.
    pub fn parse(bytes: &[u8]) -> Result<Btf, BtfError> {
        let short = BtfError::Truncated("the header is incomplete");
        if bytes.len() < HEADER_LEN_MIN {
            return Err(short);
        }
        let magic = u16::from_le_bytes([bytes[0], bytes[1]]);
        if magic != MAGIC {
            return Err(BtfError::Magic(magic));
        }
        if bytes[2] != 1 {
            return Err(BtfError::Version(bytes[2]));
        }
        let mut header = Cursor::new(&bytes[4..]);
        let mut next = || header.u32().ok_or(short.clone());
        let (header_len, type_off, type_len) = (next()?, next()?, next()?);
        let (str_off, str_len) = (next()?, next()?);
        let body = bytes.get(header_len as usize..).ok_or(short)?;
        let types = slice(body, type_off, type_len).ok_or(BtfError::Truncated("the types are incomplete"))?;
        let strings =
            slice(body, str_off, str_len).ok_or(BtfError::Truncated("the strings are incomplete"))?;
        if strings.first() != Some(&0) || strings.last() != Some(&0) {
            return Err(BtfError::Truncated("the string table does not start and end with a zero"));
        }
        let mut parsed = vec![Type { name_offset: 0, kind: Kind::Void }];
        let mut cursor = Cursor::new(types);
        while !cursor.is_empty() {
            let id = parsed.len() as u32;
            parsed.push(parse_type(&mut cursor, id)?);
        }
        check_references(&parsed, strings.len() as u32)?;
        Ok(Btf::from_parts(parsed, strings.to_vec()))
    }
}

fn slice(bytes: &[u8], offset: u32, len: u32) -> Option<&[u8]> {
    let start = offset as usize;
    bytes.get(start..start.checked_add(len as usize)?)
}

fn parse_type(cursor: &mut Cursor<'_>, id: u32) -> Result<Type, BtfError> {
    let mut next = || cursor.u32().ok_or(BtfError::Truncated("a type is incomplete"));
    let (name_offset, info, size_or_type) = (next()?, next()?, next()?);
    let vlen = (info & 0xffff) as usize;
    let kind_number = ((info >> 24) & 0x1f) as u8;
    let flag = info >> 31 == 1;
    let kind = match kind_number {
        1 => int(next()?, size_or_type),
        2 => Kind::Ptr(size_or_type),
        3 => Kind::Array { element: next()?, index: next()?, length: next()? },
        4 | 5 => {
            let members = members(&mut next, vlen, flag)?;
            match kind_number {
                4 => Kind::Struct { size: size_or_type, members },
                _ => Kind::Union { size: size_or_type, members },
            }
        }
        6 | 19 => {
            let wide = kind_number == 19;
            let values = enumerators(&mut next, vlen, wide, flag)?;
            Kind::Enum { size: size_or_type, signed: flag, wide, values }
        }
        7 => Kind::Fwd { is_union: flag },
        8 => Kind::Typedef(size_or_type),
        9 => Kind::Volatile(size_or_type),
        10 => Kind::Const(size_or_type),
        11 => Kind::Restrict(size_or_type),
        12 => Kind::Func { proto: size_or_type, linkage: vlen as u32 },
        13 => {
            let mut params = Vec::with_capacity(vlen);
            for _ in 0..vlen {
                params.push(Param { name_offset: next()?, type_id: next()? });
            }
            Kind::FuncProto { returns: size_or_type, params }
        }
        14 => Kind::Var { type_id: size_or_type, linkage: next()? },
        15 => {
            let mut vars = Vec::with_capacity(vlen);
            for _ in 0..vlen {
                vars.push(SectionVar { type_id: next()?, offset: next()?, size: next()? });
            }
            Kind::Datasec { size: size_or_type, vars }
        }
        16 => Kind::Float { size: size_or_type },
        17 => Kind::DeclTag { target: size_or_type, component: next()? as i32, attribute: flag },
        18 => Kind::TypeTag { target: size_or_type, attribute: flag },
        kind => return Err(BtfError::Kind { id, kind }),
    };
    Ok(Type { name_offset, kind })
}

fn int(word: u32, size: u32) -> Kind {
    let [bits, _, bit_offset, encoding] = word.to_le_bytes();
    Kind::Int { size, encoding: encoding & 0x0f, bit_offset, bits }
}

fn members(
    next: &mut impl FnMut() -> Result<u32, BtfError>,
    count: usize,
    bitfields: bool,
) -> Result<Vec<Member>, BtfError> {
    let mut members = Vec::with_capacity(count);
    for _ in 0..count {
        let (name_offset, type_id, offset) = (next()?, next()?, next()?);
        let (bit_offset, bit_size) = if bitfields { (offset & 0xff_ffff, offset >> 24) } else { (offset, 0) };
        members.push(Member { name_offset, type_id, bit_offset, bit_size });
    }
    Ok(members)
}

fn enumerators(
    next: &mut impl FnMut() -> Result<u32, BtfError>,
    count: usize,
    wide: bool,
    signed: bool,
) -> Result<Vec<Enumerator>, BtfError> {
    let mut values = Vec::with_capacity(count);
    for _ in 0..count {
        let (name_offset, low) = (next()?, next()?);
        let value = match (wide, signed) {
            (true, _) => (u64::from(low) | u64::from(next()?) << 32) as i64,
            (false, true) => i64::from(low as i32),
            (false, false) => i64::from(low),
        };
        values.push(Enumerator { name_offset, value });
    }
    Ok(values)
}

fn check_references(types: &[Type], strings_len: u32) -> Result<(), BtfError> {
    let count = types.len() as u32;
    for (id, t) in types.iter().enumerate() {
        let id = id as u32;
        let type_ok = |target: u32| match target < count {
            true => Ok(()),
            false => Err(BtfError::Dangling { id, what: "type", target }),
        };
        let string_ok = |target: u32| match target < strings_len {
            true => Ok(()),
            false => Err(BtfError::Dangling { id, what: "string", target }),
        };
        string_ok(t.name_offset)?;
        match &t.kind {
            Kind::Ptr(target)
            | Kind::Typedef(target)
            | Kind::Volatile(target)
            | Kind::Const(target)
            | Kind::Restrict(target)
            | Kind::Func { proto: target, .. }
            | Kind::Var { type_id: target, .. }
            | Kind::DeclTag { target, .. }
            | Kind::TypeTag { target, .. } => type_ok(*target)?,
            Kind::Array { element, index, .. } => {
                type_ok(*element)?;
                type_ok(*index)?;
            }
            Kind::Struct { members, .. } | Kind::Union { members, .. } => {
                for m in members {
                    type_ok(m.type_id)?;
                    string_ok(m.name_offset)?;
                }
            }
            Kind::Enum { values, .. } => values.iter().try_for_each(|v| string_ok(v.name_offset))?,
            Kind::FuncProto { returns, params } => {
                type_ok(*returns)?;
                for p in params {
                    type_ok(p.type_id)?;
                    string_ok(p.name_offset)?;
                }
            }
            Kind::Datasec { vars, .. } => vars.iter().try_for_each(|v| type_ok(v.type_id))?,
            Kind::Void | Kind::Int { .. } | Kind::Fwd { .. } | Kind::Float { .. } => {}
        }
    }
    Ok(())
}
