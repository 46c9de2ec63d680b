//! A check of JSON against the part of JSON Schema that schemars writes for our types. It refuses keywords
//! that it does not know, so that it cannot pass what it did not look at.
//!
//! Instead of the jsonschema crate, which brings over a hundred others.

use serde_json::Value;

const ANNOTATIONS: &[&str] = &["$schema", "$id", "$defs", "title", "description", "default", "format"];

/// The published schema is that of the types; `UPDATE_SNAPSHOTS=1` publishes it.
pub fn assert_published(file: &str, fresh: &str) {
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(file, fresh).expect("docs/schema is writable");
    }
    let published = std::fs::read_to_string(file).unwrap_or_default();
    assert_eq!(published, fresh, "docs/schema is stale: run the test again with UPDATE_SNAPSHOTS=1");
}

/// Every place where the value breaks the schema.
pub fn errors(schema: &Value, value: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    check(schema, schema, value, "", &mut errors);
    errors
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str, errors: &mut Vec<String>) {
    let Some(keywords) = schema.as_object() else {
        if schema == &Value::Bool(false) {
            errors.push(format!("{at}: nothing may be here"));
        }
        return;
    };
    for (keyword, wanted) in keywords {
        let fits = match keyword.as_str() {
            "$ref" => {
                let pointer =
                    wanted.as_str().and_then(|path| path.strip_prefix('#')).expect("a local reference");
                check(root, root.pointer(pointer).expect("a definition"), value, at, errors);
                true
            }
            "type" => match wanted {
                Value::Array(kinds) => kinds.iter().any(|kind| is_a(value, kind)),
                kind => is_a(value, kind),
            },
            "enum" => wanted.as_array().expect("values").contains(value),
            "const" => wanted == value,
            "minimum" => value.as_f64().is_none_or(|number| number >= wanted.as_f64().expect("a number")),
            "maximum" => value.as_f64().is_none_or(|number| number <= wanted.as_f64().expect("a number")),
            "minItems" => {
                value.as_array().is_none_or(|items| items.len() as u64 >= wanted.as_u64().expect("a count"))
            }
            "maxItems" => {
                value.as_array().is_none_or(|items| items.len() as u64 <= wanted.as_u64().expect("a count"))
            }
            "anyOf" | "oneOf" => {
                let one = |choice: &&Value| {
                    let mut inner = Vec::new();
                    check(root, choice, value, at, &mut inner);
                    inner.is_empty()
                };
                let count = wanted.as_array().expect("choices").iter().filter(one).count();
                count == 1 || (keyword == "anyOf" && count > 0)
            }
            "required" => {
                let names = wanted.as_array().expect("names").iter().filter_map(Value::as_str);
                for name in names.filter(|name| value.get(name).is_none()) {
                    errors.push(format!("{at}: {name} is missing"));
                }
                true
            }
            "properties" | "prefixItems" | "items" | "additionalProperties" => {
                children(root, schema, keyword, value, at, errors);
                true
            }
            other => {
                assert!(ANNOTATIONS.contains(&other), "{at}: keyword {other} is not checked");
                true
            }
        };
        if !fits {
            errors.push(format!("{at}: {value} breaks {keyword} {wanted}"));
        }
    }
}

fn children(root: &Value, schema: &Value, keyword: &str, value: &Value, at: &str, errors: &mut Vec<String>) {
    let wanted = &schema[keyword];
    match (keyword, value) {
        ("properties", Value::Object(object)) => {
            for (name, schema) in wanted.as_object().expect("properties") {
                if let Some(inner) = object.get(name) {
                    check(root, schema, inner, &format!("{at}/{name}"), errors);
                }
            }
        }
        ("additionalProperties", Value::Object(object)) => {
            let named = |name: &str| schema.get("properties").is_some_and(|known| known.get(name).is_some());
            for (name, inner) in object.iter().filter(|(name, _)| !named(name)) {
                check(root, wanted, inner, &format!("{at}/{name}"), errors);
            }
        }
        ("prefixItems", Value::Array(items)) => {
            for (index, (schema, inner)) in wanted.as_array().expect("schemas").iter().zip(items).enumerate()
            {
                check(root, schema, inner, &format!("{at}/{index}"), errors);
            }
        }
        ("items", Value::Array(items)) => {
            for (index, inner) in items.iter().enumerate() {
                check(root, wanted, inner, &format!("{at}/{index}"), errors);
            }
        }
        _ => {}
    }
}

fn is_a(value: &Value, kind: &Value) -> bool {
    match kind.as_str().expect("a type") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("unknown type {other}"),
    }
}
