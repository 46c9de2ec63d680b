//! Translation of calls: host functions directly, simple answers and array look-ups inline; and the exits
//! native code takes after a fault.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use cranelift_module::Module;

use super::function::{Translator, flags};
use super::signature;
use crate::exec::FaultKind;
use crate::exec::context::{RawContext, raise};
use crate::exec::layout::STACK_BYTES_FRAME;
use crate::exec::run::tail_call;
use crate::exec::target::{Action, ContextField, Entry};
use crate::maps::kind;

/// What native code calls to report a fault: context, place (program and instruction), detail.
pub(super) type FaultExit = unsafe extern "C" fn(*mut RawContext, u64, u64) -> u64;

/// # Safety
/// For all fault exits: `raw` must be the live context of the running instance.
unsafe fn place(raw: *mut RawContext, place: u64, kind: Option<FaultKind>) -> u64 {
    // SAFETY: the context is live, and native code holds no reference into it.
    let raw = unsafe { &mut *raw };
    if let Some(kind) = kind {
        raise(raw, kind);
    }
    raw.state.fault_place.get_or_insert(((place >> 32) as u32, place as u32));
    0
}

/// A store through an address that is not to be stored to.
pub(super) unsafe extern "C" fn fault_store(raw: *mut RawContext, at: u64, address: u64) -> u64 {
    // SAFETY: passed on to the caller.
    unsafe { place(raw, at, Some(FaultKind::Store { address })) }
}

/// The budget is used up.
pub(super) unsafe extern "C" fn fault_budget(raw: *mut RawContext, at: u64, _: u64) -> u64 {
    // SAFETY: passed on to the caller.
    unsafe {
        let budget = (*raw).state.budget;
        place(raw, at, Some(FaultKind::Budget { budget }))
    }
}

/// A callee that does not exist, by index into the call targets.
unsafe extern "C" fn fault_absent(raw: *mut RawContext, at: u64, target: u64) -> u64 {
    // SAFETY: passed on to the caller.
    unsafe {
        let code: &crate::exec::compiled::Code = &(*raw).state.code;
        let name = code.linked.targets[target as usize].name.clone();
        place(raw, at, Some(FaultKind::Absent(name)))
    }
}

/// A callee raised a fault.
unsafe extern "C" fn fault_raised(raw: *mut RawContext, at: u64, _: u64) -> u64 {
    // SAFETY: passed on to the caller.
    unsafe { place(raw, at, None) }
}

fn field_offset(field: ContextField) -> i32 {
    (match field {
        ContextField::Now => std::mem::offset_of!(RawContext, now),
        ContextField::Cpu => std::mem::offset_of!(RawContext, cpu),
        ContextField::Current => std::mem::offset_of!(RawContext, current),
    }) as i32
}

impl Translator<'_, '_> {
    /// Calls a host function by address with the context and these arguments.
    pub(super) fn host_call(&mut self, entry: *const u8, arguments: &[Value]) -> Value {
        let signature = signature(self.unit.convention, 1 + arguments.len());
        let signature = self.b.import_signature(signature);
        let entry = self.constant(entry as u64);
        let arguments: Vec<Value> = std::iter::once(self.raw).chain(arguments.iter().copied()).collect();
        let call = self.b.ins().call_indirect(signature, entry, &arguments);
        self.b.inst_results(call)[0]
    }

    pub(super) fn call(&mut self, target: u32) {
        let value = match self.unit.linked.targets[target as usize].action {
            Action::Function(entry) => self.call_entry(entry),
            Action::MapLookup(entry) => match self.array_lookup() {
                Some(value) => value,
                None => self.call_entry(entry),
            },
            Action::Context(field) => self.b.ins().load(types::I64, flags(), self.raw, field_offset(field)),
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
        self.flush();
        self.save_fuel();
        let value = self.host_call(entry, &arguments);
        self.after_call();
        value
    }

    /// Reads the fuel back and leaves if the callee raised a fault.
    fn after_call(&mut self) {
        self.reload_fuel();
        let at = std::mem::offset_of!(RawContext, fault) as i32;
        let fault = self.b.ins().load(types::I64, flags(), self.raw, at);
        let zero = self.constant(0);
        let good = self.b.ins().icmp(IntCC::Equal, fault, zero);
        self.require(good, fault_raised, None);
    }

    /// Calls for the program in a slot of a map and returns what it gave, or goes on if there is none.
    fn tail_call(&mut self) -> Value {
        let arguments = [self.frame, self.get(1), self.get(2), self.get(3)];
        self.flush();
        self.save_fuel();
        let value = self.host_call(tail_call as *const u8, &arguments);
        self.after_call();
        let at = std::mem::offset_of!(RawContext, tailed) as i32;
        let tailed = self.b.ins().load(types::I64, flags(), self.raw, at);
        let (taken, next) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(tailed, taken, &[], next, &[]);
        self.b.seal_block(taken);
        self.b.switch_to_block(taken);
        let zero = self.constant(0);
        self.b.ins().store(flags(), zero, self.raw, at);
        self.b.ins().return_(&[value]);
        self.b.seal_block(next);
        self.b.switch_to_block(next);
        self.constant(0)
    }

    pub(super) fn call_local(&mut self, target: u32) {
        let count = self.unit.linked.functions[target as usize].args;
        let frame_bytes = self.constant(STACK_BYTES_FRAME);
        let frame = self.b.ins().isub(self.frame, frame_bytes);
        let mut arguments = vec![self.raw, frame];
        arguments.extend((1..=count).map(|register| self.get(register)));
        self.flush();
        self.save_fuel();
        let callee = self.module.declare_func_in_func(self.unit.ids[target as usize], self.b.func);
        let call = self.b.ins().call(callee, &arguments);
        let value = self.b.inst_results(call)[0];
        self.after_call();
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
            let cpu = self.b.ins().load(types::I64, flags(), self.raw, field_offset(ContextField::Cpu));
            let copy = self.constant(place.stride * u64::from(image.max_entries));
            let copy = self.b.ins().imul(cpu, copy);
            value = self.b.ins().iadd(value, copy);
        }
        let zero = self.constant(0);
        Some(self.b.ins().select(inside, value, zero))
    }
}
