//! What other commands ask of the process that holds a scheduler, and what it answers: a Unix socket that only root opens.
//!
//! A message is two lengths (32 bits, little-endian), JSON, and the bytes of an object if one comes along. Not here:
//! what the holder does about it ([`super::hold`]).

use super::canary::{Delays, Guards, Trip};
use super::hold::End;
use super::journal::Owner;
use super::{Error, Exit, Scope};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

const SOCKET: &str = "control";
/// No message is larger.
const BYTES_MAX: u32 = 64 << 20;
/// Nobody needs longer to say what is wanted; the holder does not wait meanwhile.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// So many may be about to say something; more are turned away.
const INCOMING_MAX: usize = 16;
/// Whoever does not take an answer is left. The small ones fit the socket's buffer and never wait.
const ANSWER_PATIENCE: Duration = Duration::from_millis(500);
/// Read in one go: a large object must not keep the holder from its guards.
const READ_BYTES: usize = 64 * 1024;
const READS_MAX: u32 = 64;

/// A scheduler to be loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// As it was named on the command line: of the library, or the absolute path of an object file.
    pub name: String,
    /// Knobs to set before loading.
    pub knobs: Vec<(String, i64)>,
    /// Whom it is given.
    pub scope: Scope,
    /// The object's bytes.
    #[serde(skip)]
    pub object: Vec<u8>,
}

/// A time on probation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probation {
    /// How long.
    pub length: Duration,
    /// What ends it early, and rolls back.
    pub guards: Guards,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// What do you hold?
    Status,
    /// Set live knobs.
    Set {
        /// Names and values.
        knobs: Vec<(String, i64)>,
    },
    /// Replace the scheduler by this one; if it fails on probation, the one before comes back.
    Switch {
        /// The new one.
        load: Load,
        /// Its probation.
        probation: Option<Probation>,
    },
    /// Give all tasks back and end.
    Stop,
}

/// A scheduler that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// As it was named.
    pub name: String,
    /// Knobs that were set, with their present values.
    pub knobs: BTreeMap<String, i64>,
    /// Since when, in seconds of Unix time.
    pub since_unix_s: u64,
    /// Whether only tasks that ask for `SCHED_EXT` are its own.
    pub partial: bool,
}

/// How a probation went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// How long it was.
    pub length_ms: u64,
    /// What the canaries measured.
    pub delays: Delays,
    /// The guard that tripped.
    pub trip: Option<Trip>,
    /// What cut it short, in words, if no guard did.
    #[serde(default)]
    pub cut: Option<String>,
    /// The scheduler that runs now; `None` for the kernel's own.
    pub now: Option<String>,
    /// Why the one before did not come back, if it should have.
    #[serde(default)]
    pub lost: Option<String>,
}

/// How long loading and enabling took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// From the object's bytes to programs in the kernel, µs; another scheduler goes on meanwhile.
    pub load_us: u64,
    /// From the first task's leaving its scheduler to the new one's being enabled, µs.
    pub enable_us: u64,
}

/// One round of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Whether the scheduler under trial ran, and not the kernel's own.
    pub on_trial: bool,
    /// How long the command took, ns; none if the running system was measured.
    pub wall_ns: Option<u64>,
    /// The command's exit code.
    pub code: Option<i32>,
    /// What canaries measured meanwhile.
    pub delays: Delays,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To `Status`.
    Status {
        /// Who holds it.
        owner: Owner,
        /// What runs; `None` between rounds of a trial.
        held: Option<Held>,
        /// What it is at.
        phase: String,
    },
    /// To `Set`.
    Set,
    /// The scheduler runs; with a probation, more will come.
    Runs {
        /// What runs.
        held: Held,
        /// How long that took.
        taken: Taken,
        /// How the one before ended.
        before: Option<Exit>,
    },
    /// The probation is over.
    Probed(Probed),
    /// A round of the trial is over.
    Round(Round),
    /// The trial is over.
    Tried {
        /// All its rounds.
        rounds: Vec<Round>,
        /// The guard that ended it early.
        trip: Option<Trip>,
        /// Whether the scheduler runs on.
        kept: bool,
    },
    /// The scheduler is gone.
    Stopped {
        /// How it ended, if the scheduler keeps a record.
        end: Option<End>,
        /// What was undone, in words.
        undone: Vec<String>,
        /// Whether the process goes on, as one whose command does.
        #[serde(default)]
        stays: bool,
    },
    /// It cannot be done.
    Refused {
        /// Why, with the remedy.
        text: String,
        /// The exit code for it.
        code: u8,
    },
}

/// Sends a message.
pub fn send<T: Serialize>(stream: &mut UnixStream, message: &T, object: &[u8]) -> io::Result<()> {
    let json = serde_json::to_vec(message).map_err(io::Error::other)?;
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).map(u32::to_le_bytes).map_err(io::Error::other);
    let mut bytes = Vec::with_capacity(8 + json.len() + object.len());
    bytes.extend(length(&json)?);
    bytes.extend(length(object)?);
    bytes.extend(json);
    bytes.extend(object);
    stream.write_all(&bytes)
}

/// Receives a message and the object that came along.
pub fn receive<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<(T, Vec<u8>)> {
    let mut length = || {
        let mut word = [0; 4];
        stream.read_exact(&mut word)?;
        let length = u32::from_le_bytes(word);
        if length > BYTES_MAX { Err(too_long()) } else { Ok(length as usize) }
    };
    let (json, object) = (length()?, length()?);
    let mut bytes = vec![0; json];
    stream.read_exact(&mut bytes)?;
    let message = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
    let mut bytes = vec![0; object];
    stream.read_exact(&mut bytes)?;
    Ok((message, bytes))
}

/// The socket, and who is about to ask something. Nobody is waited for: guards are looked at meanwhile.
#[derive(Debug)]
pub(super) struct Door {
    listener: UnixListener,
    incoming: Vec<Incoming>,
}

/// A request on its way, and what has come of it.
#[derive(Debug)]
struct Incoming {
    stream: UnixStream,
    bytes: Vec<u8>,
    until: Instant,
}

impl Door {
    /// Opens it; with the lock held, a socket that is there is a dead owner's.
    pub fn open(directory: &Path) -> Result<Door, Error> {
        let path = directory.join(SOCKET);
        let failed = |source| Error::System { context: format!("opening {}", path.display()), source };
        close(directory);
        let listener = UnixListener::bind(&path).map_err(failed)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Door { listener, incoming: Vec::new() })
    }

    /// What becomes readable when somebody comes or goes on.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let incoming = self.incoming.iter().map(|incoming| incoming.stream.as_raw_fd());
        std::iter::once(self.listener.as_raw_fd()).chain(incoming)
    }

    /// A request that has come whole, if there is one, and who wants the answer.
    pub fn request(&mut self) -> Option<(UnixStream, Request)> {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.incoming.len() < INCOMING_MAX && stream.set_nonblocking(true).is_ok() {
                let until = Instant::now() + REQUEST_MAX;
                self.incoming.push(Incoming { stream, bytes: Vec::new(), until });
            }
        }
        let mut index = 0;
        while index < self.incoming.len() {
            match self.incoming[index].read() {
                Ok(None) if Instant::now() < self.incoming[index].until => index += 1,
                Ok(None) | Err(_) => drop(self.incoming.swap_remove(index)),
                Ok(Some(request)) => {
                    let stream = self.incoming.swap_remove(index).stream;
                    let ready = stream.set_nonblocking(false);
                    if ready.and_then(|()| stream.set_write_timeout(Some(ANSWER_PATIENCE))).is_ok() {
                        return Some((stream, request));
                    }
                }
            }
        }
        None
    }
}

impl Incoming {
    /// Takes what is there; the request once it is whole.
    fn read(&mut self) -> io::Result<Option<Request>> {
        let mut buffer = [0; READ_BYTES];
        for _ in 0..READS_MAX {
            if let Some(request) = request_of(&self.bytes)? {
                return Ok(Some(request));
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.bytes.extend(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

/// The request that these bytes are, once they are whole; its object is put where it belongs.
fn request_of(bytes: &[u8]) -> io::Result<Option<Request>> {
    let length = |at: usize| {
        let Some(word) = bytes.get(at..at + 4) else { return Ok(None) };
        let length = u32::from_le_bytes(word.try_into().expect("four bytes"));
        if length > BYTES_MAX { Err(too_long()) } else { Ok(Some(length as usize)) }
    };
    let (Some(json), Some(object)) = (length(0)?, length(4)?) else { return Ok(None) };
    let Some(whole) = bytes.get(8..8 + json + object) else { return Ok(None) };
    let (json, object) = whole.split_at(json);
    let mut request = serde_json::from_slice(json).map_err(io::Error::other)?;
    if let Request::Switch { load, .. } = &mut request {
        load.object = object.to_vec();
    }
    Ok(Some(request))
}

fn too_long() -> io::Error {
    io::Error::other("the message is too long")
}

/// Removes the socket; one that is not there is fine.
pub(super) fn close(directory: &Path) {
    let _ = fs::remove_file(directory.join(SOCKET));
}

/// A connection to whoever holds a scheduler.
pub struct Connection(UnixStream);

impl Connection {
    /// Connects; `None` if nobody listens.
    pub fn open(directory: &Path) -> Result<Option<Connection>, Error> {
        match UnixStream::connect(directory.join(SOCKET)) {
            Ok(stream) => Ok(Some(Connection(stream))),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
                io::ErrorKind::PermissionDenied => Err(Error::Privilege),
                _ => Err(Error::System { context: "asking the holder".to_owned(), source: error }),
            },
        }
    }

    /// Asks, and takes the first answer, within `limit`.
    pub fn ask(&mut self, request: &Request, limit: Duration) -> Result<Answer, Error> {
        let object = if let Request::Switch { load, .. } = request { &load.object[..] } else { &[] };
        let sent = send(&mut self.0, request, object);
        sent.map_err(|source| Error::System { context: "asking the holder".to_owned(), source })?;
        self.answer(limit)
    }

    /// Whether an answer, or the other side's end, has come within that time.
    pub fn is_ready(&self, limit: Duration) -> bool {
        let mut wanted = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let limit = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: one descriptor is waited for, and it is valid.
        unsafe { libc::poll(&raw mut wanted, 1, limit) > 0 }
    }

    /// Takes a further answer.
    pub fn answer(&mut self, limit: Duration) -> Result<Answer, Error> {
        let failed = |source| Error::System { context: "waiting for the holder's answer".to_owned(), source };
        self.0.set_read_timeout(Some(limit)).map_err(failed)?;
        Ok(receive(&mut self.0).map_err(failed)?.0)
    }
}

impl From<UnixStream> for Connection {
    fn from(stream: UnixStream) -> Connection {
        Connection(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks until something has come.
    fn request(door: &mut Door) -> Request {
        loop {
            match door.request() {
                Some((_, request)) => return request,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    #[test]
    fn messages_arrive_whole_and_nobody_who_is_silent_is_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut door = Door::open(directory.path()).expect("opens");
        let connect = || UnixStream::connect(directory.path().join(SOCKET)).expect("connects");
        let load = Load { name: "vtime".to_owned(), object: vec![1; 300_000], ..Load::default() };
        let switch = Request::Switch { load: load.clone(), probation: None };
        let (mut silent, mut slow, mut long) = (connect(), connect(), connect());
        silent.write_all(&[2]).expect("writes");
        long.write_all(&[255; 8]).expect("writes");
        let began = Instant::now();
        assert!(door.request().is_none(), "none is whole");
        let asks = std::thread::spawn(move || send(&mut slow, &switch, &[1; 300_000]).map(|()| slow));
        assert_eq!(request(&mut door), Request::Switch { load, probation: None });
        send(&mut connect(), &Request::Stop, &[]).expect("sends");
        assert_eq!(request(&mut door), Request::Stop);
        asks.join().expect("does not panic").expect("all was taken");
        let waits = door.incoming.len();
        // On a machine that stood still meanwhile the silent one has been given up, too.
        assert!(waits == 1 || (waits == 0 && began.elapsed() >= REQUEST_MAX), "only the silent one is left");
        drop(silent);
        assert!(door.request().is_none() && door.incoming.is_empty());
    }

    #[test]
    fn requests_are_whole_or_not_yet_or_refused() {
        let whole = [2, 0, 0, 0, 0, 0, 0, 0, b'{', b'}'];
        assert!(request_of(&whole).is_err(), "it asks nothing");
        for length in 0..whole.len() {
            assert_eq!(request_of(&whole[..length]).expect("not yet"), None);
        }
        assert!(request_of(&[255; 4]).is_err(), "too long");
    }

    #[test]
    fn a_holder_that_is_not_there_is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(Connection::open(directory.path()).expect("is told").is_none());
        drop(Door::open(directory.path()).expect("opens"));
        // Children that other tests of this process fork meanwhile have it until they end.
        let gone = (0..1_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            Connection::open(directory.path()).expect("a socket that nobody has").is_none()
        });
        assert!(gone, "nobody listens");
        let _door = Door::open(directory.path()).expect("opens over it");
        assert!(Connection::open(directory.path()).expect("connects").is_some());
    }
}
