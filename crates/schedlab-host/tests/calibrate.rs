//! A calibration leaves the process that makes it as it was, also one that is ended early. Needs root and BTF; says so
//! loudly where they are not there, and fails where CI is set.

use schedlab_host::calibrate::{CalibrateError, calibrate, is_usable};
use schedlab_host::record::RecordError;
use schedlab_model::CpuId;
use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Nice value, real-time priority, policy and CPUs of every thread of this process, by its number.
fn attributes() -> BTreeMap<String, [String; 4]> {
    let threads = fs::read_dir("/proc/self/task").expect("procfs").flatten();
    let of = |entry: fs::DirEntry| {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
        let (stat, status) = (read("stat")?, read("status")?);
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:"))?.trim();
        // Fields 19, 40 and 41 of proc_pid_stat(5); the first one behind the name is the third.
        let found = [fields[16], fields[37], fields[38], cpus].map(str::to_owned);
        Some((entry.file_name().into_string().ok()?, found))
    };
    threads.filter_map(of).collect()
}

/// This thread is none that everything has by default.
fn become_unusual() {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: plain calls on the calling thread; the struct lives through the call.
    unsafe {
        assert_eq!(libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameter), 0);
        assert_eq!(libc::setpriority(libc::PRIO_PROCESS, 0, 3), 0);
    }
}

#[test]
fn a_calibration_that_is_ended_leaves_its_process_as_it_was() {
    become_unusual();
    let cpus: Vec<CpuId> = (0..2).map(CpuId).filter(|cpu| is_usable(*cpu)).collect();
    let before = attributes();
    // Before the first load, and in the fifth, by which everything has been done that changes an attribute.
    for last in [0, 4] {
        let stop = Arc::new(AtomicBool::new(false));
        let meanwhile = Arc::new(Mutex::new(BTreeMap::new()));
        let (seen, ends) = (Arc::clone(&meanwhile), Arc::clone(&stop));
        let step = move |done: u64, _total: u64| {
            if done == last {
                *seen.lock().expect("nobody panics with it") = attributes();
                ends.store(true, Ordering::Relaxed);
            }
        };
        match calibrate(&cpus, 3, step, &stop) {
            Err(CalibrateError::Interrupted) => {}
            Err(CalibrateError::Record(error @ (RecordError::Privilege { .. } | RecordError::NoBtf))) => {
                assert!(std::env::var_os("CI").is_none(), "CI must be able to record: {error}");
                eprintln!("SKIPPED: {error}");
                return;
            }
            other => panic!("it was ended in load {last}: {:?}", other.map(|measured| measured.rounds)),
        }
        let meanwhile = meanwhile.lock().expect("nobody panics with it");
        assert!(meanwhile.len() > before.len(), "there are threads for the loads: {meanwhile:?}");
        let changed = |found: &[String; 4]| !before.values().any(|usual| usual == found);
        assert!(last == 0 || meanwhile.values().any(changed), "one was tied to a CPU: {meanwhile:?}");
        assert_eq!(attributes(), before, "after load {last}");
    }
}
