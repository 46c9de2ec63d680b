//! What this machine permits, what is missing and how to get it, and who else tunes it.
//!
//! [`examine`] answers in findings: each one fact that scheduling or schedlab depends on, whether it is as it should be, and
//! the remedy. It changes nothing. Whether a candidate can be applied is decided by [`crate::capability`], which this
//! shows too.

use crate::capability::{self, Capabilities};
use crate::machine::Tree;
use crate::process::limits;
use crate::vm::acceleration::kvm_as_tried;
use crate::vm::initramfs::find_program;
use crate::vm::machine::{QEMU, QEMU_PACKAGE};
use schedlab_model::lever::Requirement;
use schedlab_model::machine::KernelVersion;
use serde::Serialize;
use std::fs;
use std::io;
use std::path::Path;

/// How a fact stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// As it should be.
    Good,
    /// Works, but something to know.
    Note,
    /// Missing: something cannot be done.
    Missing,
}

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub subject: &'static str,
    /// How it stands.
    pub standing: Standing,
    /// The fact, in words.
    pub fact: String,
    /// What to do, if something can be done.
    pub remedy: Option<String>,
}

/// A job of schedlab and whether this machine lets it be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Job {
    /// What one would do.
    pub job: &'static str,
    /// Whether it can be done here and now.
    pub possible: bool,
    /// Why not, or how.
    pub why: String,
}

/// Another program that changes how tasks are scheduled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tuner {
    /// Its process name.
    pub program: String,
    /// Its process.
    pub pid: i32,
    /// What it changes.
    pub changes: &'static str,
}

/// All that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Examination {
    /// `uname -r`.
    pub kernel: String,
    /// What can be done.
    pub jobs: Vec<Job>,
    /// Facts.
    pub findings: Vec<Finding>,
    /// Who else tunes this machine.
    pub tuners: Vec<Tuner>,
}

/// Programs that move tasks, interrupts, frequencies or knobs: name (as in /proc/PID/comm, at most 15 characters) and what
/// they change.
const TUNERS: &[(&str, &str)] = &[
    ("tuned", "scheduler knobs, frequency governors and kernel parameters, by profile"),
    ("irqbalance", "which CPU takes which interrupt"),
    ("scx_loader", "the sched_ext scheduler"),
    ("ananicy", "nice values, policies and cgroups of processes by name"),
    ("ananicy-cpp", "nice values, policies and cgroups of processes by name"),
    ("power-profiles-", "energy preferences and boost"),
    ("auto-cpufreq", "frequency governors and boost"),
    ("thermald", "frequency and power limits"),
    ("gamemoded", "nice values, governors and pinning while games run"),
    ("rtkit-daemon", "real-time priority of threads that ask for it"),
    ("uresourced", "cgroup weights of the active user"),
    ("system76-schedu", "nice values and latency of foreground processes"),
    ("numad", "which node processes run on"),
    ("cpufreqd", "frequency governors"),
    ("stalld", "real-time or deadline boosts of starved tasks"),
];

/// Examines the running machine.
pub fn examine() -> Examination {
    let here = capability::probe();
    let files = Tree::new(Path::new("/"));
    let findings = [
        rights(&here),
        kernel(&files, &here),
        tracepoints(&here, capability::try_tracepoint),
        schedulers(&files, &here),
        knobs(&files, &here),
        groups(&files),
        hardware(&files),
        machines(&files),
    ];
    Examination {
        jobs: jobs(&here, &files),
        findings: findings.concat(),
        tuners: tuners(Path::new("/proc")),
        kernel: here.kernel_release,
    }
}

fn good(subject: &'static str, fact: impl Into<String>) -> Finding {
    Finding { subject, standing: Standing::Good, fact: fact.into(), remedy: None }
}

fn other(subject: &'static str, standing: Standing, fact: impl Into<String>, remedy: &str) -> Finding {
    let remedy = (!remedy.is_empty()).then(|| remedy.to_owned());
    Finding { subject, standing, fact: fact.into(), remedy }
}

fn jobs(here: &Capabilities, files: &Tree) -> Vec<Job> {
    let job = |job, missing: Option<String>, how: &str| Job {
        job,
        possible: missing.is_none(),
        why: missing.unwrap_or_else(|| how.to_owned()),
    };
    let record = match here {
        Capabilities { btf: false, .. } => Some("the kernel has no BTF: it needs CONFIG_DEBUG_INFO_BTF=y"),
        Capabilities { bpf: false, .. } => {
            Some("needs root, or CAP_BPF and CAP_PERFMON, outside of user namespaces: use sudo on the host")
        }
        Capabilities { lockdown: Some(mode), .. } if mode == "confidentiality" => {
            Some("lockdown=confidentiality keeps BPF programs from reading what the kernel does")
        }
        _ => None,
    };
    let needs = |requirement| here.missing(&requirement).map(|what| format!("needs {what}"));
    let elsewhere = if here.sched_ext { "" } else { "; `schedlab vm try` has one" };
    let run = needs(Requirement::SchedExt).map(|what| what + elsewhere);
    let (priority, knobs) = (needs(Requirement::RaisePriority), needs(Requirement::Debugfs));
    let virtual_machine =
        find_program(QEMU).is_none().then(|| format!("no QEMU: apt install {QEMU_PACKAGE}"));
    let how = match (kvm_opens(files), kvm_as_tried()) {
        (Ok(()), Some(true)) => "by KVM",
        (Ok(()), Some(false)) => "by emulation: KVM booted no kernel when it was tried",
        (Ok(()), None) => "by KVM, if it boots the kernel, else by emulation",
        (Err(error), _) if error.kind() == io::ErrorKind::NotFound => "by emulation: there is no /dev/kvm",
        (Err(_), _) => "by emulation: /dev/kvm cannot be opened",
    };
    vec![
        job("simulate, compare recordings, show", None, "needs nothing"),
        job("record, compare -- COMMAND", record.map(str::to_owned), "BPF programs on tracepoints"),
        job("try schedulers in a virtual machine (vm)", virtual_machine, how),
        job("run sched_ext schedulers on this kernel", run, "loads through libbpf"),
        job("raise priority: nice below 0, real-time", priority, "as root or by CAP_SYS_NICE"),
        job("change knobs of the fair scheduler", knobs, "/sys/kernel/debug/sched"),
    ]
}

fn rights(here: &Capabilities) -> Vec<Finding> {
    let what = if here.root { "root" } else { "an ordinary user" };
    let memory = Some(limits(libc::RLIMIT_MEMLOCK).rlim_cur).filter(|bytes| *bytes != libc::RLIM_INFINITY);
    let bpf = if here.bpf {
        good("rights", format!("{what}, may load BPF programs"))
    } else {
        other(
            "rights",
            Standing::Missing,
            format!("{what}, may not load BPF programs"),
            "sudo, or setcap cap_bpf,cap_perfmon+ep on the program",
        )
    };
    let locked = memory.map(|bytes| format!("; {} MiB may be locked", bytes >> 20)).unwrap_or_default();
    vec![Finding { fact: bpf.fact.clone() + &locked, ..bpf }]
}

fn kernel(files: &Tree, here: &Capabilities) -> Vec<Finding> {
    let mut found = vec![good("kernel", here.kernel_release.clone())];
    found.push(if here.btf {
        good("types", "the kernel describes its types (BTF)")
    } else {
        other(
            "types",
            Standing::Missing,
            "no /sys/kernel/btf/vmlinux",
            "a kernel with CONFIG_DEBUG_INFO_BTF=y",
        )
    });
    if files.text("/proc/sys/net/core/bpf_jit_enable").as_deref() == Some("0") {
        let fact = "BPF programs are interpreted: recording and schedulers cost several times as much";
        found.push(other("BPF", Standing::Note, fact, "sysctl net.core.bpf_jit_enable=1"));
    }
    let options = files.text("/proc/cmdline").unwrap_or_default();
    if let Some(isolated) = files.text("/sys/devices/system/cpu/isolated").filter(|cpus| !cpus.is_empty()) {
        let fact = format!("CPUs {isolated} are isolated: nobody balances them, only pinned tasks run there");
        found.push(other("CPUs", Standing::Note, fact, ""));
    }
    for (option, means) in [
        ("nohz_full=", "no tick on these CPUs while one task runs"),
        ("preempt=", "how eagerly the kernel switches"),
        ("nosmt", "hardware threads are off"),
    ] {
        for word in options.split_whitespace().filter(|word| word.starts_with(option)) {
            found.push(other("kernel", Standing::Note, format!("booted with {word}: {means}"), ""));
        }
    }
    if let Some(clock) = files.text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        && !["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"].contains(&clock.as_str())
    {
        let fact = format!(
            "the clock source is {clock}: reading the time is slow, which every event of a recording does"
        );
        found.push(other(
            "clock",
            Standing::Note,
            fact,
            "find out in dmesg why tsc was refused; clocksource=tsc if the processor's is constant",
        ));
    }
    found
}

/// What recording is made of, tried. Without rights there is nothing to try.
fn tracepoints(here: &Capabilities, attach: impl Fn() -> io::Result<()>) -> Vec<Finding> {
    if !here.bpf {
        return Vec::new();
    }
    vec![match attach() {
        Ok(()) => good("tracepoints", "a BPF program can be attached to sched_switch (tried)"),
        Err(error) => other(
            "tracepoints",
            Standing::Missing,
            format!("no BPF program can be attached to sched_switch: {error}"),
            "a kernel with CONFIG_BPF_SYSCALL=y and CONFIG_BPF_EVENTS=y, outside of containers, no lockdown=confidentiality",
        ),
    }]
}

fn schedulers(files: &Tree, here: &Capabilities) -> Vec<Finding> {
    if !here.sched_ext {
        let fact = "no sched_ext in this kernel";
        return vec![other(
            "sched_ext",
            Standing::Missing,
            fact,
            "Linux 6.12 or newer with CONFIG_SCHED_CLASS_EXT=y",
        )];
    }
    let state = files.text("/sys/kernel/sched_ext/state").unwrap_or_default();
    let running = files.text("/sys/kernel/sched_ext/root/ops").unwrap_or_default();
    let rejected = files.text("/sys/kernel/sched_ext/nr_rejected").unwrap_or_default();
    let fact = match state.as_str() {
        "disabled" => "there, and no scheduler runs".to_owned(),
        _ => format!("{state}: '{running}' runs, {rejected} tasks rejected"),
    };
    let standing = if state == "disabled" { Standing::Good } else { Standing::Note };
    vec![other("sched_ext", standing, fact, "")]
}

fn knobs(files: &Tree, here: &Capabilities) -> Vec<Finding> {
    let mut found = vec![if here.debugfs_sched {
        good("knobs", "/sys/kernel/debug/sched can be written")
    } else {
        let (fact, remedy) = debugfs(files, here);
        other("knobs", Standing::Missing, fact, &remedy)
    }];
    found.extend(real_time(files, here));
    if here.raise_priority {
        found.extend(refused_real_time(capability::try_real_time()));
    }
    if files.text("/proc/sys/kernel/sched_autogroup_enabled").as_deref() == Some("1") {
        let fact = "autogroup is on: each session is a group, so nice values count only within a session";
        found.push(other(
            "autogroup",
            Standing::Note,
            fact,
            "sysctl kernel.sched_autogroup_enabled=0 to compare nice values across sessions",
        ));
    }
    found
}

/// Why the knobs cannot be written, and what helps.
fn debugfs(files: &Tree, here: &Capabilities) -> (String, String) {
    const KNOBS: &str = "/sys/kernel/debug/sched";
    if let Some(mode) = here.lockdown.as_deref().filter(|mode| *mode != "none") {
        let fact = format!("lockdown ({mode}) keeps everybody from {KNOBS}, also root");
        return (fact, "no lockdown= on the command line, Secure Boot off; or a virtual machine".to_owned());
    }
    if !here.root {
        // Only root may look into it.
        return (
            format!("only root may write {KNOBS}"),
            "sudo schedlab doctor tells whether root can".to_owned(),
        );
    }
    let is_mounted = |text: String| text.lines().any(|line| line.split(' ').nth(2) == Some("debugfs"));
    if files.text("/proc/mounts").is_none_or(|text| !is_mounted(text)) {
        let remedy = "mount -t debugfs none /sys/kernel/debug, then look again: lockdown may hide it even so";
        return (format!("debugfs is not mounted, so there is no {KNOBS}"), remedy.to_owned());
    }
    (
        format!("{KNOBS} cannot be written"),
        "a kernel with CONFIG_DEBUG_FS=y, outside of containers".to_owned(),
    )
}

/// Root may make tasks real-time, unless its control group has no time for them.
fn refused_real_time(tried: io::Result<()>) -> Option<Finding> {
    let error = tried.err()?;
    let fact = format!("no task here can be made real-time, though this process has the right to: {error}");
    let remedy = "give the control group time for them (cpu.rt_runtime_us), or boot with rt_group_sched=0";
    Some(other("real-time", Standing::Missing, fact, remedy))
}

/// What keeps real-time tasks from starving the others: since 6.12 a server for the fair class, before a quota.
fn real_time(files: &Tree, here: &Capabilities) -> Option<Finding> {
    if here.kernel? >= KernelVersion::V6_12 {
        return Some(good(
            "real-time",
            "the fair class has a server that runs it beside real-time hogs (5 % of a CPU by default)",
        ));
    }
    let number = |path: &str| files.text(path).and_then(|text| text.parse::<i64>().ok());
    match (
        number("/proc/sys/kernel/sched_rt_runtime_us")?,
        number("/proc/sys/kernel/sched_rt_period_us").unwrap_or(0),
    ) {
        (-1, _) => {
            let fact = "is not throttled: a real-time hog takes its CPU for ever";
            Some(other("real-time", Standing::Note, fact, "sysctl kernel.sched_rt_runtime_us=950000"))
        }
        (runtime, period) if period > 0 => Some(good(
            "real-time",
            format!("gets at most {} % of a CPU before others do", runtime * 100 / period),
        )),
        _ => None,
    }
}

fn groups(files: &Tree) -> Vec<Finding> {
    let unified = files.text("/sys/fs/cgroup/cgroup.controllers");
    let (fact, remedy) = match &unified {
        Some(controllers) if controllers.split_whitespace().any(|name| name == "cpu") => {
            return vec![good(
                "cgroups",
                "version 2, with the cpu controller (cpu.weight, cpu.idle, cpu.max)",
            )];
        }
        Some(_) => (
            "version 2, without the cpu controller",
            "unmount version 1's cpu hierarchy; no cgroup_disable=cpu on the command line",
        ),
        None if files.path("/sys/fs/cgroup/cpu").exists() => (
            "version 1: cpu.shares and cpu.cfs_quota_us instead of cpu.weight and cpu.max",
            "systemd.unified_cgroup_hierarchy=1 on the command line",
        ),
        None => ("not mounted", "mount -t cgroup2 none /sys/fs/cgroup"),
    };
    vec![other("cgroups", Standing::Note, fact, remedy)]
}

fn hardware(files: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(flags) = files
        .text("/proc/cpuinfo")
        .and_then(|text| text.lines().find(|line| line.starts_with("flags")).map(str::to_owned))
        && flags.split_whitespace().any(|flag| flag == "hypervisor")
    {
        let fact = "a guest: another scheduler below takes time away (steal), and interrupts between CPUs leave the guest";
        found.push(other("hypervisor", Standing::Note, fact, ""));
    }
    match files.text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").as_deref() {
        None => {}
        Some("performance") => found.push(good("frequency", "governor performance")),
        Some(governor) => {
            let fact = format!(
                "governor {governor}: clocks follow the load, so short runs and idle CPUs are slower"
            );
            found.push(other(
                "frequency",
                Standing::Note,
                fact,
                "cpupower frequency-set -g performance for measurements",
            ));
        }
    }
    if let Some("on") = files.text("/sys/devices/system/cpu/smt/control").as_deref() {
        let fact = "hardware threads share cores: what runs beside a task changes its speed";
        found.push(other("SMT", Standing::Note, fact, ""));
    }
    let online = files.text("/sys/devices/system/cpu/online");
    let present = files.text("/sys/devices/system/cpu/present");
    if let (Some(online), Some(present)) = (online, present)
        && online != present
    {
        found.push(other("CPUs", Standing::Note, format!("online {online} of {present}"), ""));
    }
    found
}

fn machines(files: &Tree) -> Vec<Finding> {
    let qemu = match find_program(QEMU) {
        Some(path) => good("QEMU", path.display().to_string()),
        None => other("QEMU", Standing::Missing, "not installed", &format!("apt install {QEMU_PACKAGE}")),
    };
    let busybox = match find_program("busybox") {
        Some(_) => good("busybox", "there: a shell and tools in the guest"),
        None => other(
            "busybox",
            Standing::Note,
            "not installed: no shell in the guest",
            "apt install busybox-static",
        ),
    };
    vec![qemu, kvm(files, kvm_as_tried()), busybox]
}

fn kvm_opens(files: &Tree) -> io::Result<()> {
    fs::OpenOptions::new().read(true).write(true).open(files.path("/dev/kvm")).map(drop)
}

fn kvm(files: &Tree, tried: Option<bool>) -> Finding {
    let note = |fact: String, remedy: &str| other("KVM", Standing::Note, fact, remedy);
    match kvm_opens(files) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => note(
            "no /dev/kvm: virtual machines are emulated, 10 to 20 times slower".to_owned(),
            "on the host: nested virtualisation",
        ),
        Err(error) => {
            let path = files.path("/dev/kvm");
            // Debian's rule gives it to the group kvm; where it is root's alone, being in that group helps nobody.
            let is_root_s =
                fs::metadata(path).is_ok_and(|data| std::os::unix::fs::MetadataExt::gid(&data) == 0);
            let remedy = if is_root_s {
                "sudo chgrp kvm /dev/kvm && sudo chmod g+rw /dev/kvm, and be in that group"
            } else {
                "add yourself to its group (kvm)"
            };
            note(format!("/dev/kvm cannot be opened ({error}): virtual machines are emulated"), remedy)
        }
        Ok(()) => match tried {
            Some(true) => good("KVM", "boots kernels (tried)"),
            Some(false) => note(
                "/dev/kvm can be opened, but booted no kernel when tried: virtual machines are emulated"
                    .to_owned(),
                "on the host: nested virtualisation; `schedlab vm boot --kvm` tries again",
            ),
            None => good(
                "KVM",
                "/dev/kvm can be opened; whether it boots a kernel is tried at the first `schedlab vm`",
            ),
        },
    }
}

/// The programs of [`TUNERS`], and sched_ext schedulers' user halves, that run.
pub fn tuners(proc: &Path) -> Vec<Tuner> {
    let Ok(entries) = fs::read_dir(proc) else { return Vec::new() };
    let mut found: Vec<Tuner> = entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?.trim().to_owned();
            // Threads of the kernel's own (scx_enable_helper) have no command line.
            if fs::read(entry.path().join("cmdline")).is_ok_and(|words| words.is_empty()) {
                return None;
            }
            let known = TUNERS.iter().find(|(program, _)| *program == name).map(|(_, changes)| *changes);
            let scheduler = name.starts_with("scx_").then_some("runs a sched_ext scheduler");
            Some(Tuner { changes: known.or(scheduler)?, program: name, pid })
        })
        .collect();
    found.sort_by_key(|tuner| tuner.pid);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
        let directory = tempfile::tempdir().expect("a directory");
        for (path, text) in files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        let root = Tree::new(directory.path());
        (directory, root)
    }

    #[test]
    fn what_differs_from_a_quiet_machine_is_told() {
        let (_directory, files) = machine(&[
            ("proc/cmdline", "quiet nohz_full=2-3\n"),
            ("sys/devices/system/cpu/isolated", "2-3\n"),
            ("proc/sys/net/core/bpf_jit_enable", "0\n"),
            ("proc/sys/kernel/sched_rt_runtime_us", "-1\n"),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"),
            ("sys/devices/system/cpu/online", "0-2\n"),
            ("sys/devices/system/cpu/present", "0-3\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n"),
            ("sys/kernel/sched_ext/state", "enabled\n"),
            ("sys/kernel/sched_ext/root/ops", "lavd\n"),
            ("sys/kernel/sched_ext/nr_rejected", "0\n"),
        ]);
        let here = Capabilities { sched_ext: true, kernel: "6.6".parse().ok(), ..capability::probe() };
        let all = [
            kernel(&files, &here),
            knobs(&files, &here),
            hardware(&files),
            groups(&files),
            schedulers(&files, &here),
        ]
        .concat();
        let has = |subject: &str, words: &str| {
            all.iter().any(|finding| finding.subject == subject && finding.fact.contains(words))
        };
        assert!(has("CPUs", "2-3 are isolated") && has("kernel", "nohz_full=2-3"), "{all:?}");
        assert!(
            has("BPF", "interpreted") && has("real-time", "not throttled") && has("frequency", "powersave")
        );
        assert!(has("CPUs", "0-2 of 0-3") && has("cgroups", "version 2") && has("sched_ext", "'lavd' runs"));
    }

    #[test]
    fn other_tuners_are_found_by_name() {
        let (directory, _) = machine(&[
            ("7/comm", "irqbalance\n"),
            ("9/comm", "scx_lavd\n"),
            ("11/comm", "bash\n"),
            ("self/comm", "tuned\n"),
        ]);
        let found = tuners(directory.path());
        let names: Vec<(i32, &str)> = found.iter().map(|tuner| (tuner.pid, tuner.program.as_str())).collect();
        assert_eq!(names, [(7, "irqbalance"), (9, "scx_lavd")]);
    }

    #[test]
    fn what_was_tried_and_refused_is_told_with_a_remedy() {
        let denied = || io::Error::from_raw_os_error(libc::EPERM);
        let here = Capabilities { bpf: true, root: true, lockdown: None, ..capability::probe() };
        let found = tracepoints(&here, || Err(denied()));
        assert!(
            found[0].standing == Standing::Missing && found[0].fact.contains("not permitted"),
            "{found:?}"
        );
        assert_eq!(tracepoints(&here, || Ok(()))[0].standing, Standing::Good);
        assert_eq!(tracepoints(&Capabilities { bpf: false, ..here.clone() }, || Err(denied())), []);
        assert!(refused_real_time(Err(denied())).is_some_and(|found| found.remedy.is_some()));
        assert_eq!(refused_real_time(Ok(())), None);
        let (_directory, mounted) = machine(&[("proc/mounts", "none /sys/kernel/debug debugfs rw 0 0\n")]);
        let (_other, bare) = machine(&[]);
        let locked = Capabilities { lockdown: Some("integrity".to_owned()), ..here.clone() };
        let user = Capabilities { root: false, ..here.clone() };
        for (files, here, says) in [
            (&bare, &here, "not mounted"),
            (&mounted, &here, "cannot be written"),
            (&mounted, &locked, "lockdown (integrity)"),
            (&mounted, &user, "only root"),
        ] {
            assert!(debugfs(files, here).0.contains(says), "{:?}", debugfs(files, here));
        }
    }

    #[test]
    fn kvm_is_what_came_of_it() {
        let (_directory, bare) = machine(&[]);
        assert!(kvm(&bare, Some(true)).fact.contains("no /dev/kvm"));
        let (_directory, files) = machine(&[("dev/kvm", "")]);
        assert_eq!(kvm(&files, Some(true)).standing, Standing::Good);
        assert!(kvm(&files, Some(false)).fact.contains("booted no kernel"));
        assert!(kvm(&files, None).fact.contains("is tried"));
    }

    #[test]
    fn jobs_that_cannot_be_done_say_why() {
        let (_directory, files) = machine(&[]);
        let here = Capabilities {
            btf: false,
            sched_ext: false,
            debugfs_sched: false,
            root: true,
            lockdown: Some("integrity".to_owned()),
            ..capability::probe()
        };
        let jobs = jobs(&here, &files);
        let why = |name: &str| {
            jobs.iter().find(|job| job.job.contains(name) && !job.possible).map(|job| job.why.as_str())
        };
        assert!(why("record").is_some_and(|why| why.contains("CONFIG_DEBUG_INFO_BTF")));
        assert!(why("sched_ext").is_some_and(|why| why.contains("vm try")));
        assert!(why("knobs").is_some_and(|why| why.contains("lockdown")));
        assert!(jobs[0].possible);
    }
}
