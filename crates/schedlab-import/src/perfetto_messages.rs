//! The messages of a Perfetto trace that are used, with the field numbers of its `protos/perfetto/trace`.
//!
//! Texts are declared as bytes: tasks may be named by any, and a text that is not UTF-8 would refuse the whole trace.
//! How they are read: [`crate::perfetto`].

use prost::Message;
use prost::bytes::Bytes as Blob;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Packets {
    #[prost(message, repeated, tag = "1")]
    pub packets: Vec<Packet>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Packet {
    #[prost(message, optional, tag = "1")]
    pub ftrace: Option<Bundle>,
    #[prost(message, optional, tag = "2")]
    pub tree: Option<Tree>,
    #[prost(message, optional, tag = "34")]
    pub stats: Option<Stats>,
    #[prost(message, optional, tag = "45")]
    pub system: Option<System>,
    #[prost(bytes = "bytes", optional, tag = "50")]
    pub packed: Option<Blob>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Bundle {
    #[prost(uint32, tag = "1")]
    pub cpu: u32,
    #[prost(message, repeated, tag = "2")]
    pub events: Vec<Ftrace>,
    #[prost(bool, tag = "3")]
    pub lost_events: bool,
    #[prost(message, optional, tag = "4")]
    pub compact: Option<Compact>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compact {
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub names: Vec<Vec<u8>>,
    #[prost(uint64, repeated, tag = "1")]
    pub switch_time: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub switch_prev_state: Vec<i64>,
    #[prost(int32, repeated, tag = "3")]
    pub switch_next_pid: Vec<i32>,
    #[prost(int32, repeated, tag = "4")]
    pub switch_next_prio: Vec<i32>,
    #[prost(uint32, repeated, tag = "6")]
    pub switch_next_name: Vec<u32>,
    #[prost(uint64, repeated, tag = "7")]
    pub waking_time: Vec<u64>,
    #[prost(int32, repeated, tag = "8")]
    pub waking_pid: Vec<i32>,
    #[prost(int32, repeated, tag = "9")]
    pub waking_cpu: Vec<i32>,
    #[prost(int32, repeated, tag = "10")]
    pub waking_prio: Vec<i32>,
    #[prost(uint32, repeated, tag = "11")]
    pub waking_name: Vec<u32>,
    #[prost(uint32, repeated, tag = "12")]
    pub waking_flags: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ftrace {
    #[prost(uint64, tag = "1")]
    pub time: u64,
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    #[prost(uint32, tag = "5")]
    pub flags: u32,
    #[prost(message, optional, tag = "4")]
    pub switch: Option<Switch>,
    #[prost(message, optional, tag = "17")]
    pub wakeup: Option<Wakeup>,
    #[prost(message, optional, tag = "20")]
    pub waking: Option<Wakeup>,
    #[prost(message, optional, tag = "114")]
    pub wakeup_new: Option<Wakeup>,
    #[prost(message, optional, tag = "24")]
    pub softirq_entry: Option<Number>,
    #[prost(message, optional, tag = "25")]
    pub softirq_exit: Option<Number>,
    #[prost(message, optional, tag = "36")]
    pub irq_entry: Option<Number>,
    #[prost(message, optional, tag = "37")]
    pub irq_exit: Option<Number>,
    #[prost(message, optional, tag = "235")]
    pub new_task: Option<NewTask>,
    #[prost(message, optional, tag = "236")]
    pub rename: Option<Rename>,
    #[prost(message, optional, tag = "237")]
    pub exec: Option<Process>,
    #[prost(message, optional, tag = "238")]
    pub exit: Option<Process>,
    #[prost(message, optional, tag = "239")]
    pub fork: Option<Fork>,
    #[prost(message, optional, tag = "491")]
    pub migrate: Option<Migrate>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Switch {
    #[prost(bytes = "vec", tag = "1")]
    pub prev_name: Vec<u8>,
    #[prost(int32, tag = "2")]
    pub prev_pid: i32,
    #[prost(int32, tag = "3")]
    pub prev_prio: i32,
    #[prost(int64, tag = "4")]
    pub prev_state: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub next_name: Vec<u8>,
    #[prost(int32, tag = "6")]
    pub next_pid: i32,
    #[prost(int32, tag = "7")]
    pub next_prio: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Wakeup {
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    #[prost(int32, tag = "2")]
    pub pid: i32,
    #[prost(int32, tag = "3")]
    pub prio: i32,
    #[prost(int32, tag = "5")]
    pub cpu: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Migrate {
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    #[prost(int32, tag = "2")]
    pub pid: i32,
    #[prost(int32, tag = "3")]
    pub prio: i32,
    #[prost(int32, tag = "4")]
    pub from: i32,
    #[prost(int32, tag = "5")]
    pub to: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Fork {
    #[prost(int32, tag = "2")]
    pub parent: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub name: Vec<u8>,
    #[prost(int32, tag = "4")]
    pub child: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NewTask {
    #[prost(int32, tag = "1")]
    pub pid: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    #[prost(uint64, tag = "3")]
    pub clone_flags: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Rename {
    #[prost(int32, tag = "1")]
    pub pid: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub name: Vec<u8>,
}

/// `sched_process_exec` and `sched_process_exit`: the pid has the same number.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Process {
    #[prost(int32, tag = "2")]
    pub pid: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Number {
    #[prost(uint32, tag = "1")]
    pub number: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Tree {
    #[prost(message, repeated, tag = "1")]
    pub processes: Vec<TreeProcess>,
    #[prost(message, repeated, tag = "2")]
    pub threads: Vec<TreeThread>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TreeProcess {
    #[prost(int32, tag = "1")]
    pub pid: i32,
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub command: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TreeThread {
    #[prost(int32, tag = "1")]
    pub tid: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    #[prost(int32, tag = "3")]
    pub tgid: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct System {
    #[prost(message, optional, tag = "1")]
    pub utsname: Option<Utsname>,
    #[prost(uint32, tag = "8")]
    pub cpus: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Utsname {
    #[prost(bytes = "vec", tag = "3")]
    pub release: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Stats {
    #[prost(int32, tag = "1")]
    pub phase: i32,
    #[prost(message, repeated, tag = "2")]
    pub cpus: Vec<CpuStats>,
}

/// `FtraceStats.Phase`.
pub(crate) const START_OF_TRACE: i32 = 1;
pub(crate) const END_OF_TRACE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CpuStats {
    #[prost(uint64, tag = "1")]
    pub cpu: u64,
    #[prost(uint64, tag = "3")]
    pub overrun: u64,
    #[prost(uint64, tag = "4")]
    pub commit_overrun: u64,
    #[prost(uint64, tag = "8")]
    pub dropped: u64,
}
