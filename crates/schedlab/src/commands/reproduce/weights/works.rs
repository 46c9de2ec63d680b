//! What the experiments run: the programs of `schedlab program` as the built-in workloads model them, beside each other.
//!
//! One set serves `simulate`, `bench programs` and this reproduction (docs/programs.md). primes stands for sysbench's cpu
//! test, rays for c-ray, linpack and fft for the scientific programs. One task is none of them: no program of that set
//! waits for a user.

use schedlab_model::Nanos;
use schedlab_model::workload::{Amount, Op, Program, ProgramId, TaskSpec, Workload, builtin};
use std::sync::Arc;

/// Of a program that no run here sees the end of.
pub const ENDLESS: &str = "time=1000000s";

/// Programs by their built-in names, as `A:KEY=VALUE,...+B`, until they are done.
pub fn programs(text: &str) -> Workload {
    let made = builtin::make(text).expect("the programs of these files are built in");
    made.expect("their parameters are well-formed")
}

/// The same, cut after this time.
pub fn cut(workload: Workload, length: Nanos) -> Arc<Workload> {
    Arc::new(Workload { duration: Some(length), ..workload })
}

/// The same with a task more, `interactive`, of nice 0: it computes for 1 to 3 ms, then waits for 2 ms to `wait_max`.
pub fn with_interactive(mut workload: Workload, wait_max: Nanos) -> Workload {
    let ms = Nanos::from_millis;
    let computes = Op::Run(Amount::Uniform(ms(1), ms(3)));
    let waits = Op::Sleep(Amount::Uniform(ms(2), wait_max));
    let ops = vec![Op::LoopStart { count: 0 }, computes, waits, Op::LoopEnd];
    let first = workload.tasks.first().expect("it has a program");
    let task = TaskSpec {
        name: "interactive".to_owned(),
        process: workload.tasks.iter().map(|task| task.process).max().unwrap_or(0) + 1,
        program: ProgramId(workload.programs.len() as u32),
        stream: workload.tasks.len() as u64,
        ..first.clone()
    };
    workload.programs.push(Program { ops });
    workload.tasks.push(task);
    workload
}
