//! Native code through Cranelift: one machine function for each BPF function, shared by all instances.
//!
//! The calling convention of a main function is `(raw context, the first three words where r1 points, r1) ->
//! (r0, instructions executed)`, r1 being an address in the region; its frame pointer is in the context. Others are
//! `(raw context, frame pointer, instructions executed before, r1 .. rN)`, N being the registers the function reads, and go
//! on counting. A host function gives the context back (`Answer`), so no register has to outlive its call for that. The
//! region lies beside the context, so code holds no address of an instance. Not here: translation of instructions (`function`, `flow`,
//! `ending`, `alu`, `call`, `range`), what they mean (`exec::interp` is the reference).

mod alu;
mod call;
mod ending;
mod flow;
mod function;
mod near;
mod range;

use cranelift_codegen::ir::{AbiParam, Signature, types};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, isa::CallConv};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, default_libcall_names};

use crate::exec::context::{MainEntry, Ran, RawContext};
use crate::exec::layout::Layout;
use crate::exec::link::Linked;
use crate::exec::{BpfError, WORDS};
use crate::image::ObjectImage;
use function::Translator;

type Raw = *mut RawContext;
type Native0 = unsafe extern "C" fn(Raw, u64, u64) -> Ran;
type Native1 = unsafe extern "C" fn(Raw, u64, u64, u64) -> Ran;
type Native2 = unsafe extern "C" fn(Raw, u64, u64, u64, u64) -> Ran;
type Native3 = unsafe extern "C" fn(Raw, u64, u64, u64, u64, u64) -> Ran;
type Native4 = unsafe extern "C" fn(Raw, u64, u64, u64, u64, u64, u64) -> Ran;
type Native5 = unsafe extern "C" fn(Raw, u64, u64, u64, u64, u64, u64, u64) -> Ran;

/// Entry point of a compiled function.
#[derive(Clone, Copy)]
pub(crate) enum NativeEntry {
    Main(MainEntry),
    Args0(Native0),
    Args1(Native1),
    Args2(Native2),
    Args3(Native3),
    Args4(Native4),
    Args5(Native5),
}

impl NativeEntry {
    /// # Safety
    /// `code` must be the start of a function compiled here with `args` argument registers, or of a main one.
    unsafe fn new(code: *const u8, main: bool, args: u8) -> NativeEntry {
        // SAFETY: the caller vouches for address and signature.
        unsafe {
            match args {
                _ if main => NativeEntry::Main(std::mem::transmute::<*const u8, MainEntry>(code)),
                0 => NativeEntry::Args0(std::mem::transmute::<*const u8, Native0>(code)),
                1 => NativeEntry::Args1(std::mem::transmute::<*const u8, Native1>(code)),
                2 => NativeEntry::Args2(std::mem::transmute::<*const u8, Native2>(code)),
                3 => NativeEntry::Args3(std::mem::transmute::<*const u8, Native3>(code)),
                4 => NativeEntry::Args4(std::mem::transmute::<*const u8, Native4>(code)),
                _ => NativeEntry::Args5(std::mem::transmute::<*const u8, Native5>(code)),
            }
        }
    }

    /// The function if it is a main one.
    pub(crate) fn main(self) -> Option<MainEntry> {
        if let NativeEntry::Main(entry) = self { Some(entry) } else { None }
    }

    /// Runs the function with registers r1 to r5; `words` lie where r1 of a main function points, and the context tells
    /// it its frame pointer.
    ///
    /// # Safety
    /// `raw` must be the live context of an instance of this code, with nobody holding a reference into it
    /// or its host; `frame` must be the frame pointer of a free stack level, and r1 of a main function an address
    /// in the region.
    #[inline]
    pub(crate) unsafe fn call(self, raw: Raw, frame: u64, r: &[u64; 5], words: [u64; WORDS]) -> Ran {
        // SAFETY: passed on to the caller.
        unsafe {
            match self {
                NativeEntry::Main(entry) => entry(raw, words[0], words[1], words[2], r[0]),
                NativeEntry::Args0(entry) => entry(raw, frame, 0),
                NativeEntry::Args1(entry) => entry(raw, frame, 0, r[0]),
                NativeEntry::Args2(entry) => entry(raw, frame, 0, r[0], r[1]),
                NativeEntry::Args3(entry) => entry(raw, frame, 0, r[0], r[1], r[2]),
                NativeEntry::Args4(entry) => entry(raw, frame, 0, r[0], r[1], r[2], r[3]),
                NativeEntry::Args5(entry) => entry(raw, frame, 0, r[0], r[1], r[2], r[3], r[4]),
            }
        }
    }
}

/// The machine code of an object.
pub(crate) struct NativeCode {
    entries: Vec<NativeEntry>,
    /// Where each function lies, and its bytes.
    places: Vec<(*const u8, usize)>,
    /// Owns the memory of the code; taken when dropped.
    module: Option<JITModule>,
}

// SAFETY: after compilation the module is only kept to be freed by the last owner, and the code itself is
// immutable and holds no state.
unsafe impl Send for NativeCode {}
// SAFETY: as above; `&NativeCode` gives out copies of entry points only.
unsafe impl Sync for NativeCode {}

impl Drop for NativeCode {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: instances keep this value alive, so no code of it runs any more.
            unsafe { module.free_memory() };
        }
    }
}

impl NativeCode {
    /// Entry of a function.
    #[inline]
    pub(crate) fn entry(&self, function: u32) -> NativeEntry {
        self.entries[function as usize]
    }

    /// Machine code of a function.
    pub(crate) fn bytes(&self, function: u32) -> &[u8] {
        let (start, bytes) = self.places[function as usize];
        // SAFETY: the module placed that many bytes there, and nobody changes them while `self` lives.
        unsafe { std::slice::from_raw_parts(start, bytes) }
    }
}

/// What every function's translation reads.
pub(crate) struct Unit<'a> {
    pub linked: &'a Linked,
    pub layout: &'a Layout,
    pub image: &'a ObjectImage,
    pub nr_cpus: u32,
    pub convention: CallConv,
    /// Whether the code lies in [`near::NearMemory`].
    pub near: bool,
    pub ids: Vec<FuncId>,
}

/// The signature of a function with this many words in and out.
fn signature(convention: CallConv, parameters: usize, results: usize) -> Signature {
    let mut signature = Signature::new(convention);
    signature.params = vec![AbiParam::new(types::I64); parameters];
    signature.returns = vec![AbiParam::new(types::I64); results];
    signature
}

/// Context, and words and r1 or frame pointer, count of instructions and arguments; r0 and the count.
fn function_signature(convention: CallConv, linked: &Linked, index: usize) -> Signature {
    let function = &linked.functions[index];
    signature(convention, if function.main { 2 + WORDS } else { 3 + usize::from(function.args) }, 2)
}

/// A module for code, and whether that lies near our own.
fn module() -> Result<(JITModule, bool), String> {
    let mut flags = settings::builder();
    let verify = if cfg!(debug_assertions) { "true" } else { "false" };
    let wanted = [
        ("opt_level", "speed"),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
        ("enable_probestack", "false"),
        ("unwind_info", "false"),
        ("enable_verifier", verify),
        ("log2_min_function_alignment", "5"),
    ];
    for (name, value) in wanted {
        flags.set(name, value).map_err(|error| error.to_string())?;
    }
    let isa = cranelift_native::builder()?;
    let isa = isa.finish(settings::Flags::new(flags)).map_err(|error| error.to_string())?;
    let mut builder = JITBuilder::with_isa(isa, default_libcall_names());
    let memory = near::NearMemory::new();
    let near = memory.is_some();
    if let Some(memory) = memory {
        builder.memory_provider(Box::new(memory)).symbol_lookup_fn(Box::new(near::address));
    }
    Ok((JITModule::new(builder), near))
}

/// Compiles every function of the object.
pub(crate) fn compile(
    linked: &Linked,
    layout: &Layout,
    image: &ObjectImage,
    nr_cpus: u32,
) -> Result<NativeCode, BpfError> {
    let fail = |function: &str, what: String| BpfError::Native { function: function.to_owned(), what };
    let (mut module, near) = module().map_err(|what| fail(&image.name, what))?;
    let convention = module.isa().default_call_conv();
    if convention == CallConv::WindowsFastcall {
        let what = "functions that return two words are not made for this system: use the interpreter";
        return Err(fail(&image.name, what.to_owned()));
    }
    let mut ids = Vec::new();
    for (index, function) in linked.functions.iter().enumerate() {
        let signature = function_signature(convention, linked, index);
        let name = format!("f{index}");
        let id = module.declare_function(&name, Linkage::Local, &signature);
        ids.push(id.map_err(|error| fail(&function.name, error.to_string()))?);
    }
    let unit = Unit { linked, layout, image, nr_cpus, convention, near, ids };
    let (mut context, mut scratch) = (module.make_context(), FunctionBuilderContext::new());
    let mut sizes = Vec::new();
    for index in 0..linked.functions.len() {
        let outcome = define(&unit, &mut module, &mut context, &mut scratch, index);
        sizes.push(outcome.map_err(|what| fail(&linked.functions[index].name, what))?);
    }
    module.finalize_definitions().map_err(|error| fail(&image.name, error.to_string()))?;
    let entries = linked.functions.iter().zip(&unit.ids).map(|(function, id)| {
        // SAFETY: the function was just compiled with this signature.
        unsafe { NativeEntry::new(module.get_finalized_function(*id), function.main, function.args) }
    });
    let entries = entries.collect();
    let starts = unit.ids.iter().map(|id| module.get_finalized_function(*id));
    let places = starts.zip(sizes).collect();
    Ok(NativeCode { entries, places, module: Some(module) })
}

/// Gives the bytes of the function's code.
fn define(
    unit: &Unit<'_>,
    module: &mut JITModule,
    context: &mut Context,
    scratch: &mut FunctionBuilderContext,
    index: usize,
) -> Result<usize, String> {
    context.func.signature = function_signature(unit.convention, unit.linked, index);
    Translator::translate(unit, module, &mut context.func, scratch, index);
    module.define_function(unit.ids[index], context).map_err(|error| format!("{error:?}"))?;
    let bytes = context.compiled_code().map_or(0, |code| code.code_buffer().len());
    module.clear_context(context);
    Ok(bytes)
}
