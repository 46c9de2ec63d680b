//! The documents of `schedlab bench` keep to their published schema, and are read back as they were written.

#[path = "support/schema.rs"]
mod schema;

use schedlab_report::bench::{
    self, About, BENCH_SCHEMA_VERSION, BenchDocument, FrameCounts, ProgramRow, Rows, SampleRow, SwappedRecord,
};
use serde_json::Value;

const SCHEMA_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/bench.schema.json");

fn documents() -> Vec<BenchDocument> {
    let about = |bench: &str, rounds| About {
        schema_version: BENCH_SCHEMA_VERSION,
        bench: bench.into(),
        command: vec!["schedlab".into(), "bench".into(), bench.into()],
        seed: 1,
        machine: "this".into(),
        rounds,
        quick: false,
    };
    let bare = SampleRow { scheduler: "fair".into(), part: "rt".into(), ..SampleRow::default() };
    let full = SampleRow {
        ended: Some("stall".into()),
        samples_ns: vec![1, 2],
        waker_error_ns: vec![3],
        load_cpu_percent: Some(12.5),
        load_wait_max_ns: Some(4),
        context_switches: Some(5),
        swapped: Some(SwappedRecord { pages_out: 1, pages_in: 2, stalls: 3, searches: 4 }),
        left_out: true,
        notes: vec!["a note".into()],
        frames: Some(FrameCounts::default()),
        ..bare.clone()
    };
    let program = ProgramRow { program: "fft".into(), seconds: vec![0.1], ..ProgramRow::default() };
    vec![
        BenchDocument { about: about("interbench", None), rows: Rows::Samples(vec![bare, full]) },
        BenchDocument { about: about("programs", Some(5)), rows: Rows::Programs(vec![program]) },
        BenchDocument { about: about("programs", Some(5)), rows: Rows::Programs(Vec::new()) },
    ]
}

#[test]
fn the_published_schema_is_that_of_the_types() {
    schema::assert_published(SCHEMA_FILE, &bench::schema());
}

#[test]
fn documents_keep_to_the_schema_and_survive_a_round_trip() {
    let schema: Value = serde_json::from_str(&bench::schema()).expect("JSON");
    for document in documents() {
        let value = serde_json::to_value(&document).expect("JSON");
        let errors = schema::errors(&schema, &value);
        assert!(errors.is_empty(), "{errors:#?}");
        assert_eq!(BenchDocument::read(&value.to_string()).expect("our own"), document);
    }
}

#[test]
fn the_schema_check_finds_what_is_wrong() {
    let schema: Value = serde_json::from_str(&bench::schema()).expect("JSON");
    let mut value = serde_json::to_value(&documents()[0]).expect("JSON");
    value["seed"] = "one".into();
    value["rows"][0]["samples_ns"] = "many".into();
    value.as_object_mut().expect("an object").remove("bench");
    let errors = schema::errors(&schema, &value).join("\n");
    for part in ["/seed", "/rows", "bench"] {
        assert!(errors.contains(part), "{part} in {errors}");
    }
}
