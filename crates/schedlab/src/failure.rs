//! How a command fails: what it says and with which code it exits (docs: exit codes).

use std::fmt;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub enum Failure {
    /// 1: it was done, and the answer is no.
    AnswerIsNo(String),
    /// 2: usage or bad input.
    BadInput(anyhow::Error),
    /// 3: this machine cannot do it; the message names the remedy.
    Machine(anyhow::Error),
    /// 130: ended by Ctrl-C, SIGTERM or SIGHUP, what was there is kept.
    Interrupted,
    /// The exit code of a recorded command, passed on after its recording was kept.
    Command(i32),
}

impl Failure {
    /// The process's exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::AnswerIsNo(_) => 1,
            Failure::BadInput(_) => 2,
            Failure::Machine(_) => 3,
            Failure::Interrupted => 130,
            Failure::Command(code) => u8::try_from(*code).unwrap_or(1),
        }
    }

    /// Bad input from any error.
    pub fn input(error: impl Into<anyhow::Error>) -> Failure {
        Failure::BadInput(error.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::AnswerIsNo(text) => f.write_str(text),
            Failure::BadInput(error) | Failure::Machine(error) => write!(f, "{error:#}"),
            Failure::Interrupted => f.write_str("interrupted"),
            Failure::Command(code) => write!(f, "the command exited with code {code}"),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::BadInput(error)
    }
}
