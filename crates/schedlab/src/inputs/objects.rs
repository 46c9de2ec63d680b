//! What can be told of anybody's object by looking at it: signs of a user half.

use schedlab_bpf::image::{MapOrigin, ObjectImage};
use schedlab_bpf::maps::kind;

/// Signs that an object expects a program in user space beside it; none if it looks complete.
pub fn user_half(image: &ObjectImage) -> Vec<String> {
    let mut signs = Vec::new();
    let syscalls = image.programs.iter().filter(|program| program.section.starts_with("syscall"));
    let syscalls: Vec<&str> = syscalls.map(|program| program.name.as_str()).collect();
    if !syscalls.is_empty() {
        signs.push(format!("programs to be run: {}", syscalls.join(", ")));
    }
    let defined = || image.maps.iter().filter(|map| map.origin == MapOrigin::Defined);
    let sized = |kind: u32| !matches!(kind, kind::TASK_STORAGE | kind::CGRP_STORAGE | kind::PERF_EVENT_ARRAY);
    for map in defined().filter(|map| map.max_entries == 0 && sized(map.map_type)) {
        signs.push(format!("map {} has no size", map.name));
    }
    for map in defined().filter(|map| map.map_type == kind::USER_RINGBUF) {
        signs.push(format!("map {} takes messages from user space", map.name));
    }
    let topology = ["nr_cpu_ids", "nr_cpus", "nr_online_cpus", "nr_possible_cpus", "nr_llcs", "nr_nodes"];
    for global in image.globals.iter().filter(|global| topology.contains(&global.name.as_str())) {
        if image.maps[global.map].origin == MapOrigin::Rodata && image.global(&global.name) == Ok(0) {
            signs.push(format!("{} is 0", global.name));
        }
    }
    signs
}
