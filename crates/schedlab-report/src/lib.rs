//! Runs to metrics, to a comparison, to text, JSON, HTML and Perfetto traces.
//!
//! Plain functions over data: no file, clock, environment or terminal is touched here. The words are in
//! `schedlab_model`; who makes the runs is behind its `Machine` trait.

pub mod bench;
pub mod character;
pub mod compare;
mod convert;
pub mod diff;
pub mod fidelity;
pub mod html;
pub mod json;
pub mod kernel_table;
pub mod metrics;
pub mod objective;
pub mod parquet;
pub mod perfetto;
pub mod result;
pub mod samples;
pub mod text;
pub mod timeline;
pub mod top;
pub mod triage;
pub mod units;

pub use compare::{Comparison, ComparisonInput, Sample, compare};
pub use metrics::MetricsCollector;
pub use objective::{Guard, Objective};
pub use result::ResultFile;
