//! Follows control through the functions of a program and tells what happens to stacks on the way.
//!
//! Paths that meet are joined, to a fixed point; then every block that control may reach is told once, with what is
//! known for certain. Branches on known numbers go one way, content of read-only sections counts as known: what the
//! verifier never walks should not be told. Not here: what is wrong (`super`).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use super::callees::{self, Callback, Memory, Size};
use super::value::{State, Value, extended};
use crate::exec::link::Function;
use crate::exec::op::{AtomicOp, Op, Wide};
use crate::image::{MapImage, MapOrigin, ObjectImage};
use crate::maps::kind;

/// A program before its references are resolved.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub image: &'a ObjectImage,
    pub ops: &'a [Op],
    pub functions: &'a [Function],
}

/// Something that happens at an instruction.
#[derive(Debug)]
pub(super) enum Event {
    /// Control goes on at an instruction, also the first one of a function that is called.
    Reaches(u32, State),
    /// Memory is accessed at an offset in the frame of a function; by a callee if that is named.
    Touches { function: u32, at: i64, bytes: u64, register: u8, callee: Option<String> },
    /// A function is called, or its address taken.
    Calls { function: u32, directly: bool },
    /// A function is given to a callee, which calls it before it returns, or later.
    GivesAway { function: u32, later: bool },
    /// `bpf_tail_call()`.
    TailCall,
}

impl Subject<'_> {
    /// The function that an instruction belongs to.
    pub(super) fn function_of(&self, insn: u32) -> u32 {
        (self.functions.partition_point(|function| function.start <= insn) - 1) as u32
    }

    /// Tells what happens at each instruction that control may reach.
    pub(super) fn tell(&self, exception: Option<u32>, mut tell: impl FnMut(u32, Event)) {
        let leaders = self.leaders();
        let mut known: BTreeMap<u32, State> = BTreeMap::new();
        let mut open = BTreeSet::new();
        let mut reached: Vec<(u32, State)> = [Some(0), exception]
            .into_iter()
            .flatten()
            .map(|start| (start, State::entry(self.function_of(start))))
            .collect();
        loop {
            for (insn, state) in reached.drain(..) {
                let changed = match known.entry(insn) {
                    Entry::Vacant(place) => {
                        place.insert(state);
                        true
                    }
                    Entry::Occupied(mut before) => before.get_mut().meet(&state),
                };
                if changed {
                    open.insert(insn);
                }
            }
            let Some(start) = open.pop_first() else { break };
            self.block(start, known[&start].clone(), &leaders, &mut |_, event| {
                if let Event::Reaches(insn, state) = event {
                    reached.push((insn, state));
                }
            });
        }
        for (start, state) in known {
            self.block(start, state, &leaders, &mut tell);
        }
    }

    /// Instructions at which paths may meet.
    fn leaders(&self) -> BTreeSet<u32> {
        let targets = self.ops.iter().filter_map(|op| op.target());
        targets.chain(self.functions.iter().map(|function| function.start)).collect()
    }

    /// Follows control from an instruction to where it divides or meets others.
    fn block(
        &self,
        start: u32,
        mut state: State,
        leaders: &BTreeSet<u32>,
        tell: &mut impl FnMut(u32, Event),
    ) {
        let mut at = start;
        loop {
            let op = self.ops[at as usize];
            let next = at + if matches!(op, Op::LoadImm { .. }) { 2 } else { 1 };
            match op {
                Op::Exit => return,
                Op::Jump { target } => return tell(at, Event::Reaches(target, state)),
                Op::MayGoto { target } => tell(at, Event::Reaches(target, state.clone())),
                Op::Branch { cond, wide, dst, src, target } => {
                    let taken = state.decided(cond, wide, dst, src);
                    if taken != Some(false) {
                        tell(at, Event::Reaches(target, state.clone()));
                    }
                    if taken == Some(true) {
                        return;
                    }
                }
                _ => {
                    if !self.step(at, op, &mut state, tell) {
                        return;
                    }
                }
            }
            if leaders.contains(&next) {
                return tell(at, Event::Reaches(next, state));
            }
            at = next;
        }
    }

    /// One instruction that is no jump; whether control goes on behind it.
    fn step(&self, at: u32, op: Op, state: &mut State, tell: &mut impl FnMut(u32, Event)) -> bool {
        match op {
            Op::Alu { op, wide, dst, src } => state.compute(op, wide, dst, src),
            Op::Neg { wide, dst } => state.convert(dst, dst, |value| {
                let value = value.wrapping_neg();
                if wide { value } else { u64::from(value as u32) }
            }),
            Op::MovSx { wide, dst, src, bits } => state.convert(dst, src, |value| {
                let value = extended(value, bits / 8, true);
                if wide { value } else { u64::from(value as u32) }
            }),
            Op::Swap { dst, bits } => state.convert(dst, dst, |value| value.swap_bytes() >> (64 - bits)),
            Op::Truncate { dst, bits } => state.convert(dst, dst, |value| extended(value, bits / 8, false)),
            Op::LoadImm { dst, value } => {
                let value = self.immediate(value);
                if let Value::Function(function) = value {
                    tell(at, Event::Calls { function, directly: false });
                }
                state.set(dst, value);
            }
            Op::Load { dst, src, off, bytes, signed } => {
                let value = self.load(at, state, (src, off, bytes, signed), tell);
                state.set(dst, value);
            }
            Op::Store { dst, src, off, bytes } => {
                let value = state.operand(src);
                self.store(at, state, (dst, off, bytes), value, tell);
            }
            Op::Atomic { op, fetch, dst, src, off, bytes } => {
                let value = state.get(src);
                state.store_elsewhere(value);
                if let Value::Frame(_, at) = state.get(dst) {
                    let at = at.saturating_add(off.into());
                    state.lose(at, at.saturating_add(bytes.into()));
                }
                self.store(at, state, (dst, off, bytes), Value::Unknown, tell);
                match op {
                    AtomicOp::Cmpxchg => state.set(0, Value::Unknown),
                    _ if fetch => state.set(src, Value::Unknown),
                    _ => {}
                }
            }
            Op::CallLocal { target } => self.call_local(at, target, state, tell),
            Op::CallHelper { id } => return self.call(at, state, &Callee::helper(id), tell),
            Op::CallKfunc { id } => return self.call(at, state, &self.kfunc(id), tell),
            // Linking makes the others, after this.
            _ => {}
        }
        true
    }

    fn immediate(&self, value: Wide) -> Value {
        match value {
            Wide::Value(value) => Value::Number(value),
            Wide::Map(map) => Value::Map(map),
            Wide::MapValue(map, at) => Value::Element(map, at.into()),
            Wide::Symbol(_) => Value::Address,
            Wide::Function(start) => Value::Function(self.function_of(start)),
        }
    }

    /// What a load from `(register, offset, bytes, signed)` yields.
    fn load(
        &self,
        insn: u32,
        state: &State,
        (src, off, bytes, signed): (u8, i16, u8, bool),
        tell: &mut impl FnMut(u32, Event),
    ) -> Value {
        match state.get(src) {
            Value::Frame(function, at) => {
                let at = at.saturating_add(off.into());
                tell(insn, touch(function, at, bytes, src));
                if function == self.function_of(insn) {
                    state.load(at, bytes, signed)
                } else {
                    Value::Unknown
                }
            }
            Value::Element(map, at) => {
                let map = &self.image.maps[map as usize];
                let content = frozen(map, at.saturating_add(off.into()), bytes);
                content.map_or(Value::Unknown, |value| Value::Number(extended(value, bytes, signed)))
            }
            _ => Value::Unknown,
        }
    }

    fn store(
        &self,
        insn: u32,
        state: &mut State,
        (dst, off, bytes): (u8, i16, u8),
        value: Value,
        tell: &mut impl FnMut(u32, Event),
    ) {
        let Value::Frame(function, at) = state.get(dst) else { return state.store_elsewhere(value) };
        let at = at.saturating_add(off.into());
        tell(insn, touch(function, at, bytes, dst));
        if function == self.function_of(insn) {
            state.store(at, bytes, value);
        } else {
            state.store_elsewhere(value);
        }
    }

    fn call_local(&self, at: u32, target: u32, state: &mut State, tell: &mut impl FnMut(u32, Event)) {
        let function = self.function_of(target);
        tell(at, Event::Calls { function, directly: true });
        let mut entry = State::entry(function);
        entry.registers[1..6].copy_from_slice(&state.registers[1..6]);
        tell(at, Event::Reaches(target, entry));
        state.called(self.function_of(at), true);
    }

    fn kfunc(&self, id: u32) -> Callee {
        let found = self.image.kfuncs.iter().find(|(known, _)| *known == id);
        let name = found.map_or("", |(_, name)| name);
        Callee {
            name: format!("kfunc {name}"),
            memory: callees::kfunc_memory(name),
            callback: callees::kfunc_callback(name),
            lookup: false,
            ends: name == "bpf_throw",
            tail: false,
        }
    }

    /// A call of a helper or kfunc; whether it returns.
    fn call(&self, at: u32, state: &mut State, callee: &Callee, tell: &mut impl FnMut(u32, Event)) -> bool {
        for (register, size) in callee.memory {
            let Value::Frame(function, place) = state.get(*register) else { continue };
            let Some(bytes) = self.size(*size, state).filter(|bytes| *bytes > 0) else { continue };
            let callee = Some(callee.name.clone());
            tell(at, Event::Touches { function, at: place, bytes, register: *register, callee });
        }
        if callee.tail {
            tell(at, Event::TailCall);
        }
        if let Some(callback) = callee.callback {
            self.give_away(at, state, callback, tell);
        }
        let found = callee.lookup && self.finds(at, state);
        state.called(self.function_of(at), callee.callback.is_some());
        if found {
            state.set(0, Value::Address);
        }
        !callee.ends
    }

    /// Whether a lookup finds an element for certain: in an array, by a constant index. Since Linux 6.15 the verifier
    /// takes what follows if there is none for code that is never reached.
    fn finds(&self, at: u32, state: &State) -> bool {
        let (Value::Map(map), Value::Frame(function, key)) = (state.get(1), state.get(2)) else {
            return false;
        };
        let map = &self.image.maps[map as usize];
        let index = (function == self.function_of(at)).then(|| state.load(key, 4, false));
        matches!(map.map_type, kind::ARRAY | kind::PERCPU_ARRAY)
            && matches!(index, Some(Value::Number(index)) if index < map.max_entries.into())
    }

    fn give_away(&self, at: u32, state: &State, callback: Callback, tell: &mut impl FnMut(u32, Event)) {
        let (register, context, later) = match callback {
            Callback::Within { register, context } => (register, context, false),
            Callback::Later { register } => (register, None, true),
        };
        let Value::Function(function) = state.get(register) else { return };
        tell(at, Event::GivesAway { function, later });
        let mut entry = State::entry(function);
        if let Some((from, to)) = context {
            entry.set(to, state.get(from));
        }
        tell(at, Event::Reaches(self.functions[function as usize].start, entry));
    }

    /// Bytes of an argument, if they are known.
    fn size(&self, size: Size, state: &State) -> Option<u64> {
        let map = || match state.get(1) {
            Value::Map(map) => self.image.maps.get(map as usize),
            _ => None,
        };
        match size {
            Size::Key => map().map(|map| map.key_size.into()),
            Size::Value => map().map(|map| map.value_size.into()),
            Size::Bytes(bytes) => Some(bytes),
            Size::Register(register) => match state.get(register) {
                Value::Number(bytes) => Some(bytes),
                _ => None,
            },
        }
    }
}

/// A helper or kfunc.
struct Callee {
    name: String,
    memory: Memory,
    callback: Option<Callback>,
    /// Looks an element up.
    lookup: bool,
    /// Never returns.
    ends: bool,
    tail: bool,
}

impl Callee {
    fn helper(id: u32) -> Callee {
        Callee {
            name: format!("helper {}", crate::helpers::helper_name(id).unwrap_or("without a name")),
            memory: callees::helper_memory(id),
            callback: callees::helper_callback(id),
            lookup: id == 1,
            ends: false,
            tail: id == 12,
        }
    }
}

fn touch(function: u32, at: i64, bytes: u8, register: u8) -> Event {
    Event::Touches { function, at, bytes: bytes.into(), register, callee: None }
}

/// Content of a map that nobody changes once programs are loaded.
fn frozen(map: &MapImage, at: i64, bytes: u8) -> Option<u64> {
    if !matches!(map.origin, MapOrigin::Rodata | MapOrigin::Kconfig) {
        return None;
    }
    let at = usize::try_from(at).ok()?;
    let content = map.initial.get(at..at.checked_add(bytes.into())?)?;
    let mut word = [0; 8];
    word[..content.len()].copy_from_slice(content);
    Some(u64::from_le_bytes(word))
}
