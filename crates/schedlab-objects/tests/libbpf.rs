//! The reference for relocation is libbpf: the same object and the same kernel types must leave the same
//! instructions in schedlab-bpf and in libbpf.
//!
//! libbpf takes kernel types from /sys/kernel/btf/vmlinux alone, so a thread with its own mount namespace
//! puts a file there. That needs root; without it the test says so and checks nothing. libbpf relocates
//! before it creates maps, so a kernel without sched_ext serves: creating the struct_ops map fails after
//! the instructions are done, and they are read all the same.
//!
//! One thing is normalised: libbpf writes file descriptors of maps where schedlab writes indices. They must
//! correspond one to one and in the same order. Everything else, BTF numbers included, is compared as is.

#[path = "../../schedlab-bpf/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use schedlab_bpf::btf::Btf;
use schedlab_bpf::image::{Insn, MapOrigin, ObjectImage};
use schedlab_objects::{Object, SCHEDULERS, TESTS};

const VMLINUX_BTF: &CStr = c"/sys/kernel/btf/vmlinux";

/// A program's instructions, and its line records as (instruction, line, column) if libbpf kept them.
type Program = (Vec<Insn>, Option<Vec<(u32, u32, u32)>>);

/// A map's type, key size, value size, number of entries, flags, and first content if it has one.
type Map = ([u32; 5], Option<Vec<u8>>);

/// What libbpf makes of an object: programs by name, maps in order without struct_ops ones.
struct Reference {
    programs: BTreeMap<String, Program>,
    maps: Vec<Map>,
}

const MAP_TYPE_STRUCT_OPS: u32 = 26;

/// What libbpf makes of an object; `None` if it cannot open it.
fn relocate_by_libbpf(bytes: &[u8]) -> Option<Reference> {
    let mut programs = BTreeMap::new();
    // SAFETY: libbpf copies `bytes`; every pointer it returns lives until `bpf_object__close`.
    unsafe {
        let object = libbpf_sys::bpf_object__open_mem(bytes.as_ptr().cast(), bytes.len() as u64, ptr::null());
        if object.is_null() {
            return None;
        }
        libbpf_sys::bpf_object__prepare(object);
        let mut program = libbpf_sys::bpf_object__next_program(object, ptr::null_mut());
        while !program.is_null() {
            if libbpf_sys::bpf_program__autoload(program) {
                let name = CStr::from_ptr(libbpf_sys::bpf_program__name(program)).to_string_lossy();
                let count = libbpf_sys::bpf_program__insn_cnt(program) as usize;
                let first = libbpf_sys::bpf_program__insns(program).cast::<[u8; 8]>();
                let slots = std::slice::from_raw_parts(first, count);
                let insns = slots.iter().map(decode).collect();
                programs.insert(name.into_owned(), (insns, lines(program)));
            }
            program = libbpf_sys::bpf_object__next_program(object, program);
        }
        let maps = maps(object);
        libbpf_sys::bpf_object__close(object);
        Some(Reference { programs, maps })
    }
}

/// # Safety
/// `object` is a live object of libbpf.
unsafe fn maps(object: *mut libbpf_sys::bpf_object) -> Vec<Map> {
    let mut maps = Vec::new();
    // SAFETY: maps and their initial values live as long as the object.
    unsafe {
        let mut map = libbpf_sys::bpf_object__next_map(object, ptr::null());
        while !map.is_null() {
            // A struct_ops map names the size of the kernel's value and has the object's own, which is shorter.
            if libbpf_sys::bpf_map__type(map) != MAP_TYPE_STRUCT_OPS {
                maps.push(map_of(map));
            }
            map = libbpf_sys::bpf_object__next_map(object, map);
        }
    }
    maps
}

/// # Safety
/// `map` is a live map of libbpf and none of struct_ops.
unsafe fn map_of(map: *mut libbpf_sys::bpf_map) -> Map {
    // SAFETY: the initial value lives as long as the map, and `size` says how long it is.
    unsafe {
        let definition = [
            libbpf_sys::bpf_map__type(map),
            libbpf_sys::bpf_map__key_size(map),
            libbpf_sys::bpf_map__value_size(map),
            libbpf_sys::bpf_map__max_entries(map),
            libbpf_sys::bpf_map__map_flags(map),
        ];
        let mut size = 0;
        let value = libbpf_sys::bpf_map__initial_value(map, &mut size).cast::<u8>();
        // An arena without variables has a place of no bytes.
        let value =
            (!value.is_null() && size > 0).then(|| std::slice::from_raw_parts(value, size as usize).to_vec());
        (definition, value)
    }
}

fn decode(b: &[u8; 8]) -> Insn {
    Insn {
        code: b[0],
        regs: b[1],
        off: i16::from_le_bytes([b[2], b[3]]),
        imm: i32::from_le_bytes([b[4], b[5], b[6], b[7]]),
    }
}

/// # Safety
/// `program` is a live program of libbpf.
unsafe fn lines(program: *mut libbpf_sys::bpf_program) -> Option<Vec<(u32, u32, u32)>> {
    // SAFETY: the records belong to the program and are not changed meanwhile.
    unsafe {
        let count = libbpf_sys::bpf_program__line_info_cnt(program) as usize;
        let first = libbpf_sys::bpf_program__line_info(program);
        if first.is_null() || count == 0 {
            return None;
        }
        let records = std::slice::from_raw_parts(first, count);
        Some(records.iter().map(|r| (r.insn_off, r.line_col >> 10, r.line_col & 0x3ff)).collect())
    }
}

/// Puts a file in place of the kernel's types, for this thread.
fn mount_types(file: &Path) {
    let source = CString::new(file.to_str().expect("a temporary path is UTF-8")).expect("without zeros");
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: plain system calls on valid strings; the namespace is this thread's own.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0, "a mount namespace of our own");
        let none = ptr::null();
        assert_eq!(libc::mount(none, c"/".as_ptr(), none, flags, ptr::null()), 0, "keep mounts to ourselves");
        let result =
            libc::mount(source.as_ptr(), VMLINUX_BTF.as_ptr(), ptr::null(), libc::MS_BIND, ptr::null());
        assert_eq!(result, 0, "mount the types");
    }
}

/// One test at a time: libbpf numbers maps by file descriptors, which files of another test would mix up.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs libbpf over objects with the types of `kernel`.
fn libbpf_results(kernel: &[u8], objects: Vec<Object>) -> Vec<Option<Reference>> {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(kernel).expect("room for the types");
    let path = file.path().to_path_buf();
    let work = move || {
        mount_types(&path);
        // SAFETY: a null function silences libbpf, whose complaint about struct_ops is expected.
        unsafe { libbpf_sys::libbpf_set_print(None) };
        objects.iter().map(|o| relocate_by_libbpf(o.bytes)).collect()
    };
    std::thread::spawn(work).join().expect("libbpf's thread finishes")
}

/// Compares one object; the list names what differs.
fn differences(object: &Object, kernel: &Btf, reference: &Option<Reference>) -> Vec<String> {
    let (image, reference) = match (ObjectImage::load(object.bytes, object.name, kernel), reference) {
        (Ok(image), Some(reference)) => (image, reference),
        (Ok(_), None) => return vec![format!("{}: libbpf cannot open it", object.name)],
        (Err(_), None) => return Vec::new(),
        (Err(error), Some(_)) => return vec![format!("{}: {error}", object.name)],
    };
    let mut problems = map_differences(object, &image, &reference.maps);
    let reference = &reference.programs;
    let names: Vec<&str> = image.programs.iter().map(|p| p.name.as_str()).collect();
    if names.len() != reference.len() || !names.iter().all(|n| reference.contains_key(*n)) {
        problems.push(format!("{}: programs {names:?}, libbpf {:?}", object.name, reference.keys()));
        return problems;
    }
    let mut descriptors: BTreeMap<i32, i32> = BTreeMap::new();
    for program in &image.programs {
        let (insns, lines) = &reference[&program.name];
        if insns.len() != program.insns.len() {
            problems.push(format!("{}: {} insns, libbpf {}", program.name, program.insns.len(), insns.len()));
            continue;
        }
        for (at, (ours, theirs)) in program.insns.iter().zip(insns).enumerate() {
            let is_map = ours.code == 0x18 && matches!(ours.regs >> 4, 1 | 2);
            let expected = if is_map { Insn { imm: theirs.imm, ..*ours } } else { *ours };
            let other_map = is_map && *descriptors.entry(ours.imm).or_insert(theirs.imm) != theirs.imm;
            if other_map || expected != *theirs {
                problems.push(format!("{} {at}: {ours:?}, libbpf {theirs:?}", program.name));
            }
        }
        let ours: Vec<_> = program.lines.iter().map(|l| (l.insn, l.line, l.column)).collect();
        if lines.as_ref().is_some_and(|lines| *lines != ours) {
            problems.push(format!("{}: source lines differ", program.name));
        }
    }
    let order: Vec<i32> = descriptors.values().copied().collect();
    if !order.is_sorted() {
        problems.push(format!("{}: maps in another order: {descriptors:?}", object.name));
    }
    problems
}

/// Configuration values are left out: libbpf fills in those of the machine it runs on. It also forgets the
/// content of maps that it has created and that user space may not map.
fn map_differences(object: &Object, image: &ObjectImage, reference: &[Map]) -> Vec<String> {
    let mut image = image.clone();
    // Ours to fill in, as user halves do: see the loader's `enumerators`.
    let filled: Vec<String> = image.globals.iter().map(|global| global.name.clone()).collect();
    for name in filled.iter().filter(|name| ObjectImage::is_enumerator(name)) {
        image.set_global(name, 0).expect("a number");
    }
    let ours: Vec<Map> = image
        .maps
        .iter()
        .map(|m| {
            let definition = [m.map_type, m.key_size, m.value_size, m.max_entries, m.map_flags];
            (definition, (!m.initial.is_empty()).then(|| m.initial.clone()))
        })
        .collect();
    if ours.len() != reference.len() {
        return vec![format!("{}: {} maps, libbpf {}", object.name, ours.len(), reference.len())];
    }
    let mut problems = Vec::new();
    for (map, (ours, theirs)) in image.maps.iter().zip(ours.iter().zip(reference)) {
        let same_value = map.origin == MapOrigin::Kconfig || theirs.1.is_none() || ours.1 == theirs.1;
        if ours.0 != theirs.0 || !same_value {
            problems.push(format!("{}: map {}: {:?}, libbpf {:?}", object.name, map.name, ours.0, theirs.0));
        }
    }
    problems
}

/// Compares objects under the types of a kernel; gives the number of instructions.
fn compare(kernel: &[u8], objects: Vec<Object>) -> usize {
    let types = Btf::parse(kernel).expect("valid types");
    let results = libbpf_results(kernel, objects.clone());
    let problems: Vec<String> =
        objects.iter().zip(&results).flat_map(|(o, r)| differences(o, &types, r)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    let compared =
        results.iter().flatten().flat_map(|r| r.programs.values()).map(|(insns, _)| insns.len()).sum();
    let opened = results.iter().flatten().count();
    eprintln!("{compared} instructions of {opened} objects agree; {} open nowhere", objects.len() - opened);
    compared
}

/// Test objects that refer to what only a kernel of today has; the others load for the invented one.
const NEED_TODAYS_KERNEL: &[&str] = &[
    "control",
    "disallow",
    "dump_short",
    "features",
    "garbage",
    "headers",
    "hotplug_seq",
    "hotplug_stays",
    "lacking",
    "maximal",
    "misbehave",
    "out_of_place",
    "sleeps",
    "user_half",
    "versions",
];

fn is_root() -> bool {
    // SAFETY: no arguments, no failure.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn libbpf_leaves_the_same_instructions_for_an_invented_kernel() {
    let _alone = alone();
    if !is_root() {
        eprintln!("skipped: needs root, to put types where libbpf looks for them");
        return;
    }
    let tests = TESTS.iter().filter(|o| !NEED_TODAYS_KERNEL.contains(&o.name));
    let vtime = SCHEDULERS.iter().filter(|o| o.name == "vtime");
    let objects: Vec<Object> = tests.chain(vtime).copied().collect();
    let compared = compare(&common::kernel().to_bytes(), objects);
    assert!(compared > 500, "only {compared} instructions were compared");
}

#[test]
fn libbpf_leaves_the_same_instructions_for_linux_7_2() {
    let _alone = alone();
    let Some(kernel) = linux_7_2_types().filter(|_| is_root()) else {
        eprintln!("skipped: needs root, zstd and the 7.2 kernel that the VM tests keep in the cache");
        return;
    };
    let headers = TESTS.iter().filter(|o| NEED_TODAYS_KERNEL.contains(&o.name));
    let compared = compare(&kernel, SCHEDULERS.iter().chain(headers).copied().collect());
    assert!(compared > 100, "only {compared} instructions were compared");
}

#[test]
fn linux_7_2_has_all_that_our_headers_declare() {
    let _alone = alone();
    let Some(kernel) = linux_7_2_types() else {
        eprintln!("skipped: needs zstd and the 7.2 kernel that the VM tests keep in the cache");
        return;
    };
    let kernel = Btf::parse(&kernel).expect("valid types");
    let bytes = schedlab_objects::test_object("headers").expect("bpf/tests has it");
    let image = ObjectImage::load(bytes, "headers", &kernel).expect("it loads");
    let mut missing = Vec::new();
    let mut checked = 0;
    for program in &image.programs {
        for (i, insn) in program.insns.iter().enumerate() {
            // An unresolved function is a plain load of 0; an existence test is a move of 0 or 1.
            let is_function = insn.code == 0x18 && insn.regs >> 4 != 2;
            let is_existence = matches!(insn.code, 0xb7 | 0xb4) && insn.regs & 15 != 0;
            checked += usize::from(is_function || is_existence);
            if (is_function || is_existence) && insn.imm == 0 {
                let line = program.lines.iter().rev().find(|l| l.insn as usize <= i);
                missing.push(line.map_or(String::new(), |l| l.text.trim().to_string()));
            }
        }
    }
    assert!(missing.is_empty(), "absent from 7.2: {missing:#?}");
    assert!(checked > 120, "only {checked} declarations were checked");
}

#[test]
fn libbpf_leaves_the_same_instructions_for_objects_of_others() {
    let _alone = alone();
    let Some(directory) = std::env::var_os("SCHEDLAB_EXTRA_OBJECTS") else {
        eprintln!("skipped: SCHEDLAB_EXTRA_OBJECTS names no directory of objects");
        return;
    };
    let kernel = linux_7_2_types().expect("zstd and a cached 7.2 kernel");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(directory).expect("a directory").flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "o"));
    paths.sort();
    assert!(!paths.is_empty(), "there are no objects");
    let object = |path: &PathBuf| Object {
        name: path.to_string_lossy().into_owned().leak(),
        bytes: std::fs::read(path).expect("a readable object").leak(),
        source: "",
    };
    compare(&kernel, paths.iter().map(object).collect());
}

/// `.BTF` of the newest cached Debian 7.2 kernel.
fn linux_7_2_types() -> Option<Vec<u8>> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let versions = std::fs::read_dir(cache.join("schedlab/kernels/7.2")).ok()?;
    let mut images: Vec<PathBuf> = versions.flatten().map(|v| v.path().join("vmlinuz")).collect();
    images.retain(|p| p.exists());
    images.sort();
    let image = std::fs::read(images.last()?).ok()?;
    // The kernel proper is a zstd frame inside the boot image.
    let start = image.windows(4).position(|w| w == [0x28, 0xb5, 0x2f, 0xfd])?;
    let mut zstd = Command::new("zstd");
    zstd.arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut zstd = zstd.spawn().ok()?;
    let mut stdin = zstd.stdin.take()?;
    let feeder = std::thread::spawn(move || stdin.write_all(&image[start..]));
    let vmlinux = zstd.wait_with_output().ok()?.stdout;
    // What follows the frame is none of its input, so a broken pipe there is no failure.
    drop(feeder.join());
    btf_section(&vmlinux)
}

/// Finds `.BTF` by the section headers of a 64-bit ELF file.
fn btf_section(elf: &[u8]) -> Option<Vec<u8>> {
    let number = |at: usize, len: usize| -> Option<usize> {
        let bytes = elf.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0usize, |n, b| n << 8 | usize::from(*b)))
    };
    let (table, size, count, names) =
        (number(0x28, 8)?, number(0x3a, 2)?, number(0x3c, 2)?, number(0x3e, 2)?);
    let name_table = number(table + names * size + 0x18, 8)?;
    for i in 0..count {
        let header = table + i * size;
        let name = name_table + number(header, 4)?;
        if elf.get(name..)?.starts_with(b".BTF\0") {
            let (offset, len) = (number(header + 0x18, 8)?, number(header + 0x20, 8)?);
            return Some(elf.get(offset..offset + len)?.to_vec());
        }
    }
    None
}
