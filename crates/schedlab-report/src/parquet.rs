//! Result files as Parquet: one long table for pandas, Polars, DuckDB or R.
//!
//! A row is one number of one run: of the whole run, or of one task of it. Metadata of the file name machine,
//! kernel and command. Intervals and verdicts are not here: they are in the JSON ([`crate::json`]).

use crate::result::{ResultFile, RunRecord, TaskRecord};
use ::parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use ::parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::types::Type;
use schedlab_model::metric::Metric;
use std::sync::Arc;

/// The columns, in order, with what they hold.
pub const COLUMNS: &[(&str, &str)] = &[
    ("work", "name of the recording, block or workload"),
    ("candidate", "name of the candidate"),
    ("seed", "seed of the run"),
    ("cost_seed", "seed of perturbed costs, null if they were not"),
    ("task", "number of the task in the run, null for numbers of the whole run"),
    ("task_name", "its name, null likewise"),
    ("target", "1 if the task belongs to the target, 0 if not, null likewise"),
    ("metric", "key of the metric, as in the JSON"),
    ("unit", "ns, 1/s, 1; null for numbers of the user's own"),
    ("value", "the number"),
];

/// One row, in the order of [`COLUMNS`].
struct Row<'a> {
    run: &'a RunRecord,
    work: &'a str,
    task: Option<&'a TaskRecord>,
    metric: &'a str,
    unit: Option<&'static str>,
    value: f64,
}

/// A result as a Parquet file. Runs with a long list of tasks give many rows: about 10 for each task.
pub fn to_parquet(result: &ResultFile) -> Result<Vec<u8>, ParquetError> {
    let rows = rows(result);
    let about = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
    let environment = &result.environment;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(format!("schedlab {}", result.program_version))
        .set_key_value_metadata(Some(vec![
            about("schedlab.schema_version", result.schema_version.to_string()),
            about("schedlab.obtained", result.obtained.words().to_owned()),
            about("schedlab.command", result.command.join(" ")),
            about("schedlab.machine", environment.machine.clone()),
            about("schedlab.kernel", environment.kernel.clone()),
        ]))
        .build();
    let mut file = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut file, Arc::new(schema()?), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    let text = |text: &str| Some(ByteArray::from(text.as_bytes().to_vec()));
    strings(&mut group, rows.iter().map(|row| text(row.work)))?;
    strings(&mut group, rows.iter().map(|row| text(&row.run.candidate)))?;
    longs(&mut group, rows.iter().map(|row| Some(row.run.seed as i64)))?;
    longs(&mut group, rows.iter().map(|row| row.run.cost_seed.map(|seed| seed as i64)))?;
    integers(&mut group, rows.iter().map(|row| row.task.map(|task| task.task as i32)))?;
    strings(&mut group, rows.iter().map(|row| row.task.and_then(|task| text(&task.name))))?;
    integers(&mut group, rows.iter().map(|row| row.task.map(|task| i32::from(task.target))))?;
    strings(&mut group, rows.iter().map(|row| text(row.metric)))?;
    strings(&mut group, rows.iter().map(|row| row.unit.and_then(text)))?;
    let values: Vec<f64> = rows.iter().map(|row| row.value).collect();
    if let Some(mut column) = group.next_column()? {
        column.typed::<DoubleType>().write_batch(&values, None, None)?;
        column.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(file)
}

fn rows(result: &ResultFile) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for run in &result.runs {
        let work = result.works.get(run.work as usize).map_or("", |work| work.name.as_str());
        for (metric, &value) in &run.values {
            let known = Metric::ALL.iter().find(|known| known.key() == metric);
            rows.push(Row { run, work, task: None, metric, unit: known.map(|known| known.unit()), value });
        }
        for task in &run.tasks {
            let numbers = numbers_of(task).into_iter();
            rows.extend(numbers.filter_map(|(metric, unit, value)| {
                Some(Row { run, work, task: Some(task), metric, unit: Some(unit), value: value? as f64 })
            }));
        }
    }
    rows
}

/// What is told of a task: key, unit and value, absent where the task has none.
fn numbers_of(task: &TaskRecord) -> [(&'static str, &'static str, Option<u64>); 11] {
    [
        ("weight", "1", Some(u64::from(task.weight))),
        ("cpu_time", "ns", Some(task.cpu_time_ns)),
        ("run_delay", "ns", Some(task.run_delay_ns)),
        ("sleep", "ns", Some(task.sleep_ns)),
        ("wait_max", "ns", Some(task.wait_max_ns)),
        ("involuntary_switches", "1", Some(task.involuntary_switches)),
        ("voluntary_switches", "1", Some(task.voluntary_switches)),
        ("migrations", "1", Some(task.migrations)),
        ("wakeup_latency_p99", "ns", task.wakeup_latency_p99_ns),
        ("deadlines_met", "1", Some(task.deadlines_met)),
        ("deadlines_missed", "1", Some(task.deadlines_missed)),
    ]
}

fn schema() -> Result<Type, ParquetError> {
    let column = |&(name, _): &(&str, &str)| {
        let (physical, logical) = match name {
            "seed" | "cost_seed" => (Physical::INT64, Some(LogicalType::integer(64, false))),
            "task" | "target" => (Physical::INT32, None),
            "value" => (Physical::DOUBLE, None),
            _ => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let repetition = if name == "value" { Repetition::REQUIRED } else { Repetition::OPTIONAL };
        Type::primitive_type_builder(name, physical)
            .with_logical_type(logical)
            .with_repetition(repetition)
            .build()
            .map(Arc::new)
    };
    let columns = COLUMNS.iter().map(column).collect::<Result<Vec<_>, _>>()?;
    Type::group_type_builder("schedlab").with_fields(columns).build()
}

/// Writes the next column, which may have nulls, with values of one physical type.
macro_rules! optional_column {
    ($name:ident, $physical:ty, $value:ty) => {
        fn $name(
            group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
            values: impl Iterator<Item = Option<$value>>,
        ) -> Result<(), ParquetError> {
            let (mut there, mut levels) = (Vec::new(), Vec::new());
            for value in values {
                levels.push(i16::from(value.is_some()));
                there.extend(value);
            }
            if let Some(mut column) = group.next_column()? {
                column.typed::<$physical>().write_batch(&there, Some(&levels), None)?;
                column.close()?;
            }
            Ok(())
        }
    };
}

optional_column!(strings, ByteArrayType, ByteArray);
optional_column!(longs, Int64Type, i64);
optional_column!(integers, Int32Type, i32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Work;
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::RowAccessor;

    fn result() -> ResultFile {
        let run = RunRecord {
            candidate: "vtime".to_owned(),
            seed: 7,
            values: [("makespan".to_owned(), 1.5e9), ("mine".to_owned(), 3.25)].into(),
            tasks: vec![TaskRecord {
                task: 4,
                name: "täsk".to_owned(),
                target: true,
                cpu_time_ns: 42,
                ..TaskRecord::default()
            }],
            ..RunRecord::default()
        };
        let perturbed = RunRecord { cost_seed: Some(9), tasks: Vec::new(), ..run.clone() };
        ResultFile {
            works: vec![Work { name: "load.toml".to_owned(), ..Work::default() }],
            runs: vec![run, perturbed],
            ..ResultFile::default()
        }
    }

    #[test]
    fn every_number_is_a_row_and_reads_back() {
        let bytes = to_parquet(&result()).expect("it writes");
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).expect("it is Parquet");
        let names: Vec<_> = reader
            .metadata()
            .file_metadata()
            .schema()
            .get_fields()
            .iter()
            .map(|f| f.name().to_owned())
            .collect();
        assert_eq!(names, COLUMNS.iter().map(|column| column.0).collect::<Vec<_>>());
        let rows: Vec<_> =
            reader.get_row_iter(None).expect("rows").collect::<Result<_, _>>().expect("whole rows");
        // Two numbers of each run and ten of the task, which has no 99th percentile.
        assert_eq!(rows.len(), 2 + 10 + 2);
        assert_eq!(rows[0].get_string(0).expect("a work"), "load.toml");
        assert_eq!(rows[0].get_ulong(2).expect("a seed"), 7);
        assert!(rows[0].get_ulong(3).is_err() && rows[0].get_int(4).is_err(), "null where there is none");
        let cells = |row: &::parquet::record::Row| {
            (
                row.get_string(7).expect("a metric").clone(),
                row.get_string(8).ok().cloned(),
                row.get_double(9).expect("a value"),
            )
        };
        assert_eq!(cells(&rows[0]), ("makespan".to_owned(), Some("ns".to_owned()), 1.5e9));
        assert_eq!(cells(&rows[1]), ("mine".to_owned(), None, 3.25));
        assert_eq!(rows[3].get_string(5).expect("a task"), "täsk");
        assert_eq!(cells(&rows[3]), ("cpu_time".to_owned(), Some("ns".to_owned()), 42.0));
        assert_eq!(rows[12].get_ulong(3).expect("perturbed"), 9);
    }

    #[test]
    fn a_result_without_runs_is_an_empty_table() {
        let bytes = to_parquet(&ResultFile::default()).expect("it writes");
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).expect("it is Parquet");
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
    }
}
