//! What is read back of raw records: sends in sum above all.

use super::*;
use crate::record::raw::RUN_SEEN;
use schedlab_model::Event;
use schedlab_model::machine::MachineDescription;
use schedlab_model::recording::{Provenance, RUN_MAX, Recording, codec};
use schedlab_model::topology::Topology;

const ROUND: [u64; 4] = [100, 101, 102, 103];

fn told(kind: u8, time: u64) -> RawRecord {
    RawRecord { kind, time, pid: 7, ..RawRecord::default() }
}

/// An entry of a task's table: 50 bytes to channel 100 and so on.
fn entry_of(pid: u32, at: u8, next: u8) -> RawRecord {
    let (a, b) = (ROUND[usize::from(at)], 50);
    RawRecord { op: at, flags: next, pid, a, b, ..told(kind::PATTERN, 10) }
}

fn table_of(pid: u32) -> [RawRecord; 4] {
    [0, 1, 2, 3].map(|at| entry_of(pid, at, (at + 1) % 4))
}

/// Six sends of task 7 in sum, between 10 and 20 ns.
fn six() -> RawRecord {
    RawRecord { a: 10, b: 300 | 6 << 40, ..told(kind::REST, 20) }
}

fn run(time: u64, since: u64, first: u8, count: u64, flags: u8) -> RawRecord {
    RawRecord { op: first, flags, a: count, b: since, ..told(kind::RUN, time) }
}

/// Task 8 receives so many bytes of a channel, all that there are.
fn received(at: usize, bytes: u64) -> RawRecord {
    let (op, flags) = (Operation::SocketReceive as u8, ChannelKind::Socket as u8);
    RawRecord { pid: 8, op, flags, a: ROUND[at], b: bytes, ..told(kind::OP_EXIT, 35) }
}

/// What is read of these records of tasks 7 and 8, threads of one process, and how many bytes nobody gave.
fn recorded(raws: impl IntoIterator<Item = RawRecord>) -> (Recording, u64) {
    let machine = MachineDescription::generic("test", Topology::flat(1).expect("a CPU"));
    let mut provenance = Provenance::default();
    let writer = RecordingWriter::new(Vec::new(), &provenance, &machine).expect("in memory");
    let tasks = [7, 8].map(|pid| TaskInfo { pid, tgid: 7, ..TaskInfo::idle() });
    let mut translator = Translator::new(writer, 0, tasks.to_vec());
    translator.counting = true;
    for raw in raws {
        translator.record(&raw).expect("in memory");
    }
    let (writer, unseen_bytes) = translator.into_writer().expect("in memory");
    provenance.unseen_bytes = unseen_bytes;
    let bytes = writer.finish(&provenance, Nanos(40)).expect("in memory");
    (codec::decode(&bytes).expect("a recording"), unseen_bytes)
}

/// Where task 7 sent, in order of time.
fn sent(raws: impl IntoIterator<Item = RawRecord>) -> Vec<u64> {
    let (recording, _) = recorded(raws);
    let seven = recording.tasks.iter().position(|task| task.pid == 7).expect("it is there");
    let to = |event: &Event| match event.kind {
        EventKind::OperationExit { task, channel, .. } if task.index() == seven => {
            Some(recording.channels[channel.index()].identity)
        }
        _ => None,
    };
    recording.events.iter().filter_map(to).collect()
}

#[test]
fn sends_that_go_on_where_the_own_table_ends_are_told_by_that_of_a_sibling() {
    let own = [entry_of(7, 0, 1), entry_of(7, 1, u8::MAX)];
    let later = [run(15, 11, 0, 2, 0), RawRecord { a: 16, ..six() }, run(30, 21, 0, 1, 0)];
    let raws = own.into_iter().chain(table_of(8)).chain(later);
    assert_eq!(sent(raws), [100, 101, 102, 103, 100, 101, 102, 103, 100]);
}

#[test]
fn a_run_that_was_seen_tells_which_sends_came_before_it() {
    let sums_then_run = |flags| table_of(7).into_iter().chain([six(), run(30, 20, 3, 1, flags)]);
    assert_eq!(sent(sums_then_run(RUN_SEEN)), [101, 102, 103, 100, 101, 102, 103]);
    assert_eq!(sent(sums_then_run(0)), [103], "where the kernel believed the task to be");
    let begun =
        sums_then_run(0).chain([received(0, 100), received(1, 100), received(2, 50), received(3, 100)]);
    assert_eq!(sent(begun), [100, 101, 102, 103, 100, 101, 103], "received, so it must have been sent");
}

#[test]
fn a_task_that_was_never_seen_to_send_began_as_its_sibling_did() {
    let of_sibling = |time| RawRecord { pid: 8, ..run(time, time - 1, 0, 2, 0) };
    let raws = |first: u64| {
        let received = [received(0, 100 + first), received(1, 200), received(2, 50), received(3, 50)];
        [six()].into_iter().chain(table_of(8)).chain([of_sibling(25), of_sibling(30)]).chain(received)
    };
    assert_eq!(sent(raws(50)), [0_u64; 0], "others would miss what is told");
    assert_eq!(sent(raws(100)), [100, 101, 102, 103, 100, 101]);
    let (recording, _) = recorded(raws(100));
    let times: Vec<u64> = recording.events.iter().map(|event| event.time.0).collect();
    assert!(times.is_sorted(), "told last, read where they were: {times:?}");
    assert_eq!(times.iter().filter(|&&time| time <= 20).count(), 6);
}

#[test]
fn a_sum_may_be_longer_than_a_run() {
    let many = RUN_MAX + 2;
    let rest = RawRecord { b: (many * 50) | (many << 40), ..six() };
    let raws = table_of(7).into_iter().chain([run(12, 11, 0, 4, 0), rest, run(30, 20, 2, 1, RUN_SEEN)]);
    assert_eq!(sent(raws).len() as u64, many + 5);
}

#[test]
fn what_was_received_and_no_send_gave_is_counted() {
    let odd = RawRecord { b: 299 | 6 << 40, ..six() };
    let with = |rest, bytes| {
        recorded(table_of(7).into_iter().chain([run(12, 11, 0, 1, 0), rest, received(0, bytes)])).1
    };
    assert_eq!(with(six(), 100), 0);
    assert_eq!(with(odd, 50), 0, "written to a file");
    assert_eq!(with(odd, 100), 50);
}
