//! The documents of `schedlab top` keep to their published schema.

#[path = "support/schema.rs"]
mod schema;

use schedlab_model::tasks_now::{Activity, Class, CpuNow, MachineNow, Rank, SchedulerNow, TaskNow};
use schedlab_model::{CpuId, Nanos};
use schedlab_report::top::document::{self, TopDocument};
use schedlab_report::top::{Filter, Frame, Sort};
use serde_json::Value;

const SCHEMA_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/top.schema.json");

fn machine(time_ns: u64) -> MachineNow {
    let task = |pid: i32, rank: Option<Rank>| TaskNow {
        pid,
        tgid: pid,
        start_ns: 1,
        name: format!("task {pid}"),
        kernel: false,
        cgroup: 1,
        class: Class::Ext,
        policy: 0,
        nice: -5,
        prio_static: 115,
        prio: 120,
        activity: Activity::Running,
        cpu: CpuId(0),
        rank,
        slice_left: rank.map(|_| Nanos(5)),
        ran: Nanos(time_ns / 2),
        delay: rank.map(|_| Nanos(time_ns / 4)),
        switches: [1, 2],
    };
    let ranks = [
        None,
        Some(Rank::Level { level: 110, level_static: 115 }),
        Some(Rank::Eevdf { lag_ns: -4, deadline_ns: 9, vruntime_ns: 4 }),
        Some(Rank::Vtime { key: u64::MAX }),
    ];
    let cpu = CpuNow {
        cpu: CpuId(0),
        queued: 4,
        by_class: [0, 0, 0, 4],
        current: 1,
        current_name: "task 1".into(),
        class: Class::Ext,
        switches: time_ns,
        idle: None,
    };
    MachineNow {
        time: Nanos(time_ns),
        tasks: (1..).zip(ranks).map(|(pid, rank)| task(pid, rank)).collect(),
        cpus: vec![cpu],
        scheduler: SchedulerNow { name: "ingosched".into(), rank_words: "dynamic priority".into() },
    }
}

fn document(tasks_max: usize) -> Value {
    let frame = Frame::between(&machine(100), &machine(200));
    let document = TopDocument::of(&frame, Sort::Pid, &Filter::default(), tasks_max);
    serde_json::to_value(document).expect("JSON")
}

#[test]
fn the_published_schema_is_that_of_the_types() {
    schema::assert_published(SCHEMA_FILE, &document::schema());
}

#[test]
fn documents_keep_to_the_schema() {
    let schema: Value = serde_json::from_str(&document::schema()).expect("JSON");
    let mut value = document(10);
    let errors = schema::errors(&schema, &value);
    assert!(errors.is_empty(), "{errors:#?}");
    value["tasks"][0]["cpu_share"] = "half".into();
    value.as_object_mut().expect("an object").remove("cpus");
    assert_eq!(schema::errors(&schema, &value).len(), 2, "the check finds what is wrong");
}

#[test]
fn what_a_scheduler_of_2006_keeps_is_told() {
    let value = document(3);
    let (none, level, eevdf) = (&value["tasks"][0], &value["tasks"][1], &value["tasks"][2]);
    assert_eq!((&none["rank"], &none["delay_ns"]), (&Value::Null, &Value::Null));
    assert_eq!((level["prio_dynamic"].as_i64(), level["prio_static"].as_i64()), (Some(110), Some(115)));
    assert_eq!((eevdf["rank"]["by"].as_str(), eevdf["rank"]["lag_ns"].as_i64()), (Some("eevdf"), Some(-4)));
    assert_eq!((level["cpu_share"].as_f64(), level["delay_ns"].as_u64()), (Some(0.5), Some(25)));
    assert_eq!(value["tasks_left_out"].as_u64(), Some(1));
}
