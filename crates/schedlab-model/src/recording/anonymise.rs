//! A recording without what tells of people and places: names, ids, commands, paths and times of day are replaced,
//! what scheduling is made of stays as it was.
//!
//! Equal names stay equal and different ones different, so that tasks can still be told apart. Of kernel threads the names
//! stay that name functions and CPUs of the kernel; devices, file systems, interfaces and whatever else is in them go.

use super::{Provenance, Recording, TriggerInfo};
use std::collections::HashMap;

impl Recording {
    /// Replaces task names by `program-1`, `program-2`, ..., pids by small numbers, control groups by `/group-1`, ...,
    /// inode numbers and addresses of channels by their row; forgets commands, targets, the kernel's build and the
    /// time of day.
    pub fn anonymise(&mut self) {
        let mut names = Renamed::new("program-");
        let mut groups = Renamed::new("/group-");
        let mut threads = Renamed::new("kernel-thread-");
        let mut devices = Renamed::new("device-");
        let mut pids: HashMap<i32, i32> = HashMap::from([(0, 0)]);
        let mut pid = |old: i32| {
            let next = pids.len() as i32;
            *pids.entry(old).or_insert(next)
        };
        for task in self.tasks.iter_mut().skip(1) {
            task.pid = pid(task.pid);
            task.tgid = pid(task.tgid);
            task.name = match task.attributes.kernel_thread {
                true => kernel_thread(&task.name, &mut threads, &mut devices),
                false => names.of(&task.name),
            };
            task.attributes.cgroup = groups.of(&task.attributes.cgroup);
        }
        for (row, channel) in self.channels.iter_mut().enumerate() {
            channel.identity = row as u64;
        }
        for group in self.provenance.groups.iter_mut().flatten() {
            group.path = groups.of(&group.path);
        }
        let version = self.machine.kernel;
        let old = std::mem::take(&mut self.provenance);
        self.provenance = Provenance {
            command: Vec::new(),
            target: "anonymised".to_owned(),
            kernel_release: version.to_string(),
            started_unix_s: 0,
            // It may name a task.
            trigger: old.trigger.map(|trigger| TriggerInfo { what: "anonymised".to_owned(), ..trigger }),
            ..old
        };
        self.machine.name = "anonymised".to_owned();
        self.machine.description.clear();
    }
}

/// Threads of the kernel whose whole name tells only what they do.
const PLAIN: [&str; 22] = [
    "kthreadd",
    "kauditd",
    "khugepaged",
    "ksmd",
    "khungtaskd",
    "oom_reaper",
    "kdevtmpfs",
    "writeback",
    "kblockd",
    "kintegrityd",
    "rcu_preempt",
    "rcu_sched",
    "rcu_gp",
    "rcu_par_gp",
    "rcu_tasks_kthre",
    "rcu_tasks_rude_",
    "rcu_tasks_trace",
    "pool_workqueue_",
    "slub_flushwq",
    "netns",
    "mm_percpu_wq",
    "psimon",
];

/// Threads that there is one of for each CPU, node or memory zone: this and a number.
const NUMBERED: [&str; 14] = [
    "ksoftirqd/",
    "migration/",
    "cpuhp/",
    "rcuc/",
    "rcuop/",
    "rcuos/",
    "rcuog/",
    "rcub/",
    "rcu_exp_par_gp_kthread_worker/",
    "idle_inject/",
    "watchdog/",
    "kswapd",
    "kcompactd",
    "kdamond.",
];

/// Threads named after a device behind this.
const OF_DEVICES: [&str; 7] =
    ["jbd2/", "napi/", "xfsaild/", "xfs-", "dmcrypt_write/", "scsi_eh_", "scsi_tmf_"];

/// A kernel thread's name without what tells of the machine: what it does and the CPU it is bound to stay.
fn kernel_thread(name: &str, threads: &mut Renamed, devices: &mut Renamed) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbered = |start: &&str| name.strip_prefix(*start).is_some_and(is_number);
    if name.is_empty() || PLAIN.contains(&name) || NUMBERED.iter().any(numbered) {
        return name.to_owned();
    }
    if let Some((number, device)) = name.strip_prefix("irq/").and_then(|rest| rest.split_once('-'))
        && is_number(number)
    {
        return format!("irq/{number}-{}", devices.number(device));
    }
    if let Some(worker) = name.strip_prefix("kworker/") {
        return kernel_worker(worker, threads);
    }
    if let Some((start, device)) =
        OF_DEVICES.iter().find_map(|start| Some((start, name.strip_prefix(start)?)))
    {
        return format!("{start}{}", devices.number(device));
    }
    match name.rsplit_once('/').filter(|(_, cpu)| is_number(cpu)) {
        Some((kind, cpu)) => format!("{}/{cpu}", threads.number(kind)),
        None => threads.number(name),
    }
}

/// Behind `kworker/`: `0:1H`, `u8:2`, perhaps with what it works on; `R-` and the queue that it rescues.
fn kernel_worker(worker: &str, threads: &mut Renamed) -> String {
    if let Some(queue) = worker.strip_prefix("R-") {
        return format!("kworker/R-{}", threads.number(queue));
    }
    let is_place = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'u' | b':' | b'H');
    let (place, rest) = worker.split_at(worker.bytes().take_while(is_place).count());
    let (sign, works_on) = match rest.strip_prefix(['-', '+']) {
        Some(works_on) => (&rest[..1], works_on),
        None => ("", rest),
    };
    let works_on = if works_on.is_empty() { String::new() } else { threads.number(works_on) };
    format!("kworker/{place}{sign}{works_on}")
}

/// New names in the order in which old ones appear.
struct Renamed {
    prefix: &'static str,
    known: HashMap<String, String>,
}

impl Renamed {
    fn new(prefix: &'static str) -> Renamed {
        Renamed { prefix, known: HashMap::new() }
    }

    /// Nothing stays nothing. Of a path each part is renamed by itself, so that groups stay within their parents.
    fn of(&mut self, old: &str) -> String {
        if old.is_empty() || old == "/" {
            return old.to_owned();
        }
        let Some((parent, _)) = old.rsplit_once('/').filter(|_| self.prefix.starts_with('/')) else {
            return self.number(old);
        };
        let parent = self.of(parent);
        let own = self.number(old);
        if parent == "/" { own } else { parent + &own }
    }

    fn number(&mut self, old: &str) -> String {
        let next = self.known.len() + 1;
        self.known.entry(old.to_owned()).or_insert_with(|| format!("{}{next}", self.prefix)).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kernel_threads_lose_devices_and_keep_cpus() {
        let (mut threads, mut devices) = (Renamed::new("kernel-thread-"), Renamed::new("device-"));
        let mut of = |name: &str| kernel_thread(name, &mut threads, &mut devices);
        for name in ["ksoftirqd/3", "kworker/2:1H", "kworker/u16:4", "kswapd0", "rcu_preempt", "migration/63"]
        {
            assert_eq!(of(name), name, "it names what it does and its CPU");
        }
        assert_eq!(of("irq/24-nvme0q1"), "irq/24-device-1");
        assert_eq!(of("irq/25-nvme0q2"), "irq/25-device-2");
        assert_eq!(of("irq/26-nvme0q1"), "irq/26-device-1", "the same device");
        assert_eq!(of("jbd2/sda1-8"), "jbd2/device-3");
        assert_eq!(of("scsi_eh_0"), "scsi_eh_device-4");
        assert_eq!(of("napi/wlan0-8193"), "napi/device-5");
        assert_eq!(of("kworker/R-wg-cr"), "kworker/R-kernel-thread-1");
        assert_eq!(of("192.168.7.5-man"), "kernel-thread-2");
        assert_eq!(of("acme_dev/7"), "kernel-thread-3/7", "bound to its CPU");
        assert_eq!(of("kworker/1:0-acme"), "kworker/1:0-kernel-thread-4");
        assert_eq!(of("kworker/1:0\u{e9}x"), "kworker/1:0kernel-thread-5", "any text");
    }

    #[test]
    fn groups_stay_within_their_parents() {
        let mut groups = Renamed::new("/group-");
        assert_eq!(groups.of(""), "");
        assert_eq!(groups.of("/"), "/");
        let web = groups.of("/system.slice/web.service");
        let parent = groups.of("/system.slice");
        assert_eq!(web, format!("{parent}/group-2"));
        assert_eq!(groups.of("/system.slice/web.service"), web, "the same name for the same group");
        let mut names = Renamed::new("program-");
        assert_eq!(names.of("kworker/0"), "program-1", "a slash in a task's name makes no path");
    }
}
