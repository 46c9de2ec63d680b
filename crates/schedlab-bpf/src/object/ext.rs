//! Reads `.BTF.ext`: which functions, source lines and CO-RE relocations belong to which instructions.
//!
//! Source: Documentation/bpf/btf.rst and include/uapi/linux/bpf.h (`struct bpf_core_relo`) of Linux.

use super::error::LoadError;
use crate::btf::Btf;

/// Records of one kind for one section, in file order.
#[derive(Clone, Debug)]
pub(super) struct SectionInfo<R> {
    pub section: String,
    pub records: Vec<R>,
}

/// Where a function starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct FuncInfo {
    pub insn_offset: u32,
    pub type_id: u32,
}

/// Where the code of a source line starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineInfo {
    pub insn_offset: u32,
    pub file_name: u32,
    pub text: u32,
    pub line_column: u32,
}

/// A CO-RE relocation.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreRelo {
    pub insn_offset: u32,
    pub type_id: u32,
    pub access: u32,
    pub kind: u32,
}

/// The parsed section.
#[derive(Clone, Debug, Default)]
pub(super) struct BtfExt {
    pub funcs: Vec<SectionInfo<FuncInfo>>,
    pub lines: Vec<SectionInfo<LineInfo>>,
    pub core: Vec<SectionInfo<CoreRelo>>,
}

const MAGIC: u16 = 0xeb9f;
/// Header with CO-RE relocations; older compilers stop 8 bytes before.
const HEADER_LEN_FULL: usize = 32;

impl BtfExt {
    pub(super) fn parse(bytes: &[u8], btf: &Btf) -> Result<BtfExt, LoadError> {
        let damaged = || LoadError::damaged(".BTF.ext is incomplete");
        let word = |at: usize| word(bytes, at).ok_or_else(damaged);
        if word(0)? as u16 != MAGIC {
            return Err(LoadError::damaged(".BTF.ext has no magic number"));
        }
        let header_len = word(4)? as usize;
        let body = bytes.get(header_len..).ok_or_else(damaged)?;
        let part = |at: usize| -> Result<&[u8], LoadError> {
            let (offset, len) = (word(at)? as usize, word(at + 4)? as usize);
            body.get(offset..offset.saturating_add(len)).ok_or_else(damaged)
        };
        let core = if header_len >= HEADER_LEN_FULL { part(24)? } else { &[] };
        Ok(BtfExt {
            funcs: records(part(8)?, btf, |w: [u32; 2]| FuncInfo { insn_offset: w[0], type_id: w[1] })?,
            lines: records(part(16)?, btf, |w: [u32; 4]| LineInfo {
                insn_offset: w[0],
                file_name: w[1],
                text: w[2],
                line_column: w[3],
            })?,
            core: records(core, btf, |w: [u32; 4]| CoreRelo {
                insn_offset: w[0],
                type_id: w[1],
                access: w[2],
                kind: w[3],
            })?,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let b = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// A part is a record size, then for each section its name, a count and that many records.
fn records<const N: usize, R>(
    bytes: &[u8],
    btf: &Btf,
    read: impl Fn([u32; N]) -> R,
) -> Result<Vec<SectionInfo<R>>, LoadError> {
    let damaged = || LoadError::damaged(".BTF.ext has incomplete records");
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let record_size = word(bytes, 0).ok_or_else(damaged)? as usize;
    if record_size < 4 * N {
        return Err(damaged());
    }
    let mut sections = Vec::new();
    let mut at = 4;
    while at < bytes.len() {
        let name = word(bytes, at).ok_or_else(damaged)?;
        let count = word(bytes, at + 4).ok_or_else(damaged)? as usize;
        at += 8;
        let len = count.checked_mul(record_size).ok_or_else(damaged)?;
        let end = at.checked_add(len).ok_or_else(damaged)?;
        let body = bytes.get(at..end).ok_or_else(damaged)?;
        let mut list = Vec::with_capacity(count);
        for record in body.chunks_exact(record_size) {
            let mut words = [0; N];
            for (i, w) in words.iter_mut().enumerate() {
                *w = word(record, 4 * i).ok_or_else(damaged)?;
            }
            list.push(read(words));
        }
        sections.push(SectionInfo { section: btf.string(name).to_string(), records: list });
        at = end;
    }
    Ok(sections)
}
