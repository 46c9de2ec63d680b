//! The channels of a play: pipes and sockets for bytes, words of shared memory for all others, an eventfd for tokens that
//! somebody waits for together with other channels.
//!
//! Every task opens ends of pipes of its own, so that an end is closed when its last task closes it or is gone. Sockets
//! cannot be opened anew: the play keeps both ends for tasks that are forked, and nobody is told that all have closed theirs.

use super::futex::{Condition, TICKETS, Word};
use super::shared::SharedSlice;
use super::socket;
use crate::process::limits;
use schedlab_model::ChannelId;
use schedlab_model::workload::{ChannelType, Op, Workload};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

/// What a channel is made of, beside its word.
enum Made {
    Words,
    /// The two ends that the play itself holds. Readers are never without: a writer is not told that nobody reads.
    Pipe {
        receive: OwnedFd,
        send: Mutex<Option<OwnedFd>>,
    },
    Socket {
        receive: OwnedFd,
        send: OwnedFd,
    },
    Eventfd(OwnedFd),
}

/// All channels.
pub struct Channels {
    made: Vec<Made>,
    words: SharedSlice<Word>,
    /// Of each channel that is a condition, where its cells are.
    cells: Vec<Option<SharedSlice<AtomicU32>>>,
}

impl Channels {
    /// Makes every channel with its initial content. What is not exactly as the workload wants it is added to `notes`.
    pub fn new(workload: &Workload, notes: &mut Vec<String>) -> io::Result<Channels> {
        allow_descriptors();
        Channels::make(workload, notes).map_err(with_remedy)
    }

    fn make(workload: &Workload, notes: &mut Vec<String>) -> io::Result<Channels> {
        let words = SharedSlice::<Word>::new(workload.channels.len())?;
        let (mut made, mut cells, mut sockets) = (Vec::new(), Vec::new(), socket::Maker::default());
        let messages = message_bytes(workload);
        let mut resized: BTreeMap<(u64, u64), Vec<&str>> = BTreeMap::new();
        for (index, spec) in workload.channels.iter().enumerate() {
            let initial = spec.initial;
            let waited = spec.kind == ChannelType::Condition;
            cells.push(if waited { Some(SharedSlice::new(TICKETS)?) } else { None });
            made.push(match spec.kind {
                ChannelType::Bytes => {
                    let content = vec![0; usize::try_from(initial).unwrap_or(0)];
                    let (channel, holds) = if spec.is_socket {
                        let message = messages.get(&ChannelId(index as u32)).copied().unwrap_or(1);
                        let (receive, send, holds) = sockets.make(spec.capacity, message)?;
                        for part in content.chunks(message as usize) {
                            socket::send_now(&send, part)?;
                        }
                        (Made::Socket { receive, send }, holds)
                    } else {
                        let (receive, send): (OwnedFd, OwnedFd) =
                            io::pipe().map(|(receive, send)| (receive.into(), send.into()))?;
                        let holds = set_pipe_size(&send, spec.capacity)?;
                        write_all(send.as_raw_fd(), &content)?;
                        (Made::Pipe { receive, send: Mutex::new(Some(send)) }, holds)
                    };
                    if holds != spec.capacity {
                        resized.entry((holds, spec.capacity)).or_default().push(&spec.name);
                    }
                    channel
                }
                ChannelType::Tokens if is_polled(workload, ChannelId(index as u32)) => {
                    Made::Eventfd(eventfd(u32::try_from(initial).unwrap_or(u32::MAX))?)
                }
                kind => {
                    if kind == ChannelType::Tokens {
                        words[index].post(u32::try_from(initial).unwrap_or(u32::MAX));
                    }
                    Made::Words
                }
            });
        }
        notes.extend(resized.into_iter().map(|((holds, wanted), names)| resized_note(holds, wanted, &names)));
        Ok(Channels { made, words, cells })
    }

    /// A channel as the condition that it is; `None` for other types.
    pub fn condition(&self, channel: ChannelId) -> Option<Condition<'_>> {
        let cells = self.cells[channel.index()].as_ref()?;
        Some(Condition::new(self.word(channel), cells))
    }

    /// The word of a channel that is made of one.
    pub fn word(&self, channel: ChannelId) -> &Word {
        &self.words[channel.index()]
    }

    /// Opens an end of a pipe anew, or copies that of a socket; `None` for other channels.
    pub fn open_end(&self, channel: ChannelId, sends: bool) -> io::Result<Option<File>> {
        let receive = match &self.made[channel.index()] {
            Made::Pipe { receive, .. } => receive,
            Made::Socket { receive, send } => {
                let copy = if sends { send } else { receive }.try_clone();
                return copy.map(|end| Some(end.into())).map_err(with_remedy);
            }
            Made::Words | Made::Eventfd(_) => return Ok(None),
        };
        // The link leads to the pipe itself, whichever end the descriptor is.
        let link = format!("/proc/self/fd/{}", receive.as_raw_fd());
        OpenOptions::new().read(!sends).write(sends).open(link).map(Some).map_err(with_remedy)
    }

    /// The descriptor that others poll and post to.
    pub fn eventfd(&self, channel: ChannelId) -> Option<RawFd> {
        match &self.made[channel.index()] {
            Made::Eventfd(fd) => Some(fd.as_raw_fd()),
            _ => None,
        }
    }

    /// Puts tokens in.
    pub fn post(&self, channel: ChannelId, tokens: u32) -> io::Result<()> {
        match self.eventfd(channel) {
            Some(fd) => write_all(fd, &u64::from(tokens).to_ne_bytes()),
            None => {
                self.word(channel).post(tokens);
                Ok(())
            }
        }
    }

    /// What a device hands over: bytes or tokens. Bytes for which there is no room are lost, as packets are.
    pub fn put(&self, channel: ChannelId, amount: u32) -> io::Result<()> {
        let bytes = || vec![0; amount as usize];
        let put = match &self.made[channel.index()] {
            Made::Pipe { receive, .. } => {
                let link = format!("/proc/self/fd/{}", receive.as_raw_fd());
                let end = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(link)?;
                write_all(end.as_raw_fd(), &bytes())
            }
            Made::Socket { send, .. } => socket::send_now(send, &bytes()),
            Made::Words | Made::Eventfd(_) => return self.post(channel, amount),
        };
        match put {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Takes a token, or waits for one until then.
    pub fn take(&self, channel: ChannelId, until: Option<u64>) -> io::Result<()> {
        let Some(fd) = self.eventfd(channel) else {
            self.word(channel).take(until);
            return Ok(());
        };
        // Somebody else may be faster after each poll.
        while poll(&[fd], until)? && read_once(fd, &mut [0; 8]).is_err() {}
        Ok(())
    }

    /// Closes the play's own sending ends, in the calling process: tasks have theirs.
    pub fn close_own_ends(&self) {
        for made in &self.made {
            if let Made::Pipe { send, .. } = made {
                drop(send.lock().expect("nobody panics with it").take());
            }
        }
    }

    /// The descriptors that every task of the play needs, and the play's own sending ends where they are open.
    pub fn kept(&self) -> Vec<RawFd> {
        let mut all = Vec::new();
        for made in &self.made {
            match made {
                Made::Words => {}
                Made::Pipe { receive, send } => {
                    all.push(receive.as_raw_fd());
                    let send = send.lock().expect("nobody panics with it");
                    all.extend(send.as_ref().map(AsRawFd::as_raw_fd));
                }
                Made::Socket { receive, send } => all.extend([receive.as_raw_fd(), send.as_raw_fd()]),
                Made::Eventfd(fd) => all.push(fd.as_raw_fd()),
            }
        }
        all
    }
}

/// What is said of pipes, at least one, that hold something else than was wanted.
fn resized_note(holds: u64, wanted: u64, names: &[&str]) -> String {
    let (first, last) = (names[0], names[names.len() - 1]);
    let who = match names.len() {
        1 => format!("channel '{first}' holds"),
        count => format!("{count} channels, '{first}' to '{last}', hold"),
    };
    format!("{who} {holds} bytes instead of {wanted}: so the kernel makes pipes and sockets")
}

/// The largest message that is sent into each channel, bytes, at least 1.
fn message_bytes(workload: &Workload) -> BTreeMap<ChannelId, u32> {
    let ops = workload.programs.iter().flat_map(|program| &program.ops);
    let sent = ops.filter_map(|op| match op {
        Op::Send { channel, bytes } => Some((*channel, *bytes)),
        _ => None,
    });
    let arriving = workload.devices.iter().flat_map(|device| &device.arrivals);
    let arriving = arriving.map(|arrival| (arrival.channel, arrival.amount));
    let mut largest = BTreeMap::new();
    for (channel, bytes) in sent.chain(arriving) {
        let message = largest.entry(channel).or_insert(1);
        *message = bytes.max(*message);
    }
    largest
}

/// Whether a task waits for it together with others.
fn is_polled(workload: &Workload, channel: ChannelId) -> bool {
    let ops = workload.programs.iter().flat_map(|program| &program.ops);
    ops.into_iter().any(|op| matches!(op, Op::WaitAny { channels, .. } if channels.contains(&channel)))
}

/// What the pipe holds then: the kernel rounds up to whole pages, a power of two of them.
fn set_pipe_size(pipe: &OwnedFd, capacity: u64) -> io::Result<u64> {
    let size = i32::try_from(capacity.max(1)).unwrap_or(i32::MAX);
    // SAFETY: a plain call on our descriptor.
    let got = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, size) };
    u64::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Lets this process have as many descriptors as it may: it begins with fewer, for those who use `select()`. Where the
/// kernel refuses, those it has may do.
fn allow_descriptors() {
    let mut limits = limits(libc::RLIMIT_NOFILE);
    limits.rlim_cur = limits.rlim_max;
    // SAFETY: the kernel reads the limits.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) };
}

fn with_remedy(error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(libc::EMFILE) {
        return error;
    }
    io::Error::other(format!(
        "a process may have {} open files here, and the channels of the workload need more: allow more (as root, `ulimit -n`), \
         or give it fewer",
        limits(libc::RLIMIT_NOFILE).rlim_cur
    ))
}

fn eventfd(tokens: u32) -> io::Result<OwnedFd> {
    let flags = libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE | libc::EFD_NONBLOCK;
    // SAFETY: the kernel makes a descriptor, which is ours from then on.
    unsafe {
        let fd = libc::eventfd(tokens, flags);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Writes all of `bytes`, waiting while they do not fit.
pub fn write_all(to: RawFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the slice is valid for its length.
    by_parts(bytes, |left| unsafe { libc::write(to, left.as_ptr().cast(), left.len()) })
}

/// Calls until all of `bytes` have gone: `call` says how many did of what is left, or a negative number.
pub fn by_parts(bytes: &[u8], call: impl Fn(&[u8]) -> isize) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        left = &left[usize::try_from(call(left)).map_err(|_| io::Error::last_os_error())?..];
    }
    Ok(())
}

/// Reads once, waiting while there is nothing; 0 at the end.
pub fn read_once(from: RawFd, into: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the slice is valid for its length.
    let read = unsafe { libc::read(from, into.as_mut_ptr().cast(), into.len()) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Waits until one of them can be read, until then at most; whether one can.
pub fn poll(all: &[RawFd], until: Option<u64>) -> io::Result<bool> {
    let wait = |fd: &RawFd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
    let mut waits: Vec<libc::pollfd> = all.iter().map(wait).collect();
    let left = until.map(|until| super::clock::timespec(until.saturating_sub(super::clock::now())));
    let left = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: as many descriptors as told, and a time that lives through the call.
    let ready =
        unsafe { libc::ppoll(waits.as_mut_ptr(), waits.len() as libc::nfds_t, left, std::ptr::null()) };
    if ready < 0 { Err(io::Error::last_os_error()) } else { Ok(ready > 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of one size in one sentence.
    #[test]
    fn pipes_of_another_size_are_told() {
        let text = "name = \"p\"\n[channels]\np = { type = \"bytes\", capacity = 36400, count = 20 }\n\
                    [[task]]\nname = \"a\"\nsteps = [{ run = \"1us\" }]";
        let workload = schedlab_model::workload::file::parse(text).expect("reads");
        let mut notes = Vec::new();
        Channels::new(&workload, &mut notes).expect("pipes");
        let told = "20 channels, 'p0' to 'p19', hold 65536 bytes instead of 36400: so the kernel makes pipes and sockets";
        assert_eq!(notes, [told]);
        assert_eq!(
            resized_note(4_096, 1, &["a"]),
            "channel 'a' holds 4096 bytes instead of 1: so the kernel makes pipes and sockets"
        );
    }

    /// By the largest message that a task or a device sends; of one that fits only once, the kernel takes another.
    #[test]
    fn sockets_are_as_large_as_their_messages_make_them() {
        let text = "name = \"s\"\n[channels]\n\
                    full = { type = \"socket\", capacity = 100000, initial = 100000 }\n\
                    tiny = { type = \"socket\", capacity = 1000 }\n\
                    net = { type = \"socket\", capacity = 45000 }\n\
                    [[task]]\nname = \"a\"\nsteps = [{ send = { channel = \"full\", bytes = 100000 } }, \
                    { send = { channel = \"tiny\", bytes = 40000 } }]\n\
                    [[device]]\nname = \"nic\"\nchannel = \"net\"\nperiod = \"1ms\"\ncount = 2\namount = 1500";
        let workload = schedlab_model::workload::file::parse(text).expect("reads");
        let mut notes = Vec::new();
        let channels = Channels::new(&workload, &mut notes).expect("sockets");
        let told = |notes: &[String], name: &str| {
            notes.iter().any(|note| note.starts_with(&format!("channel '{name}' holds")))
        };
        assert!(told(&notes, "full") && told(&notes, "tiny") && !told(&notes, "net"), "{notes:?}");
        let net = workload.channels.iter().position(|channel| channel.name == "net").expect("declared");
        for _ in 0..100 {
            channels.put(ChannelId(net as u32), 1_500).expect("what does not fit is lost");
        }
        let (mut bytes, mut end) = (0, [0; 4_096]);
        let receive = channels.open_end(ChannelId(net as u32), false).expect("opens").expect("an end");
        while poll(&[receive.as_raw_fd()], Some(super::super::clock::now())).expect("polls") {
            bytes += read_once(receive.as_raw_fd(), &mut end).expect("reads");
        }
        assert_eq!(bytes, 45_000);
    }
}
