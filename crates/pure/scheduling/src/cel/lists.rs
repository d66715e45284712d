//! Functions on lists.

use std::cmp::Ordering;

use super::Fault;
use super::calls::unknown;
use super::evaluate::Run;
use super::value::Value;

/// Calls a function on a list.
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
        ("includes", [one]) => Ok(Value::Bool(run.find(items.iter(), one)?.is_some())),
        ("indexOf", [one]) => Ok(at(run.find(items.iter(), one)?)),
        ("lastIndexOf", [one]) => {
            let from_the_end = run.find(items.iter().rev(), one)?;
            Ok(at(from_the_end.map(|place| items.len() - 1 - place)))
        }
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
        ("join", []) => join(run, items, ""),
        ("join", [separator]) => join(run, items, separator.text()?),
        ("contains" | "startsWith" | "endsWith" | "matches", _) => Err(Fault::no_overload()),
        _ => unknown(name),
    }
}

fn extreme(items: &[Value], wanted: Ordering) -> Result<Value, Fault> {
    let Some((first, rest)) = items.split_first() else {
        return Err(Fault::error("min and max need a non-empty list"));
    };
    let mut best = first;
    for item in rest {
        if item.compare(best)? == wanted {
            best = item;
        }
    }
    Ok(best.clone())
}

fn join(run: &mut Run, items: &[Value], separator: &str) -> Result<Value, Fault> {
    let parts: Vec<&str> = items.iter().map(Value::text).collect::<Result<_, _>>()?;
    // Charge the steps for the resulting text before creating it.
    let length = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
    run.pay(length.saturating_add(separator.len().saturating_mul(items.len())) / 10)?;
    Ok(parts.join(separator).as_str().into())
}
