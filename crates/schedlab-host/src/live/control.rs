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
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

const SOCKET: &str = "control";
/// No message is larger.
const BYTES_MAX: u32 = 64 << 20;
/// A peer that stops in the middle of a message is given up.
const PATIENCE: Duration = Duration::from_secs(10);

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
    /// The scheduler that runs now; `None` for the kernel's own.
    pub now: Option<String>,
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
        if length > BYTES_MAX {
            Err(io::Error::other("the message is too long"))
        } else {
            Ok(length as usize)
        }
    };
    let (json, object) = (length()?, length()?);
    let mut bytes = vec![0; json];
    stream.read_exact(&mut bytes)?;
    let message = serde_json::from_slice(&bytes).map_err(io::Error::other)?;
    let mut bytes = vec![0; object];
    stream.read_exact(&mut bytes)?;
    Ok((message, bytes))
}

/// Receives what was asked; the object is put where it belongs.
pub(super) fn receive_request(stream: &mut UnixStream) -> io::Result<Request> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut request, object) = receive(stream)?;
    if let Request::Switch { load, .. } = &mut request {
        load.object = object;
    }
    Ok(request)
}

/// Opens the socket; with the lock held, one that is there is a dead owner's.
pub(super) fn listen(directory: &Path) -> Result<UnixListener, Error> {
    let path = directory.join(SOCKET);
    let failed = |source| Error::System { context: format!("opening {}", path.display()), source };
    close(directory);
    let listener = UnixListener::bind(&path).map_err(failed)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
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

    #[test]
    fn messages_arrive_whole_and_bad_ones_are_refused() {
        let (mut here, mut there) = UnixStream::pair().expect("a pair");
        let load = Load { name: "vtime".to_owned(), object: vec![1, 2, 3], ..Load::default() };
        let request = Request::Switch { load: load.clone(), probation: None };
        send(&mut here, &request, &load.object).expect("sends");
        assert_eq!(receive_request(&mut there).expect("receives"), request);
        here.write_all(&[255; 8]).expect("writes");
        assert!(receive_request(&mut there).is_err(), "too long");
        here.write_all(&[4, 0, 0, 0, 0, 0, 0, 0, b'n', b'o', b'n', b'e']).expect("writes");
        drop(here);
        assert!(receive_request(&mut there).is_err());
    }

    #[test]
    fn a_holder_that_is_not_there_is_none() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(Connection::open(directory.path()).expect("is told").is_none());
        drop(listen(directory.path()).expect("opens"));
        // Children that other tests of this process fork meanwhile have it until they end.
        let gone = (0..1_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            Connection::open(directory.path()).expect("a socket that nobody has").is_none()
        });
        assert!(gone, "nobody listens");
        let _listener = listen(directory.path()).expect("opens over it");
        assert!(Connection::open(directory.path()).expect("connects").is_some());
    }
}
