//! The little of protocol buffers that writing a trace needs: varints, fixed words, nested messages.
//!
//! Instead of prost with generated types: a trace uses forty fields, named in [`super`], and writing needs
//! neither a compiler of proto files nor reading back.

/// A message being written.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const LENGTH: u64 = 2;

impl Message {
    fn raw(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value as u8 & 0x7f) | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// An unsigned or enum field.
    pub fn number(&mut self, field: u32, value: u64) -> &mut Self {
        self.raw(u64::from(field) << 3 | VARINT);
        self.raw(value);
        self
    }

    /// A signed field (`int32`, `int64`: negative numbers take ten bytes).
    pub fn signed(&mut self, field: u32, value: i64) -> &mut Self {
        self.number(field, value as u64)
    }

    /// A `fixed64` field.
    pub fn fixed(&mut self, field: u32, value: u64) -> &mut Self {
        self.raw(u64::from(field) << 3 | FIXED64);
        self.bytes.extend(value.to_le_bytes());
        self
    }

    /// A string or bytes field.
    pub fn text(&mut self, field: u32, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    /// A nested message.
    pub fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message)) -> &mut Self {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.bytes)
    }

    /// A field of bytes, or a message already written.
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.raw(u64::from(field) << 3 | LENGTH);
        self.raw(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// The bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_specification() {
        // The examples of protobuf.dev/programming-guides/encoding.
        let mut message = Message::default();
        message.number(1, 150).text(2, "testing").message(3, |inner| {
            inner.number(1, 150);
        });
        let expected = b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01";
        assert_eq!(message.into_bytes(), expected);
        let mut message = Message::default();
        message.signed(1, -2).fixed(47, 1);
        let expected = b"\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\xf9\x02\x01\0\0\0\0\0\0\0";
        assert_eq!(message.into_bytes(), expected);
    }
}
