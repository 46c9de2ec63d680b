//! The small real programs of `schedlab program` as behaviours, each alone or several beside each other.
//!
//! `fibo`, or `fibo:nice=5+rays:threads=4,again=1`: all begin at once. What a program computes is modelled by the CPU time
//! that it uses, what its threads wait for by locks and barriers. Not here: the programs themselves (schedlab-programs).

use super::builder::Builder;
use super::builtin::{Builtin, BuiltinError, Parameter, Parameters, repeat, run};
use super::{Amount, ChannelType, Op, Workload};
use crate::policy::{Nice, TaskAttributes};
use crate::time::Nanos;

/// Work is done in pieces, so that one operation does not hide how far a task came.
const PIECE: Nanos = Nanos::from_millis(10);
/// Rows of a picture.
const ROWS: u32 = 64;

const TIME: Parameter = ("time", "1s", "CPU time of the work");
const NICE: Parameter = ("nice", "0", "nice value");
const AGAIN: Parameter = ("again", "0", "1: background that begins anew when it is done");

/// The programs.
pub(super) const FIBO: Builtin = Builtin {
    name: "fibo",
    description: "A Fibonacci number by recursion: one task that never waits (schedlab program fibo)",
    parameters: &[TIME, NICE, AGAIN],
    make: one,
};
pub(super) const PRIMES: Builtin = Builtin {
    name: "primes",
    description: "Primes by trial division, shared by threads, as sysbench cpu (schedlab program primes)",
    parameters: &[TIME, NICE, AGAIN, ("threads", "1", "threads that share the work")],
    make: one,
};
pub(super) const RAYS: Builtin = Builtin {
    name: "rays",
    description: "A picture by ray tracing, its rows in blocks for threads, as c-ray (schedlab program rays)",
    parameters: &[TIME, NICE, AGAIN, ("threads", "4", "threads, each with a block of rows")],
    make: one,
};
pub(super) const LINPACK: Builtin = Builtin {
    name: "linpack",
    description: "Linear equations by elimination, in 8 MB of memory (schedlab program linpack)",
    parameters: &[TIME, NICE, AGAIN, ("bytes", "8000000", "bytes of its matrix")],
    make: one,
};
pub(super) const FFT: Builtin = Builtin {
    name: "fft",
    description: "Fourier transforms, in 2 MB of memory (schedlab program fft)",
    parameters: &[TIME, NICE, AGAIN, ("bytes", "2097152", "bytes of its signal")],
    make: one,
};
pub(super) const SYSBENCH_THREADS: Builtin = Builtin {
    name: "sysbench-threads",
    description: "Threads that lock a mutex, yield and unlock it, as sysbench threads (schedlab program sysbench-threads)",
    parameters: &[
        ("time", "500ns", "CPU time with the lock held, before and after the yield each"),
        NICE,
        AGAIN,
        ("threads", "4", "threads"),
        ("events", "100", "events of each thread; each uses the next lock"),
        ("yields", "100", "yields of an event"),
        ("locks", "8", "locks"),
    ],
    make: one,
};

const ALL: [&Builtin; 6] = [&FIBO, &PRIMES, &RAYS, &LINPACK, &FFT, &SYSBENCH_THREADS];

fn find(part: &str) -> Option<(&'static Builtin, &str)> {
    let (name, parameters) = part.split_once(':').unwrap_or((part, ""));
    ALL.into_iter().find(|program| program.name == name).map(|program| (program, parameters))
}

/// Several programs beside each other, from `A[:KEY=VALUE,...]+B...`; `None` if that is not what the text is.
pub(super) fn together(text: &str) -> Option<Result<Workload, BuiltinError>> {
    let parts: Vec<&str> = text.split('+').collect();
    if parts.len() < 2 || parts.iter().all(|part| find(part).is_none()) {
        return None;
    }
    Some(beside(&parts))
}

fn beside(parts: &[&str]) -> Result<Workload, BuiltinError> {
    let mut all = Vec::new();
    for part in parts {
        let (program, parameters) = find(part).ok_or_else(|| BuiltinError::NotBeside {
            part: (*part).to_owned(),
            known: ALL.map(|program| program.name).join(", "),
        })?;
        all.push(Parameters::parse(program, parameters)?);
    }
    make(&all)
}

fn one(p: &Parameters) -> Result<Workload, BuiltinError> {
    make(std::slice::from_ref(p))
}

fn make(programs: &[Parameters]) -> Result<Workload, BuiltinError> {
    let again: Vec<bool> =
        programs.iter().map(|p| Ok(p.count("again", 1)? == 1)).collect::<Result<_, BuiltinError>>()?;
    if again.iter().all(|again| *again) {
        return Err(programs[0].error("again", "some program must end: leave it out of one"));
    }
    let names: Vec<&str> = programs.iter().map(Parameters::name).collect();
    let mut b = Builder::new(&names.join("+"), "small programs that begin at once");
    for (index, (p, again)) in programs.iter().zip(again).enumerate() {
        let before = names[..index].iter().filter(|name| **name == p.name()).count();
        let name = if before == 0 { p.name().to_owned() } else { format!("{}-{}", p.name(), before + 1) };
        add(&mut b, p, &name, again)?;
    }
    Ok(b.finish(None)?)
}

/// Adds the tasks of a program.
fn add(b: &mut Builder, p: &Parameters, name: &str, again: bool) -> Result<(), BuiltinError> {
    let time = p.time("time")?;
    let bodies = match p.name() {
        "rays" => picture(b, p, name, time)?,
        "primes" => {
            let threads = threads(p)?;
            let share = Nanos(time.0 / u64::from(threads));
            (0..threads).map(|_| pieces(share, None)).collect()
        }
        "linpack" | "fft" => vec![pieces(time, Some(p.count("bytes", 1_000_000_000)?))],
        "sysbench-threads" => locked(b, p, name, time)?,
        _ => vec![pieces(time, None)],
    };
    let attributes = TaskAttributes { nice: nice(p)?, ..TaskAttributes::default() };
    let threads = bodies.len();
    let end =
        (threads > 1).then(|| b.channel(&format!("{name} done"), ChannelType::Barrier, threads as u64, 0));
    for (thread, mut body) in bodies.into_iter().enumerate() {
        // A program is done with its last thread.
        body.extend(end.map(|channel| Op::Barrier { channel }));
        let steps = if again { repeat(0, body) } else { body };
        let task = if threads == 1 { name.to_owned() } else { format!("{name}.{thread}") };
        b.task(&task, name, attributes.clone(), steps).target = !again;
    }
    Ok(())
}

fn nice(p: &Parameters) -> Result<Nice, BuiltinError> {
    let nice = p.value("nice").parse::<i64>().ok().and_then(|nice| Nice::widened(nice).ok());
    nice.ok_or_else(|| p.error("nice", "write -20 (strongest) to 19, or up to -32 to 31 with --weights"))
}

fn threads(p: &Parameters) -> Result<u32, BuiltinError> {
    p.positive("threads", 1_024)
}

/// CPU time in pieces; each goes through memory if there is any.
fn pieces(time: Nanos, bytes: Option<u32>) -> Vec<Op> {
    let (whole, rest) = (time.0 / PIECE.0, time.0 % PIECE.0);
    let piece = |time: Nanos| {
        let touch = bytes.filter(|bytes| *bytes > 0).map(|bytes| Op::Touch { bytes });
        [Some(run(time)), touch].into_iter().flatten().collect::<Vec<Op>>()
    };
    let mut ops = Vec::new();
    if whole > 0 {
        ops.extend(repeat(u32::try_from(whole).unwrap_or(u32::MAX), piece(PIECE)));
    }
    if rest > 0 || whole == 0 {
        ops.extend(piece(Nanos(rest)));
    }
    ops
}

/// Blocks of rows, of which each takes half to one and a half times the mean: some see more of the scene than others.
fn picture(b: &mut Builder, p: &Parameters, name: &str, time: Nanos) -> Result<Vec<Vec<Op>>, BuiltinError> {
    let threads = threads(p)?;
    let row = time.0 / u64::from(ROWS.max(threads));
    let rows = ROWS.div_ceil(threads);
    let trace = Op::Run(Amount::Uniform(Nanos(row / 2), Nanos(row * 3 / 2)));
    // All begin when the last one is there, as threads of a pool do.
    let begin = b.channel(&format!("{name} begins"), ChannelType::Barrier, u64::from(threads), 0);
    let start = (threads > 1).then_some(Op::Barrier { channel: begin });
    let block = || start.iter().cloned().chain(repeat(rows, vec![trace.clone()])).collect();
    Ok((0..threads).map(|_| block()).collect())
}

/// Events of each thread, each with the next lock, from another one in each thread.
fn locked(b: &mut Builder, p: &Parameters, name: &str, time: Nanos) -> Result<Vec<Vec<Op>>, BuiltinError> {
    let (threads, events) = (threads(p)?, p.count("events", 1_000_000)?.max(1));
    let (yields, locks) = (p.count("yields", 100_000)?.max(1), p.count("locks", 10_000)?.max(1));
    let locks: Vec<_> =
        (0..locks).map(|lock| b.channel(&format!("{name} lock {lock}"), ChannelType::Mutex, 0, 0)).collect();
    let event = |lock: usize| {
        let channel = locks[lock % locks.len()];
        repeat(yields, vec![Op::Lock { channel }, run(time), Op::Yield, run(time), Op::Unlock { channel }])
    };
    let round = (locks.len() as u32).min(events);
    let thread = |thread: u32| {
        let first = thread as usize;
        let events_of =
            |count: u32| (0..count as usize).flat_map(|at| event(first + at)).collect::<Vec<Op>>();
        [repeat(events / round, events_of(round)), events_of(events % round)].concat()
    };
    Ok((0..threads).map(thread).collect())
}

#[cfg(test)]
mod tests {
    use super::super::builtin;
    use super::*;

    fn made(text: &str) -> Workload {
        builtin::make(text).expect("known").expect(text)
    }

    /// CPU time that steps use at the least and at the most.
    fn time_of(ops: &[Op]) -> (u64, u64) {
        let (mut sum, mut factors) = ((0, 0), vec![1_u64]);
        for op in ops {
            let times = *factors.last().expect("loops are balanced");
            let (least, most) = match op {
                Op::LoopStart { count } => {
                    factors.push(times * u64::from(*count));
                    continue;
                }
                Op::LoopEnd => {
                    factors.pop();
                    continue;
                }
                Op::Run(Amount::Fixed(time)) => (time.0, time.0),
                Op::Run(Amount::Uniform(least, most)) => (least.0, most.0),
                _ => (0, 0),
            };
            sum = (sum.0 + times * least, sum.1 + times * most);
        }
        sum
    }

    #[test]
    fn programs_use_the_cpu_time_they_are_given() {
        for (text, tasks, each) in [
            ("fibo:time=1234us", 1, 1_234_000),
            ("primes:time=1s,threads=4", 4, 250_000_000),
            ("linpack:time=25ms", 1, 25_000_000),
            ("sysbench-threads:events=20,yields=10", 4, 20 * 10 * 1_000),
        ] {
            let workload = made(text);
            assert_eq!(workload.tasks.len(), tasks, "{text}");
            for task in &workload.tasks {
                let program = &workload.programs[task.program.0 as usize];
                assert_eq!(time_of(&program.ops), (each, each), "{text}");
            }
        }
        let rays = made("rays:time=640ms,threads=2");
        let (least, most) = time_of(&rays.programs[0].ops);
        assert_eq!((least, most), (160_000_000, 480_000_000), "about half the picture");
    }

    #[test]
    fn programs_run_beside_each_other() {
        let workload = made("fibo:nice=5+rays:threads=2,again=1+fibo");
        let rows: Vec<(&str, i32, bool)> = workload
            .tasks
            .iter()
            .map(|task| (task.name.as_str(), task.attributes.nice.get(), task.target))
            .collect();
        assert_eq!(
            rows,
            [("fibo", 5, true), ("rays.0", 0, false), ("rays.1", 0, false), ("fibo-2", 0, true)]
        );
    }

    #[test]
    fn what_cannot_run_beside_others_is_named() {
        let error = |text: &str| builtin::make(text).expect("known").expect_err(text).to_string();
        assert!(error("fibo+hackbench").contains("'hackbench' cannot run beside others"));
        assert!(error("fibo:again=1").contains("some program must end"));
        assert!(error("fibo:again=1+fft:again=1").contains("some program must end"));
        assert!(error("rays:threads=0").contains("1 to 1024"));
        assert!(error("fibo:nice=40").contains("-20 (strongest) to 19"));
        assert!(error("fibo:threads=2").contains("fibo has no parameter 'threads'"));
        assert!(builtin::make("hogs+hackbench").is_none());
    }
}
