//! Result files as JSON, their schema, and reading them back.
//!
//! The types are in [`crate::result`].

use crate::result::{ResultFile, SCHEMA_VERSION};

/// A result file that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// Not JSON, or not of this shape.
    #[error("not a schedlab result ({0}): give a file written by --json")]
    Shape(#[from] serde_json::Error),
    /// Another version.
    #[error(
        "the result has schema version {found}, this program reads {SCHEMA_VERSION}: \
         read it with the program that wrote it, or run again"
    )]
    Version {
        /// Its version.
        found: u64,
    },
}

/// As JSON, ending in a newline.
pub fn to_json(result: &ResultFile) -> String {
    let mut text = serde_json::to_string_pretty(result).expect("result types have string keys only");
    text.push('\n');
    text
}

/// Reads what [`to_json`] wrote.
pub fn from_json(text: &str) -> Result<ResultFile, ResultError> {
    let value: serde_json::Value = serde_json::from_str(text)?;
    let found = value.get("schema_version").and_then(serde_json::Value::as_u64);
    if let Some(found) = found.filter(|&found| found != u64::from(SCHEMA_VERSION)) {
        return Err(ResultError::Version { found });
    }
    Ok(serde_json::from_value(value)?)
}

/// The JSON schema of result files.
pub fn schema() -> String {
    let mut schema = schemars::schema_for!(ResultFile);
    schema.insert("$id".to_owned(), "urn:schedlab:schema:result:1".into());
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
    text.push('\n');
    text
}
