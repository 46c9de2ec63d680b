//! Why the kernel ended a scheduler: its record, what the kernel's log adds, and both in words.
//!
//! The record is what the scheduler's exit callback kept (ours in `.data.exit`, those of sched-ext/scx in a variable
//! named `uei` of the same layout). The log has the backtrace, whose places in BPF programs become source lines by the
//! line tables of the loaded programs. Kinds and codes: `enum scx_exit_kind` and `enum scx_exit_code` of the kernel's
//! kernel/sched/ext/internal.h.

use super::object;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, Object};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

/// Why the kernel ended a scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The kernel's `scx_exit_kind`: 64 to 67 are orderly ends, 1024 and above are errors.
    pub kind: i32,
    /// The scheduler's own code.
    pub code: i64,
    /// The kernel's reason.
    pub reason: String,
    /// The kernel's message.
    pub message: String,
}

/// `SCX_ECODE_ACT_RESTART`: whoever loaded the scheduler is asked to load it again.
const ACT_RESTART: i64 = 1 << 48;
/// `SCX_ECODE_RSN_HOTPLUG`: because a CPU went on or offline.
const RSN_HOTPLUG: i64 = 1 << 32;
/// `SCX_EXIT_ERROR`: from here on it was ended for a mistake.
const ERROR: i32 = 1024;

impl Exit {
    /// Whether the kernel ended it for a mistake.
    pub fn is_error(&self) -> bool {
        self.kind >= ERROR
    }

    /// Whether it asks to be loaded again.
    pub fn asks_for_restart(&self) -> bool {
        !self.is_error() && self.code & ACT_RESTART != 0
    }

    /// What happened, in words.
    pub fn words(&self) -> String {
        let what = match self.kind {
            64 => "it was taken out by the program that loaded it",
            65 => "it ended itself (scx_bpf_exit)",
            66 if self.code & RSN_HOTPLUG != 0 => "a CPU went on or offline, which it does not follow",
            66 => "the kernel took it out",
            67 => "somebody took it out by the keyboard (SysRq-S)",
            1024 => "the kernel ended it for a mistake",
            1025 => "it gave up by itself (scx_bpf_error)",
            1026 => "the watchdog ended it: a task that could run was not run in time",
            kind if kind >= ERROR => "the kernel ended it for a mistake",
            _ => "it ended",
        };
        let detail = match (self.message.is_empty(), self.is_error()) {
            (false, _) => format!(": {}", self.message),
            (true, true) => format!(": {}", self.reason),
            (true, false) => String::new(),
        };
        let restart = if self.asks_for_restart() { "; it asks to be loaded again" } else { "" };
        format!("{what}{detail}{restart}")
    }
}

/// The exit record that an object keeps; `None` while there is none.
pub(super) fn of(object: &Object) -> Option<Exit> {
    let value = |map: libbpf_rs::Map<'_>| map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
    if let Some(record) = object.maps().find(|map| object::name_of(map.name()).ends_with(".data.exit")) {
        return decode(&value(record)?);
    }
    let variables = object::variables_of(object);
    let record = variables.find("uei").ok()?;
    let map = object.maps().find(|map| record.is_in(&object::name_of(map.name())))?;
    decode(record.bytes(&value(map)?)?)
}

/// Reads `struct exit_record` of bpf/include/schedlab.bpf.h; `None` while its kind is 0.
fn decode(bytes: &[u8]) -> Option<Exit> {
    const REASON: usize = 16;
    const MESSAGE: usize = REASON + 128;
    const END: usize = MESSAGE + 1024;
    let kind = i32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    let code = i64::from_ne_bytes(bytes.get(8..16)?.try_into().ok()?);
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    let message = bytes.get(MESSAGE..END.min(bytes.len()))?;
    (kind != 0).then(|| Exit { kind, code, reason: text(&bytes[REASON..MESSAGE]), message: text(message) })
}

/// Source lines of programs by their place in machine code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines(Vec<Line>);

/// From this offset of a function on, this line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    function: String,
    offset: u64,
    text: String,
}

impl Lines {
    /// Those of an object's programs. Empty where the kernel does not tell, as to anybody but root.
    pub(super) fn of(object: &Object) -> Lines {
        let names: Vec<String> = object.progs().map(|program| object::name_of(program.name())).collect();
        let options = ProgInfoQueryOptions::default()
            .include_line_info(true)
            .include_jited_line_info(true)
            .include_jited_ksyms(true);
        let mut lines = Vec::new();
        for info in ProgInfoIter::with_query_opts(options) {
            let name = info.name.to_string_lossy().into_owned();
            // The kernel keeps the first 15 characters of a name.
            let Some(name) = names.iter().find(|full| !name.is_empty() && full.starts_with(&name)) else {
                continue;
            };
            let Some(start) = info.jited_ksyms.first().map(|start| *start as u64) else { continue };
            for (place, line) in info.jited_line_info.iter().zip(&info.line_info) {
                let Some(offset) = (*place as u64).checked_sub(start) else { continue };
                lines.push(Line { function: name.clone(), offset, text: format!("line {}", line.line_num) });
            }
        }
        Lines(lines)
    }

    /// The line that a place in a program's machine code belongs to.
    fn at(&self, function: &str, offset: u64) -> Option<&str> {
        let before = self.0.iter().filter(|line| {
            (line.function == function || line.function.starts_with(function)) && line.offset <= offset
        });
        before.max_by_key(|line| line.offset).map(|line| line.text.as_str())
    }
}

/// One step of the way to a mistake, the innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The kernel's function or the scheduler's program.
    pub function: String,
    /// Whether it is a program of a scheduler.
    pub program: bool,
    /// Where in the source of a program.
    pub line: Option<String>,
}

/// The kernel's log from now on.
pub struct KernelLog {
    file: Option<File>,
}

impl KernelLog {
    /// Begins to listen. Where the log may not be read nothing will have been said.
    pub fn listen() -> KernelLog {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
        let mut file = file.ok();
        if let Some(file) = &mut file {
            // One that cannot seek is read from its beginning.
            let _ = file.seek(SeekFrom::End(0));
        }
        KernelLog { file }
    }

    /// A descriptor that becomes readable when the kernel says something.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.file.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// What the kernel said about schedulers since: its lines, backtraces included.
    pub fn take(&mut self) -> Vec<String> {
        let Some(file) = &mut self.file else { return Vec::new() };
        about_schedulers(&records(|buffer| file.read(buffer)))
    }
}

/// All records that are there.
fn records(mut read: impl FnMut(&mut [u8]) -> io::Result<usize>) -> Vec<String> {
    let mut records = Vec::new();
    let mut buffer = [0_u8; 8192];
    loop {
        match read(&mut buffer) {
            Ok(0) => return records,
            Ok(length) => records.push(String::from_utf8_lossy(&buffer[..length]).into_owned()),
            // The log was written over meanwhile: the next read goes on with the oldest record that is left.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return records,
        }
    }
}

/// Records of /dev/kmsg: `level,number,time,flags;text`, then lines of key and value that begin with a space.
fn about_schedulers(records: &[String]) -> Vec<String> {
    let texts = records.iter().filter_map(|record| record.split_once(';')?.1.lines().next());
    let mut follows = false;
    let kept = texts.filter(|text| {
        let step = is_step(text);
        follows = text.starts_with("sched_ext:") || (follows && step);
        follows
    });
    kept.map(str::to_owned).collect()
}

/// `  bpf_prog_0123456789abcdef_name+0x12/0x34`.
fn is_step(text: &str) -> bool {
    step(text).is_some()
}

/// Function and offset of a line of a backtrace.
fn step(text: &str) -> Option<(&str, u64)> {
    let word = text.split_whitespace().next()?;
    let (function, place) = word.split_once("+0x")?;
    let offset = u64::from_str_radix(place.split('/').next()?, 16).ok()?;
    Some((function, offset))
}

/// The way to a mistake, from the kernel's lines.
pub fn backtrace(log: &[String], lines: &Lines) -> Vec<Frame> {
    let frame = |text: &String| {
        let (function, offset) = step(text)?;
        let Some(program) = function.strip_prefix("bpf_prog_") else {
            return Some(Frame { function: function.to_owned(), program: false, line: None });
        };
        // A return address is behind the call.
        let name = program.split_once('_').map_or(program, |(_, name)| name);
        let line = lines.at(name, offset.saturating_sub(1)).map(str::to_owned);
        Some(Frame { function: name.to_owned(), program: true, line })
    };
    log.iter().filter_map(frame).collect()
}

/// An end as the log tells it, for objects that keep no record.
pub fn from_log(log: &[String]) -> Option<Exit> {
    let ended = log.iter().rev().find(|line| line.contains("BPF scheduler") && line.contains("disabled"))?;
    let reason = ended.rsplit_once('(')?.1.trim_end_matches(')');
    let name = ended.split('"').nth(1)?;
    let begin = format!("sched_ext: {name}: ");
    let message = log.iter().rev().find_map(|line| line.strip_prefix(&begin)).unwrap_or_default();
    let kind = match reason {
        "unregistered from user space" => 64,
        "unregistered from BPF" => 65,
        "unregistered from the main kernel" => 66,
        "disabled by sysrq-S" => 67,
        "scx_bpf_error" => 1025,
        "runnable task stall" => 1026,
        _ => ERROR,
    };
    Some(Exit { kind, code: 0, reason: reason.to_owned(), message: message.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_record_is_read() {
        let mut bytes = vec![0_u8; 16 + 128 + 1024];
        assert_eq!(decode(&bytes), None);
        bytes[..4].copy_from_slice(&1026_i32.to_ne_bytes());
        bytes[8..16].copy_from_slice(&(-3_i64).to_ne_bytes());
        bytes[16..21].copy_from_slice(b"stall");
        bytes[144..149].copy_from_slice(b"watch");
        let exit = Exit { kind: 1026, code: -3, reason: "stall".into(), message: "watch".into() };
        assert_eq!(decode(&bytes), Some(exit));
        assert_eq!(decode(&bytes[..100]), None);
    }

    #[test]
    fn ends_are_told_in_words() {
        let exit = |kind, code, message: &str| Exit {
            kind,
            code,
            reason: "runtime error".to_owned(),
            message: message.to_owned(),
        };
        let stall = exit(1026, 0, "sh[7] failed to run for 30.2s");
        assert!(stall.is_error() && stall.words().ends_with("run in time: sh[7] failed to run for 30.2s"));
        let hotplug = exit(66, ACT_RESTART | RSN_HOTPLUG, "cpu 1 going offline, exiting scheduler");
        assert!(hotplug.asks_for_restart() && hotplug.words().contains("a CPU went on or offline"));
        assert!(exit(1024, 0, "").words().ends_with(": runtime error"));
    }

    #[test]
    fn the_log_is_read_on_after_it_was_written_over() {
        let mut answers = vec![
            Err(io::Error::from_raw_os_error(libc::EAGAIN)),
            Ok("b"),
            Err(io::Error::from_raw_os_error(libc::EPIPE)),
            Ok("a"),
        ];
        let records = records(|buffer| {
            answers.pop().expect("EAGAIN ends it").map(|text| {
                buffer[..text.len()].copy_from_slice(text.as_bytes());
                text.len()
            })
        });
        assert_eq!(records, ["a", "b"]);
    }

    #[test]
    fn the_kernel_s_log_is_read() {
        let records = [
            "6,100,1,-;usb 1-1: new device",
            "3,101,2,-;sched_ext: BPF scheduler \"twice\" disabled (runtime error)",
            "3,102,2,-;sched_ext: twice: CPU 1: task sh[7] is already dispatched",
            "3,103,2,-;   scx_bpf_dsq_insert+0x10/0x90",
            "3,104,2,-;   bpf_prog_0123456789abcdef_twice_enqueue+0x41/0x60",
            "6,105,3,-;other",
            "6,106,3,-;   stray+0x1/0x2",
        ];
        let log = about_schedulers(&records.map(str::to_owned));
        assert_eq!(log.len(), 4);
        let line =
            |offset, text: &str| Line { function: "twice_enqueue".to_owned(), offset, text: text.to_owned() };
        let lines = Lines(vec![line(0x10, "line 9"), line(0x40, "line 12"), line(0x41, "line 13")]);
        let frames = backtrace(&log, &lines);
        assert_eq!((frames.len(), frames[0].program, &*frames[1].function), (2, false, "twice_enqueue"));
        assert_eq!(frames[1].line.as_deref(), Some("line 12"));
        let exit = from_log(&log).expect("an end");
        assert_eq!((exit.kind, &*exit.message), (1024, "CPU 1: task sh[7] is already dispatched"));
        assert_eq!(from_log(&log[2..]), None);
    }
}
