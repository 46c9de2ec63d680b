//! What `schedlab bench` writes: one JSON document a benchmark, and JSON Lines of what is there of it so far.
//!
//! These types *are* the schema (docs/schema/bench.schema.json is generated from them). Not here: how samples are taken,
//! which the program knows, and when what is written (docs/benchmarks.md).

use crate::result::ObtainedRecord;
use crate::samples::{Summary, six_sigma, summarise};
use schedlab_model::memory::Swapped;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the schema. It rises when a field changes its meaning or goes; new fields do not raise it.
pub const BENCH_SCHEMA_VERSION: u32 = 1;

/// What is there of a benchmark whose samples cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Neither a document nor lines of one.
    #[error(
        "not what `schedlab bench --json` writes ({0}): give that file, or its .part if the run was killed"
    )]
    Shape(String),
    /// Another version.
    #[error(
        "it has schema version {0}, this program reads {BENCH_SCHEMA_VERSION}: read it with the program that wrote it"
    )]
    Version(u32),
}

/// A whole benchmark.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchDocument {
    /// What was run.
    #[serde(flatten)]
    pub about: About,
    /// Every run.
    pub rows: Rows,
}

/// What was run, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct About {
    /// [`BENCH_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// `wakeup`, `hackbench`, `interbench` or `programs`.
    pub bench: String,
    /// The command line that made it.
    pub command: Vec<String>,
    /// Seed of everything random.
    pub seed: u64,
    /// Name of the machine.
    pub machine: String,
    /// Rounds of `programs` that were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// Whether `--quick` made it smaller.
    #[serde(default)]
    pub quick: bool,
}

/// The runs, by what a benchmark counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Rows {
    /// Of `wakeup`, `hackbench` and `interbench`: each part under each scheduler.
    Samples(Vec<SampleRow>),
    /// Of `programs`: each program at each nice value, alone and not, under each scheduler.
    Programs(Vec<ProgramRow>),
}

impl Rows {
    /// Whether nothing was run.
    pub fn is_empty(&self) -> bool {
        match self {
            Rows::Samples(rows) => rows.is_empty(),
            Rows::Programs(rows) => rows.is_empty(),
        }
    }
}

/// What one scheduler did in one part of a benchmark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SampleRow {
    /// The scheduler.
    pub scheduler: String,
    /// Which part: `rt`, `normal`, `TASK/LOAD` of interbench, or the benchmark's name.
    pub part: String,
    /// How it was obtained.
    pub obtained: ObtainedRecord,
    /// Time of the whole, in ns.
    pub duration_ns: u64,
    /// Whether it was ended before all was done.
    pub cut: bool,
    /// Why the scheduler ended, if it did not last: the fair class took over then.
    pub ended: Option<String>,
    /// From wake-up to run, in ns; of interbench the latencies of frames.
    pub samples_ns: Vec<u64>,
    /// How late the waker was back from its timer, in ns.
    pub waker_error_ns: Vec<u64>,
    /// How much of all CPU time the load had, in per cent, where its tasks were seen: simulated or recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_cpu_percent: Option<f64>,
    /// How long a task of the load waited for a CPU at most, in ns; simulated only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_wait_max_ns: Option<u64>,
    /// Switches of tasks, to and from idle too; simulated only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_switches: Option<u64>,
    /// What went to the disk for lack of memory; simulated only, on machines whose memory can run short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swapped: Option<SwappedRecord>,
    /// Whether it was not run, for want of room; a note says which.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
    /// What a reader must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What interbench counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frames: Option<FrameCounts>,
}

/// What interbench counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FrameCounts {
    /// Deadlines that were met.
    pub deadlines_met: u64,
    /// Deadlines that were not.
    pub deadlines_missed: u64,
    /// Frames that got their CPU time; of gaming that time, in ns.
    pub burns_achieved: u64,
    /// Frames that did not; of gaming the time it waited, in ns.
    pub burns_missed: u64,
    /// Whether the task has deadlines.
    pub has_deadlines: bool,
}

/// Pages that went to the disk and came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwappedRecord {
    /// Pages written to the disk.
    pub pages_out: u64,
    /// Pages read from it.
    pub pages_in: u64,
    /// How often somebody who needed memory had to make room, once a request.
    pub stalls: u64,
    /// How often a page was looked for in the address spaces of its family for that.
    pub searches: u64,
}

impl SampleRow {
    /// What a table says of the samples, raw or without those above six deviations.
    pub fn summary(&self, filtered: bool) -> Option<Summary> {
        if filtered { summarise(&six_sigma(&self.samples_ns)) } else { summarise(&self.samples_ns) }
    }
}

impl FrameCounts {
    /// How much of the CPU that it wanted the task got, in per cent.
    pub fn desired_cpu_percent(&self) -> Option<f64> {
        percent(self.burns_achieved, self.burns_missed)
    }

    /// Deadlines met, in per cent.
    pub fn deadlines_met_percent(&self) -> Option<f64> {
        percent(self.deadlines_met, self.deadlines_missed).filter(|_| self.has_deadlines)
    }
}

fn percent(part: u64, other: u64) -> Option<f64> {
    (part + other > 0).then(|| 100.0 * part as f64 / (part + other) as f64)
}

impl From<Swapped> for SwappedRecord {
    fn from(swapped: Swapped) -> SwappedRecord {
        let Swapped { pages_out, pages_in, stalls, searches } = swapped;
        SwappedRecord { pages_out, pages_in, stalls, searches }
    }
}

/// A program at a nice value, alone or not: what it came to, in each round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProgramRow {
    /// The scheduler.
    pub scheduler: String,
    /// The program.
    pub program: String,
    /// Its threads.
    pub threads: u32,
    /// Its nice value.
    pub nice: i8,
    /// Whether the others ran beside it.
    pub together: bool,
    /// How it was obtained.
    pub obtained: ObtainedRecord,
    /// Time until it was done, in s.
    pub seconds: Vec<f64>,
    /// Of those programs that count them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mflops: Vec<f64>,
    /// Why the scheduler ended before the program did, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}

impl ProgramRow {
    /// Whether both are of the same program, nice value and company, under the same scheduler.
    pub fn is_same_case(&self, other: &ProgramRow) -> bool {
        let case = |row: &ProgramRow| (row.program.clone(), row.nice, row.together, row.scheduler.clone());
        case(self) == case(other)
    }
}

/// A line of the JSON Lines that are written while a benchmark runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first one.
    About(About),
    /// More samples of the run that is under way, as its threads told them; the row that comes when it is over has them
    /// all again.
    Samples(SampleRow),
    /// A run of `wakeup`, `hackbench` or `interbench` is over.
    Run(SampleRow),
    /// A run of `programs` is over: a row with the one round.
    Program(ProgramRow),
}

impl BenchDocument {
    /// Without any run.
    pub fn of(about: About) -> BenchDocument {
        let rows = match about.bench.as_str() {
            "programs" => Rows::Programs(Vec::new()),
            _ => Rows::Samples(Vec::new()),
        };
        BenchDocument { about, rows }
    }

    /// Reads a document, or the lines that are there of one.
    ///
    /// # Errors
    /// [`BenchError`]. A last line that was cut off is left out and is none.
    pub fn read(text: &str) -> Result<BenchDocument, BenchError> {
        let shape = |error: serde_json::Error| BenchError::Shape(error.to_string());
        let first = text.lines().next().unwrap_or_default();
        let document = match serde_json::from_str(first) {
            Ok(Line::About(about)) => {
                check_version(about.schema_version)?;
                BenchDocument::of_lines(about, text)?
            }
            _ => serde_json::from_str::<BenchDocument>(text).map_err(shape)?,
        };
        check_version(document.about.schema_version)?;
        Ok(document.typed())
    }

    fn of_lines(about: About, text: &str) -> Result<BenchDocument, BenchError> {
        let mut document = BenchDocument::of(about);
        // What is written at once ends in a newline: text behind the last one was cut off.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut under_way = None;
        for (number, line) in whole.lines().enumerate().skip(1) {
            let line = serde_json::from_str(line)
                .map_err(|error| BenchError::Shape(format!("line {}: {error}", number + 1)))?;
            document.add(line, &mut under_way);
        }
        if let (Rows::Samples(rows), Some(row)) = (&mut document.rows, under_way) {
            rows.push(row);
        }
        Ok(document)
    }

    /// Adds a line; of the run that is under way its samples are kept aside, as it is over with a row of its own.
    fn add(&mut self, line: Line, under_way: &mut Option<SampleRow>) {
        match (line, &mut self.rows) {
            (Line::Samples(more), Rows::Samples(_)) => match under_way {
                Some(row) => {
                    row.samples_ns.extend(more.samples_ns);
                    row.waker_error_ns.extend(more.waker_error_ns);
                    row.duration_ns = more.duration_ns;
                }
                None => *under_way = Some(SampleRow { cut: true, ..more }),
            },
            (Line::Run(row), Rows::Samples(rows)) => {
                *under_way = None;
                rows.push(row);
            }
            (Line::Program(row), Rows::Programs(rows)) => add_round(rows, row),
            // Nobody writes such a line.
            _ => {}
        }
    }

    /// No rows are of either type: the name of the benchmark decides.
    fn typed(mut self) -> BenchDocument {
        if matches!(&self.rows, Rows::Samples(rows) if rows.is_empty()) {
            self.rows = BenchDocument::of(self.about.clone()).rows;
        }
        self
    }
}

/// Adds a round to the row of its case.
fn add_round(rows: &mut Vec<ProgramRow>, round: ProgramRow) {
    match rows.iter_mut().find(|row| row.is_same_case(&round)) {
        Some(row) => {
            row.seconds.extend(round.seconds);
            row.mflops.extend(round.mflops);
            row.ended = row.ended.take().or(round.ended);
        }
        None => rows.push(round),
    }
}

fn check_version(found: u32) -> Result<(), BenchError> {
    if found == BENCH_SCHEMA_VERSION { Ok(()) } else { Err(BenchError::Version(found)) }
}

/// The JSON schema of a document.
pub fn schema() -> String {
    let mut schema = schemars::schema_for!(BenchDocument);
    schema.insert("$id".to_owned(), "urn:schedlab:schema:bench:1".into());
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(bench: &str) -> About {
        About { schema_version: BENCH_SCHEMA_VERSION, bench: bench.into(), ..About::default() }
    }

    fn lines(all: &[Line]) -> String {
        all.iter().map(|line| serde_json::to_string(line).expect("JSON") + "\n").collect()
    }

    fn samples(part: &str, samples_ns: &[u64]) -> SampleRow {
        SampleRow { part: part.into(), samples_ns: samples_ns.to_vec(), ..SampleRow::default() }
    }

    #[test]
    fn a_run_that_was_killed_has_the_samples_that_came() {
        let all = [
            Line::About(about("wakeup")),
            Line::Samples(samples("rt", &[1])),
            Line::Run(samples("rt", &[1, 2])),
            Line::Samples(samples("normal", &[3, 4])),
            Line::Samples(samples("normal", &[5])),
        ];
        let text = lines(&all) + "{\"run\":{\"sched";
        let document = BenchDocument::read(&text).expect("lines");
        let cut = SampleRow { cut: true, ..samples("normal", &[3, 4, 5]) };
        assert_eq!(document.rows, Rows::Samples(vec![samples("rt", &[1, 2]), cut]));
        assert!(BenchDocument::read(&(lines(&all) + "nonsense\n")).is_err(), "a whole line is read or said");
    }

    #[test]
    fn rounds_of_programs_are_put_together() {
        let round = |program: &str, second: f64| {
            Line::Program(ProgramRow {
                program: program.into(),
                seconds: vec![second],
                ..ProgramRow::default()
            })
        };
        let text = lines(&[
            Line::About(about("programs")),
            round("fibo", 1.0),
            round("fft", 2.0),
            round("fibo", 3.0),
        ]);
        let Rows::Programs(rows) = BenchDocument::read(&text).expect("lines").rows else {
            panic!("rows of programs")
        };
        let seconds: Vec<_> = rows.iter().map(|row| row.seconds.clone()).collect();
        assert_eq!(seconds, [vec![1.0, 3.0], vec![2.0]]);
    }

    #[test]
    fn what_is_none_of_it_is_named() {
        let error = |text: &str| BenchDocument::read(text).expect_err(text).to_string();
        for text in ["", "{}", "[1]", "a\nb"] {
            assert!(error(text).contains("--json"), "{}", error(text));
        }
        let other = lines(&[Line::About(About { schema_version: 9, ..about("wakeup") })]);
        assert!(error(&other).contains("version 9"));
    }
}
