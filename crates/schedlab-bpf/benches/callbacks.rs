//! Cost of the callbacks of the real `vtime` object, in ns a call: `cargo bench -p schedlab-bpf`.
//!
//! The kfuncs do next to nothing, so what is measured is the engine: entering, running, leaving, calling back.

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
#[expect(clippy::disallowed_types, reason = "a benchmark reads the clock")]
use std::time::Instant;

use schedlab_bpf::exec::{CallContext, Compiled, Host, Instance, KfuncTable, Options};
use schedlab_bpf::image::ObjectImage;

/// A host that counts.
#[derive(Default)]
struct Counter {
    inserted: u64,
}

impl Host for Counter {}

type Cx<'a> = CallContext<'a, Counter>;

/// Offset of `scx.dsq_vtime` in the invented kernel's task.
const DSQ_VTIME: u64 = 1400 + 168;

fn kfuncs() -> KfuncTable<Counter> {
    let mut table = KfuncTable::new();
    table.add("scx_bpf_select_cpu_dfl", |cx: &mut Cx<'_>, _p: u64, prev: u64, _flags: u64, is_idle: u64| {
        cx.memory().write_u8(is_idle, 1);
        prev
    });
    table.add("scx_bpf_create_dsq", |_: &mut Cx<'_>, _dsq: u64, _node: u64| 0_u64);
    table.add_constant("scx_bpf_dsq_insert", 0);
    table.add("scx_bpf_dsq_insert___v2", |cx: &mut Cx<'_>, _p: u64, _dsq: u64, slice: u64, _flags: u64| {
        cx.host().inserted += slice;
        true
    });
    table.add("__scx_bpf_dsq_insert_vtime", |cx: &mut Cx<'_>, _p: u64, args: u64| {
        let slice = cx.memory().read_u64(args + 8);
        cx.host().inserted += slice;
        true
    });
    table.add("scx_bpf_dsq_move_to_local", |_: &mut Cx<'_>, _dsq: u64| true);
    table.add("scx_bpf_task_set_dsq_vtime", |cx: &mut Cx<'_>, p: u64, vtime: u64| {
        cx.memory().write_u64(p + DSQ_VTIME, vtime);
        true
    });
    table.add("scx_bpf_task_cpu", |cx: &mut Cx<'_>, p: u64| cx.memory().read_u32(p + 24));
    table.add("scx_bpf_pick_idle_cpu", |_: &mut Cx<'_>, _mask: u64, _flags: u64| -16_i64);
    table.add("scx_bpf_kick_cpu", |_: &mut Cx<'_>, _cpu: u64, _flags: u64| ());
    table.add("bpf_iter_scx_dsq_new", |_: &mut Cx<'_>, _it: u64, _dsq: u64, _flags: u64| 0_u64);
    table.add("bpf_iter_scx_dsq_next", |_: &mut Cx<'_>, _it: u64| 0_u64);
    table.add("bpf_iter_scx_dsq_destroy", |_: &mut Cx<'_>, _it: u64| ());
    table
}

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
        instance.memory().write_u32(task + 120, 120);
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

#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a benchmark reads the clock")]
fn now() -> Instant {
    Instant::now()
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
