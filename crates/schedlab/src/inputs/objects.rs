//! What can be told of anybody's object by looking at it: signs of a user half, variables, what it lacks.

use schedlab_bpf::image::{MapOrigin, ObjectImage};
use schedlab_bpf::maps::kind;
use schedlab_bpf::object::knobs::MEMBERS_LISTED;
use schedlab_model::machine::KernelVersion;
use schedlab_sim::ext::ExtScheduler;
use serde_json::{Value, json};

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
    // A machine has some of each, and no scheduler has slices of nothing.
    let filled = [
        "nr_cpu_ids",
        "nr_cpus",
        "nr_online_cpus",
        "nr_possible_cpus",
        "nr_llcs",
        "nr_nodes",
        "slice_ns",
        "slice_us",
    ];
    for global in image.globals.iter().filter(|global| filled.contains(&global.name.as_str())) {
        if image.maps[global.map].origin == MapOrigin::Rodata && image.global(&global.name) == Ok(0) {
            signs.push(format!("{} is 0", global.name));
        }
    }
    signs
}

/// What `schedlab show` says of an object beyond its callbacks and maps: signs of a user half, programs that
/// nothing calls, variables with types and values, and what its code asks of the kernel in vain.
pub fn details(image: &ObjectImage, kernel: KernelVersion) -> (String, Value) {
    let signs = user_half(image);
    let mut text = match signs.is_empty() {
        true => "User half  none needed, as far as can be told\n".to_owned(),
        false => {
            format!("User half  it looks like having one ({}); see docs/set-up-files.md\n", signs.join("; "))
        }
    };
    let called = |index: usize| {
        image.struct_ops.iter().any(|ops| ops.callbacks.iter().any(|(_, program)| *program == index))
    };
    let mut programs = Vec::new();
    for (_, program) in image.programs.iter().enumerate().filter(|(index, _)| !called(*index)) {
        let when =
            if program.section.starts_with("syscall") { "run by a set-up file" } else { "never called here" };
        text += &format!("Program    {} ({}): {when}\n", program.name, program.section);
        programs.push(json!({"name": program.name, "section": program.section, "when": when}));
    }
    let mut variables = Vec::new();
    for global in image.globals.iter().filter(|global| !ObjectImage::is_enumerator(&global.name)) {
        let declaration = image.btf.c_declaration(global.type_id, &global.name);
        let (section, value) = (&image.maps[global.map].name, image.global(&global.name).ok());
        let shown = value.map_or(format!("{} bytes", global.size), |value| value.to_string());
        text += &format!("Variable   {declaration} = {shown} ({section})\n");
        let mut members = Vec::new();
        for (path, type_id) in image.members(global) {
            let declaration = image.btf.c_declaration(type_id, &path);
            let value = image.global(&path).ok().map(|value| value.to_string());
            let shown = value.as_ref().map_or(String::new(), |value| format!(" = {value}"));
            text += &format!("Member     {declaration}{shown}\n");
            members.push(json!({"name": path, "declaration": declaration, "value": value}));
        }
        if members.len() == MEMBERS_LISTED {
            text += &format!("Member     more of {} are not listed\n", global.name);
        }
        variables.push(json!({"name": global.name, "declaration": declaration, "section": section,
            "bytes": global.size, "value": value.map(|value| value.to_string()), "members": members}));
    }
    let mut lacks: Vec<(String, String, u32)> = Vec::new();
    for program in &image.programs {
        // What lies behind an existence test that fails is not asked of this kernel.
        let reachable = program.reachable();
        for poison in program.poisons.iter().filter(|poison| reachable[poison.insn as usize]) {
            if !lacks.iter().any(|(reason, ..)| *reason == poison.reason) {
                lacks.push((poison.reason.clone(), program.name.clone(), poison.insn));
            }
        }
    }
    for map in image.maps.iter().filter(|map| !kind::describe(map.map_type).1) {
        let (name, _) = kind::describe(map.map_type);
        text += &format!("Lacks      map {}: maps of type {name} do not exist here\n", map.name);
    }
    for (program, insn, callee) in ExtScheduler::absent(image, kernel) {
        lacks.push((format!("calls {callee}, which does not exist here"), program, insn));
    }
    for (reason, program, insn) in &lacks {
        text += &format!("Lacks      {program}, instruction {insn}: {reason} (an error only if reached)\n");
    }
    let lacks: Vec<Value> = lacks
        .iter()
        .map(|(reason, program, insn)| json!({"program": program, "instruction": insn, "reason": reason}))
        .collect();
    (text, json!({"user_half": signs, "programs": programs, "variables": variables, "lacks": lacks}))
}
