//! How large the frames of functions are, and whether those that are active together fit.
//!
//! As `check_max_stack_depth` in Linux's kernel/bpf/verifier.c: a frame is as deep as its deepest use in words,
//! rounded up to 16 bytes for native code; functions called, and those given away to be called within a call, come on
//! top of their callers; what is called later begins anew.

use super::super::layout::STACK_BYTES_FRAME;
use super::super::link::{CALL_FRAMES_MAX, Function};
use crate::btf::Kind;
use crate::image::ObjectImage;

/// Frames from this size on get memory of their own where a program has that, as the kernel's
/// `BPF_PRIV_STACK_MIN_SIZE`.
const PRIVATE_BYTES_MIN: u64 = 64;
/// Frames below a function that makes tail calls are smaller than this.
const TAIL_CALL_BYTES_MAX: u64 = 256;

/// What the functions of a program do with stack.
pub(super) struct Frames {
    /// Deepest use in bytes.
    depth: Vec<u64>,
    /// Caller, instruction, callee, whether by a call instruction.
    calls: Vec<(u32, u32, u32, bool)>,
    /// Functions that callees call before they return.
    within: Vec<bool>,
    /// Functions that are called later.
    later: Vec<bool>,
    /// An instruction that makes a tail call.
    tail_calls: Vec<Option<u32>>,
}

/// The largest chain that ends in a function.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Chain {
    /// Bytes of the frames of its callers.
    before: u64,
    /// Caller and instruction.
    from: Option<(u32, u32)>,
    /// Frames of callers, since the last global function.
    frames: usize,
}

impl Frames {
    pub(super) fn new(functions: usize) -> Frames {
        Frames {
            depth: vec![0; functions],
            calls: Vec::new(),
            within: vec![false; functions],
            later: vec![false; functions],
            tail_calls: vec![None; functions],
        }
    }

    /// A function uses its frame down to `bytes` below its frame pointer.
    pub(super) fn uses(&mut self, function: u32, bytes: u64) {
        let depth = &mut self.depth[function as usize];
        *depth = bytes.next_multiple_of(8).max(*depth);
    }

    /// A function calls another, or takes its address.
    pub(super) fn calls(&mut self, caller: u32, insn: u32, callee: u32, directly: bool) {
        self.calls.push((caller, insn, callee, directly));
    }

    pub(super) fn given_away(&mut self, function: u32, later: bool) {
        let set = if later { &mut self.later } else { &mut self.within };
        set[function as usize] = true;
    }

    pub(super) fn tail_calls(&mut self, function: u32, insn: u32) {
        self.tail_calls[function as usize].get_or_insert(insn);
    }

    /// The instruction at which a chain gets too large, and what is wrong.
    pub(super) fn too_large(
        &self,
        image: &ObjectImage,
        functions: &[Function],
        private: bool,
    ) -> Option<(u32, String)> {
        let shared: Vec<u64> = self.depth.iter().map(|depth| depth.next_multiple_of(16)).collect();
        let is_later = |root: &u32| self.later[*root as usize];
        let global: Vec<bool> = functions.iter().map(|function| is_global(image, &function.name)).collect();
        let mut own = shared.clone();
        if private && self.tail_calls.iter().all(Option::is_none) {
            let roots = (0..functions.len() as u32).filter(is_later);
            let later: Vec<Vec<Option<Chain>>> =
                roots.map(|root| self.chains(root, &shared, &global)).collect();
            for (function, bytes) in own.iter_mut().enumerate() {
                let also_later = later.iter().any(|chains| chains[function].is_some());
                *bytes = if *bytes >= PRIVATE_BYTES_MIN && !also_later { 0 } else { *bytes };
            }
        }
        let later = (1..functions.len() as u32).filter(is_later).map(|root| (root, &shared));
        later.chain([(0, &own)]).find_map(|(root, bytes)| {
            let chains = self.chains(root, bytes, &global);
            self.worst(&chains, functions, bytes)
        })
    }

    /// For each function the largest chain from a root; frames beyond all limits if functions call each other in a
    /// circle.
    fn chains(&self, root: u32, bytes: &[u64], global: &[bool]) -> Vec<Option<Chain>> {
        let mut chains = vec![None; bytes.len()];
        chains[root as usize] = Some(Chain { before: 0, from: None, frames: 0 });
        // Enough rounds for the longest chain without a circle, and for too many frames in one.
        for _ in 0..=bytes.len().max(CALL_FRAMES_MAX) {
            let mut changed = false;
            for (caller, insn, callee, directly) in &self.calls {
                let index = *callee as usize;
                let counts = *directly || self.within[index] && !self.later[index];
                let Some(chain) = chains[*caller as usize].filter(|_| counts) else { continue };
                let before = chain.before + bytes[*caller as usize];
                let frames = if global[index] { 0 } else { chain.frames + 1 };
                let known = chains[index].unwrap_or(Chain { before: 0, from: None, frames: 0 });
                let deeper = known.from.is_none() || before > known.before;
                let from = if deeper { Some((*caller, *insn)) } else { known.from };
                let new = Chain { before: before.max(known.before), from, frames: frames.max(known.frames) };
                if index != root as usize && chains[index] != Some(new) {
                    (chains[index], changed) = (Some(new), true);
                }
            }
            if !changed {
                break;
            }
        }
        chains
    }

    /// The first function whose chain is too large.
    fn worst(
        &self,
        chains: &[Option<Chain>],
        functions: &[Function],
        bytes: &[u64],
    ) -> Option<(u32, String)> {
        for (function, chain) in chains.iter().enumerate() {
            let Some(chain) = chain else { continue };
            let insn = chain.from.map_or(functions[function].start, |(_, insn)| insn);
            if chain.frames >= CALL_FRAMES_MAX {
                let what = format!(
                    "calls {}() at the end of more than {CALL_FRAMES_MAX} active functions; inline some of them",
                    functions[function].name
                );
                return Some((insn, what));
            }
            let sum = chain.before + bytes[function];
            if sum > STACK_BYTES_FRAME {
                let names = self.names(chains, functions, bytes, function as u32);
                let what = format!(
                    "makes the functions then active use {sum} bytes of stack together, of {STACK_BYTES_FRAME}: \
                     {names}; keep large variables in a map"
                );
                return Some((insn, what));
            }
            if let Some(insn) = self.tail_calls[function].filter(|_| chain.before >= TAIL_CALL_BYTES_MAX) {
                let what = format!(
                    "makes a tail call while callers use {} bytes of stack, which must be less than \
                     {TAIL_CALL_BYTES_MAX}; keep large variables in a map",
                    chain.before
                );
                return Some((insn, what));
            }
        }
        None
    }

    /// The functions of a chain with the bytes of each, outermost first.
    fn names(
        &self,
        chains: &[Option<Chain>],
        functions: &[Function],
        bytes: &[u64],
        mut function: u32,
    ) -> String {
        let mut names = Vec::new();
        for _ in functions {
            names.push(format!("{}() {}", functions[function as usize].name, bytes[function as usize]));
            match chains[function as usize].and_then(|chain| chain.from) {
                Some((caller, _)) => function = caller,
                None => break,
            }
        }
        names.reverse();
        names.join(", ")
    }
}

/// Whether a function is verified by itself. The newest kernels begin the count of frames anew there.
fn is_global(image: &ObjectImage, name: &str) -> bool {
    const BTF_FUNC_GLOBAL: u32 = 1;
    let function = image.btf.find_func(name).map(|id| image.btf.kind(id));
    matches!(function, Some(Kind::Func { linkage: BTF_FUNC_GLOBAL, .. }))
}
