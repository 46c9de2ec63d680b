//! Callbacks of the real `vtime` as the engine's native code, against the same C compiled by `clang -O2` for
//! this machine: `cargo bench -p schedlab-bpf --bench clang`.
//!
//! Both are called with the arguments of one context switch, call kernel functions that do the same next to
//! nothing (`native/kernel.c` and `support`), and are timed in turns; the engine's time includes entering
//! the program, and clang's code lies as near to the caller as ours does: far calls take longer. Least time of many
//! rounds. Says so and measures nothing where there is no clang.
//! `-- code` writes our machine code to files instead. As a test (`cargo test`) it makes one short round, which
//! shows that all of it still builds and runs.

#[path = "../tests/common/mod.rs"]
mod common;
mod support;

use std::error::Error;
use std::ffi::{CString, c_char, c_int, c_void};
use std::hint::black_box;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use schedlab_bpf::exec::{Compiled, Instance, Options};
use schedlab_bpf::image::ObjectImage;
use support::{Counter, STATIC_PRIO, kfuncs, now};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How much longer than clang's code ours may take.
const WANTED: f64 = 1.5;
/// Rounds, and calls in each: of the bench and of the test.
const BENCH: (u32, u32) = (40, 200_000);
const TEST: (u32, u32) = (1, 800);

/// `SCX_ENQ_CPU_SELECTED` of the invented kernel.
const CPU_SELECTED: u64 = 0x800;

/// A callback's arguments, given the task and `SCX_ENQ_CPU_SELECTED`.
type Arguments = fn(u64, u64) -> [u64; 3];

/// Callbacks of one context switch.
const SWITCH: [(&str, Arguments); 5] = [
    ("vtime_stopping", |task, _| [task, 0, 0]),
    ("vtime_select_cpu", |task, _| [task, 1, 0]),
    ("vtime_enqueue", |task, selected| [task, selected, 0]),
    ("vtime_dispatch", |task, _| [0, task, 0]),
    ("vtime_running", |task, _| [task, 0, 0]),
];

#[link(name = "dl")]
unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;
/// About how far from this program clang's code is to lie.
const NEAR_BYTES: usize = 64 << 20;

/// What clang made.
struct Library(*mut c_void);

impl Library {
    /// Compiles scheduler and kernel functions; none if there is no clang.
    #[expect(clippy::disallowed_methods, reason = "a benchmark runs a compiler")]
    fn compile(directory: &Path) -> Outcome<Option<Library>> {
        let benches = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches");
        let named = std::env::var("SCHEDLAB_CLANG").ok();
        let candidates = [named.as_deref().unwrap_or("clang-19"), "clang"];
        let works = |clang: &&&str| Command::new(clang).arg("--version").output().is_ok();
        let Some(clang) = candidates.iter().find(works) else { return Ok(None) };
        let schedulers = benches.join("../../../bpf/schedulers");
        let mut objects = Vec::new();
        for source in [schedulers.join("vtime.bpf.c"), benches.join("native/kernel.c")] {
            let object = directory.join(format!("callbacks-{}.o", objects.len()));
            let mut command = Command::new(clang);
            // The BPF way of taking arguments turns words into whatever type they have.
            command.args(["-O2", "-fPIC", "-w", "-Wno-int-conversion", "-I"]).arg(benches.join("native"));
            run(command.arg("-c").arg(source).arg("-o").arg(&object))?;
            objects.push(object);
        }
        let library = directory.join("callbacks.so");
        let link = |more: &[&str]| {
            let mut command = Command::new(clang);
            run(command.args(["-shared", "-Wl,-Bsymbolic", "-o"]).arg(&library).args(&objects).args(more))
        };
        // Not every linker knows how to ask for an address.
        let place = (main as *const () as usize).saturating_sub(NEAR_BYTES) & !(NEAR_BYTES - 1);
        link(&[&format!("-Wl,-Ttext-segment={place:#x}")]).or_else(|_| link(&[]))?;
        let path = CString::new(library.to_string_lossy().as_bytes())?;
        // SAFETY: a path that ends with a zero byte; the library has no initialisers.
        let handle = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
        if handle.is_null() { Err("the library does not load".into()) } else { Ok(Some(Library(handle))) }
    }

    fn symbol(&self, name: &str) -> Outcome<*mut c_void> {
        let text = CString::new(name)?;
        // SAFETY: the library stays loaded.
        let symbol = unsafe { dlsym(self.0, text.as_ptr()) };
        if symbol.is_null() { Err(format!("{name} is missing").into()) } else { Ok(symbol) }
    }

    /// The result of one of the functions of `kernel.c` that take nothing.
    fn ask(&self, name: &str) -> Outcome<u64> {
        let symbol = self.symbol(name)?;
        // SAFETY: `kernel.c` defines it as a function without arguments that returns a word.
        Ok(unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> u64>(symbol)() })
    }

    fn callback(&self, name: &str) -> Outcome<unsafe extern "C" fn(*const u64) -> u64> {
        let symbol = self.symbol(name)?;
        // SAFETY: callbacks take the array of their arguments; one that returns less than a word leaves the
        // rest of the register undefined, which nobody looks at.
        Ok(unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const u64) -> u64>(symbol) })
    }
}

/// Starts this program again so that its loader puts libraries where they ask to be, which has to be said beforehand.
#[expect(clippy::disallowed_methods, reason = "a benchmark sees to its own surroundings")]
fn heed_addresses() {
    const HEED: &str = "LD_USE_LOAD_BIAS";
    if std::env::var_os(HEED).is_none()
        && let Ok(program) = std::env::current_exe()
    {
        // It returns only if that cannot be done: then clang's code lies far away, which the output shows.
        let _ = Command::new(program).args(std::env::args_os().skip(1)).env(HEED, "1").exec();
    }
}

fn run(command: &mut Command) -> Outcome<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("clang failed: {}", String::from_utf8_lossy(&output.stderr)).into())
}

/// Nanoseconds a call. Where a loop happens to lie in a cache line costs a cycle of it: calls from several places even
/// that out.
#[inline(always)]
fn time(calls: u32, mut call: impl FnMut()) -> f64 {
    let start = now();
    for _ in 0..calls / 8 {
        call();
        call();
        call();
        call();
        call();
        call();
        call();
        call();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
}

/// Writes the machine code of each callback to a file, to be read beside that of `callbacks.so`.
#[expect(clippy::print_stdout, reason = "a command line program")]
#[expect(clippy::disallowed_methods, reason = "a benchmark writes files")]
fn write_code(compiled: &Compiled<Counter>, directory: &Path) -> Outcome<()> {
    for (name, _) in SWITCH {
        let program = compiled.program(name).ok_or("the object lacks a callback")?;
        let path = directory.join(name).with_extension("bin");
        std::fs::write(&path, compiled.machine_code(program).ok_or("there is no native code")?)?;
        println!("objdump -D -b binary -m i386:x86-64 {}", path.display());
    }
    println!("objdump -d {}", directory.join("callbacks.so").display());
    Ok(())
}

#[expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a command line program")]
fn main() -> Outcome<()> {
    heed_addresses();
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let Some(library) = Library::compile(&directory)? else {
        println!("SKIPPED: there is no clang to compare with; install it or name one with SCHEDLAB_CLANG");
        return Ok(());
    };
    let bytes = schedlab_objects::scheduler("vtime").ok_or("no scheduler of that name")?;
    let image = ObjectImage::load(bytes, "vtime", &common::kernel())?;
    let compiled = Compiled::new(image, &kfuncs(), Options::default())?;
    let mut instance: Instance<Counter> = compiled.instance(1);
    let task = instance.memory().alloc(4096, 64).ok_or("no room for a task")?;
    instance.memory().write_u32(task + STATIC_PRIO, 120);
    let mut host = Counter::default();
    let (their_task, their_flag) = (library.ask("the_task")?, library.ask("cpu_selected")?);
    if std::env::args().any(|argument| argument == "code") {
        return write_code(&compiled, &directory);
    }
    // cargo says `--bench` to benches that it runs as such.
    let (rounds, calls) = if std::env::args().any(|argument| argument == "--bench") { BENCH } else { TEST };
    let apart = library.symbol("vtime_running")?.addr().abs_diff(main as *const () as usize);
    println!("clang's code lies {} MiB from its caller", apart >> 20);
    let mut total = (0.0, 0.0);
    for (name, arguments) in SWITCH {
        let program = compiled.program(name).ok_or("the object lacks a callback")?;
        instance.bind(0, program);
        let (mine, theirs) = (arguments(task, CPU_SELECTED), arguments(their_task, their_flag));
        let callback = library.callback(name)?;
        let (mut ours, mut clang) = (f64::MAX, f64::MAX);
        let mut context = instance.enter(&mut host);
        for _ in 0..rounds {
            ours = ours.min(time(calls, || {
                let [a, b, c] = black_box(&mine);
                black_box(context.call_slot(0, [*a, *b, *c], |_, fault| panic!("{fault}")));
            }));
            // SAFETY: the arguments are those the callback takes: a task of `kernel.c`, numbers.
            clang = clang.min(time(calls, || unsafe {
                black_box(callback(black_box(&theirs).as_ptr()));
            }));
        }
        println!("{name:18} {ours:6.2} ns, clang -O2 {clang:6.2} ns: {:.2} times", ours / clang);
        total = (total.0 + ours, total.1 + clang);
    }
    let ratio = total.0 / total.1;
    println!(
        "{:18} {:6.2} ns, clang -O2 {:6.2} ns: {ratio:.2} times (wanted at most {WANTED})",
        "a context switch", total.0, total.1
    );
    Ok(())
}
