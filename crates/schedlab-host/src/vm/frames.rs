//! What the guest says to the host: frames on one byte stream.
//!
//! A frame is a kind (one byte), a length (four bytes, little endian) and that many bytes. The stream is a virtio
//! port, so nothing is lost or reordered; a stream that stops without [`Frame::Exit`] means the guest died.

use std::io::{self, Read, Write};

/// At most this much in one frame; longer output is split by the sender.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// One message from the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The guest's process 1 runs; nanoseconds since its kernel started.
    Hello(u64),
    /// The command wrote this to standard output.
    Stdout(Vec<u8>),
    /// The command wrote this to standard error.
    Stderr(Vec<u8>),
    /// A part of a collected file, in order: name and bytes.
    File(String, Vec<u8>),
    /// The kernel's log.
    KernelLog(Vec<u8>),
    /// The command's exit code, 128 + signal if it was killed. Always the last frame.
    Exit(i32),
}

impl Frame {
    /// Writes the frame and flushes.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (kind, payload) = match self {
            Frame::Hello(ns) => (b'H', ns.to_le_bytes().to_vec()),
            Frame::Stdout(bytes) => (b'O', bytes.clone()),
            Frame::Stderr(bytes) => (b'E', bytes.clone()),
            Frame::File(name, bytes) => (b'F', [name.as_bytes(), &[0], bytes].concat()),
            Frame::KernelLog(bytes) => (b'K', bytes.clone()),
            Frame::Exit(code) => (b'X', code.to_le_bytes().to_vec()),
        };
        assert!(payload.len() <= PAYLOAD_BYTES_MAX + 4096, "the sender splits long output");
        let length = u32::try_from(payload.len()).expect("bounded above");
        let mut bytes = vec![kind];
        bytes.extend(length.to_le_bytes());
        bytes.extend(payload);
        out.write_all(&bytes)?;
        out.flush()
    }

    /// Reads the next frame; `None` at the stream's end.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
        let mut head = [0_u8; 5];
        match from.read_exact(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > PAYLOAD_BYTES_MAX + 4096 {
            return Err(bad("a frame longer than any that the guest sends"));
        }
        let mut payload = vec![0; length];
        from.read_exact(&mut payload)?;
        Self::decode(head[0], payload).map(Some)
    }

    fn decode(kind: u8, payload: Vec<u8>) -> io::Result<Frame> {
        Ok(match kind {
            b'H' => Frame::Hello(u64::from_le_bytes(payload.try_into().map_err(|_| bad("hello"))?)),
            b'O' => Frame::Stdout(payload),
            b'E' => Frame::Stderr(payload),
            b'F' => {
                let end = payload.iter().position(|byte| *byte == 0).ok_or_else(|| bad("file name"))?;
                let name = String::from_utf8_lossy(&payload[..end]).into_owned();
                Frame::File(name, payload[end + 1..].to_vec())
            }
            b'K' => Frame::KernelLog(payload),
            b'X' => Frame::Exit(i32::from_le_bytes(payload.try_into().map_err(|_| bad("exit"))?)),
            _ => return Err(bad("kind")),
        })
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the guest's stream is damaged: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let frames = [
            Frame::Hello(7),
            Frame::Stdout(b"a\0b".to_vec()),
            Frame::Stderr(Vec::new()),
            Frame::File("x/y".into(), vec![0, 1, 2]),
            Frame::KernelLog(b"log".to_vec()),
            Frame::Exit(-3),
        ];
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.write(&mut bytes).unwrap();
        }
        let mut from = bytes.as_slice();
        for frame in &frames {
            assert_eq!(Frame::read(&mut from).unwrap().as_ref(), Some(frame));
        }
        assert_eq!(Frame::read(&mut from).unwrap(), None);
    }

    #[test]
    fn damaged_streams_are_errors() {
        for bytes in
            [&b"O\xff\xff\xff\xff"[..], b"O\x05\0\0\0abc", b"Z\0\0\0\0", b"X\x01\0\0\0a", b"F\x01\0\0\0a"]
        {
            assert!(Frame::read(&mut &*bytes).is_err(), "{bytes:?} must be refused");
        }
    }
}
