//! Types and conversions between them.

use std::sync::Arc;

use super::Fault;
use super::value::Value;

/// The type with this name, if it exists.
pub(super) fn type_named(name: &str) -> Option<&'static str> {
    const NAMES: [&str; 10] =
        ["null_type", "bool", "int", "uint", "double", "string", "bytes", "list", "map", "type"];
    NAMES.into_iter().find(|one| *one == name)
}

/// The value as an integer. `None` if it is not a whole number.
#[expect(
    clippy::cast_possible_truncation,
    reason = "only whole numbers whose absolute value is below 9e15 are converted"
)]
pub(super) fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::Uint(number) => i64::try_from(*number).ok(),
        Value::Double(number) if number.fract() == 0.0 && number.abs() < 9e15 => Some(*number as i64),
        _ => None,
    }
}

/// Converts a value; `None` if there is no conversion with this name.
pub(super) fn convert(name: &str, value: &Value) -> Option<Result<Value, Fault>> {
    Some(match name {
        "int" => int(value),
        "uint" => uint(value),
        "double" => double(value),
        "string" => text(value),
        "bool" => bool(value),
        "bytes" => match value {
            Value::Bytes(_) => Ok(value.clone()),
            Value::Text(text) => Ok(Value::Bytes(Arc::from(text.as_bytes()))),
            _ => Err(Fault::no_overload()),
        },
        "dyn" => Ok(value.clone()),
        "type" => Ok(Value::Type(value.type_name())),
        "duration" | "timestamp" => Err(Fault::unsupported(format!("the function {name}"))),
        _ => return None,
    })
}

#[expect(clippy::cast_possible_truncation, reason = "within limits")]
fn int(value: &Value) -> Result<Value, Fault> {
    let range = || Fault::error("integer overflow");
    match value {
        Value::Int(number) => Ok(Value::Int(*number)),
        Value::Uint(number) => i64::try_from(*number).map(Value::Int).map_err(|_| range()),
        Value::Double(number) if number.abs() < 9.2e18 => Ok(Value::Int(*number as i64)),
        Value::Double(_) => Err(range()),
        Value::Text(text) => text.parse().map(Value::Int).map_err(|_| wrong(text, "int")),
        _ => Err(Fault::no_overload()),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within limits")]
fn uint(value: &Value) -> Result<Value, Fault> {
    let range = || Fault::error("unsigned integer overflow");
    match value {
        Value::Uint(number) => Ok(Value::Uint(*number)),
        Value::Int(number) => u64::try_from(*number).map(Value::Uint).map_err(|_| range()),
        Value::Double(number) if *number >= 0.0 && *number < 1.8e19 => Ok(Value::Uint(*number as u64)),
        Value::Double(_) => Err(range()),
        Value::Text(text) => text.parse().map(Value::Uint).map_err(|_| wrong(text, "uint")),
        _ => Err(Fault::no_overload()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "the expression itself requests the conversion")]
fn double(value: &Value) -> Result<Value, Fault> {
    match value {
        Value::Double(number) => Ok(Value::Double(*number)),
        Value::Int(number) => Ok(Value::Double(*number as f64)),
        Value::Uint(number) => Ok(Value::Double(*number as f64)),
        Value::Text(text) => text.parse().map(Value::Double).map_err(|_| wrong(text, "double")),
        _ => Err(Fault::no_overload()),
    }
}

fn text(value: &Value) -> Result<Value, Fault> {
    Ok(match value {
        Value::Text(_) => value.clone(),
        Value::Int(number) => number.to_string().as_str().into(),
        Value::Uint(number) => number.to_string().as_str().into(),
        Value::Double(number) => number.to_string().as_str().into(),
        Value::Bool(value) => value.to_string().as_str().into(),
        Value::Bytes(bytes) => std::str::from_utf8(bytes).map_err(|_| Fault::error("invalid UTF-8"))?.into(),
        _ => return Err(Fault::no_overload()),
    })
}

fn bool(value: &Value) -> Result<Value, Fault> {
    match value {
        Value::Bool(_) => Ok(value.clone()),
        Value::Text(text) => match text.as_ref() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(wrong(text, "bool")),
        },
        _ => Err(Fault::no_overload()),
    }
}

fn wrong(text: &str, of: &str) -> Fault {
    Fault::error(format!("`{text}` is not a valid {of}"))
}
