//! One virtual machine: QEMU boots a kernel with an initramfs, runs one command, and ends.
//!
//! QEMU never outlives its caller: it is killed when the run is dropped, when the caller's thread dies, and at the
//! time limit. Its standard output is the guest's virtio port, so results arrive while the command runs. Not here: how
//! the guest runs the command ([`crate::guest`]).

use super::frames::Frame;
use super::initramfs::{Initramfs, find_program};
use super::{Acceleration, Error, Kernel};
use crate::guest::{Job, PROGRAM};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// The shape of the guest's CPUs: `sockets * cores * threads` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Packages.
    pub sockets: u32,
    /// Cores in each package.
    pub cores: u32,
    /// Hardware threads of each core.
    pub threads: u32,
}

impl Topology {
    /// One package of single-thread cores.
    pub fn flat(cpus: u32) -> Self {
        Self { sockets: 1, cores: cpus, threads: 1 }
    }

    /// How many CPUs that makes.
    pub fn cpus(self) -> u32 {
        self.sockets * self.cores * self.threads
    }
}

impl std::str::FromStr for Topology {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
        match numbers.unwrap_or_default()[..] {
            [sockets, cores, threads]
                if (1..=255).contains(&sockets.saturating_mul(cores).saturating_mul(threads)) =>
            {
                Ok(Self { sockets, cores, threads })
            }
            _ => Err("write SOCKETS:CORES:THREADS with 1 to 255 CPUs in all, e.g. 2:4:2".to_owned()),
        }
    }
}

/// Kernel parameters of every machine: console, end on a panic, and no background work of the kernel's own that
/// would take part in what is measured.
const PARAMETERS: &str = "console=ttyS0 quiet loglevel=4 panic=-1 no_timer_check mitigations=off \
                          random.trust_cpu=on damon_stat.enabled=N cryptomgr.notests";

/// The program, and the Debian package that brings it.
pub(crate) const QEMU: &str = "qemu-system-x86_64";
pub(crate) const QEMU_PACKAGE: &str = "qemu-system-x86";

/// How often an interrupt is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a kernel says that met the trap by which it patches itself (`text_poke_bp`), outside of any patch that it knows of.
const TRIPPED: &str = "int3: ";

/// Frames that may wait to be taken.
const FRAMES_AHEAD: usize = 64;

/// A machine to be booted.
pub struct Machine {
    kernel: Kernel,
    guest: PathBuf,
    topology: Topology,
    memory_mib: u32,
    acceleration: Option<Acceleration>,
    time_limit: Duration,
    files: Vec<(PathBuf, String)>,
    contents: Vec<(Vec<u8>, String)>,
    programs: Vec<PathBuf>,
    collect: Vec<String>,
    parameters: String,
    pass_output: bool,
    interrupted: Option<Arc<AtomicBool>>,
}

/// What came out of a machine.
#[derive(Debug)]
pub struct Run {
    /// The command's exit code, 128 + signal if it was killed.
    pub code: i32,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// The files that were to be collected and were there.
    pub files: BTreeMap<String, Vec<u8>>,
    /// The guest kernel's log.
    pub kernel_log: String,
    /// From QEMU's start to the guest's first process.
    pub boot: Duration,
    /// From QEMU's start to its end.
    pub total: Duration,
    /// How it was executed.
    pub acceleration: Acceleration,
    /// It is the second boot: in the first the kernel tripped over its own patches.
    pub tripped: bool,
}

impl Run {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl Machine {
    /// `guest` is a program that calls [`crate::guest::main_if_init`] first, for instance the running one.
    pub fn new(kernel: Kernel, guest: &Path) -> Self {
        Self {
            kernel,
            guest: guest.to_path_buf(),
            topology: Topology::flat(2),
            memory_mib: 1024,
            acceleration: None,
            time_limit: Duration::from_secs(120),
            files: Vec::new(),
            contents: Vec::new(),
            programs: Vec::new(),
            collect: Vec::new(),
            parameters: String::new(),
            pass_output: false,
            interrupted: None,
        }
    }

    /// The guest's CPUs.
    pub fn topology(&mut self, topology: Topology) -> &mut Self {
        self.topology = topology;
        self
    }

    /// The guest's memory in MiB.
    pub fn memory_mib(&mut self, mib: u32) -> &mut Self {
        self.memory_mib = mib;
        self
    }

    /// How to execute; without it the fastest that works.
    pub fn acceleration(&mut self, acceleration: Acceleration) -> &mut Self {
        self.acceleration = Some(acceleration);
        self
    }

    /// Executes by the fastest way in which loading a scheduler cannot trip the emulated CPUs.
    pub fn safe_for_loading(&mut self) -> &mut Self {
        self.acceleration = Some(Acceleration::best_for_loading(&self.kernel, &self.guest));
        self
    }

    /// QEMU is killed after this long, boot included.
    pub fn time_limit(&mut self, limit: Duration) -> &mut Self {
        self.time_limit = limit;
        self
    }

    /// Puts a file or directory of the host at `path` in the guest.
    pub fn file(&mut self, host: &Path, path: &str) -> &mut Self {
        self.files.push((host.to_path_buf(), path.to_string()));
        self
    }

    /// Puts a file with these contents at `path` in the guest.
    pub fn contents(&mut self, bytes: &[u8], path: &str) -> &mut Self {
        self.contents.push((bytes.to_vec(), path.to_string()));
        self
    }

    /// Puts a program of the host, with its libraries, into the guest's `/bin`.
    pub fn program(&mut self, host: &Path) -> &mut Self {
        self.programs.push(host.to_path_buf());
        self
    }

    /// Further kernel parameters, separated by spaces.
    pub fn parameters(&mut self, parameters: &str) -> &mut Self {
        self.parameters = parameters.to_string();
        self
    }

    /// Takes this file of the guest out when the command has ended.
    pub fn collect(&mut self, path: &str) -> &mut Self {
        self.collect.push(path.to_string());
        self
    }

    /// Writes the command's output to our own as it comes, instead of returning it.
    pub fn pass_output(&mut self, pass: bool) -> &mut Self {
        self.pass_output = pass;
        self
    }

    /// Stops when this becomes true; QEMU itself does not see Ctrl-C.
    pub fn interrupted(&mut self, flag: Arc<AtomicBool>) -> &mut Self {
        self.interrupted = Some(flag);
        self
    }

    /// The kernel's release.
    pub fn release(&self) -> &str {
        &self.kernel.release
    }

    /// Boots, runs `command`, takes the results out, powers off. The command's first word is looked for on the host
    /// and brought along with its libraries; else it is busybox's applet or `schedlab-guest`. Where nobody says how to
    /// execute, a kernel that trips over its own patches as it boots on CPUs with a thread each boots again, in turns, within
    /// the same time limit.
    pub fn run(&self, command: &[&str]) -> Result<Run, Error> {
        if find_program(QEMU).is_none() {
            return Err(Error::Missing { program: QEMU, package: QEMU_PACKAGE });
        }
        if let Some(acceleration) = self.acceleration {
            return self.run_by(acceleration, command, Instant::now() + self.time_limit);
        }
        let best = Acceleration::best(&self.kernel, &self.guest);
        let deadline = Instant::now() + self.time_limit;
        match self.run_by(best, command, deadline) {
            Err(Error::Died { booted: false, tripped: true, .. }) if best == Acceleration::Emulation => {
                let run = self.run_by(Acceleration::EmulationInTurns, command, deadline);
                run.map(|run| Run { tripped: true, ..run })
            }
            outcome => outcome,
        }
    }

    fn run_by(&self, acceleration: Acceleration, command: &[&str], deadline: Instant) -> Result<Run, Error> {
        let scratch = tempfile::tempdir().map_err(Error::system("temporary directory"))?;
        let said = Said::below(scratch.path());
        let initrd =
            memory_file(&self.initramfs(command)?.build()).map_err(Error::system("packing the initramfs"))?;
        let start = Instant::now();
        let qemu = self.qemu(acceleration, initrd.as_raw_fd(), &said);
        let mut qemu = Qemu::start(qemu, &said.qemu)?;
        // QEMU has its own.
        drop(initrd);
        let mut run = Run {
            code: 0,
            stdout: Vec::new(),
            stderr: Vec::new(),
            files: BTreeMap::new(),
            kernel_log: String::new(),
            boot: Duration::ZERO,
            total: Duration::ZERO,
            acceleration,
            tripped: false,
        };
        let frames = qemu.frames();
        let mut ended = false;
        while !ended {
            if self.interrupted.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                return Err(Error::Interrupted);
            }
            match frames.recv_timeout(deadline.saturating_duration_since(Instant::now()).min(LOOK_EVERY)) {
                Ok(frame) => {
                    let first = matches!(frame, Frame::Hello(_));
                    ended = self.take(frame, &mut run);
                    if first {
                        run.boot = start.elapsed();
                    }
                }
                Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let (booted, seconds) = (run.boot > Duration::ZERO, self.time_limit.as_secs());
                    return Err(Error::TimeLimit { booted, seconds, console: said.tail(booted) });
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    let status = qemu.wait(Duration::from_secs(2));
                    ended = said.frames().iter().any(|frame| self.take(frame, &mut run));
                    if !ended {
                        let booted = run.boot > Duration::ZERO;
                        return Err(Error::Died {
                            booted,
                            said: run.text(),
                            status,
                            console: said.tail(booted),
                            tripped: said.console().contains(TRIPPED),
                        });
                    }
                }
            }
        }
        // The result is complete; powering off only takes time.
        drop(qemu);
        run.total = start.elapsed();
        Ok(run)
    }

    /// Adds what a frame says to the run; true if it was the last.
    fn take(&self, frame: Frame, run: &mut Run) -> bool {
        match frame {
            Frame::Stdout(bytes) => {
                if !self.pass_output {
                    run.stdout.extend(bytes);
                } else if std::io::stdout()
                    .write_all(&bytes)
                    .and_then(|()| std::io::stdout().flush())
                    .is_err()
                {
                    // Nobody reads any more: as a signal would end the command on the host.
                    run.code = 128 + libc::SIGPIPE;
                    return true;
                }
            }
            Frame::Stderr(bytes) => {
                if self.pass_output {
                    let _ = std::io::stderr().write_all(&bytes);
                } else {
                    run.stderr.extend(bytes);
                }
            }
            Frame::File(name, bytes) => run.files.entry(name).or_default().extend(bytes),
            Frame::KernelLog(bytes) => run.kernel_log.push_str(&String::from_utf8_lossy(&bytes)),
            Frame::Hello(uptime_ns) => run.boot = Duration::from_nanos(uptime_ns),
            Frame::Exit(code) => {
                run.code = code;
                return true;
            }
        }
        false
    }

    fn initramfs(&self, command: &[&str]) -> Result<Initramfs, Error> {
        let mut archive = Initramfs::new();
        for directory in ["proc", "sys", "dev", "tmp", "run", "root"] {
            archive.add_directory(directory);
        }
        let own = format!("bin/{PROGRAM}");
        archive.add_bare_program(&self.guest, &own)?;
        archive.add_link("init", &own);
        archive.add_link("bin/schedlab", PROGRAM);
        let busybox = find_program("busybox");
        if let Some(busybox) = &busybox {
            archive.add_program(busybox, "bin/busybox")?;
            for applet in applets(busybox) {
                archive.add_link(&format!("bin/{applet}"), "busybox");
            }
        }
        for program in &self.programs {
            archive.add_program(program, &format!("bin/{}", file_name(program)))?;
        }
        for (host, path) in &self.files {
            archive.add_path(host, path)?;
        }
        for (bytes, path) in &self.contents {
            archive.add_bytes(path.trim_start_matches('/'), bytes.clone(), 0o644);
        }
        let mut argv: Vec<String> = command.iter().map(|word| (*word).to_string()).collect();
        if let Some(word) = argv.first_mut() {
            let brought = [PROGRAM, "schedlab"].contains(&word.as_str())
                || self.programs.iter().any(|program| file_name(program) == *word)
                || self
                    .files
                    .iter()
                    .any(|(_, path)| path.trim_start_matches('/') == word.trim_start_matches('/'));
            match find_program(word).filter(|_| !brought && (*word != "sh" || busybox.is_none())) {
                Some(program) => {
                    let path = format!("bin/{}", file_name(&program));
                    archive.add_program(&program, &path)?;
                    *word = format!("/{path}");
                }
                None if !brought && busybox.is_none() => return Err(Error::NoProgram(word.clone())),
                None => {}
            }
        }
        let job = Job { argv, collect: self.collect.clone() };
        archive.add_bytes("schedlab/job.json", job.to_json(), 0o644);
        Ok(archive)
    }

    fn qemu(&self, acceleration: Acceleration, initrd: RawFd, said: &Said) -> Command {
        let Topology { sockets, cores, threads } = self.topology;
        let mut command = Command::new(QEMU);
        command
            .args(["-machine", "q35", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(acceleration.arguments())
            .arg("-smp")
            .arg(format!("{},sockets={sockets},cores={cores},threads={threads}", self.topology.cpus()))
            .args(["-m", &self.memory_mib.to_string()])
            .arg("-kernel")
            .arg(&self.kernel.image)
            .args(["-initrd", &format!("/proc/self/fd/{initrd}")])
            .args(["-append", &format!("{PARAMETERS} {}", self.parameters)])
            .arg("-serial")
            .arg(format!("file:{}", said.console.display()))
            .arg("-serial")
            .arg(format!("file:{}", said.line.display()))
            .args(["-device", "virtio-serial-pci", "-chardev", "file,id=results,path=/dev/fd/1"])
            .args(["-device", "virtserialport,chardev=results,name=schedlab"]);
        command
    }
}

/// A file that exists only while somebody has it open, so that no way out leaves it behind.
fn memory_file(bytes: &[u8]) -> std::io::Result<File> {
    // SAFETY: the name is a C string; a descriptor of 0 or more is new and nobody else's. Without close-on-exec QEMU has it.
    let mut file = unsafe {
        let descriptor = libc::memfd_create(c"initramfs".as_ptr(), 0);
        if descriptor < 0 {
            return Err(std::io::Error::last_os_error());
        }
        File::from_raw_fd(descriptor)
    };
    file.write_all(bytes)?;
    Ok(file)
}

/// The commands that busybox stands in for.
fn applets(busybox: &Path) -> Vec<String> {
    let output = Command::new(busybox).arg("--list").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().filter(|name| *name != "busybox").map(str::to_string).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Where the guest's console and QEMU's own messages are written.
struct Said {
    console: PathBuf,
    /// The second serial line: frames from kernels without a virtio port.
    line: PathBuf,
    qemu: PathBuf,
}

impl Said {
    fn below(directory: &Path) -> Self {
        let file = |name| directory.join(name);
        Self { console: file("console"), line: file("line"), qemu: file("qemu") }
    }

    /// The frames that came over the serial line, once the machine is off.
    fn frames(&self) -> mpsc::Receiver<Frame> {
        let (sender, receiver) = mpsc::sync_channel(FRAMES_AHEAD);
        if let Ok(file) = File::open(&self.line) {
            std::thread::spawn(move || read_frames(std::io::BufReader::new(file), &sender));
        }
        receiver
    }

    /// All that the guest's console said.
    fn console(&self) -> String {
        lossy(&self.console)
    }

    /// The last lines of both, for an error's text.
    fn tail(&self, booted: bool) -> String {
        const LINES: usize = 25;
        let text = self.console() + &lossy(&self.qemu);
        let lines: Vec<&str> = text.lines().collect();
        if lines.is_empty() {
            return if booted { "(nothing)" } else { "(nothing: this image does not boot here)" }.to_owned();
        }
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }
}

/// A file's text; of one that cannot be read there is none.
fn lossy(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// A running QEMU, killed when dropped.
struct Qemu {
    child: Child,
}

impl Qemu {
    fn start(mut command: Command, messages: &Path) -> Result<Self, Error> {
        let messages = File::create(messages).map_err(Error::system("temporary file"))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(messages).process_group(0);
        // SAFETY: both calls are async-signal-safe and touch only the child.
        unsafe {
            let caller = libc::getpid();
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() == caller { Ok(()) } else { Err(std::io::ErrorKind::BrokenPipe.into()) }
            });
        }
        command.spawn().map(|child| Self { child }).map_err(Error::system("starting QEMU"))
    }

    /// The guest's frames, read by a thread that ends with QEMU.
    fn frames(&mut self) -> mpsc::Receiver<Frame> {
        // A slow reader slows the guest down instead of filling our memory.
        let (sender, receiver) = mpsc::sync_channel(FRAMES_AHEAD);
        let output = self.child.stdout.take().expect("standard output was piped");
        std::thread::spawn(move || read_frames(std::io::BufReader::new(output), &sender));
        receiver
    }

    fn wait(&mut self, limit: Duration) -> String {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if let Ok(Some(status)) = self.child.try_wait() {
                return status.to_string();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        "still running".to_string()
    }
}

/// A damaged stream ends like one that stopped: the receiver sees the sender gone.
fn read_frames(mut from: impl Read, to: &mpsc::SyncSender<Frame>) {
    while let Ok(Some(frame)) = Frame::read(&mut from) {
        if to.send(frame).is_err() {
            break;
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
