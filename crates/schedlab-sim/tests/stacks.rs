//! Schedulers that use much stack (bpf/tests/stack_*.bpf.c): what the verifier of Linux 7.2 refuses, which
//! schedlab-host's tests ask a real one, is refused before the first task runs, with the place.

use schedlab_model::machine::KernelVersion;
use schedlab_model::topology::Topology;
use schedlab_sim::ExtScheduler;
use schedlab_sim::ext::ExtOptions;

fn load(name: &str, version: KernelVersion) -> Result<ExtScheduler, String> {
    let bytes = schedlab_objects::test_object(name).expect("a test object");
    let topology = Topology::flat(2).expect("two CPUs");
    let loaded = ExtScheduler::load(name, bytes, version, &topology, ExtOptions::default());
    loaded.map_err(|error| error.to_string())
}

#[test]
fn what_overflows_its_stack_is_refused_as_on_linux() {
    for (name, refused) in schedlab_objects::STACKS {
        match (load(name, KernelVersion::V7_2), refused) {
            (Ok(_), None) => {}
            (Err(error), Some(_)) => {
                let program = format!("program {name}_enqueue, instruction ");
                for words in [&*program, &format!("bpf/tests/{name}.bpf.c:"), "512", "in a map"] {
                    assert!(error.contains(words), "{name}: `{words}` is missing in: {error}");
                }
            }
            (Ok(_), Some(reason)) => panic!("{name} loads, Linux says: {reason}"),
            (Err(error), None) => panic!("Linux loads {name}: {error}"),
        }
    }
}

#[test]
fn frames_of_dispatch_are_its_own_since_7_1() {
    for version in [KernelVersion::V6_12, KernelVersion::V6_18] {
        let error = load("stack_dispatch", version).map(|_| ()).expect_err("800 bytes are too many");
        assert!(error.contains("stack_dispatch_dispatch() 400, deep() 400"), "{error}");
        assert!(load("stack_fits", version).is_ok());
    }
}
