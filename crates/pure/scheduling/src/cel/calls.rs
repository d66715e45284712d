//! Operators and functions.

use std::sync::Arc;

use cel::common::ast::operators;

use super::evaluate::{Run, look_up, optional, satisfies};
use super::value::Value;
use super::{Fault, convert, lists, strings};
use model::amount::Amount;
use model::semver::Version;

/// Calls a function that has no target, such as an operator.
pub(super) fn function(run: &mut Run, name: &str, arguments: &[Value]) -> Result<Value, Fault> {
    match (name, arguments) {
        (operators::EQUALS, [a, b]) => run.equal(a, b).map(Value::Bool),
        // Values that cannot be compared are not equal.
        (operators::NOT_EQUALS, [a, b]) => match run.equal(a, b) {
            Err(Fault::TooCostly) => Err(Fault::TooCostly),
            equal => Ok(Value::Bool(equal != Ok(true))),
        },
        (
            operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS,
            [a, b],
        ) => a.compare(b).map(|order| Value::Bool(satisfies(name, order))),
        (operators::IN, [item, container]) => contains(run, container, item).map(Value::Bool),
        (operators::LOGICAL_NOT, [a]) => a.bool().map(|value| Value::Bool(!value)),
        (operators::NEGATE, [Value::Int(a)]) => a.checked_neg().map(Value::Int).ok_or_else(overflow),
        (operators::NEGATE, [Value::Double(a)]) => Ok(Value::Double(-a)),
        (operators::INDEX, [container, key]) => {
            pay_for_keys(run, container)?;
            look_up(container, key)
        }
        (operators::OPT_INDEX | operators::OPT_SELECT, [container, key]) => {
            pay_for_keys(run, container)?;
            Ok(optional(container, key))
        }
        (
            operators::ADD
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO,
            [a, b],
        ) => arithmetic(run, name, a, b),
        ("size", [one]) => size(one),
        ("quantity", [text]) => amount(text.text()?).map(Value::Amount),
        ("isQuantity", [text]) => Ok(Value::Bool(Amount::read(text.text()?).is_ok())),
        ("semver" | "isSemver", [text]) => semver(name, Version::read(text.text()?)),
        ("semver" | "isSemver", [text, loosely]) => {
            let text = text.text()?;
            semver(name, if loosely.bool()? { Version::read_loosely(text) } else { Version::read(text) })
        }
        ("matches", [text, pattern]) => strings::matches(run, text.text()?, pattern.text()?),
        (_, [one]) => convert::convert(name, one).unwrap_or_else(|| unknown(name)),
        _ => unknown(name),
    }
}

/// Calls a function with a dot in its name, such as `sets.contains`.
pub(super) fn in_space(run: &mut Run, space: &str, name: &str, arguments: &[Value]) -> Result<Value, Fault> {
    match (space, name, arguments) {
        ("optional", "none", []) => Ok(Value::Optional(None)),
        ("optional", "of", [value]) => Ok(Value::Optional(Some(Arc::new(value.clone())))),
        ("sets", _, [a, b]) => {
            let (a, b) = (a.items()?, b.items()?);
            let mut shared = |all: &[Value], ones: &[Value]| {
                let mut count = 0_usize;
                for one in ones {
                    count += usize::from(run.find(all.iter(), one)?.is_some());
                }
                Ok::<_, Fault>(count)
            };
            match name {
                "contains" => Ok(Value::Bool(shared(a, b)? == b.len())),
                "intersects" => Ok(Value::Bool(shared(a, b)? > 0)),
                "equivalent" => Ok(Value::Bool(shared(a, b)? == b.len() && shared(b, a)? == a.len())),
                _ => unknown(&format!("sets.{name}")),
            }
        }
        _ => unknown(&format!("{space}.{name}")),
    }
}

/// Calls a function on a value.
pub(super) fn method(run: &mut Run, name: &str, target: &Value, arguments: &[Value]) -> Result<Value, Fault> {
    run.pay(1)?;
    match (target, name, arguments) {
        (_, "size", []) => size(target),
        (Value::Amount(amount), ..) => amount_method(*amount, name, arguments),
        (Value::Version(version), ..) => version_method(version, name, arguments),
        (Value::Text(text), ..) => strings::method(run, text, name, arguments),
        (Value::List(items), ..) => lists::method(run, items, name, arguments),
        (Value::Optional(value), "hasValue", []) => Ok(Value::Bool(value.is_some())),
        (Value::Optional(value), "orValue", [other]) => {
            Ok(value.as_deref().cloned().unwrap_or_else(|| other.clone()))
        }
        (Value::Optional(value), "or", [other]) => Ok(match value {
            Some(_) => target.clone(),
            None => other.clone(),
        }),
        (Value::Optional(value), "value", []) => {
            value.as_deref().cloned().ok_or_else(|| Fault::error("optional.none() dereference"))
        }
        _ if KNOWN_METHODS.contains(&name) => Err(Fault::no_overload()),
        _ => unknown(name),
    }
}

/// Methods that only some types have. A call on a value of another type fails as in kube-scheduler, and is
/// not reported as unsupported.
const KNOWN_METHODS: [&str; 16] = [
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "lowerAscii",
    "upperAscii",
    "split",
    "replace",
    "substring",
    "isLessThan",
    "isGreaterThan",
    "compareTo",
    "major",
    "minor",
    "patch",
    "includes",
];

pub(super) fn unknown<T>(name: &str) -> Result<T, Fault> {
    Err(Fault::unsupported(format!("the function {name}")))
}

fn overflow() -> Fault {
    Fault::error("integer overflow")
}

fn amount(text: &str) -> Result<Amount, Fault> {
    Amount::read(text).map_err(|wrong| Fault::error(wrong.to_string()))
}

fn semver(name: &str, read: Option<Version>) -> Result<Value, Fault> {
    match (name, read) {
        ("isSemver", read) => Ok(Value::Bool(read.is_some())),
        (_, Some(version)) => Ok(Value::Version(Arc::new(version))),
        (_, None) => Err(Fault::error("the text is not a semantic version")),
    }
}

fn size(value: &Value) -> Result<Value, Fault> {
    let count = match value {
        Value::Text(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.len(),
        Value::Map(map) => map.entries.len(),
        _ => return Err(Fault::no_overload()),
    };
    Ok(Value::Int(i64::try_from(count).unwrap_or(i64::MAX)))
}

/// The operator `in`.
fn contains(run: &mut Run, container: &Value, item: &Value) -> Result<bool, Fault> {
    match container {
        Value::List(items) => Ok(run.find(items.iter(), item)?.is_some()),
        Value::Map(map) => {
            pay_for_keys(run, container)?;
            Ok(map.own(item).is_some())
        }
        _ => Err(Fault::no_overload()),
    }
}

/// Charges one step for each entry of a map, because looking up a key visits every entry.
pub(super) fn pay_for_keys(run: &mut Run, container: &Value) -> Result<(), Fault> {
    match container {
        Value::Map(map) => run.pay(map.entries.len()),
        _ => Ok(()),
    }
}

fn arithmetic(run: &mut Run, name: &str, a: &Value, b: &Value) -> Result<Value, Fault> {
    match (name, a, b) {
        (operators::ADD, Value::Text(a), Value::Text(b)) => {
            run.pay((a.len() + b.len()) / 10)?;
            Ok([a.as_ref(), b.as_ref()].concat().as_str().into())
        }
        (operators::ADD, Value::List(a), Value::List(b)) => {
            run.pay(a.len() + b.len())?;
            Ok(Value::list(a.iter().chain(b.iter()).cloned()))
        }
        (operators::ADD, Value::Bytes(a), Value::Bytes(b)) => {
            run.pay((a.len() + b.len()) / 10)?;
            Ok(Value::Bytes([a.as_ref(), b.as_ref()].concat().into()))
        }
        (_, Value::Int(a), Value::Int(b)) => ints(name, *a, *b).map(Value::Int),
        (_, Value::Uint(a), Value::Uint(b)) => uints(name, *a, *b).map(Value::Uint),
        (operators::ADD, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (operators::SUBSTRACT, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (operators::MULTIPLY, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        (operators::DIVIDE, Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        _ => Err(Fault::no_overload()),
    }
}

fn ints(name: &str, a: i64, b: i64) -> Result<i64, Fault> {
    let found = match name {
        operators::ADD => a.checked_add(b),
        operators::SUBSTRACT => a.checked_sub(b),
        operators::MULTIPLY => a.checked_mul(b),
        _ if b == 0 => return Err(by_zero(name)),
        operators::DIVIDE => a.checked_div(b),
        _ => a.checked_rem(b),
    };
    found.ok_or_else(overflow)
}

fn uints(name: &str, a: u64, b: u64) -> Result<u64, Fault> {
    let found = match name {
        operators::ADD => a.checked_add(b),
        operators::SUBSTRACT => a.checked_sub(b),
        operators::MULTIPLY => a.checked_mul(b),
        _ if b == 0 => return Err(by_zero(name)),
        operators::DIVIDE => a.checked_div(b),
        _ => a.checked_rem(b),
    };
    found.ok_or_else(overflow)
}

fn by_zero(name: &str) -> Fault {
    Fault::error(if name == operators::DIVIDE { "division by zero" } else { "modulus by zero" })
}

fn amount_method(amount: Amount, name: &str, arguments: &[Value]) -> Result<Value, Fault> {
    let other = |value: &Value| match value {
        Value::Amount(other) => Ok(*other),
        _ => Err(Fault::no_overload()),
    };
    let summand = |value: &Value| match value {
        Value::Int(units) => Ok(Amount::units(*units)),
        value => other(value),
    };
    Ok(match (name, arguments) {
        ("isInteger", []) => Value::Bool(amount.whole().is_some()),
        ("asInteger", []) => {
            let whole = amount.whole().ok_or_else(|| Fault::error("cannot convert value to integer"))?;
            Value::Int(whole)
        }
        ("asApproximateFloat", []) => Value::Double(amount.approximate()),
        ("sign", []) => Value::Int(amount.sign()),
        ("isGreaterThan", [one]) => Value::Bool(amount > other(one)?),
        ("isLessThan", [one]) => Value::Bool(amount < other(one)?),
        ("compareTo", [one]) => Value::Int(amount.cmp(&other(one)?) as i64),
        ("add", [one]) => Value::Amount(amount.plus(summand(one)?)),
        ("sub", [one]) => Value::Amount(amount.minus(summand(one)?)),
        _ if KNOWN_METHODS.contains(&name) => return Err(Fault::no_overload()),
        _ => return unknown(name),
    })
}

fn version_method(version: &Version, name: &str, arguments: &[Value]) -> Result<Value, Fault> {
    let other = |value: &Value| match value {
        Value::Version(other) => Ok(version.cmp(other)),
        _ => Err(Fault::no_overload()),
    };
    let number = |at: usize| Value::Int(i64::try_from(version.numbers[at]).unwrap_or(i64::MAX));
    Ok(match (name, arguments) {
        ("major", []) => number(0),
        ("minor", []) => number(1),
        ("patch", []) => number(2),
        ("isGreaterThan", [one]) => Value::Bool(other(one)?.is_gt()),
        ("isLessThan", [one]) => Value::Bool(other(one)?.is_lt()),
        ("compareTo", [one]) => Value::Int(other(one)? as i64),
        _ if KNOWN_METHODS.contains(&name) => return Err(Fault::no_overload()),
        _ => return unknown(name),
    })
}
