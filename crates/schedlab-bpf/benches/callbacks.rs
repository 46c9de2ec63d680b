//! Cost of the callbacks of the real `vtime` object, in ns a call: `cargo bench -p schedlab-bpf`.
//!
//! The kfuncs do next to nothing, so what is measured is the engine: entering, running, leaving, calling back.

#[path = "../tests/common/mod.rs"]
mod common;
mod support;

use std::hint::black_box;

use schedlab_bpf::exec::{Compiled, Instance, Options};
use schedlab_bpf::image::ObjectImage;
use support::{Counter, STATIC_PRIO, kfuncs, now};

/// Calls of one context switch: program, arguments behind the task.
const SWITCH: [(&str, &[u64]); 5] = [
    ("vtime_stopping", &[1]),
    ("vtime_enqueue", &[0x800]),
    ("vtime_dispatch", &[0]),
    ("vtime_running", &[]),
    ("vtime_select_cpu", &[0, 0]),
];

struct Bench {
    instance: Instance<Counter>,
    host: Counter,
    task: u64,
}

impl Bench {
    fn new(compiled: &Compiled<Counter>) -> Bench {
        let mut instance = compiled.instance(1);
        let task = instance.memory().alloc(4096, 64).expect("room for a task");
        instance.memory().write_u32(task + STATIC_PRIO, 120);
        Bench { instance, host: Counter::default(), task }
    }

    /// Nanoseconds and instructions of one call.
    fn measure(&mut self, program: usize, arguments: &[u64], calls: u64) -> (f64, f64) {
        let mut all = vec![self.task];
        all.extend_from_slice(arguments);
        let before = self.instance.executed();
        let start = now();
        let mut context = self.instance.enter(&mut self.host);
        for _ in 0..calls {
            black_box(context.call(program, black_box(&all)).expect("no fault"));
        }
        let nanos = start.elapsed().as_secs_f64() * 1e9 / calls as f64;
        (nanos, (self.instance.executed() - before) as f64 / calls as f64)
    }
}

#[expect(clippy::print_stdout, reason = "a command line program")]
fn main() {
    let bytes = schedlab_objects::scheduler("vtime").expect("the object is built in");
    let image = ObjectImage::load(bytes, "vtime", &common::kernel()).expect("it loads");
    let insns: usize = image.programs.iter().map(|program| program.insns.len()).sum();
    let start = now();
    let compiled = Compiled::new(image, &kfuncs(), Options::default()).expect("it compiles");
    let compile = start.elapsed().as_secs_f64() * 1e6;
    println!("compile: {insns} instructions in {compile:.0} us, {:.1} us each", compile / insns as f64);
    let start = now();
    let instance = compiled.instance(1);
    println!("instance: {:.0} us", start.elapsed().as_secs_f64() * 1e6);
    drop(instance);
    for interpreted in [false, true] {
        let calls = if interpreted { 500_000 } else { 5_000_000 };
        let mut bench = Bench::new(&compiled);
        bench.instance.set_interpreted(interpreted);
        println!("{}", if interpreted { "interpreter" } else { "native code" });
        let mut total = (0.0, 0.0);
        for (name, arguments) in SWITCH {
            let program = compiled.program(name).expect("the object has it");
            bench.measure(program, arguments, calls / 10);
            let (nanos, executed) = bench.measure(program, arguments, calls);
            println!("  {name:18} {nanos:7.2} ns, {executed:5.1} instructions");
            total = (total.0 + nanos, total.1 + executed);
        }
        println!("  {:18} {:7.2} ns, {:5.1} instructions", "a context switch", total.0, total.1);
    }
}
