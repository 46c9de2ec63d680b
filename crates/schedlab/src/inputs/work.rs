//! Which work is run: a workload file, an rt-app file, a recording, a built-in workload.

use super::library;
use anyhow::{Context, Result, anyhow, bail};
use schedlab_import::ImportOptions;
use schedlab_model::recording::{Recording, codec};
use schedlab_model::workload::{Workload, builtin, file, rtapp};
use std::path::Path;

/// Work as it was given.
#[derive(Debug)]
pub enum Work {
    /// Tasks and what they do.
    Workload(Box<Workload>),
    /// What was heard on a kernel.
    Recording(Box<Recording>),
}

/// Reads work by what it is called: files by their ending, names from the library.
pub fn load(text: &str) -> Result<Work> {
    let path = Path::new(text);
    let workload = |workload| Ok(Work::Workload(Box::new(workload)));
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("toml") => workload(file::parse(&read_text(path)?).with_context(|| text.to_owned())?),
        Some("json") => {
            let name = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
            workload(rtapp::parse(&name, &read_text(path)?).with_context(|| text.to_owned())?)
        }
        Some("slrec") => Ok(Work::Recording(Box::new(load_recording(path)?))),
        // What a killed recorder left behind.
        Some("part") if text.ends_with(".slrec.part") => Ok(Work::Recording(Box::new(load_recording(path)?))),
        _ => match builtin::make(text) {
            Some(made) => workload(made?),
            None => match library::find(library::WORKLOADS, text) {
                Some(found) => workload(file::parse(found).with_context(|| text.to_owned())?),
                None if path.is_file() => {
                    Ok(Work::Recording(Box::new(load_trace(path, &ImportOptions::default())?)))
                }
                None => Err(unknown(text)),
            },
        },
    }
}

fn unknown(text: &str) -> anyhow::Error {
    let builtin: Vec<&str> = builtin::BUILTINS.iter().map(|builtin| builtin.name).collect();
    let (builtin, files) = (builtin.join(", "), library::names(library::WORKLOADS));
    anyhow!(
        "there is no workload or file '{text}'; workloads: {builtin}, {files}. To record a command: schedlab compare -- {text}"
    )
}

fn read_text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Reads a recording, or the trace of another recorder, by what the file begins with.
pub fn load_trace(path: &Path, options: &ImportOptions) -> Result<Recording> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let name = || path.display().to_string();
    match schedlab_import::detect(&bytes) {
        Some(format) => schedlab_import::import(format, &bytes, options).with_context(name),
        None if bytes.starts_with(&codec::MAGIC) && options.target.is_some() => bail!(
            "{}: a recording has its target already, that it was made with; --target is for traces of other recorders",
            path.display()
        ),
        None if bytes.starts_with(&codec::MAGIC) => decode_recording(&bytes).with_context(name),
        None => bail!(
            "{}: unknown kind of file; schedlab reads .toml, rt-app's .json, .slrec, perf.data, trace-cmd's trace.dat and Perfetto traces",
            path.display()
        ),
    }
}

/// Reads a recording; a truncated one is used up to its last whole block, with a warning.
pub fn load_recording(path: &Path) -> Result<Recording> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    decode_recording(&bytes).with_context(|| path.display().to_string())
}

/// Reads a recording from memory.
pub fn decode_recording(bytes: &[u8]) -> Result<Recording> {
    let recording = codec::decode(bytes)?;
    if recording.events.is_empty() && recording.provenance.partial {
        bail!(
            "the recording is cut off before its first whole block of events: copy it again, or record it again"
        );
    }
    if recording.events.is_empty() {
        bail!("the recording holds no event: record for longer");
    }
    Ok(recording)
}
