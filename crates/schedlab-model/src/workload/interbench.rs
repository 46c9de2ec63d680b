//! Generator of interbench: a task that people look at or listen to, beside a load.
//!
//! Tasks and loads are those of interbench 0.31 (C. Kolivas), by their times. Not modelled: the thread that keeps time for
//! the measured task (its timer is the task's own), the cache of a disk. A disk, that of the swap too, serves one at a time.
//! What is measured of it: `schedlab bench interbench`.

use super::builder::Builder;
use super::builtin::{BuiltinError, Parameters, repeat, run};
use super::{Amount, ChannelType, Late, Op, TimerRef, Workload};
use crate::ids::ChannelId;
use crate::policy::{Policy, TaskAttributes};
use crate::time::Nanos;

/// Tasks that are measured.
pub const TASKS: [&str; 4] = ["audio", "video", "x", "gaming"];

/// Those that interbench measures as real-time ones (`-r`): it leaves out the others then.
pub const TASKS_RT: [&str; 2] = ["audio", "video"];

/// Loads beside them, in interbench's order. One is missing: `hack`, which 0.31 does not run.
pub const LOADS: [&str; 9] = ["none", "video", "x", "burn", "write", "read", "ring", "compile", "memload"];

/// Period and burn of the tasks with frames.
const AUDIO: (Nanos, Nanos) = (Nanos::from_micros(50_000), Nanos::from_micros(2_500));
const VIDEO: (Nanos, Nanos) = (Nanos::from_micros(16_666), Nanos::from_micros(6_666));
/// What `gaming` burns before it looks at the clock.
pub const GAMING_BURN: Nanos = Nanos::from_millis(100);
/// The bursts of `x` are of 0 to 100 ms, and with the time to the next as long as 100 ms.
pub const X_BURSTS: u64 = 101;
const X_ALL_MS: u64 = 100;

/// The period of a task with frames that are all the same.
#[must_use]
pub fn period(task: &str) -> Option<Nanos> {
    match task {
        "audio" => Some(AUDIO.0),
        "video" => Some(VIDEO.0),
        _ => None,
    }
}

/// The workload.
pub(super) fn interbench(p: &Parameters) -> Result<Workload, BuiltinError> {
    let (task, load) = (p.choice("task", &TASKS)?, p.choice("load", &LOADS)?);
    let times = Times::of(p)?;
    let mut b = Builder::new("interbench", "a task of a desktop beside a load");
    add_load(&mut b, &times, load);
    let attributes = match p.count("rt", 1)? {
        1 if !TASKS_RT.contains(&task) => {
            let problem = format!(
                "interbench measures no {task} in real time (-r): choose task=audio or task=video, or leave rt out"
            );
            return Err(p.error("rt", &problem));
        }
        1 => TaskAttributes { policy: Policy::Fifo, rt_priority: 95, ..TaskAttributes::default() },
        _ => TaskAttributes::default(),
    };
    let lead = p.time_within("lead", "0s", "1440min")?;
    let length = p.time_within("length", "1s", "1440min")?;
    b.task("bench", "interbench", attributes, repeat(0, body(task))).start = lead;
    Ok(b.finish(Some(lead + length))?)
}

/// What loads are made of. All of it is read whatever the load is, so that a bad one is never passed over.
struct Times {
    threads: u32,
    copy: Nanos,
    disk: Nanos,
    mib: Nanos,
    swap: Nanos,
    turn: Nanos,
}

impl Times {
    /// What a load waits for or does in each round takes time, or it would do without end what takes none.
    fn of(p: &Parameters) -> Result<Times, BuiltinError> {
        Ok(Times {
            threads: p.positive("threads", 10_000)?,
            copy: p.cpu_time("copy")?,
            disk: p.time_within("disk", "1us", "60s")?,
            mib: p.cpu_time("mib")?,
            swap: p.time_within("swap", "1us", "60s")?,
            turn: p.time_within("turn", "1us", "60s")?,
        })
    }
}

fn timer(period: Nanos) -> Op {
    Op::Timer { timer: TimerRef::Own(0), from_start: false, period, deadline: period, late: Late::Skip }
}

/// What a task does again and again.
fn body(task: &str) -> Vec<Op> {
    match task {
        "audio" => vec![timer(AUDIO.0), run(AUDIO.1)],
        "video" => vec![timer(VIDEO.0), run(VIDEO.1)],
        "x" => x_bursts(),
        _ => vec![Op::JobStart { deadline: Some(GAMING_BURN) }, run(GAMING_BURN), Op::JobEnd],
    }
}

/// How long after the release of burst `index` that of the next one is: its deadline counts the burst before once more.
#[must_use]
pub fn x_distance(index: u64) -> Nanos {
    let before = if index == 0 { X_ALL_MS } else { index - 1 };
    Nanos::from_millis(before + X_ALL_MS - index)
}

fn x_bursts() -> Vec<Op> {
    let burst = |index: u64| {
        let before = if index == 0 { X_ALL_MS } else { index - 1 };
        [timer(x_distance(before)), run(Nanos::from_millis(index))]
    };
    (0..X_BURSTS).flat_map(burst).collect()
}

fn add_load(b: &mut Builder, times: &Times, load: &str) {
    match load {
        "video" | "x" => background(b, load, repeat(0, body(load))),
        "burn" => burners(b, times),
        "write" | "read" => files(b, times, &[load]),
        "ring" => ring(b, times),
        "compile" => {
            burners(b, times);
            files(b, times, &["write", "read"]);
        }
        "memload" => memory(b, times),
        _ => {}
    }
}

fn background(b: &mut Builder, name: &str, ops: Vec<Op>) {
    b.task(name, "load", TaskAttributes::default(), ops).target = false;
}

fn burners(b: &mut Builder, times: &Times) {
    for index in 0..times.threads {
        background(b, &format!("burn{index}"), repeat(0, vec![run(Nanos::from_millis(100))]));
    }
}

/// Tasks that copy a block each, then wait for the disk they share.
fn files(b: &mut Builder, times: &Times, names: &[&str]) {
    let disk = b.channel("disk", ChannelType::Mutex, 0, 0);
    for name in names {
        let steps = [vec![run(times.copy)], served(disk, times.disk)].concat();
        background(b, name, repeat(0, steps));
    }
}

/// Waits until the disk has done something that takes so long on average.
fn served(disk: ChannelId, time: Nanos) -> Vec<Op> {
    vec![Op::Lock { channel: disk }, Op::Sleep(Amount::Exponential(time)), Op::Unlock { channel: disk }]
}

/// Goes round through more memory than there is: what was used longest ago is out, which is whatever comes next, so that
/// each MiB waits for the swap.
fn memory(b: &mut Builder, times: &Times) {
    let disk = b.channel("swap", ChannelType::Mutex, 0, 0);
    let steps = [served(disk, times.swap), vec![run(times.mib)]].concat();
    background(b, "memload", repeat(0, steps));
}

/// Threads that wake one another in a circle.
fn ring(b: &mut Builder, times: &Times) {
    let threads = times.threads.max(2);
    let turn = |index: u32| u64::from(index == 0);
    let all: Vec<_> = (0..threads)
        .map(|index| b.channel(&format!("turn{index}"), ChannelType::Tokens, 0, turn(index)))
        .collect();
    let time = times.turn;
    for index in 0..threads {
        let (own, next) = (all[index as usize], all[((index + 1) % threads) as usize]);
        let steps =
            vec![Op::Take { channel: own, timeout: None }, run(time), Op::Post { channel: next, tokens: 1 }];
        background(b, &format!("ring{index}"), repeat(0, steps));
    }
}

#[cfg(test)]
mod tests {
    use super::super::builtin;
    use super::*;

    #[test]
    fn every_task_can_be_made_beside_every_load() {
        for task in TASKS {
            for load in LOADS {
                let text = format!("interbench:task={task},load={load}");
                let workload = builtin::make(&text).expect("known").expect(&text);
                assert_eq!(workload.tasks.iter().filter(|task| task.target).count(), 1, "{text}");
                assert_eq!(workload.tasks.len() == 1, load == "none", "{text}");
            }
        }
        let error = builtin::make("interbench:load=hack").expect("known").expect_err("not run");
        assert!(error.to_string().contains("none, video, x, burn"), "{error}");
    }

    #[test]
    fn only_what_interbench_measures_so_is_real_time() {
        for task in TASKS {
            let made = builtin::make(&format!("interbench:task={task},rt=1")).expect("known");
            assert_eq!(made.is_ok(), TASKS_RT.contains(&task), "{task}");
            if let Ok(workload) = made {
                let rt = workload.tasks.iter().filter(|task| task.attributes.policy == Policy::Fifo);
                assert_eq!(rt.map(|task| task.name.as_str()).collect::<Vec<_>>(), ["bench"]);
            }
        }
    }

    /// A round of X uses half a CPU: 0 to 100 ms of each 100.
    #[test]
    fn a_round_of_x_lasts_twice_as_long_as_its_bursts() {
        let all: u64 = (0..X_BURSTS).map(|index| x_distance(index).0).sum();
        let burnt: u64 = (0..X_BURSTS).map(|index| Nanos::from_millis(index).0).sum();
        assert_eq!((all, burnt), (10_100_000_000, 5_050_000_000));
    }
}
