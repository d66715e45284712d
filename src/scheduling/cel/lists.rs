//! Functions of lists.

use std::cmp::Ordering;

use super::Fault;
use super::calls::unknown;
use super::evaluate::Run;
use super::value::Value;

/// A function that is called on a list.
pub(super) fn method(
    run: &mut Run,
    items: &[Value],
    name: &str,
    arguments: &[Value],
) -> Result<Value, Fault> {
    run.pay(items.len())?;
    let at =
        |place: Option<usize>| Value::Int(place.and_then(|place| i64::try_from(place).ok()).unwrap_or(-1));
    match (name, arguments) {
        ("includes", [one]) => Ok(Value::Bool(items.iter().any(|item| item.equals(one) == Ok(true)))),
        ("indexOf", [one]) => Ok(at(items.iter().position(|item| item.equals(one) == Ok(true)))),
        ("lastIndexOf", [one]) => Ok(at(items.iter().rposition(|item| item.equals(one) == Ok(true)))),
        ("isSorted", []) => {
            for pair in items.windows(2) {
                if pair[0].compare(&pair[1])? == Ordering::Greater {
                    return Ok(Value::Bool(false));
                }
            }
            Ok(Value::Bool(true))
        }
        ("min", []) => extreme(items, Ordering::Less),
        ("max", []) => extreme(items, Ordering::Greater),
        ("join", []) => join(items, ""),
        ("join", [separator]) => join(items, separator.text()?),
        ("contains" | "startsWith" | "endsWith" | "matches", _) => Err(Fault::no_overload()),
        _ => unknown(name),
    }
}

fn extreme(items: &[Value], wanted: Ordering) -> Result<Value, Fault> {
    let Some((first, rest)) = items.split_first() else {
        return Err(Fault::error("min and max need a list that is not empty"));
    };
    let mut best = first;
    for item in rest {
        if item.compare(best)? == wanted {
            best = item;
        }
    }
    Ok(best.clone())
}

fn join(items: &[Value], separator: &str) -> Result<Value, Fault> {
    let parts: Vec<&str> = items.iter().map(Value::text).collect::<Result<_, _>>()?;
    Ok(parts.join(separator).as_str().into())
}
