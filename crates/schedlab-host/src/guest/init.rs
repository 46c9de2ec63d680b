//! Process 1: mounts what a program expects, runs the command, sends output, files, kernel log and exit code, and
//! powers off.
//!
//! Errors go to the console, which the host keeps; the machine always powers off.

use super::{JOB_PATH, Job};
use crate::vm::frames::{Frame, PAYLOAD_BYTES_MAX};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// File system type and where it is mounted. What a kernel does not have is left out.
const MOUNTS: &[(&str, &str)] = &[
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/dev/shm"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("bpf", "/sys/fs/bpf"),
    ("debugfs", "/sys/kernel/debug"),
    ("tracefs", "/sys/kernel/tracing"),
];

/// So long is read on when the command has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

const PORT_NAME: &str = "schedlab";

type Port = Arc<Mutex<File>>;

/// Does the job and never returns.
pub fn run() -> ! {
    mount_all();
    if let Err(error) = serve() {
        eprintln!("schedlab guest: {error}");
    }
    power_off()
}

fn serve() -> io::Result<()> {
    let port = open_port()?;
    send(&port, &Frame::Hello(uptime_ns()))?;
    let job: Job = serde_json::from_slice(&fs::read(JOB_PATH)?)?;
    let code = command(&job, &port).unwrap_or_else(|error| {
        let text = format!("schedlab guest: {}: {error}\n", job.argv.join(" "));
        // If the port is gone, nobody is left to tell.
        let _ = send(&port, &Frame::Stderr(text.into_bytes()));
        127
    });
    for path in &job.collect {
        let Ok(bytes) = fs::read(path) else { continue };
        send(&port, &Frame::File(path.clone(), Vec::new()))?;
        for part in bytes.chunks(PAYLOAD_BYTES_MAX) {
            send(&port, &Frame::File(path.clone(), part.to_vec()))?;
        }
    }
    for part in kernel_log().chunks(PAYLOAD_BYTES_MAX) {
        send(&port, &Frame::KernelLog(part.to_vec()))?;
    }
    send(&port, &Frame::Exit(code))?;
    let port = port.lock().expect("no thread panics while it holds the port");
    // SAFETY: waits until a serial line is empty; a virtio port refuses, and needs no waiting.
    unsafe { libc::tcdrain(port.as_raw_fd()) };
    Ok(())
}

/// Runs the job's command and passes its output on while it runs.
fn command(job: &Job, port: &Port) -> io::Result<i32> {
    let Some((program, arguments)) = job.argv.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "empty command"));
    };
    let mut child = Command::new(program);
    child
        .args(arguments)
        .env("PATH", "/bin:/sbin:/usr/bin:/usr/sbin")
        .env("HOME", "/root")
        .env("TERM", "dumb");
    child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn()?;
    let out = child.stdout.take().expect("standard output was piped");
    let err = child.stderr.take().expect("standard error was piped");
    let passing = [pass(out, port.clone(), Frame::Stdout), pass(err, port.clone(), Frame::Stderr)];
    let status = child.wait()?;
    // What it left behind may hold its output open for ever.
    let patience = Instant::now() + LAST_WORDS;
    while passing.iter().any(|thread| !thread.is_finished()) && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

fn pass(
    mut from: impl Read + Send + 'static,
    port: Port,
    frame: fn(Vec<u8>) -> Frame,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count) = from.read(&mut buffer) {
            if count == 0 || send(&port, &frame(buffer[..count].to_vec())).is_err() {
                break;
            }
        }
    })
}

fn send(port: &Port, frame: &Frame) -> io::Result<()> {
    let mut port = port.lock().expect("no thread panics while it holds the port");
    frame.write(&mut *port)
}

/// The virtio port that the host listens to, whose driver may still be probing; in kernels that have it only as a
/// module (Debian's 6.1), the second serial line.
fn open_port() -> io::Result<Port> {
    const TRIES: u32 = 50;
    let mut path = find_port();
    for _ in 0..TRIES {
        if path.is_some() || !Path::new("/sys/bus/virtio").exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        path = find_port();
    }
    let path = path.unwrap_or_else(|| PathBuf::from("/dev/ttyS1"));
    let file = fs::OpenOptions::new().read(true).write(true).open(&path)?;
    if path.starts_with("/dev/ttyS1") {
        make_raw(&file)?;
    }
    Ok(Arc::new(Mutex::new(file)))
}

/// Bytes go over the line as they are.
fn make_raw(line: &File) -> io::Result<()> {
    // SAFETY: the kernel fills and reads one termios that lives through the calls.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        if libc::tcgetattr(line.as_raw_fd(), &mut settings) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::cfmakeraw(&mut settings);
        if libc::tcsetattr(line.as_raw_fd(), libc::TCSANOW, &settings) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn find_port() -> Option<PathBuf> {
    let entries = fs::read_dir("/sys/class/virtio-ports").ok()?.filter_map(Result::ok);
    let named =
        |path: &Path| fs::read_to_string(path.join("name")).is_ok_and(|name| name.trim() == PORT_NAME);
    let found = entries.map(|entry| entry.path()).find(|path| named(path))?;
    Some(Path::new("/dev").join(found.file_name()?))
}

fn mount_all() {
    for (kind, target) in MOUNTS {
        // sysfs and cgroup bring their own directories; where one cannot be made, the mount says so.
        let _ = fs::create_dir_all(target);
        let kind = CString::new(*kind).expect("no zero bytes in a constant");
        let target = CString::new(*target).expect("no zero bytes in a constant");
        // SAFETY: all pointers are to strings that live through the call; the last may be null.
        unsafe { libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    }
}

fn uptime_ns() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds: f64 = text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    Duration::try_from_secs_f64(seconds).map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(0))
}

/// The kernel's log so far.
fn kernel_log() -> Vec<u8> {
    const SYSLOG_ACTION_READ_ALL: i32 = 3;
    let mut buffer = vec![0_u8; 1 << 20];
    let size = i32::try_from(buffer.len()).expect("one MiB");
    // SAFETY: the kernel writes at most `size` bytes into the buffer.
    let read = unsafe { libc::klogctl(SYSLOG_ACTION_READ_ALL, buffer.as_mut_ptr().cast(), size) };
    buffer.truncate(usize::try_from(read).unwrap_or(0));
    buffer
}

fn power_off() -> ! {
    // SAFETY: plain system calls; the machine is ours.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}
