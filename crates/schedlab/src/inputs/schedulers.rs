//! Schedulers by name or file: embedded objects, object files, what they say of themselves.

use anyhow::{Context, Result, anyhow};
use schedlab_bpf::image::ObjectImage;
use schedlab_bpf::object::knobs;
use schedlab_model::knob::Knob;
use schedlab_model::machine::KernelVersion;
use schedlab_objects::SCHEDULERS;
use schedlab_sim::ext::kernel_btf;
use std::borrow::Cow;
use std::path::Path;

/// What a scheduler says of itself.
#[derive(Clone, Debug)]
pub struct Described {
    /// First sentence of its essay.
    pub summary: String,
    /// Its whole essay, without comment marks; empty for foreign objects.
    pub essay: String,
    /// Its knobs.
    pub knobs: Vec<Knob>,
    /// The loaded object.
    pub image: ObjectImage,
}

/// Names of the schedulers that come with the product.
pub fn library() -> Vec<&'static str> {
    SCHEDULERS.iter().map(|object| object.name).collect()
}

/// Schedulers of the past, to be asked for by name: nobody looks for one of them to run today.
const HISTORICAL: [&str; 5] = ["ingosched", "ingo_ll", "nicksched", "staircase", "cfs"];

/// Those of the library that `all` stands for.
pub fn everyday() -> Vec<&'static str> {
    library().into_iter().filter(|name| !HISTORICAL.contains(name)).collect()
}

/// Bytes of an object: of the library, or of a file.
pub fn bytes(name: &str) -> Result<Cow<'static, [u8]>> {
    if let Some(bytes) = schedlab_objects::scheduler(name) {
        return Ok(Cow::Borrowed(bytes));
    }
    if Path::new(name).is_file() {
        return std::fs::read(name).map(Cow::Owned).with_context(|| format!("cannot read {name}"));
    }
    let known = library().join(", ");
    Err(anyhow!("there is no scheduler '{name}': known are {known}, or the path of an object file"))
}

/// Loads an object against a kernel's types.
pub fn load(name: &str, kernel: KernelVersion) -> Result<ObjectImage> {
    if kernel < KernelVersion::V6_12 {
        return Err(anyhow!(schedlab_sim::SimError::NoSchedExt(kernel.to_string())).context(name.to_owned()));
    }
    ObjectImage::load(&bytes(name)?, name, &kernel_btf(kernel))
        .with_context(|| format!("{name} cannot be loaded for kernel {kernel}"))
}

/// Loads a scheduler of the library or a file and reads what it says of itself: for the newest kernel that it
/// loads for.
pub fn describe(name: &str) -> Result<Described> {
    let newest = describe_for(name, KernelVersion::V7_2);
    if newest.is_ok() {
        return newest;
    }
    let older = [KernelVersion::V6_18, KernelVersion::V6_12];
    older.into_iter().find_map(|kernel| describe_for(name, kernel).ok()).map_or(newest, Ok)
}

/// The same for a kernel.
pub fn describe_for(name: &str, kernel: KernelVersion) -> Result<Described> {
    let image = load(name, kernel)?;
    let source = SCHEDULERS.iter().find(|object| object.name == name).map_or("", |object| object.source);
    let essay = essay(source);
    let summary = essay.split_inclusive(". ").next().unwrap_or_default().trim().replace('\n', " ");
    Ok(Described { summary, essay, knobs: image.knobs().iter().map(knob).collect(), image })
}

/// The comment on top of a scheduler's source, without its marks.
fn essay(source: &str) -> String {
    let Some(comment) = source.split_once("/*").and_then(|(_, rest)| rest.split_once("*/")) else {
        return String::new();
    };
    let line = |line: &str| {
        let text = line.trim_start();
        text.strip_prefix("* ").or(text.strip_prefix('*')).unwrap_or(text).trim_end().to_owned()
    };
    comment.0.lines().map(line).collect::<Vec<_>>().join("\n").trim().to_owned()
}

fn knob(found: &knobs::Knob) -> Knob {
    let clamp = |value: i128| i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX });
    Knob {
        name: found.name.clone(),
        unit: found.unit.clone(),
        min: clamp(found.min),
        max: clamp(found.max),
        default: clamp(found.value),
        live: found.live,
        meaning: found.meaning.clone(),
    }
}
