//! Set-up files: what the user half of an object would have done before the scheduler attaches.
//!
//! `[globals]`, `[[global]]`, `[maps]` and `[ops]` change the image before it is compiled, as a user half does
//! between opening and loading; `[[step]]` fills maps and runs `SEC("syscall")` programs in every instance
//! before `ops.init()`. docs/set-up-files.md describes the format. Not here: flags (`ops`), steps (`steps`), numbers
//! (`expression`), typed values (`value`), facts of the machine (`facts`).

mod expression;
mod facts;
mod ops;
mod steps;
mod value;

pub use expression::{Scope, evaluate};
pub use facts::Facts;

use crate::inputs::library;
use anyhow::{Context, Result, anyhow};
use schedlab_bpf::btf::Btf;
use schedlab_bpf::image::ObjectImage;
use schedlab_sim::ext::SetUp;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steps::{StepText, Steps};
use toml::{Spanned, Value};

/// More than any array of a scheduler needs.
const ROUNDS_MAX: i128 = 1 << 20;

/// A set-up file as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    /// File name of the object it belongs to; any if absent.
    object: Option<String>,
    /// Global variables: path to value.
    #[serde(default)]
    globals: BTreeMap<String, Spanned<Value>>,
    /// The same, repeated for each part of the machine.
    #[serde(default)]
    global: Vec<Spanned<GlobalText>>,
    /// Global arrays that are alone in their sections: their lengths.
    #[serde(default)]
    resize: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    maps: BTreeMap<String, Spanned<MapText>>,
    /// Data members of `struct sched_ext_ops`.
    #[serde(default)]
    ops: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    step: Vec<Spanned<StepText>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GlobalText {
    each: Option<facts::Each>,
    /// Rounds for each of them, counted by `i`.
    times: Option<Value>,
    name: String,
    value: Value,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MapText {
    max_entries: Option<Value>,
    value_size: Option<Value>,
    /// Slots of an array of maps to put maps into.
    inner: Option<Value>,
}

/// What a set-up file made of an image.
pub struct Applied {
    /// What is to be done once it is loaded.
    pub steps: Option<Arc<dyn SetUp>>,
    /// Flags of `struct sched_ext_ops` that the kernel does not have.
    pub left_out: Vec<String>,
}

/// A set-up file that was read.
#[derive(Clone, Debug)]
pub struct SetupFile {
    path: PathBuf,
    source: String,
    file: FileText,
}

impl SetupFile {
    /// Reads a file, or one of the library by its name.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, with its line.
    pub fn read(path: &Path) -> Result<SetupFile> {
        let known = path.to_str().filter(|_| !path.exists());
        if let Some(setup) = known.and_then(SetupFile::of_library) {
            return Ok(setup);
        }
        let source = std::fs::read_to_string(path).with_context(|| {
            format!("cannot read {}; the library has {}", path.display(), library::names(library::SETUPS))
        })?;
        let file = toml::from_str(&source).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        Ok(SetupFile { path: path.to_owned(), source, file })
    }

    /// The files of the library for a scheduler, by the name in its `struct sched_ext_ops`: that of the newest version
    /// is called so, those of others `NAME-VERSION`.
    pub fn all_of_library(name: &str) -> impl Iterator<Item = SetupFile> {
        let entries = library::SETUPS.iter().map(|(known, _)| *known);
        let own = move |known: &&str| known.split('-').next() == Some(name);
        entries.filter(own).filter_map(SetupFile::of_library)
    }

    /// The file of the library with this name.
    pub fn of_library(name: &str) -> Option<SetupFile> {
        let source = library::find(library::SETUPS, name)?;
        let file = toml::from_str(source).expect("tests read every file of the library");
        let path = PathBuf::from(format!("setups/{name}.setup.toml"));
        Some(SetupFile { path, source: source.to_owned(), file })
    }

    /// The file that lies beside an object: `NAME.setup.toml` for `NAME.bpf.o` or `NAME.o`.
    pub fn beside(object: &str) -> Option<PathBuf> {
        let stem = object.strip_suffix(".bpf.o").or(object.strip_suffix(".o"))?;
        let path = PathBuf::from(format!("{stem}.setup.toml"));
        path.is_file().then_some(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is for this object file.
    pub fn is_for(&self, object: &str) -> bool {
        let name = Path::new(object).file_name().map(|name| name.to_string_lossy().into_owned());
        self.file.object.is_none() || self.file.object == name
    }

    /// Why no object of a run took it, and what to do.
    pub fn why_unused(&self) -> String {
        let path = self.path.display();
        match &self.file.object {
            Some(object) => format!(
                "--setup {path}: it is for {object}, and no scheduler here is that file: name it with --scheduler, or \
                 change `object` in the set-up file"
            ),
            None => format!(
                "--setup {path}: no scheduler here takes it; those of the library need none, and an object takes the \
                 first set-up file that is for it: name the object's file with --scheduler"
            ),
        }
    }

    /// Changes the image as a user half does before it loads, and returns what is to be done after that.
    ///
    /// # Errors
    /// What does not fit the object, with the file's line.
    pub fn apply(&self, image: &mut ObjectImage, facts: &Facts, kernel: &Btf) -> Result<Applied> {
        let mut left_out = Vec::new();
        for (name, value) in &self.file.resize {
            let scope = Scope { variables: facts.variables(), object: &image.btf.clone(), kernel };
            let length = value::plain(value.get_ref(), &scope).and_then(|length| {
                let length = u32::try_from(length).map_err(|_| format!("{length} is no length"))?;
                image.resize_array(name, length).map_err(|error| error.to_string())
            });
            length.map_err(|problem| self.at(value.span().start, problem))?;
        }
        for (name, value) in &self.file.globals {
            let scope = Scope { variables: facts.variables(), object: &image.btf.clone(), kernel };
            let set = set_global(image, name, value.get_ref(), &scope);
            set.map_err(|problem| self.at(value.span().start, problem))?;
        }
        for global in &self.file.global {
            let text = global.get_ref();
            for variables in facts.each(text.each) {
                let scope = Scope { variables, object: &image.btf.clone(), kernel };
                let set = rounds(text.times.as_ref(), &scope).and_then(|rounds| {
                    rounds.into_iter().try_for_each(|variables| {
                        let scope = Scope { variables, ..scope.clone() };
                        set_global(image, &text.name, &text.value, &scope)
                    })
                });
                set.map_err(|problem| self.at(global.span().start, problem))?;
            }
        }
        for (name, map) in &self.file.maps {
            let scope = Scope { variables: facts.variables(), object: &image.btf.clone(), kernel };
            let changed = change_map(image, name, map.get_ref(), &scope);
            changed.map_err(|problem| self.at(map.span().start, problem))?;
        }
        for (name, value) in &self.file.ops {
            let scope = Scope { variables: facts.variables(), object: &image.btf.clone(), kernel };
            let changed = ops::change(image, name, value.get_ref(), &scope);
            left_out.extend(changed.map_err(|problem| self.at(value.span().start, problem))?);
        }
        Ok(Applied { steps: self.steps(image, facts, kernel)?, left_out })
    }

    /// The steps, if there are any, checked against the image.
    fn steps(&self, image: &ObjectImage, facts: &Facts, kernel: &Btf) -> Result<Option<Arc<dyn SetUp>>> {
        if self.file.step.is_empty() {
            return Ok(None);
        }
        let steps = &self.file.step;
        for step in steps {
            let fits = steps::check(step.get_ref(), step.span().start, image);
            fits.map_err(|(byte, problem)| self.at(byte, problem))?;
        }
        let steps = steps.iter().map(|step| (self.place(step.span().start), step.get_ref().clone()));
        Ok(Some(Arc::new(Steps::new(steps.collect(), image, facts, kernel))))
    }

    /// `FILE:LINE` of a byte of the file.
    fn place(&self, byte: usize) -> String {
        let line = self.source[..byte.min(self.source.len())].matches('\n').count() + 1;
        format!("{}:{line}", self.path.display())
    }

    fn at(&self, byte: usize, problem: String) -> anyhow::Error {
        anyhow!("{}: {problem}", self.place(byte))
    }
}

/// What `times` repeats: the variables of each round, `i` among them; one round without it.
fn rounds(times: Option<&Value>, scope: &Scope<'_>) -> Result<Vec<BTreeMap<String, i128>>, String> {
    let Some(times) = times else { return Ok(vec![scope.variables.clone()]) };
    let count = value::plain(times, scope)?;
    if !(0..=ROUNDS_MAX).contains(&count) {
        return Err(format!("`times` is {count} and out of bounds: 0 to {ROUNDS_MAX}"));
    }
    let round = |i: i128| {
        let mut variables = scope.variables.clone();
        variables.insert("i".to_owned(), i);
        variables
    };
    Ok((0..count).map(round).collect())
}

/// A path like `llc_of[cpu + 1].id` with its indices worked out.
fn path_of(text: &str, scope: &Scope<'_>) -> Result<String, String> {
    let mut path = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        let (index, after) = after.split_once(']').ok_or(format!("`{text}`: `[` without `]`"))?;
        path += &format!("{before}[{}]", evaluate(index, scope)?.value);
        rest = after;
    }
    Ok(path + rest)
}

fn set_global(image: &mut ObjectImage, name: &str, value: &Value, scope: &Scope<'_>) -> Result<(), String> {
    let path = path_of(name.trim_end_matches('?'), scope)?;
    if name.ends_with('?') && image.locate(&path).is_err() {
        return Ok(());
    }
    let place = image.locate(&path).map_err(|error| error.to_string())?;
    let (is_number, unit) = (place.is_number(&image.btf), image.unit_of(&path));
    if is_number && !matches!(value, Value::Table(_)) {
        let number = match value {
            Value::String(text) => evaluate(text, scope)?.in_unit(&unit)?,
            value => value::plain(value, scope)?,
        };
        return image.set_global(&path, number).map_err(|error| error.to_string());
    }
    let (start, size) = (place.offset as usize, place.size as usize);
    let bytes = image.maps[place.map].initial.get_mut(start..start + size);
    let bytes = bytes.ok_or(format!("`{path}` lies outside of its section"))?;
    value::encode(value, place.type_id, bytes, scope).map_err(|problem| format!("`{path}`: {problem}"))
}

fn change_map(image: &mut ObjectImage, name: &str, text: &MapText, scope: &Scope<'_>) -> Result<(), String> {
    let known: Vec<String> = image.maps.iter().map(|map| map.name.clone()).collect();
    let index = image.maps.iter().position(|map| map.name == name).ok_or_else(|| {
        let near = schedlab_bpf::object::knobs::nearest(name, known.iter().map(String::as_str));
        format!("the object has no map `{name}`{near}")
    })?;
    let size = |value: &Value| {
        let number = value::plain(value, scope)?;
        u32::try_from(number).map_err(|_| format!("{number} is out of bounds: 0 to {}", u32::MAX))
    };
    let map = &mut image.maps[index];
    if let Some(entries) = &text.max_entries {
        map.max_entries = size(entries)?;
    }
    if let Some(bytes) = &text.value_size {
        map.value_size = size(bytes)?;
        map.initial.resize(if map.initial.is_empty() { 0 } else { map.value_size as usize }, 0);
    }
    if let Some(slots) = &text.inner
        && !image.fill_inner(index, size(slots)?)
    {
        return Err(format!("`{name}` is no map of maps with a definition of its inner maps"));
    }
    Ok(())
}
