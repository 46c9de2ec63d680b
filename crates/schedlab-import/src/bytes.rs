//! Numbers and texts one after the other, in the byte order of the file. Not here: what they mean.

use crate::ImportError;

/// Reads from the front; what lies beyond the end is an error that names what was wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    pub data: &'a [u8],
    pub big_endian: bool,
    pub format: &'static str,
}

impl<'a> Bytes<'a> {
    pub fn take(&mut self, count: u64, what: &'static str) -> Result<&'a [u8], ImportError> {
        let cut = ImportError::Truncated { format: self.format, what };
        let count = usize::try_from(count).ok().filter(|&count| count <= self.data.len()).ok_or(cut)?;
        let (taken, rest) = self.data.split_at(count);
        self.data = rest;
        Ok(taken)
    }

    pub fn number(&mut self, size: u64, what: &'static str) -> Result<u64, ImportError> {
        Ok(number(self.take(size, what)?, self.big_endian))
    }

    /// A 64-bit length, and as many bytes.
    pub fn sized(&mut self, what: &'static str) -> Result<&'a [u8], ImportError> {
        let count = self.number(8, what)?;
        self.take(count, what)
    }

    /// A text that ends with a zero.
    pub fn text(&mut self, what: &'static str) -> Result<String, ImportError> {
        let cut = ImportError::Truncated { format: self.format, what };
        let end = self.data.iter().position(|&byte| byte == 0).ok_or(cut)?;
        let text = String::from_utf8_lossy(self.take(end as u64, what)?).into_owned();
        self.take(1, what)?;
        Ok(text)
    }

    /// The same file from another place on.
    pub fn at(&self, whole: &'a [u8], offset: u64, what: &'static str) -> Result<Bytes<'a>, ImportError> {
        let mut there = Bytes { data: whole, ..*self };
        there.take(offset, what)?;
        Ok(there)
    }

    pub fn broken(&self, what: impl Into<String>) -> ImportError {
        ImportError::Broken { format: self.format, what: what.into() }
    }
}

/// An unsigned number of up to eight bytes.
pub(crate) fn number(bytes: &[u8], big_endian: bool) -> u64 {
    let add = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
    let bytes = &bytes[..bytes.len().min(8)];
    if big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) }
}

/// A text of fixed size up to its first zero.
pub(crate) fn padded_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
