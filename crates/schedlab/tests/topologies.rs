//! Odd machines through `simulate`: one CPU, no shared cache, CPUs that are offline, 1,024 CPUs; under the fair
//! class and under every scheduler of the library.

mod support;

use support::{file, run, scratch};

/// Runs work on a machine with this topology under a scheduler; everything ends well.
fn simulate(directory: &std::path::Path, topology: &str, work: &str, scheduler: &str) {
    let machine = format!("name = \"odd\"\nkernel = \"7.2\"\nhz = 1000\n[topology]\n{topology}\n");
    let machine = file(directory, "odd.toml", machine);
    let words = ["simulate", work, "--machine", &machine, "--scheduler", scheduler, "--duration", "60ms"];
    let said = run(&words).done();
    assert!(!said.out.contains("Ended"), "{scheduler} on {topology}: {}", said.out);
    assert!(said.out.contains("cpu_time"), "{}", said.out);
}

/// Workers that sleep and run on all CPUs but the highest, which are offline.
fn work(directory: &std::path::Path, tasks: u32, offline: Option<&str>) -> String {
    let offline = offline.map_or(String::new(), |cpus| format!("offline = \"{cpus}\"\n"));
    let text = format!(
        "name = \"workers\"\nduration = \"60ms\"\n{offline}[[task]]\nname = \"worker\"\ncount = {tasks}\n\
         steps = [{{ loop = {{ count = 0, steps = [{{ run = \"400us\" }}, {{ sleep = \"300us\" }}] }} }}]\n"
    );
    file(directory, "workers.toml", text)
}

#[test]
fn one_cpu_no_shared_cache_and_offline_cpus() {
    let directory = scratch("topologies");
    for scheduler in ["fair", "fifo", "vtime", "fixed_priority"] {
        for (topology, tasks, offline) in [
            ("nodes = 1", 3, None),
            ("nodes = 4", 6, None),
            ("caches_per_node = 6", 9, None),
            ("cores_per_cache = 4\nthreads_per_core = 2", 6, Some("1,5-7")),
            ("nodes = 2\ncores_per_cache = 2", 5, Some("2-3")),
            ("cores_per_cache = 4\nthreads_per_core = 2\noffline = \"0,5-7\"", 6, None),
            ("nodes = 2\ncores_per_cache = 2\noffline = \"0-1\"", 5, Some("3")),
        ] {
            let work = work(&directory, tasks, offline);
            simulate(&directory, topology, &work, scheduler);
        }
    }
}

#[test]
fn a_thousand_and_twenty_four_cpus() {
    let directory = scratch("topologies-large");
    let work = work(&directory, 1500, Some("1000-1023"));
    let topology = "nodes = 8\ncaches_per_node = 8\ncores_per_cache = 8\nthreads_per_core = 2";
    for scheduler in ["fair", "vtime"] {
        simulate(&directory, topology, &work, scheduler);
    }
}

#[test]
fn a_machine_that_is_too_large_says_how_large_one_may_be() {
    let directory = scratch("topologies-too-large");
    let machine = "name = \"huge\"\n[topology]\nnodes = 1025\n".to_owned();
    let machine = file(&directory, "huge.toml", machine);
    run(&["simulate", "hogs", "--machine", &machine]).refused(2, &["1024"]);
}
