//! A [`Frame`] as JSON: one document an interval, its schema in docs/schema/top.schema.json.

use super::table::{dynamic, policy_name};
use super::{Filter, Frame, Sort, TaskRow};
use schedlab_model::tasks_now::{Activity, Rank};
use schemars::JsonSchema;
use serde::Serialize;

/// Version of the document's shape.
pub const TOP_SCHEMA_VERSION: u32 = 1;

/// What happened on a machine in one interval.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TopDocument {
    /// Version of this shape: 1.
    pub schema_version: u32,
    /// When the interval ended, in ns since the first look.
    pub time_ns: u64,
    /// Its length.
    pub interval_ns: u64,
    /// `fair`, or the name of the sched_ext scheduler that runs.
    pub scheduler: String,
    /// What its rank means.
    pub rank_meaning: String,
    /// CPUs that are online.
    pub cpus: Vec<TopCpu>,
    /// Tasks, sorted and filtered as asked.
    pub tasks: Vec<TopTask>,
    /// Tasks that were left out by the limit.
    pub tasks_left_out: usize,
}

/// A CPU.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TopCpu {
    /// Its number.
    pub cpu: u32,
    /// Share of the interval in which it did not idle; null if the kernel does not tell.
    pub busy_share: Option<f64>,
    /// Tasks that run or wait there at the interval's end.
    pub queued: u32,
    /// Of them, of the class deadline.
    pub queued_deadline: u32,
    /// Of them, of the class rt.
    pub queued_rt: u32,
    /// Of them, of the class fair.
    pub queued_fair: u32,
    /// Of them, of sched_ext.
    pub queued_ext: u32,
    /// The task that runs; 0 is idle.
    pub current_pid: i32,
    /// Its name.
    pub current: String,
    /// Its class: deadline, rt, fair, ext, idle.
    pub current_class: String,
    /// Switches in the interval.
    pub switches: u64,
}

/// A task.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TopTask {
    /// Its number.
    pub pid: i32,
    /// Its process.
    pub tgid: i32,
    /// Its name.
    pub name: String,
    /// Whether it is the kernel's own.
    pub kernel: bool,
    /// Number of its control group: the inode of its directory below /sys/fs/cgroup.
    pub cgroup: u64,
    /// running, waiting, sleeping, blocked, stopped or dead, at the interval's end.
    pub state: String,
    /// CPU where it is or was last.
    pub cpu: u32,
    /// deadline, rt, fair or ext.
    pub class: String,
    /// normal, fifo, rr, batch, idle, deadline or ext.
    pub policy: String,
    /// Nice value.
    pub nice: i32,
    /// Static priority: 120 is nice 0.
    pub prio_static: i32,
    /// Dynamic priority: the scheduler's own where it has one, else the kernel's; lower is better.
    pub prio_dynamic: i64,
    /// By what its scheduler ranks it; null if it publishes nothing.
    pub rank: Option<TopRank>,
    /// What is left of its slice; null if it has no end, nobody tells, or it sleeps.
    pub slice_left_ns: Option<u64>,
    /// Share of one CPU that it got in the interval.
    pub cpu_share: f64,
    /// How long it could run and did not in the interval; null if the kernel does not count it.
    pub delay_ns: Option<u64>,
    /// Switches away of its own accord in the interval.
    pub switches_voluntary: u64,
    /// Switches away by force in the interval.
    pub switches_involuntary: u64,
}

/// A rank. Lower runs sooner within a class, but for `rt`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TopRank {
    /// rt (priority, higher runs sooner), deadline (ns on the kernel's clock), eevdf (virtual deadline, ns from the
    /// queue's average), cfs (virtual time, ns from the queue's least), level (dynamic priority), vtime (the
    /// scheduler's own unit).
    pub by: String,
    /// The key.
    pub key: i128,
    /// EEVDF: above 0 it has got less than its share, below 0 it may not run yet; else null.
    pub lag_ns: Option<i64>,
}

impl TopDocument {
    /// Of a frame.
    pub fn of(frame: &Frame, sort: Sort, filter: &Filter, tasks_max: usize) -> TopDocument {
        let rows = frame.sorted(sort, filter);
        let cpu = |row: &super::CpuRow| TopCpu {
            cpu: row.now.cpu.0,
            busy_share: row.busy_share,
            queued: row.now.queued,
            queued_deadline: row.now.by_class[0],
            queued_rt: row.now.by_class[1],
            queued_fair: row.now.by_class[2],
            queued_ext: row.now.by_class[3],
            current_pid: row.now.current,
            current: row.now.current_name.clone(),
            current_class: row.now.class.name().to_owned(),
            switches: row.switches,
        };
        TopDocument {
            schema_version: TOP_SCHEMA_VERSION,
            time_ns: frame.time.0,
            interval_ns: frame.interval.0,
            scheduler: frame.scheduler.name.clone(),
            rank_meaning: frame.scheduler.rank_words.clone(),
            cpus: frame.cpus.iter().map(cpu).collect(),
            tasks: rows.iter().take(tasks_max).map(|row| task(row)).collect(),
            tasks_left_out: rows.len().saturating_sub(tasks_max),
        }
    }
}

fn task(row: &TaskRow) -> TopTask {
    let now = &row.now;
    let state = match now.activity {
        Activity::Running => "running",
        Activity::Waiting => "waiting",
        Activity::Sleeping => "sleeping",
        Activity::Blocked => "blocked",
        Activity::Stopped => "stopped",
        Activity::Dead => "dead",
    };
    TopTask {
        pid: now.pid,
        tgid: now.tgid,
        name: now.name.clone(),
        kernel: now.kernel,
        cgroup: now.cgroup,
        state: state.to_owned(),
        cpu: now.cpu.0,
        class: now.class.name().to_owned(),
        policy: policy_name(now.policy).to_owned(),
        nice: now.nice,
        prio_static: now.prio_static,
        prio_dynamic: dynamic(row),
        rank: now.rank.as_ref().map(rank),
        slice_left_ns: now.slice_left.map(|left| left.0),
        cpu_share: row.cpu_share,
        delay_ns: row.delay.map(|delay| delay.0),
        switches_voluntary: row.switches[0],
        switches_involuntary: row.switches[1],
    }
}

fn rank(rank: &Rank) -> TopRank {
    let (by, key, lag_ns) = match *rank {
        Rank::Rt { priority } => ("rt", priority.into(), None),
        Rank::Deadline { deadline_ns } => ("deadline", deadline_ns.into(), None),
        Rank::Eevdf { lag_ns, deadline_ns, .. } => ("eevdf", deadline_ns.into(), Some(lag_ns)),
        Rank::Cfs { vruntime_ns } => ("cfs", vruntime_ns.into(), None),
        Rank::Level { level, .. } => ("level", level.into(), None),
        Rank::Vtime { key } => ("vtime", key.into(), None),
    };
    TopRank { by: by.to_owned(), key, lag_ns }
}

/// The JSON schema of a document.
pub fn schema() -> String {
    let mut schema = schemars::schema_for!(TopDocument);
    schema.insert("$id".to_owned(), "urn:schedlab:schema:top:1".into());
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
    text.push('\n');
    text
}
