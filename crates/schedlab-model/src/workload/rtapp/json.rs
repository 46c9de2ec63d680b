//! One place in an rt-app file: a value with the keys that lead to it, so that every error names its line.

use crate::time::Nanos;
use crate::workload::file::WorkloadError;
use jsonc_parser::ParseOptions;
use jsonc_parser::ast::Value;
use jsonc_parser::common::Ranged;
use std::fmt;

/// What rt-app's reader (json-c) accepts beyond JSON: comments and trailing commas.
const LENIENT: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Parses a text; keys may repeat in an object, and all of them are kept in order.
pub(super) fn parse(text: &str) -> Result<Value<'_>, WorkloadError> {
    let parsed = jsonc_parser::parse_to_ast(text, &Default::default(), &LENIENT)
        .map_err(|error| WorkloadError::RtApp(format!("line {}: {error}", error.line_display())))?;
    parsed
        .value
        .ok_or_else(|| WorkloadError::RtApp("the file is empty: it needs a \"tasks\" object".to_owned()))
}

/// A value and where it stands.
#[derive(Clone)]
pub(super) struct Place<'a> {
    text: &'a str,
    path: Vec<&'a str>,
    start: usize,
    value: &'a Value<'a>,
}

impl<'a> Place<'a> {
    /// The whole file.
    pub(super) fn root(text: &'a str, value: &'a Value<'a>) -> Place<'a> {
        Place { text, path: Vec::new(), start: value.start(), value }
    }

    /// The last key that leads here.
    pub(super) fn key(&self) -> &'a str {
        self.path.last().copied().unwrap_or_default()
    }

    /// An error about this value.
    pub(super) fn error(&self, what: impl fmt::Display) -> WorkloadError {
        let line = self.text[..self.start].matches('\n').count() + 1;
        WorkloadError::RtApp(format!("line {line}: {}: {what}", self.path.join(".")))
    }

    /// The entries of an object in their order, repeated keys too.
    pub(super) fn entries(&self) -> Result<Vec<Place<'a>>, WorkloadError> {
        let Value::Object(object) = self.value else { return Err(self.error("must be an object { ... }")) };
        let entry = |property: &'a jsonc_parser::ast::ObjectProp<'a>| {
            let mut path = self.path.clone();
            path.push(property.name.as_str());
            Place { text: self.text, path, start: property.start(), value: &property.value }
        };
        Ok(object.properties.iter().map(entry).collect())
    }

    /// The last entry with this key, as json-c keeps it.
    pub(super) fn entry(&self, key: &str) -> Result<Option<Place<'a>>, WorkloadError> {
        Ok(self.entries()?.into_iter().rfind(|place| place.key() == key))
    }

    /// A whole number within bounds, both included.
    pub(super) fn integer(&self, min: i64, max: i64) -> Result<i64, WorkloadError> {
        let number = self.value.as_number_lit().and_then(|number| number.value.parse::<i64>().ok());
        number
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| self.error(format!("must be a whole number, {min} to {max}")))
    }

    /// A time in microseconds.
    pub(super) fn micros(&self) -> Result<Nanos, WorkloadError> {
        self.integer(0, 1_000_000_000_000).map(|us| Nanos::from_micros(us as u64))
    }

    /// A string.
    pub(super) fn text(&self) -> Result<&'a str, WorkloadError> {
        match self.value {
            Value::StringLit(text) => Ok(&text.value),
            _ => Err(self.error("must be a string")),
        }
    }

    /// Whether the value is `true`.
    pub(super) fn is_true(&self) -> bool {
        self.value.as_boolean_lit().is_some_and(|value| value.value)
    }

    /// Whether the value is an object.
    pub(super) fn is_object(&self) -> bool {
        matches!(self.value, Value::Object(_))
    }

    /// A list of whole numbers within bounds, both included.
    pub(super) fn integers(&self, min: i64, max: i64) -> Result<Vec<i64>, WorkloadError> {
        let Value::Array(list) = self.value else {
            return Err(self.error("must be a list of numbers [ ... ]"));
        };
        let element = |value: &'a Value<'a>| Place { start: value.start(), value, ..self.clone() };
        list.elements.iter().map(|value| element(value).integer(min, max)).collect()
    }
}
