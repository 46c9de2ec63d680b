//! A descriptor that becomes readable when somebody asks the program to end (SIGINT, SIGTERM, SIGHUP), for those who sleep in
//! poll(2): a flag that a handler raises just before the sleep would be seen only after it.
//!
//! It adds to the handlers that there are; what a signal means is theirs to say.

use crate::process::ending_signals;
use signal_hook::SigId;
use signal_hook::low_level::{pipe, unregister};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// Rings from the first signal on.
#[derive(Debug)]
pub(super) struct SignalBell {
    rung: UnixStream,
    handlers: Vec<SigId>,
}

impl SignalBell {
    /// Hangs it up.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(super) fn hang() -> io::Result<SignalBell> {
        let (rung, clapper) = UnixStream::pair()?;
        let mut bell = SignalBell { rung, handlers: Vec::new() };
        for signal in ending_signals() {
            bell.handlers.push(pipe::register(signal, clapper.try_clone()?)?);
        }
        Ok(bell)
    }

    /// Becomes readable when a signal has come.
    pub(super) fn descriptor(&self) -> RawFd {
        self.rung.as_raw_fd()
    }
}

impl Drop for SignalBell {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            unregister(handler);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_signal_rings_and_nothing_else_does() {
        let mut bell = SignalBell::hang().expect("descriptors");
        bell.rung.set_nonblocking(true).expect("a socket");
        let mut byte = [0];
        assert_eq!(bell.rung.read(&mut byte).expect_err("silent").kind(), io::ErrorKind::WouldBlock);
        // SAFETY: a signal to this process, which is handled.
        unsafe { libc::raise(libc::SIGTERM) };
        assert_eq!(bell.rung.read(&mut byte).expect("rung"), 1);
    }
}
