//! The target `trace`: traces of other recorders, damaged. Nothing in them has a checksum, so damage reaches every decoder.
//!
//! What is imported must be a whole recording: in time order, written and read again to the same, replayed.

use crate::recordings::{REPLAYED_MAX, replay};
use schedlab_import::{ImportOptions, detect, import};
use schedlab_model::recording::codec::{decode, encode};

/// Real traces, the smallest of each kind.
const TRACES: [&[u8]; 5] = [
    include_bytes!("../../crates/schedlab-import/tests/data/perf.data"),
    include_bytes!("../../crates/schedlab-import/tests/data/v7.dat"),
    include_bytes!("../../crates/schedlab-import/tests/data/v6.dat.zst"),
    include_bytes!("../../crates/schedlab-import/tests/data/compact.pftrace"),
    include_bytes!("../../crates/schedlab-import/tests/data/plain.pftrace.zst"),
];

/// Packed inputs may unpack to this many bytes, so that a bomb takes no time.
const UNPACKED_MAX: u64 = 16 << 20;

/// The target.
///
/// # Panics
/// If what is imported is no whole recording, or anything panics. With `planted`, writing forgets the last event.
pub fn fuzz(input: &[u8], planted: bool) {
    let Some(format) = detect(input) else { return };
    let options = ImportOptions { unpacked_max: UNPACKED_MAX, ..ImportOptions::default() };
    let Ok(recording) = import(format, input, &options) else { return };
    assert!(recording.events.is_sorted_by_key(|event| event.time), "events are in time order");
    let mut written = recording.clone();
    if planted {
        written.events.pop();
    }
    let bytes = encode(&written).expect("what was imported can be written");
    let again = decode(&bytes).expect("what was written can be read");
    assert!(again.events == recording.events, "events differ after writing and reading");
    assert!(again.tasks == recording.tasks, "tasks differ after writing and reading");
    if recording.events.len() <= REPLAYED_MAX && recording.tasks.len() <= 200 {
        replay(&recording);
    }
}

/// The traces, unpacked.
///
/// # Panics
/// If one that the repository has packed does not unpack.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let unpack = |bytes: &&[u8]| match zstd::decode_all(*bytes) {
        Ok(unpacked) => unpacked,
        Err(_) => bytes.to_vec(),
    };
    TRACES.iter().map(unpack).collect()
}
