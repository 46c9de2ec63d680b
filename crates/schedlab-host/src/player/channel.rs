//! The channels of a played workload: pipes for bytes, eventfds for tokens.
//!
//! Every task gets ends of its own, so that an end is closed when its last task closes it or is gone.

use schedlab_model::ChannelId;
use schedlab_model::workload::{ChannelType, Workload};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Both ends of one channel; an eventfd has one descriptor for both.
pub struct Ends {
    /// Where one receives or takes.
    pub receive: Option<OwnedFd>,
    /// Where one sends or posts.
    pub send: Option<OwnedFd>,
}

/// All channels, by index.
pub struct Channels(Vec<Ends>);

impl Channels {
    /// Opens every channel of the workload that tasks can play with, with its initial content.
    pub fn open(workload: &Workload) -> io::Result<Self> {
        let mut all = Vec::new();
        for spec in &workload.channels {
            all.push(match spec.kind {
                ChannelType::Bytes => {
                    let (receive, send) = pipe(spec.capacity)?;
                    write_all(&send, &vec![0; usize::try_from(spec.initial).unwrap_or(0)])?;
                    Ends { receive: Some(receive), send: Some(send) }
                }
                ChannelType::Tokens => {
                    let tokens = u32::try_from(spec.initial).unwrap_or(u32::MAX);
                    Ends { receive: Some(eventfd(tokens)?), send: None }
                }
                // Steps on other kinds are refused before anything starts.
                _ => Ends { receive: None, send: None },
            });
        }
        Ok(Self(all))
    }

    /// A copy of a channel's ends, those that are asked for.
    pub fn ends(&self, channel: ChannelId, receives: bool, sends: bool) -> io::Result<Ends> {
        let ends = &self.0[channel.index()];
        let copy = |end: &Option<OwnedFd>, wanted: bool| match end {
            Some(end) if wanted => end.try_clone().map(Some),
            _ => Ok(None),
        };
        // One posts to and takes from the same eventfd.
        let send = if ends.send.is_some() { &ends.send } else { &ends.receive };
        Ok(Ends { receive: copy(&ends.receive, receives)?, send: copy(send, sends)? })
    }
}

fn pipe(capacity: u64) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel fills two descriptors, which are ours from then on.
    let (receive, send) = unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    };
    let size = i32::try_from(capacity).unwrap_or(i32::MAX);
    // SAFETY: a plain call on our descriptor; the kernel rounds up to whole pages.
    if capacity > 0 && unsafe { libc::fcntl(send.as_raw_fd(), libc::F_SETPIPE_SZ, size) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((receive, send))
}

fn eventfd(tokens: u32) -> io::Result<OwnedFd> {
    // SAFETY: the kernel makes a descriptor, which is ours from then on.
    unsafe {
        let fd = libc::eventfd(tokens, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Writes all of `bytes`, waiting while they do not fit.
pub fn write_all(to: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        // SAFETY: the slice is valid for its length.
        let written = unsafe { libc::write(to.as_raw_fd(), left.as_ptr().cast(), left.len()) };
        left = &left[usize::try_from(written).map_err(|_| io::Error::last_os_error())?..];
    }
    Ok(())
}

/// Reads once, waiting while there is nothing; 0 at the end.
pub fn read_once(from: &OwnedFd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the slice is valid for its length.
    let read = unsafe { libc::read(from.as_raw_fd(), into.as_mut_ptr().cast(), into.len()) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}
