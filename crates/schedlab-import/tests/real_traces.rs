//! Traces that perf 6.1, trace-cmd 3.1.6 and Perfetto 56 recorded of `hackbench -g 1 -l 3` on Linux 7.2 in a virtual
//! machine. What must be found in them was counted by other programs: `perf script` and `trace-cmd report` as text, of
//! which a script added up the times between switches; Perfetto's own trace processor by SQL.

use schedlab_import::{Format, ImportError, ImportOptions, detect, import};
use schedlab_model::event::{EventKind, PrevState};
use schedlab_model::machine::KernelVersion;
use schedlab_model::recording::{Recording, codec};
use schedlab_model::timeline::{StretchKind, Timelines};
use std::path::Path;

fn file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let bytes = std::fs::read(path).expect("it is in the repository");
    if name.ends_with(".zst") { zstd::decode_all(&bytes[..]).expect("packed by zstd") } else { bytes }
}

fn read(name: &str) -> Recording {
    let bytes = file(name);
    let format = detect(&bytes).expect("a trace");
    import(format, &bytes, &ImportOptions::default()).expect(name)
}

/// What another program found in a trace.
struct Truth {
    switches: usize,
    wakings: usize,
    new: usize,
    migrations: usize,
    hackbench_ns: u64,
}

fn check(name: &str, truth: &Truth) -> Recording {
    let recording = read(name);
    let count = |is: fn(&EventKind) -> bool| recording.events.iter().filter(|event| is(&event.kind)).count();
    assert_eq!(count(|kind| matches!(kind, EventKind::Switch { .. })), truth.switches, "switches of {name}");
    assert_eq!(count(|kind| matches!(kind, EventKind::Waking { .. })), truth.wakings, "wakings of {name}");
    assert_eq!(count(|kind| matches!(kind, EventKind::WakeupNew { .. })), truth.new, "new tasks of {name}");
    assert_eq!(
        count(|kind| matches!(kind, EventKind::Migrate { .. })),
        truth.migrations,
        "migrations of {name}"
    );
    assert!(count(|kind| matches!(kind, EventKind::Fork { .. })) >= 40, "hackbench forks 40 times");

    let timelines = Timelines::of(&recording);
    let hackbench: Vec<usize> =
        (0..recording.tasks.len()).filter(|&task| recording.tasks[task].name == "hackbench").collect();
    assert_eq!(hackbench.len(), 41, "hackbench and its children in {name}");
    let stretches = hackbench.iter().flat_map(|&task| &timelines.tasks[task]);
    let ran = stretches.filter(|stretch| matches!(stretch.kind, StretchKind::Running { .. }));
    assert_eq!(ran.map(|stretch| stretch.length().0).sum::<u64>(), truth.hackbench_ns, "CPU time in {name}");

    assert_eq!(recording.machine.topology.cpu_count(), 2);
    assert_eq!(recording.provenance.dropped, 0);
    let bytes = codec::encode(&recording).expect("it can be written");
    assert_eq!(codec::decode(&bytes).expect("and read").events, recording.events);
    recording
}

fn targets(recording: &Recording) -> Vec<&str> {
    recording.tasks.iter().filter(|task| task.target).map(|task| task.name.as_str()).collect()
}

#[test]
fn perf_data_is_read_with_its_compression() {
    // One CPU's trace ended before the other's: a task that is then seen there left it unseen.
    let truth =
        Truth { switches: 608 + 1, wakings: 387, new: 40, migrations: 92, hackbench_ns: 2_415_106_590 };
    let recording = check("perf.data", &truth);
    assert_eq!(recording.provenance.kernel_release, "7.2.13+deb14-cloud-amd64");
    assert_eq!(recording.machine.kernel, KernelVersion::V7_2);
    assert!(recording.provenance.what().contains("hackbench -g 1 -l 3"), "{}", recording.provenance.what());
    let real_time = recording.tasks.iter().find(|task| task.name == "migration/0").expect("a stopper");
    assert_eq!((real_time.attributes.rt_priority, real_time.attributes.kernel_thread), (99, true));
    assert_eq!(real_time.attributes.affinity.len(), 1, "it is bound to its CPU");
}

#[test]
fn trace_cmd_is_read_in_both_versions() {
    let truth = Truth { switches: 823, wakings: 518, new: 40, migrations: 95, hackbench_ns: 1_238_190_260 };
    let recording = check("v7.dat", &truth);
    assert_eq!(targets(&recording), ["hackbench"; 41], "what trace-cmd started");
    assert_eq!(recording.machine.kernel, KernelVersion::V7_2);
    let truth = Truth { switches: 518, wakings: 290, new: 40, migrations: 41, hackbench_ns: 743_212_697 };
    assert_eq!(targets(&check("v6.dat.zst", &truth)), ["hackbench"; 41]);
}

#[test]
fn perfetto_is_read_plain_and_compact() {
    let truth = Truth { switches: 853, wakings: 506, new: 41, migrations: 47, hackbench_ns: 590_766_391 };
    let plain = check("plain.pftrace.zst", &truth);
    // The trace processor leaves out the first switch of each CPU and a waking before it, of which it is not told who
    // ran before.
    let truth =
        Truth { switches: 908 + 2, wakings: 544 + 1, new: 42, migrations: 46, hackbench_ns: 903_422_386 };
    let compact = check("compact.pftrace", &truth);
    for recording in [plain, compact] {
        assert_eq!(recording.machine.kernel, KernelVersion::V7_2);
        let preempted = recording
            .events
            .iter()
            .filter(|event| matches!(event.kind, EventKind::Switch { prev_state: PrevState::Runnable, .. }));
        assert!(preempted.count() > 40, "preemption is told from sleep");
    }
}

#[test]
fn the_target_can_be_named() {
    let options =
        |target: &str| ImportOptions { target: Some(target.to_owned()), ..ImportOptions::default() };
    let bytes = file("v7.dat");
    let kernel = import(Format::TraceCmd, &bytes, &options("rcu_preempt")).expect("it is there");
    assert_eq!(targets(&kernel), ["rcu_preempt"]);
    let first = read("v7.dat").tasks.iter().find(|task| task.name == "hackbench").expect("it ran").pid;
    let by_pid = import(Format::TraceCmd, &bytes, &options(&first.to_string())).expect("it is there");
    assert_eq!(targets(&by_pid), ["hackbench"; 41], "with its children");
    let error = import(Format::TraceCmd, &bytes, &options("nginx")).expect_err("it is not there").to_string();
    assert!(error.contains("'nginx'") && error.contains("hackbench"), "{error}");
}

#[test]
fn a_packed_trace_unpacks_to_no_more_than_allowed() {
    let options = ImportOptions { unpacked_max: 10_000, ..ImportOptions::default() };
    for name in ["perf.data", "v7.dat"] {
        let bytes = file(name);
        let error = import(detect(&bytes).expect("a trace"), &bytes, &options).expect_err(name);
        assert!(matches!(error, ImportError::TooLarge { max: 10_000, .. }), "{name}: {error}");
    }
}

fn number(bytes: &[u8], at: usize, size: usize) -> usize {
    bytes[at..at + size].iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
}

/// What the header of a perf.data file says of a feature.
fn feature(bytes: &[u8], bit: usize) -> std::ops::Range<usize> {
    let before = (number(bytes, 72, 8) & ((1 << bit) - 1)).count_ones() as usize;
    let entry = number(bytes, 40, 8) + number(bytes, 48, 8) + 16 * before;
    let start = number(bytes, entry, 8);
    start..start + number(bytes, entry + 8, 8)
}

/// The same as `perf record -o -` would have written it: what the file has in sections comes as records.
fn as_stream(file: &[u8]) -> Vec<u8> {
    let mut stream = [&file[..8], &16_u64.to_le_bytes()].concat();
    let mut record = |kind: u32, parts: &[&[u8]]| {
        let size = 8 + parts.iter().map(|part| part.len()).sum::<usize>();
        stream.extend(kind.to_le_bytes());
        stream.extend([0, 0]);
        stream.extend((size as u16).to_le_bytes());
        stream.extend(parts.concat());
    };
    let described = &file[feature(file, 12)];
    let (events, size) = (number(described, 0, 4), number(described, 4, 4));
    let mut at = 8;
    for _ in 0..events {
        let (identifiers, name) = (number(described, at + size, 4), number(described, at + size + 4, 4));
        let behind = at + size + 8 + name;
        record(64, &[&described[at..at + size], &described[behind..behind + 8 * identifiers]]);
        at = behind + 8 * identifiers;
    }
    for bit in [4, 7, 11] {
        record(80, &[&(bit as u64).to_le_bytes(), &file[feature(file, bit)]]);
    }
    // The tracing data lies behind its record.
    let tracing = &file[feature(file, 1)];
    record(66, &[&(tracing.len() as u32).to_le_bytes()]);
    stream.extend(tracing);
    let start = number(file, 40, 8);
    stream.extend(&file[start..start + number(file, 48, 8)]);
    stream
}

#[test]
fn huge_counts_in_the_head_of_perf_data_are_refused() {
    let whole = file("perf.data");
    let events = feature(&whole, 12).start;
    let attr_size = number(&whole, events + 4, 4);
    // The number of events, the identifiers and the name of the first.
    for at in [events, events + 8 + attr_size, events + 8 + attr_size + 4] {
        let mut broken = whole.clone();
        broken[at..at + 4].fill(0xff);
        let error = import(Format::Perf, &broken, &ImportOptions::default()).expect_err("refused");
        assert!(matches!(error, ImportError::Truncated { .. }), "{error}");
    }
    // The command line only describes.
    let mut broken = whole.clone();
    broken[feature(&whole, 11)][..4].fill(0xff);
    assert!(import(Format::Perf, &broken, &ImportOptions::default()).is_ok());
}

#[test]
fn a_stream_of_perf_is_read_like_a_file() {
    let whole = file("perf.data");
    let stream = as_stream(&whole);
    let read = |bytes: &[u8]| import(Format::Perf, bytes, &ImportOptions::default());
    assert_eq!(read(&stream).expect("a stream"), read(&whole).expect("a file"));
    for end in (0..stream.len()).step_by(stream.len() / 97) {
        // Whatever is left: an error or a recording, no panic.
        drop(read(&stream[..end]));
    }
}

#[test]
fn files_that_are_cut_or_of_another_kind_say_so() {
    assert_eq!(detect(b"SLREC"), None);
    assert_eq!(detect(b""), None);
    for name in ["perf.data", "v7.dat", "v6.dat.zst", "plain.pftrace.zst", "compact.pftrace"] {
        let whole = file(name);
        let format = detect(&whole).expect("a trace");
        for end in (0..whole.len()).step_by(whole.len() / 97) {
            // Whatever is left: an error or a recording, no panic.
            if let Err(error) = import(format, &whole[..end], &ImportOptions::default()) {
                assert!(!error.to_string().is_empty());
            }
        }
        for at in (0..whole.len()).step_by(whole.len() / 211) {
            let mut broken = whole.clone();
            broken[at] ^= 0xff;
            drop(import(format, &broken, &ImportOptions::default()));
        }
    }
    let v7 = file("v7.dat");
    let half = import(Format::TraceCmd, &v7[..v7.len() / 2], &ImportOptions::default());
    assert!(matches!(half, Err(ImportError::Truncated { .. })), "{half:?}");
}
