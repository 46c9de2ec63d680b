//! Numbers and texts as bytes: variable-length integers, as in LEB128, and length-prefixed texts.
//!
//! Knows nothing of recordings; [`super::codec`] frames what is written here into blocks.

/// Appends an unsigned number, seven bits a byte, lowest first.
#[inline]
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number, small magnitudes short.
#[inline]
pub(super) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a text.
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// What is wrong with a block's content.
pub(super) type WireError = &'static str;

/// Reads what the `put` functions wrote.
pub(super) struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Input { bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, WireError> {
        let (&first, rest) = self.bytes.split_first().ok_or("content ends early")?;
        self.bytes = rest;
        Ok(first)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, WireError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err("a number exceeds 64 bits");
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number exceeds 64 bits")
    }

    /// A number that must fit 32 bits.
    #[inline]
    pub(super) fn varint_u32(&mut self) -> Result<u32, WireError> {
        u32::try_from(self.varint()?).map_err(|_| "a number exceeds 32 bits")
    }

    #[inline]
    pub(super) fn signed(&mut self) -> Result<i64, WireError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    pub(super) fn text(&mut self) -> Result<String, WireError> {
        let length = usize::try_from(self.varint()?).map_err(|_| "a text is too long")?;
        if length > self.bytes.len() {
            return Err("a text is longer than its block");
        }
        let (text, rest) = self.bytes.split_at(length);
        self.bytes = rest;
        String::from_utf8(text.to_vec()).map_err(|_| "a text is not UTF-8")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_survive() {
        let mut out = Vec::new();
        for value in [0, 127, 128, u64::MAX] {
            put_varint(&mut out, value);
        }
        for value in [0, -1, i64::MIN, i64::MAX] {
            put_signed(&mut out, value);
        }
        put_text(&mut out, "µ");
        let mut input = Input::new(&out);
        for value in [0, 127, 128, u64::MAX] {
            assert_eq!(input.varint(), Ok(value));
        }
        for value in [0, -1, i64::MIN, i64::MAX] {
            assert_eq!(input.signed(), Ok(value));
        }
        assert_eq!(input.text().as_deref(), Ok("µ"));
        assert!(input.is_empty());
    }

    #[test]
    fn overlong_numbers_are_refused() {
        assert!(Input::new(&[0xff; 10]).varint().is_err());
        assert!(Input::new(&[0x80]).varint().is_err());
        assert!(Input::new(&[5, b'a']).text().is_err());
    }
}
