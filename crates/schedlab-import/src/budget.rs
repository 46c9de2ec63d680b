//! How much the packed parts of a trace may unpack to: a few bytes can stand for gigabytes, and a broken or hostile file
//! must not take the machine's memory.

use crate::ImportError;
use std::io::Read;

/// What is left of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    format: &'static str,
    max: u64,
    left: u64,
}

impl Budget {
    pub fn new(format: &'static str, max: u64) -> Budget {
        Budget { format, max, left: max }
    }

    /// Books that many bytes.
    pub fn spend(&mut self, bytes: u64) -> Result<(), ImportError> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or(ImportError::TooLarge { format: self.format, max: self.max })?;
        Ok(())
    }

    /// Reads to the end, or to the end of the budget, and books it. The outer error is the budget's.
    pub fn read(&mut self, unpacks: impl Read) -> Result<std::io::Result<Vec<u8>>, ImportError> {
        let mut out = Vec::new();
        let read = unpacks.take(self.left.saturating_add(1)).read_to_end(&mut out);
        self.spend(out.len() as u64)?;
        Ok(read.map(|_| out))
    }
}
