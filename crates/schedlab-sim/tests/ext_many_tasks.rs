//! Many tasks: the region grows with the workload, and one that is full ends the scheduler, not the simulation.

mod ext_runs;

use ext_runs::{Run, cpu_times};
use schedlab_model::event::NullSink;

fn crowd(count: u32) -> String {
    format!(
        "name = \"crowd\"\nduration = \"2s\"\n[[task]]\nname = \"t\"\ncount = {count}\nsteps = [{{ run = \"100us\" }}, {{ sleep = \"1ms\" }}, {{ run = \"10us\" }}]\n"
    )
}

#[test]
fn ten_thousand_tasks_have_room() {
    for late in [false, true] {
        let text = crowd(10_000).replace("sleep = \"1ms\"", "sleep = \"1200ms\"");
        let result = Run { late, ..Run::new("fifo", &text, 4) }.run(&mut NullSink);
        assert_eq!((result.scheduler_exit, result.cut), (None, false));
        assert!(result.report.bpf_instructions > 10_000);
    }
}

#[test]
fn a_full_region_ends_the_scheduler_and_nobody_is_lost() {
    for scheduler in ["fifo", "maximal", "vtime"] {
        let text = crowd(1_000);
        let result = Run { memory_bytes_log2: 20, ..Run::new(scheduler, &text, 2) }.run(&mut NullSink);
        let exit = result.scheduler_exit.as_ref().expect("ended");
        assert_eq!(exit.kind, 1024, "{scheduler}");
        assert!(exit.message.starts_with("no memory for task t"), "{scheduler}: {}", exit.message);
        assert!(!result.cut && cpu_times(&result)[1..].iter().all(|time| *time >= 110_000), "{scheduler}");
    }
}

/// A parent of another class forks into the full region, then sleeps: the child is switched to at once.
#[test]
fn a_fork_into_a_full_region_is_of_the_fair_class() {
    let text = "name = \"forks\"\nduration = \"2s\"\n[[task]]\nname = \"child\"\ntemplate = true\nsteps = [{ run = \"100us\" }, { sleep = \"1500ms\" }]\n[[task]]\nname = \"parent\"\nsteps = [{ loop = { count = 1000, steps = [{ fork = \"child\" }, { sleep = \"200us\" }] } }, { run = \"1ms\" }]\n";
    let result = Run { memory_bytes_log2: 20, ..Run::new("fifo", text, 1) }.run(&mut NullSink);
    let exit = result.scheduler_exit.as_ref().expect("ended");
    assert!(exit.message.starts_with("no memory for task child"), "{}", exit.message);
    assert_eq!(result.accounts.len(), 1_002, "every child was forked");
    assert!(cpu_times(&result)[2..].iter().all(|time| *time >= 100_000));
}

/// Twenty thousand at once from one template: as often as the loop says, and from a loop without an end.
#[test]
fn forks_have_room() {
    for (count, duration) in [(20_000, "3s"), (0, "450ms")] {
        // Threads of one process: making so many processes takes longer than the run.
        let text = format!(
            "name = \"forks\"\nduration = \"{duration}\"\n[[task]]\nname = \"child\"\nprocess = \"one\"\ntemplate = true\nsteps = [{{ run = \"1us\" }}, {{ sleep = \"2500ms\" }}]\n[[task]]\nname = \"parent\"\nprocess = \"one\"\nsteps = [{{ loop = {{ count = {count}, steps = [{{ fork = \"child\" }}, {{ run = \"5us\" }}] }} }}]\n"
        );
        let result = Run::new("fifo", &text, 2).run(&mut NullSink);
        assert_eq!(result.scheduler_exit, None);
        assert!(result.accounts.len() > 20_000, "{}", result.accounts.len());
    }
}
