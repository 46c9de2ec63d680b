//! Translation of calls: host functions directly, simple answers and array look-ups inline; and the exits
//! native code takes after a fault.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{Inst, InstBuilder, Value, types};
use cranelift_module::{Linkage, Module};

use super::function::{Translator, flags};
use super::{near, signature};
use crate::exec::FaultKind;
use crate::exec::context::{ENDS, FAULTED_OFFSET, Ran, RawContext, raise};
use crate::exec::layout::STACK_BYTES_FRAME;
use crate::exec::run::tail_call;
use crate::exec::target::{Action, ContextField, Entry};
use crate::maps::kind;

/// What native code calls to report a fault: context, place (program and instruction), detail, instructions
/// executed. It gives what the function returns.
pub(super) type FaultExit = unsafe extern "C" fn(*mut RawContext, u64, u64, u64) -> Ran;

/// # Safety
/// For all fault exits: `raw` must be the live context of the running instance.
unsafe fn place(raw: *mut RawContext, place: u64, kind: Option<FaultKind>, executed: u64) -> Ran {
    // SAFETY: the context is live, and native code holds no reference into it.
    let raw = unsafe { &mut *raw };
    if let Some(kind) = kind {
        raise(raw, kind);
    }
    raw.state.fault_place.get_or_insert(((place >> 32) as u32, place as u32));
    raw.pending = 0;
    Ran { value: 0, executed }
}

/// A store through an address that is not to be stored to.
pub(super) unsafe extern "C" fn fault_store(raw: *mut RawContext, at: u64, address: u64, count: u64) -> Ran {
    // SAFETY: passed on to the caller.
    unsafe { place(raw, at, Some(FaultKind::Store { address }), count) }
}

/// The budget is used up.
unsafe extern "C" fn fault_budget(raw: *mut RawContext, at: u64, _: u64, count: u64) -> Ran {
    // SAFETY: passed on to the caller.
    unsafe {
        let budget = (*raw).state.budget;
        place(raw, at, Some(FaultKind::Budget { budget }), count)
    }
}

/// A callee that does not exist, by index into the call targets.
unsafe extern "C" fn fault_absent(raw: *mut RawContext, at: u64, target: u64, count: u64) -> Ran {
    // SAFETY: passed on to the caller.
    unsafe {
        let code: &crate::exec::compiled::Code = &(*raw).state.code;
        let name = code.linked.targets[target as usize].name.clone();
        place(raw, at, Some(FaultKind::Absent(name)), count)
    }
}

/// A callee raised a fault: `raw` may be what a host function gave, which says so.
unsafe extern "C" fn fault_raised(raw: *mut RawContext, at: u64, _: u64, count: u64) -> Ran {
    let raw = raw.map_addr(|address| address & !(ENDS as usize));
    // SAFETY: passed on to the caller.
    unsafe { place(raw, at, None, count) }
}

pub(super) const PENDING_OFFSET: usize = std::mem::offset_of!(RawContext, pending);

fn field_offset(field: ContextField) -> usize {
    match field {
        ContextField::Now => std::mem::offset_of!(RawContext, now),
        ContextField::Cpu => std::mem::offset_of!(RawContext, cpu),
        ContextField::Current => std::mem::offset_of!(RawContext, current),
    }
}

impl Translator<'_, '_> {
    /// Calls a host function by address with the context and these arguments; leaves if it raised a fault.
    fn host_call(&mut self, entry: *const u8, arguments: &[Value]) -> Value {
        self.tell_count();
        let context = self.context();
        let arguments: Vec<Value> = std::iter::once(context).chain(arguments.iter().copied()).collect();
        let call = self.call_address(entry, &arguments);
        let [value, context] = *self.b.inst_results(call) else { unreachable!("an answer has two words") };
        self.called();
        self.b.def_var(self.raw, context);
        let ends = self.b.ins().band_imm_u(context, ENDS as i64);
        let good = self.b.ins().icmp_imm_s(IntCC::Equal, ends, 0);
        self.require(good, fault_raised, None);
        value
    }

    /// Calls machine code of ours that gives two words.
    fn call_address(&mut self, entry: *const u8, arguments: &[Value]) -> Inst {
        let signature = signature(self.unit.convention, arguments.len(), 2);
        if !(self.unit.near && near::is_near(entry)) {
            let (entry, signature) = (self.constant(entry as u64), self.b.import_signature(signature));
            return self.b.ins().call_indirect(signature, entry, arguments);
        }
        let name = near::symbol(entry, arguments.len());
        let id = self.module.declare_function(&name, Linkage::Import, &signature);
        let callee = self.module.declare_func_in_func(id.expect("one name for each signature"), self.b.func);
        // Within reach of a direct call, as functions of the object are.
        self.b.func.dfg.ext_funcs[callee].colocated = true;
        self.b.ins().call(callee, arguments)
    }

    /// What was read of the context before a call is not kept over it.
    fn called(&mut self) {
        self.facts.called = true;
        self.facts.frame = None;
    }

    pub(super) fn call(&mut self, target: u32) {
        let value = match self.unit.linked.targets[target as usize].action {
            Action::Function(entry) => self.call_entry(entry),
            Action::MapLookup(entry) => match self.array_lookup() {
                Some(value) => value,
                None => self.call_entry(entry),
            },
            Action::Context(field) => self.field(field_offset(field)),
            Action::Load { offset, bytes, signed } => {
                let address = self.address(1);
                self.load(address, offset, bytes, signed)
            }
            Action::Constant(value) => self.constant(value),
            Action::TailCall => self.tail_call(),
            Action::Absent => {
                let detail = self.constant(u64::from(target));
                let never = self.constant(0);
                self.require(never, fault_absent, Some(detail));
                self.constant(0)
            }
        };
        self.returned(value);
    }

    fn returned(&mut self, value: Value) {
        self.set(0, value);
        let zero = self.constant(0);
        for register in 1..=5 {
            self.set(register, zero);
        }
    }

    fn call_entry(&mut self, entry: Entry) -> Value {
        let (entry, count) = entry.address();
        let arguments: Vec<Value> = (1..=count).map(|register| self.get(register)).collect();
        self.host_call(entry, &arguments)
    }

    /// Tells the context how many instructions this function and its callers have executed.
    fn tell_count(&mut self) {
        let count = self.counted();
        self.set_field(PENDING_OFFSET, count);
    }

    /// Leaves if the called function of the program raised a fault.
    fn after_local(&mut self) {
        let context = self.context();
        let fault = self.b.ins().load(types::I32, flags(), context, FAULTED_OFFSET);
        let good = self.b.ins().icmp_imm_s(IntCC::Equal, fault, 0);
        self.require(good, fault_raised, None);
    }

    /// Returns. A main function leaves the context as it found it; who called another still runs.
    pub(super) fn leave(&mut self, value: Value, count: Value) {
        if self.facts.called && self.unit.linked.functions[self.index].main {
            let zero = self.constant(0);
            self.set_field(PENDING_OFFSET, zero);
        }
        self.b.ins().return_(&[value, count]);
    }

    /// Reports a fault and returns.
    pub(super) fn fail(&mut self, exit: FaultExit, detail: Option<Value>) {
        let bad = *self.bad.get_or_insert_with(|| {
            let block = self.b.create_block();
            self.b.set_cold_block(block);
            for _ in 0..5 {
                self.b.append_block_param(block, types::I64);
            }
            block
        });
        let program = self.unit.linked.functions[self.index].program;
        let place = self.constant(u64::from(program) << 32 | u64::from(self.insn));
        let (zero, count) = (self.constant(0), self.counted());
        let exit = self.constant(exit as *const u8 as u64);
        let arguments = [exit, self.context(), place, detail.unwrap_or(zero), count].map(Into::into);
        self.b.ins().jump(bad, &arguments);
    }

    /// Where all faults leave the function.
    pub(super) fn bad_exit(&mut self) {
        let Some(bad) = self.bad else { return };
        self.b.seal_block(bad);
        self.b.switch_to_block(bad);
        let parameters = self.b.block_params(bad).to_vec();
        let (exit, arguments) = (parameters[0], &parameters[1..]);
        let signature = signature(self.unit.convention, arguments.len(), 2);
        let signature = self.b.import_signature(signature);
        let call = self.b.ins().call_indirect(signature, exit, arguments);
        let results = self.b.inst_results(call).to_vec();
        self.b.ins().return_(&results);
    }

    /// Calls for the program in a slot of a map and returns what it gave, or goes on if there is none.
    fn tail_call(&mut self) -> Value {
        let arguments = [self.frame(), self.get(1), self.get(2), self.get(3)];
        let value = self.host_call(tail_call as *const u8, &arguments);
        let at = std::mem::offset_of!(RawContext, tailed);
        let tailed = self.field(at);
        let (taken, next) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(tailed, taken, &[], next, &[]);
        self.b.seal_block(taken);
        self.b.switch_to_block(taken);
        let (zero, count) = (self.constant(0), self.counted());
        self.set_field(at, zero);
        self.leave(value, count);
        self.b.seal_block(next);
        self.b.switch_to_block(next);
        self.constant(0)
    }

    /// Leaves if the budget is used up; gives the instructions executed.
    pub(super) fn check_budget(&mut self) -> Value {
        let (count, left) = (self.counted(), self.field(std::mem::offset_of!(RawContext, left)));
        let good = self.b.ins().icmp(IntCC::SignedLessThan, count, left);
        self.require(good, fault_budget, None);
        count
    }

    /// Calls a function of the program; it goes on counting.
    pub(super) fn call_local(&mut self, target: u32) {
        let args = self.unit.linked.functions[target as usize].args;
        let count = self.check_budget();
        let frame_bytes = self.constant(STACK_BYTES_FRAME);
        let frame = self.frame();
        let frame = self.b.ins().isub(frame, frame_bytes);
        let mut arguments = vec![self.context(), frame, count];
        arguments.extend((1..=args).map(|register| self.get(register)));
        let callee = self.module.declare_func_in_func(self.unit.ids[target as usize], self.b.func);
        let call = self.b.ins().call(callee, &arguments);
        let [value, count] = *self.b.inst_results(call) else { unreachable!("two results") };
        self.b.def_var(self.count, count);
        self.pending = 0;
        self.called();
        self.after_local();
        self.returned(value);
    }

    /// Looks an element of an array up without a call, if r1 is known to be an array.
    fn array_lookup(&mut self) -> Option<Value> {
        let map = self.known(1)?;
        let index = self.unit.layout.map_at(map)?;
        let (image, place) = (&self.unit.image.maps[index], &self.unit.layout.maps[index]);
        let per_cpu = match image.map_type {
            kind::ARRAY => false,
            kind::PERCPU_ARRAY => true,
            _ => return None,
        };
        let key = self.address(2);
        let key = self.load(key, 0, 4, false);
        let entries = self.constant(u64::from(image.max_entries));
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, key, entries);
        let stride = self.constant(place.stride);
        let offset = self.b.ins().imul(key, stride);
        let values = self.constant(place.values);
        let mut value = self.b.ins().iadd(values, offset);
        if per_cpu && self.unit.nr_cpus > 1 {
            let cpu = self.field(field_offset(ContextField::Cpu));
            let copy = self.constant(place.stride * u64::from(image.max_entries));
            let copy = self.b.ins().imul(cpu, copy);
            value = self.b.ins().iadd(value, copy);
        }
        let zero = self.constant(0);
        Some(self.b.ins().select(inside, value, zero))
    }
}
