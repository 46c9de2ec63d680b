//! Sockets of a play: pairs of Unix stream sockets that hold as many messages as the workload says.
//!
//! The kernel counts a message by the memory that it takes, several times its bytes, and differently from version to
//! version: what one takes here is tried out.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Makes them; remembers what was tried.
#[derive(Default)]
pub struct Maker {
    /// Memory of a message by its bytes.
    memory: BTreeMap<u32, f64>,
}

impl Maker {
    /// The receiving and the sending end of a socket for `capacity` bytes in messages of so many, and what it does hold.
    pub fn make(&mut self, capacity: u64, message: u32) -> io::Result<(OwnedFd, OwnedFd, u64)> {
        let (receive, send) = UnixStream::pair()?;
        let memory = match self.memory.get(&message) {
            Some(memory) => *memory,
            None => {
                let memory = memory_of(message)?;
                self.memory.insert(message, memory);
                memory
            }
        };
        let bytes = u64::from(message.max(1));
        let messages = (capacity / bytes).max(1);
        // A message goes in while the buffer is not full: the last one reaches beyond its end.
        set_buffer(&send, ((messages as f64 - 0.5) * memory) as libc::c_int)?;
        let holds = (f64::from(buffer(&send)?) / memory).ceil() as u64;
        let holds = if holds == messages { capacity } else { holds * bytes };
        Ok((receive.into(), send.into(), holds))
    }
}

/// Sends all of `bytes` without waiting.
pub fn send_now(send: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the slice is valid for its length.
        let sent = unsafe { libc::send(send.as_raw_fd(), left.as_ptr().cast(), left.len(), flags) };
        left = &left[usize::try_from(sent).map_err(|_| io::Error::last_os_error())?..];
    }
    Ok(())
}

/// What a message takes of a socket's buffer: its size, by how many messages fill it.
fn memory_of(message: u32) -> io::Result<f64> {
    let (mut send, _receive) = UnixStream::pair()?;
    send.set_nonblocking(true)?;
    let bytes = vec![0; message.max(1) as usize];
    let mut messages = 0;
    loop {
        match send.write(&bytes) {
            Ok(sent) if sent == bytes.len() => messages += 1,
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    // The last one reached beyond the end, by half of it in the mean; it takes whole lines of memory.
    let memory = f64::from(buffer(&send)?) / (f64::from(messages) - 0.5).max(0.5);
    Ok((memory / LINE_BYTES).round().max(1.0) * LINE_BYTES)
}

const LINE_BYTES: f64 = 64.0;

/// Bytes of memory that messages in flight may take.
fn buffer(send: &impl AsRawFd) -> io::Result<libc::c_int> {
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
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Sets it, as near as the kernel allows: beyond its limit only for root.
fn set_buffer(send: &impl AsRawFd, bytes: libc::c_int) -> io::Result<()> {
    // The kernel doubles what it is given.
    let value = bytes / 2;
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
        for (capacity, message, messages) in [(27_800, 100, 278), (278, 1, 278), (10_000, 100, 100)] {
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
