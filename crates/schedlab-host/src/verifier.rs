//! What libbpf and the verifier say about an object's programs, made readable.
//!
//! [`costs`] reads what verifying each program cost; [`refusal`] finds in a failed load the program, the source line, the
//! instruction and the reason, and says what usually mends it. [`listen`] keeps the messages. Loading is elsewhere.

use libbpf_rs::{PrintLevel, set_print};
use serde::{Deserialize, Serialize};
use std::sync::Mutex;

/// What libbpf said since the last [`listen`]. One for the process because libbpf's printer is.
static MESSAGES: Mutex<String> = Mutex::new(String::new());

/// Starts to keep libbpf's messages from this level on.
pub fn listen(level: PrintLevel) {
    MESSAGES.lock().expect("no thread panics while it holds the messages").clear();
    set_print(Some((level, |_, message| {
        MESSAGES.lock().expect("no thread panics while it holds the messages").push_str(&message);
    })));
}

/// What was said since [`listen`].
pub fn messages() -> String {
    MESSAGES.lock().expect("no thread panics while it holds the messages").clone()
}

/// Whether a load failed for want of rights, and not because the verifier refused the program.
pub fn is_privilege(error: &libbpf_rs::Error, messages: &str) -> bool {
    error.kind() == libbpf_rs::ErrorKind::PermissionDenied && !messages.contains("processed")
}

/// Why the kernel refused an object of our own, after [`listen`]; `None` for want of rights.
pub(crate) fn reason(error: &libbpf_rs::Error) -> Option<String> {
    reason_in(error, &messages())
}

fn reason_in(error: &libbpf_rs::Error, messages: &str) -> Option<String> {
    if is_privilege(error, messages) {
        return None;
    }
    let verified = logs(messages).any(|(_, log)| log.contains("processed"));
    Some(if verified { refusal(messages).words() } else { error.to_string() })
}

/// What one program cost to verify.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramCost {
    /// The program.
    pub program: String,
    /// Instructions that the verifier walked, over all paths. The kernel refuses more than a million.
    pub walked: u64,
    /// States it kept in all.
    pub states: u64,
    /// States it kept at once.
    pub peak_states: u64,
    /// How long it took, µs; `None` if the kernel does not tell.
    pub time_us: Option<u64>,
    /// Instructions that run, as the kernel rewrote them.
    pub instructions: u64,
}

/// Why a program was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The program; empty if the object was refused before any program was looked at.
    pub program: String,
    /// The reason, in the kernel's or libbpf's words.
    pub reason: String,
    /// The source line, as `file:line`, if the object has line information.
    pub source: Option<String>,
    /// The text of that line.
    pub code: Option<String>,
    /// The instruction at which the verifier stopped.
    pub instruction: Option<String>,
    /// The last steps before it, oldest first.
    pub steps: Vec<String>,
    /// What usually mends it.
    pub remedy: Option<String>,
}

impl Refusal {
    /// In one line: reason, place and remedy.
    pub fn words(&self) -> String {
        let mut text = self.reason.clone();
        if !self.program.is_empty() {
            text += &format!(", in {}", self.program);
        }
        if let Some(source) = &self.source {
            let code = self.code.iter().filter(|code| !code.is_empty());
            text += &code.fold(format!(" at {source}"), |place, code| format!("{place}: {code}"));
        }
        if let Some(remedy) = &self.remedy {
            text += &format!("; {remedy}");
        }
        text
    }
}

const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
const END: &str = "-- END PROG LOAD LOG --";
/// Steps that are worth showing: what led to the last instruction.
const STEPS: usize = 12;

/// The cost of each program whose log is among libbpf's messages, in the order of loading.
pub fn costs(messages: &str) -> Vec<ProgramCost> {
    logs(messages)
        .filter_map(|(program, log)| {
            let line = log.lines().find(|line| line.starts_with("processed "))?;
            let after = |word: &str| {
                let at = line.find(word)? + word.len();
                line[at..].split_whitespace().next()?.parse().ok()
            };
            let time = log.lines().find_map(|line| line.strip_prefix("verification time "));
            Some(ProgramCost {
                program: program.to_owned(),
                walked: after("processed ")?,
                states: after("total_states ").unwrap_or(0),
                peak_states: after("peak_states ").unwrap_or(0),
                time_us: time.and_then(|text| text.split_whitespace().next()?.parse().ok()),
                instructions: 0,
            })
        })
        .collect()
}

/// Why a load failed, from libbpf's messages.
pub fn refusal(messages: &str) -> Refusal {
    let mut refusal = match logs(messages).last() {
        Some((program, log)) => of_program(program, log),
        None => Refusal { reason: before_programs(messages), ..Refusal::default() },
    };
    refusal.remedy = remedy(&refusal.reason).map(str::to_owned);
    refusal
}

/// Program names and their logs.
fn logs(messages: &str) -> impl Iterator<Item = (&str, &str)> {
    messages.match_indices(BEGIN).filter_map(|(at, _)| {
        let name = messages[..at].rsplit("prog '").next()?.split('\'').next()?;
        let log = &messages[at + BEGIN.len()..];
        Some((name, log.split(END).next().unwrap_or(log).trim()))
    })
}

fn of_program(program: &str, log: &str) -> Refusal {
    let counted = ["processed ", "verification time ", "stack depth ", "mark_precise"];
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty() && !counted.iter().any(|prefix| line.starts_with(prefix)))
        .collect();
    let source = lines.iter().rev().find_map(|line| line.strip_prefix("; "));
    // Kernels before 6.9 print the text of the line without its place.
    let (code, place) = match source.and_then(|line| line.rsplit_once(" @ ")) {
        Some((code, place)) => (Some(code), Some(place)),
        None => (source, None),
    };
    let instruction = lines.iter().rev().find(|line| is_instruction(line));
    let after_steps = lines.iter().rposition(|line| is_step(line)).map_or(0, |last| last + 1);
    let reason = match &lines[after_steps..] {
        [] => lines.last().copied().unwrap_or_default().to_owned(),
        reasons => reasons.join("; "),
    };
    let steps = lines.iter().filter(|line| is_step(line));
    let steps: Vec<String> = steps.map(|line| (*line).to_owned()).collect();
    Refusal {
        program: program.to_owned(),
        reason,
        source: place.map(str::to_owned),
        code: code.map(|code| code.trim().to_owned()),
        instruction: instruction.map(|line| (*line).to_owned()),
        steps: steps[steps.len().saturating_sub(STEPS)..].to_vec(),
        remedy: None,
    }
}

/// `17: (79) r1 = *(u64 *)(r0 +0)`.
fn is_instruction(line: &str) -> bool {
    is_numbered(line, ": (")
}

/// An instruction, a source line, or the state at a branch (`from 3 to 5: R0=...`).
fn is_step(line: &str) -> bool {
    line.starts_with("; ") || line.starts_with("from ") || is_numbered(line, ":")
}

/// Whether a number and then this begin the line.
fn is_numbered(line: &str, then: &str) -> bool {
    let number =
        |(number, _): (&str, &str)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    line.split_once(then).is_some_and(number)
}

/// libbpf's own reasons: what it found missing before it asked the kernel.
fn before_programs(messages: &str) -> String {
    let telling = ["not found", "cannot find", "failed", "unsupported", "mismatch", "doesn't match"];
    let lines: Vec<&str> = messages
        .lines()
        .map(|line| line.trim().trim_start_matches("libbpf: "))
        .filter(|line| telling.iter().any(|word| line.to_lowercase().contains(word)))
        .collect();
    match lines.split_first() {
        Some((first, _)) => (*first).to_owned(),
        None => messages.lines().last().unwrap_or("no reason was given").trim().to_owned(),
    }
}

/// What usually mends a refusal that reads like this.
fn remedy(reason: &str) -> Option<&'static str> {
    const REMEDIES: &[(&str, &str)] = &[
        (
            "wasn't resolved",
            "this kernel does not have that kfunc: declare it __weak and test it with bpf_ksym_exists(), \
             or take a newer kernel",
        ),
        (
            "CO-RE relocation",
            "a field or type is absent in this kernel: guard it with bpf_core_field_exists()",
        ),
        (
            "not found in kernel",
            "this kernel does not have it: declare it __weak and test it, or take a newer kernel",
        ),
        (
            "Cannot find member",
            "this kernel's sched_ext_ops lacks that callback: leave it out, or take a newer kernel",
        ),
        ("or_null", "test the pointer for NULL on every way that leads here"),
        (
            "invalid mem access 'scalar'",
            "the verifier lost what the pointer points to: load it again, or bpf_core_cast() it",
        ),
        (
            "back-edge",
            "use bpf_for(), bpf_repeat() or can_loop: an open loop needs a bound that the verifier sees",
        ),
        (
            "infinite loop",
            "use bpf_for(), bpf_repeat() or can_loop: the loop needs a bound that the verifier sees",
        ),
        (
            "too many states",
            "fewer branches inside loops; move the body into a __noinline or global function",
        ),
        (
            "too large",
            "it walked a million instructions: fewer branches inside loops; bpf_for() instead of unrolling",
        ),
        (
            "Unreleased reference",
            "release what was acquired (bpf_task_release() and the like) on every way out",
        ),
        (
            "outside of the allowed memory range",
            "check the index against the array's size right before the access",
        ),
        ("unbounded memory access", "check the index against the array's size right before the access"),
        ("combined stack size", "keep less on the stack: move buffers into a map, or call less deeply"),
        (
            "is not allowed",
            "that call is not allowed in this callback; docs/sched-ext-support.md says which is where",
        ),
        (
            "cannot use helper",
            "this helper is not for schedulers: take a kfunc, or a SEC(\"syscall\") program of its own",
        ),
        ("unknown func", "this kernel has no such helper for this type of program"),
        (
            "must be referenced or trusted",
            "the pointer must come from the callback's arguments, or be acquired and tested",
        ),
    ];
    REMEDIES.iter().find(|(word, _)| reason.contains(word)).map(|(_, remedy)| *remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "libbpf: prog 'vtime_enqueue': -- BEGIN PROG LOAD LOG --\n\
        verification time 412 usec\nstack depth 24+0\n\
        processed 93 insns (limit 1000000) max_states_per_insn 1 total_states 7 peak_states 6 mark_read 0\n\
        -- END PROG LOAD LOG --\nlibbpf: prog 'init': -- BEGIN PROG LOAD LOG --\nprocessed 5 insns (limit 1000000) \
        max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0\n-- END PROG LOAD LOG --\n";

    const BAD: &str = "libbpf: prog 'bad_enqueue': BPF program load failed: -EACCES\n\
        libbpf: prog 'bad_enqueue': -- BEGIN PROG LOAD LOG --\n\
        0: R1=ctx() R10=fp0\n\
        ; void BPF_STRUCT_OPS(bad_enqueue, struct task_struct *p) @ bad.bpf.c:12\n\
        0: (79) r1 = *(u64 *)(r1 +0)          ; R1_w=trusted_ptr_task_struct()\n\
        1: (85) call bpf_task_storage_get#156         ; R0_w=map_value_or_null(id=1)\n\
        ; ctx->deadline = 3; @ bad.bpf.c:19\n\
        2: (7b) *(u64 *)(r0 +8) = r2\n\
        R0 invalid mem access 'map_value_or_null'\n\
        verification time 51 usec\n\
        processed 3 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0\n\
        -- END PROG LOAD LOG --\nlibbpf: prog 'bad_enqueue': failed to load: -EACCES\n";

    #[test]
    fn costs_are_read_by_program() {
        let costs = costs(GOOD);
        let rows: Vec<(&str, u64, u64, Option<u64>)> =
            costs.iter().map(|cost| (&*cost.program, cost.walked, cost.states, cost.time_us)).collect();
        assert_eq!(rows, [("vtime_enqueue", 93, 7, Some(412)), ("init", 5, 0, None)]);
    }

    #[test]
    fn a_refusal_names_program_line_instruction_and_remedy() {
        let refusal = refusal(BAD);
        assert_eq!(
            (&*refusal.program, &*refusal.reason),
            ("bad_enqueue", "R0 invalid mem access 'map_value_or_null'")
        );
        assert_eq!(refusal.source.as_deref(), Some("bad.bpf.c:19"));
        assert_eq!(refusal.code.as_deref(), Some("ctx->deadline = 3;"));
        assert_eq!(refusal.instruction.as_deref(), Some("2: (7b) *(u64 *)(r0 +8) = r2"));
        assert!(refusal.remedy.is_some_and(|remedy| remedy.contains("NULL")));
        assert_eq!(refusal.steps.len(), 6);
    }

    #[test]
    fn a_refusal_is_no_lack_of_rights() {
        let denied = libbpf_rs::Error::from_raw_os_error(libc::EACCES);
        assert_eq!(
            reason_in(&denied, "libbpf: prog 'bad_enqueue': BPF program load failed: -EACCES\n"),
            None
        );
        let reason = reason_in(&denied, BAD).expect("the verifier refused it");
        assert!(reason.contains("in bad_enqueue at bad.bpf.c:19: ctx->deadline = 3;"), "{reason}");
        let full = libbpf_rs::Error::from_raw_os_error(libc::ENOMEM);
        assert_eq!(reason_in(&full, ""), Some(full.to_string()));
    }

    #[test]
    fn what_libbpf_misses_is_the_reason() {
        let messages = "libbpf: extern (func ksym) 'scx_bpf_new': not found in kernel or module BTFs\n\
            libbpf: failed to load object 'x'\n";
        let refusal = refusal(messages);
        assert_eq!(refusal.program, "");
        assert_eq!(refusal.reason, "extern (func ksym) 'scx_bpf_new': not found in kernel or module BTFs");
        assert!(refusal.remedy.is_some_and(|remedy| remedy.contains("__weak")));
        assert_eq!(super::refusal("").reason, "no reason was given");
    }
}
