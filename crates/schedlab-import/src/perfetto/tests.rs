//! Traces made message by message.

use super::*;
use crate::perfetto_messages::{Stats, Switch, Tree, TreeThread};
use crate::{Format, ImportOptions, UNPACKED_BYTES_MAX, import};
use std::io::Write as _;

fn file(packets: Vec<Packet>) -> Vec<u8> {
    Packets { packets }.encode_to_vec()
}

fn bundle(bundle: Bundle) -> Packet {
    Packet { ftrace: Some(bundle), ..Packet::default() }
}

fn read_all(bytes: &[u8]) -> Trace {
    read(bytes, Budget::new(FORMAT, UNPACKED_BYTES_MAX)).expect("a trace")
}

#[test]
fn the_first_waking_of_a_bundle_is_by_who_ran_before_it() {
    let first = Compact {
        names: vec![b"a".to_vec()],
        switch_time: vec![100],
        switch_prev_state: vec![0],
        switch_next_pid: vec![7],
        switch_next_prio: vec![120],
        switch_next_name: vec![0],
        ..Compact::default()
    };
    let second = Compact {
        names: vec![b"b".to_vec(), b"c".to_vec()],
        switch_time: vec![300],
        switch_prev_state: vec![1],
        switch_next_pid: vec![8],
        switch_next_prio: vec![120],
        switch_next_name: vec![0],
        waking_time: vec![200, 200],
        waking_pid: vec![9, 9],
        waking_cpu: vec![0, 0],
        waking_prio: vec![120, 120],
        waking_name: vec![1, 1],
        waking_flags: vec![0, 0],
    };
    let of = |compact| bundle(Bundle { compact: Some(compact), ..Bundle::default() });
    let trace = read_all(&file(vec![of(first), of(second)]));
    let wakers: Vec<(u64, i32)> = trace
        .events
        .iter()
        .filter(|heard| matches!(heard.what, What::Waking { .. }))
        .map(|heard| (heard.time, heard.current))
        .collect();
    assert_eq!(wakers, [(200, 7), (400, 8)]);
}

#[test]
fn names_that_are_not_text_are_read_all_the_same() {
    let odd = vec![b'a', 0xff, b'z'];
    let switch = Switch { prev_pid: 0, next_pid: 7, next_name: odd.clone(), ..Switch::default() };
    let events = vec![Ftrace { time: 5, switch: Some(switch), ..Ftrace::default() }];
    let thread = TreeThread { tid: 8, name: odd, tgid: 8 };
    let tree =
        Packet { tree: Some(Tree { processes: Vec::new(), threads: vec![thread] }), ..Packet::default() };
    let trace = read_all(&file(vec![tree, bundle(Bundle { events, ..Bundle::default() })]));
    assert_eq!(trace.names[&8], "a\u{fffd}z");
    let What::Switch { next, .. } = &trace.events[0].what else { panic!("a switch") };
    assert_eq!(next.name, "a\u{fffd}z");
}

#[test]
fn only_what_is_lost_while_it_records_counts_as_lost() {
    let stats = |phase, overrun, commit_overrun, dropped| Packet {
        stats: Some(Stats { phase, cpus: vec![CpuStats { cpu: 3, overrun, commit_overrun, dropped }] }),
        ..Packet::default()
    };
    let trace = read_all(&file(vec![stats(START_OF_TRACE, 1_000, 5, 7), stats(END_OF_TRACE, 1_040, 6, 9)]));
    assert_eq!(trace.lost[&3], 40 + 1 + 2);
    let before = read_all(&file(vec![stats(START_OF_TRACE, 9, 0, 0), stats(END_OF_TRACE, 9, 0, 0)]));
    assert!(before.lost.is_empty());
    let most = read_all(&file(vec![stats(END_OF_TRACE, u64::MAX, u64::MAX, u64::MAX)]));
    assert_eq!(most.lost[&3], u64::MAX);
}

#[test]
fn packed_packets_unpack_to_no_more_than_allowed() {
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(&vec![0; 1 << 20]).expect("in memory");
    let packed = packed.finish().expect("in memory");
    assert!(packed.len() < 2_000, "a bomb");
    let packet = || Packet { packed: Some(packed.clone().into()), ..Packet::default() };
    let options = ImportOptions { unpacked_max: 1 << 16, ..ImportOptions::default() };
    let error = import(Format::Perfetto, &file(vec![packet()]), &options).expect_err("too much").to_string();
    assert!(error.contains("more than 65536 bytes") && error.contains("shorter time"), "{error}");
}
