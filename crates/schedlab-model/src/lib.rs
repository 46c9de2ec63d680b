//! The words of schedlab: time, CPU, task, topology, machine, workload, recording, knob, metric.
//!
//! Every other crate speaks through these types and depends on nothing else of ours. Not here: input
//! and output, clocks, policies. Start at [`event`] for what a kernel does, [`workload`] for what tasks
//! do, [`lever`] and [`outcome`] for what a comparison tries and gets.

pub mod calibration;
pub mod cpu_set;
pub mod event;
pub mod ids;
pub mod knob;
pub mod lever;
pub mod machine;
pub mod memory;
pub mod metric;
pub mod outcome;
pub mod policy;
pub mod recording;
pub mod rng;
pub mod tasks_now;
pub mod time;
pub mod timeline;
pub mod topology;
pub mod weights;
pub mod workload;

pub use cpu_set::CpuSet;
pub use event::{Event, EventKind, EventSink};
pub use ids::{ChannelId, CpuId, TaskId};
pub use policy::{Nice, Policy, TaskAttributes};
pub use time::Nanos;
