//! Sockets of a play: pairs of Unix stream sockets that hold as many messages as the workload says.
//!
//! The kernel counts a message by the memory that it takes, several times its bytes, and differently from version to
//! version: it is asked what one takes.

use super::channel::by_parts;
use std::collections::BTreeMap;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Makes them; remembers what messages take.
#[derive(Default)]
pub struct Maker {
    /// Memory of a message by its bytes.
    memory: BTreeMap<u32, u64>,
}

impl Maker {
    /// The receiving and the sending end of a socket for `capacity` bytes in messages of so many, at least 1, and what it does
    /// hold.
    pub fn make(&mut self, capacity: u64, message: u32) -> io::Result<(OwnedFd, OwnedFd, u64)> {
        let (receive, send) = UnixStream::pair()?;
        let memory = match self.memory.get(&message) {
            Some(memory) => *memory,
            None => *self.memory.entry(message).or_insert(memory_of(message)?),
        };
        let bytes = u64::from(message);
        let messages = (capacity / bytes).max(1);
        // A message goes in while the buffer is not full: the last one reaches beyond its end. One that takes half of the buffer
        // would be sent in parts.
        set_buffer(&send, (messages.saturating_mul(memory) - memory / 2).max(2 * bytes + PART_BYTES))?;
        let holds = buffer(&send)?.div_ceil(memory);
        let holds = if holds == messages && bytes <= capacity { capacity } else { holds * bytes };
        Ok((receive.into(), send.into(), holds))
    }
}

/// Sends all of `bytes` without waiting.
pub fn send_now(send: &impl AsRawFd, bytes: &[u8]) -> io::Result<()> {
    by_parts(bytes, |left| {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the slice is valid for its length.
        unsafe { libc::send(send.as_raw_fd(), left.as_ptr().cast(), left.len(), flags) }
    })
}

/// What the largest part of a message is less than half of the buffer (`unix_stream_sendmsg`), and some more.
const PART_BYTES: u64 = 256;

/// What a message takes of a socket's buffer.
fn memory_of(message: u32) -> io::Result<u64> {
    let (_receive, send) = UnixStream::pair()?;
    // One that takes half of the buffer is sent in parts.
    set_buffer(&send, u64::from(message) * 4 + ROOM_BYTES)?;
    send_now(&send, &vec![0; message as usize]).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::other(format!(
            "no socket holds a message of {message} bytes here: raise net.core.wmem_max, be root, or give the channel the type \
             \"bytes\""
        )),
        _ => error,
    })?;
    let mut queued: libc::c_int = 0;
    // SAFETY: the kernel writes an int where there is one.
    let result = unsafe { libc::ioctl(send.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(u64::try_from(queued).unwrap_or(0).max(1)) }
}

const ROOM_BYTES: u64 = 65_536;

/// Bytes of memory that messages in flight may take.
fn buffer(send: &impl AsRawFd) -> io::Result<u64> {
    let (mut value, mut length): (libc::c_int, _) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the kernel writes an int where there is one.
    let result = unsafe {
        libc::getsockopt(
            send.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(u64::try_from(value).unwrap_or(0)) }
}

/// Sets it, as near as the kernel allows: beyond its limit only for root.
fn set_buffer(send: &impl AsRawFd, bytes: u64) -> io::Result<()> {
    // The kernel doubles what it is given.
    let value = libc::c_int::try_from(bytes / 2).unwrap_or(libc::c_int::MAX);
    let set = |option| {
        // SAFETY: the kernel reads an int where there is one.
        let result = unsafe {
            libc::setsockopt(
                send.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    set(libc::SO_SNDBUFFORCE).or_else(|_| set(libc::SO_SNDBUF))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `message` bytes go in without waiting.
    fn fits(send: &OwnedFd, message: usize) -> usize {
        (0..).take_while(|_| send_now(send, &vec![0; message]).is_ok()).count()
    }

    #[test]
    fn a_socket_holds_as_many_messages_as_asked_for() {
        let mut maker = Maker::default();
        for (capacity, message, messages) in
            [(27_800, 100, 278), (278, 1, 278), (40_000, 2_000, 20), (100_000, 10_000, 10)]
        {
            let (_receive, send, holds) = maker.make(capacity, message).expect("a socket");
            assert_eq!(holds, capacity);
            assert_eq!(fits(&send, message as usize), messages, "{capacity} bytes of {message}");
        }
    }

    #[test]
    fn what_a_small_buffer_holds_at_least_is_told() {
        let (_receive, send, holds) = Maker::default().make(100, 100).expect("a socket");
        assert_eq!(fits(&send, 100) as u64 * 100, holds, "the kernel has a least size");
        assert!(holds > 100, "{holds}");
    }
}
