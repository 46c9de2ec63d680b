//! The steps of a set-up file: run a program, fill a map, write shared memory, send a message.
//!
//! Everything that can be wrong with a step before it runs is found when the file is applied; what a program
//! answers is only known when it runs.

use super::expression::{Scope, evaluate};
use super::facts::{Each, Facts};
use super::value::{encode, encode_untyped, member_of, plain};
use schedlab_bpf::btf::{Btf, Kind};
use schedlab_bpf::image::ObjectImage;
use schedlab_bpf::maps::kind;
use schedlab_bpf::object::knobs::nearest;
use schedlab_sim::ext::{SetUp, UserHalf};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Spanned, Table, Value};

/// A step as it is written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StepText {
    each: Option<Each>,
    /// `attach`: after `ops.init()` instead of before.
    after: Option<After>,
    /// Rounds for each of them, counted by `i`.
    times: Option<Value>,
    /// Skipped unless this is not 0.
    when: Option<Value>,
    /// A program to run.
    run: Option<String>,
    /// Members of the context it gets.
    with: BTreeMap<String, Spanned<Value>>,
    /// Members to keep after it: variable to member.
    keep: BTreeMap<String, String>,
    /// What it must return; 0 unless said.
    returns: Option<Value>,
    /// A map to fill.
    update: Option<String>,
    key: Option<Value>,
    value: Option<Value>,
    /// Whose copy of a per-CPU value; all of them unless said.
    cpu: Option<Value>,
    /// A global variable to set, `.data` and `.bss` only.
    set: Option<String>,
    /// An address to write to, and 64-bit words to write there.
    poke: Option<String>,
    words: Option<Value>,
    /// A user ring buffer to send a message into; `value` is the message, `type` its type.
    send: Option<String>,
    #[serde(rename = "type")]
    message_type: Option<String>,
    /// Steps to do for each round.
    #[serde(rename = "do")]
    inner: Vec<StepText>,
}

/// What a step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum After {
    /// The scheduler is attached.
    Attach,
}

/// Steps that are ready to be done.
pub(super) struct Steps {
    steps: Vec<(String, StepText)>,
    image: ObjectImage,
    facts: Facts,
    kernel: Btf,
}

type Variables = BTreeMap<String, i128>;

impl Steps {
    /// Steps with their places, which [`check`] has seen.
    pub(super) fn new(
        steps: Vec<(String, StepText)>,
        image: &ObjectImage,
        facts: &Facts,
        kernel: &Btf,
    ) -> Steps {
        Steps { steps, image: image.clone(), facts: facts.clone(), kernel: kernel.clone() }
    }

    fn step(&self, step: &StepText, outer: &Variables, user: &mut UserHalf<'_>) -> Result<Variables, String> {
        let mut kept = Variables::new();
        for mut variables in self.facts.each(step.each) {
            if step.each.is_none() {
                variables.extend(outer.iter().map(|(name, value)| (name.clone(), *value)));
            } else {
                let own = outer.iter().filter(|(name, _)| !variables.contains_key(*name));
                let own: Variables = own.map(|(name, value)| (name.clone(), *value)).collect();
                variables.extend(own);
            }
            for variables in super::rounds(step.times.as_ref(), &self.scope(&variables))? {
                self.round(step, variables, &mut kept, user)?;
            }
        }
        Ok(kept)
    }

    fn round(
        &self,
        step: &StepText,
        mut variables: Variables,
        kept: &mut Variables,
        user: &mut UserHalf<'_>,
    ) -> Result<(), String> {
        if let Some(condition) = &step.when
            && plain(condition, &self.scope(&variables))? == 0
        {
            return Ok(());
        }
        kept.extend(self.act(step, &variables, user)?);
        variables.extend(kept.clone());
        for inner in &step.inner {
            let found = self.step(inner, &variables, user)?;
            variables.extend(found);
        }
        Ok(())
    }

    fn scope(&self, variables: &Variables) -> Scope<'_> {
        Scope { variables: variables.clone(), object: &self.image.btf, kernel: &self.kernel }
    }

    fn act(
        &self,
        step: &StepText,
        variables: &Variables,
        user: &mut UserHalf<'_>,
    ) -> Result<Variables, String> {
        let scope = self.scope(variables);
        let missing = |what: &str| format!("`{what}` is missing");
        if let Some(program) = &step.run {
            return match optional(program, |name| program_index(&self.image, name)) {
                Some(program) => self.run_program(program, step, &scope, user),
                None => Ok(Variables::new()),
            };
        }
        if let Some(map) =
            step.update.as_ref().and_then(|map| optional(map, |map| map_index(&self.image, map)))
        {
            let key = step.key.as_ref().ok_or_else(|| missing("key"))?;
            let value = step.value.as_ref().ok_or_else(|| missing("value"))?;
            let cpu = step.cpu.as_ref().map(|cpu| plain(cpu, &scope)).transpose()?;
            self.update(map, key, value, cpu, &scope, user)
                .map_err(|problem| format!("map {map}: {problem}"))?;
        }
        if let Some(name) = &step.set {
            let value = step.value.as_ref().ok_or_else(|| missing("value"))?;
            match name.strip_suffix('?') {
                Some(name) if self.image.locate(&super::path_of(name, &scope)?).is_err() => {}
                bare => self.set(bare.unwrap_or(name), value, &scope, user)?,
            }
        }
        if let Some(address) = &step.poke {
            let words = step.words.as_ref().ok_or_else(|| missing("words"))?;
            poke(address, words, &scope, user)?;
        }
        let find = |name: &str| map_index(&self.image, name);
        if let Some(map) = step.send.as_deref().and_then(|map| optional(map, find)) {
            let value = step.value.as_ref().ok_or_else(|| missing("value"))?;
            let wanted = step.message_type.as_deref().ok_or_else(|| missing("type"))?;
            let id = self.image.btf.find_struct(wanted).ok_or(format!("no struct {wanted} in the object"))?;
            let mut bytes = vec![0; self.image.btf.size_of(id).unwrap_or(0) as usize];
            encode(value, id, &mut bytes, &scope)?;
            let map_index = map_index(&self.image, map)?;
            if !user.send(map_index, &bytes) {
                return Err(format!("map {map} is no user ring buffer"));
            }
        }
        Ok(Variables::new())
    }

    fn run_program(
        &self,
        name: &str,
        step: &StepText,
        scope: &Scope<'_>,
        user: &mut UserHalf<'_>,
    ) -> Result<Variables, String> {
        let index = program_index(&self.image, name)?;
        let context_type = context_type(&self.image, name);
        let size = context_type.and_then(|id| self.image.btf.size_of(id)).unwrap_or(0);
        let mut context = vec![0; (size as usize).max(8)];
        if let (Some(id), false) = (context_type, step.with.is_empty()) {
            let members = step.with.iter().map(|(name, value)| (name.clone(), value.get_ref().clone()));
            encode(&Value::Table(members.collect::<Table>()), id, &mut context, scope)
                .map_err(|problem| format!("{name}: with: {problem}"))?;
        }
        let returned = user.run(index, &mut context)?;
        let wanted = step.returns.as_ref().map_or(Ok(0), |wanted| plain(wanted, scope))?;
        if i128::from(returned) != wanted {
            return Err(format!("{name} returned {returned}, not {wanted}"));
        }
        let mut kept = Variables::new();
        for (variable, member) in &step.keep {
            let id = context_type.ok_or(format!("{name} has no context of a known type"))?;
            let found = self.image.btf.member(id, member);
            let found = found.ok_or(format!("the context of {name} has no member {member}"))?;
            let bytes = self.image.btf.size_of(found.type_id).unwrap_or(0).min(8) as usize;
            let start = found.byte_offset() as usize;
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&context[start..start + bytes]);
            kept.insert(variable.clone(), u64::from_le_bytes(word).into());
        }
        Ok(kept)
    }

    fn update(
        &self,
        map: &str,
        key: &Value,
        value: &Value,
        cpu: Option<i128>,
        scope: &Scope<'_>,
        user: &mut UserHalf<'_>,
    ) -> Result<(), String> {
        let index = map_index(&self.image, map)?;
        let info = &self.image.maps[index];
        if info.map_type == kind::PROG_ARRAY {
            return self.set_program(index, key, value, scope, user);
        }
        let bytes_of = |value: &Value, id: u32, size: u32| {
            let mut bytes = vec![0; size as usize];
            match id {
                0 => encode_untyped(value, &mut bytes, scope)?,
                id => encode(value, id, &mut bytes, scope)?,
            }
            Ok::<Vec<u8>, String>(bytes)
        };
        let key = bytes_of(key, info.key_type, info.key_size).map_err(|problem| format!("key: {problem}"))?;
        let value = bytes_of(value, info.value_type, info.value_size)
            .map_err(|problem| format!("value: {problem}"))?;
        let cpu = cpu.map(|cpu| u32::try_from(cpu).map_err(|_| format!("{cpu} is no CPU"))).transpose()?;
        user.update(index, &key, &value, cpu)
    }

    /// Puts the program named by a value into a slot of an array of programs.
    fn set_program(
        &self,
        map: usize,
        key: &Value,
        value: &Value,
        scope: &Scope<'_>,
        user: &mut UserHalf<'_>,
    ) -> Result<(), String> {
        let slot = plain(key, scope)?;
        let name = value.as_str().ok_or("its values are names of programs")?;
        let program = program_index(&self.image, name)?;
        let put = u32::try_from(slot).is_ok_and(|slot| user.set_program(map, slot, program));
        let last = self.image.maps[map].max_entries.saturating_sub(1);
        if put { Ok(()) } else { Err(format!("slot {slot} is out of bounds: 0 to {last}")) }
    }

    fn set(
        &self,
        name: &str,
        value: &Value,
        scope: &Scope<'_>,
        user: &mut UserHalf<'_>,
    ) -> Result<(), String> {
        let path = super::path_of(name, scope)?;
        let place = self.image.locate(&path).map_err(|error| error.to_string())?;
        let mut bytes = vec![0; place.size as usize];
        encode(value, place.type_id, &mut bytes, scope).map_err(|problem| format!("`{path}`: {problem}"))?;
        let address = user.values(place.map) + u64::from(place.offset);
        if user.write(address, &bytes) { Ok(()) } else { Err(format!("`{path}` cannot be written")) }
    }
}

impl SetUp for Steps {
    fn run(&self, user: &mut UserHalf<'_>) -> Result<(), String> {
        self.all(None, user)
    }

    fn attached(&self, user: &mut UserHalf<'_>) -> Result<(), String> {
        self.all(Some(After::Attach), user)
    }
}

impl Steps {
    /// Does the steps of one time.
    fn all(&self, after: Option<After>, user: &mut UserHalf<'_>) -> Result<(), String> {
        let mut variables = self.facts.variables();
        for (place, step) in self.steps.iter().filter(|(_, step)| step.after == after) {
            let kept = self.step(step, &variables, user).map_err(|problem| format!("{place}: {problem}"))?;
            variables.extend(kept);
        }
        Ok(())
    }
}

fn poke(address: &str, words: &Value, scope: &Scope<'_>, user: &mut UserHalf<'_>) -> Result<(), String> {
    let mut at = evaluate(address, scope)?.value as u64;
    let Value::Array(words) = words else { return Err("words: write a list".to_owned()) };
    for word in words {
        let value = plain(word, scope)? as u64;
        if !user.write(at, &value.to_le_bytes()) {
            return Err(format!("nothing can be written at {at:#x}"));
        }
        at += 8;
    }
    Ok(())
}

/// A mistake and the byte of the file where it is.
type Mistake = (usize, String);

/// What a step names exists, and it does something. `at` is where it begins.
pub(super) fn check(step: &StepText, at: usize, image: &ObjectImage) -> Result<(), Mistake> {
    check_names(step, image).map_err(|problem| (at, problem))?;
    check_members(step, image)?;
    step.inner.iter().try_for_each(|inner| check(inner, at, image))
}

fn check_names(step: &StepText, image: &ObjectImage) -> Result<(), String> {
    let actions = [&step.run, &step.update, &step.set, &step.poke, &step.send];
    match actions.iter().filter(|action| action.is_some()).count() {
        0 if step.inner.is_empty() => {
            return Err("the step does nothing: run, update, set, poke or send".to_owned());
        }
        0 | 1 => {}
        _ => return Err("a step does one thing; write several steps, or `do = [...]`".to_owned()),
    }
    if let Some(program) = step.run.as_ref().filter(|program| !program.ends_with('?')) {
        program_index(image, program)?;
    }
    if let Some(map) = step.update.as_ref().or(step.send.as_ref()).filter(|map| !map.ends_with('?')) {
        map_index(image, map)?;
    }
    if step.inner.iter().any(|inner| inner.after.is_some()) {
        return Err("`after` belongs to the step that has `do`, not into it".to_owned());
    }
    Ok(())
}

/// What is given to a program are members of its context.
fn check_members(step: &StepText, image: &ObjectImage) -> Result<(), Mistake> {
    let program = step.run.as_deref().map(|program| program.trim_end_matches('?'));
    let Some((program, context)) = program.and_then(|program| Some((program, context_type(image, program)?)))
    else {
        return Ok(());
    };
    step.with.iter().try_for_each(|(name, value)| {
        let found = member_of(&image.btf, context, name);
        found.map(drop).map_err(|problem| (value.span().start, format!("{program}: with: {problem}")))
    })
}

/// A name without the `?` that lets it be absent; `None` if it has one and is absent.
fn optional(name: &str, find: impl Fn(&str) -> Result<usize, String>) -> Option<&str> {
    match name.strip_suffix('?') {
        Some(name) => find(name).is_ok().then_some(name),
        None => Some(name),
    }
}

fn map_index(image: &ObjectImage, name: &str) -> Result<usize, String> {
    image.maps.iter().position(|map| map.name == name).ok_or_else(|| {
        let near = nearest(name, image.maps.iter().map(|map| map.name.as_str()));
        format!("the object has no map `{name}`{near}")
    })
}

fn program_index(image: &ObjectImage, name: &str) -> Result<usize, String> {
    image.programs.iter().position(|program| program.name == name).ok_or_else(|| {
        let syscalls = image.programs.iter().filter(|program| program.section.starts_with("syscall"));
        let near = nearest(name, syscalls.map(|program| program.name.as_str()));
        format!("the object has no program `{name}`{near}")
    })
}

/// What the first argument of a program points to.
fn context_type(image: &ObjectImage, program: &str) -> Option<u32> {
    let types = &image.btf;
    let function = types.find_func(program)?;
    let Kind::Func { proto, .. } = types.kind(function) else { return None };
    let first = types.params(*proto).first()?;
    match types.resolved_kind(first.type_id) {
        Kind::Ptr(to) => types.resolve(*to).filter(|id| types.size_of(*id).is_some()),
        _ => None,
    }
}
