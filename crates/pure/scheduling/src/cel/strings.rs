//! Functions on strings.

use regex::RegexBuilder;

use super::Fault;
use super::calls::unknown;
use super::evaluate::Run;
use super::value::Value;

/// The maximum size of a compiled regular expression, in bytes.
const LARGEST_PATTERN: usize = 1 << 18;
/// The cost of compiling a regular expression, in steps. Compiling can take a millisecond.
const COMPILING: usize = 20_000;

/// Calls a function on a string.
pub(super) fn method(run: &mut Run, text: &str, name: &str, arguments: &[Value]) -> Result<Value, Fault> {
    run.pay(text.len() / 10)?;
    match (name, arguments) {
        ("contains", [part]) => Ok(Value::Bool(text.contains(part.text()?))),
        ("startsWith", [part]) => Ok(Value::Bool(text.starts_with(part.text()?))),
        ("endsWith", [part]) => Ok(Value::Bool(text.ends_with(part.text()?))),
        ("matches", [pattern]) => matches(run, text, pattern.text()?),
        ("lowerAscii", []) => Ok(text.to_ascii_lowercase().as_str().into()),
        ("upperAscii", []) => Ok(text.to_ascii_uppercase().as_str().into()),
        ("trim", []) => Ok(text.trim().into()),
        ("split", [separator]) => {
            run.pay(text.len())?;
            Ok(split(text, separator.text()?, None))
        }
        ("split", [separator, most]) => {
            run.pay(text.len())?;
            Ok(split(text, separator.text()?, Some(most.int()?)))
        }
        ("replace", [old, new]) => {
            let (old, new) = (old.text()?, new.text()?);
            // Charge the steps for the resulting text before creating it.
            let more = text.matches(old).count().saturating_mul(new.len());
            run.pay(text.len().saturating_add(more / 10))?;
            Ok(text.replace(old, new).as_str().into())
        }
        ("substring", [from]) => substring(text, from.int()?, None),
        ("substring", [from, to]) => substring(text, from.int()?, Some(to.int()?)),
        ("charAt", [at]) => {
            let at = at.int()?;
            let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            if at == length { Ok("".into()) } else { substring(text, at, Some(at.saturating_add(1))) }
        }
        ("indexOf", [part]) => Ok(place(text, text.find(part.text()?))),
        ("lastIndexOf", [part]) => Ok(place(text, text.rfind(part.text()?))),
        // These methods belong to other types.
        ("isLessThan" | "isGreaterThan" | "compareTo" | "major" | "minor" | "patch", _) => {
            Err(Fault::no_overload())
        }
        _ => unknown(name),
    }
}

/// Whether a string contains a match of a pattern.
pub(super) fn matches(run: &mut Run, text: &str, pattern: &str) -> Result<Value, Fault> {
    run.pay((COMPILING + pattern.len()).saturating_add(text.len()))?;
    let pattern = RegexBuilder::new(pattern).size_limit(LARGEST_PATTERN).build();
    let pattern = pattern.map_err(|_| Fault::unsupported("this regular expression"))?;
    Ok(Value::Bool(pattern.is_match(text)))
}

fn split(text: &str, separator: &str, most: Option<i64>) -> Value {
    let letters = |text: &str| -> Vec<String> { text.chars().map(String::from).collect() };
    let parts: Vec<String> = match (most, separator) {
        (Some(0), _) => Vec::new(),
        (Some(most), "") if most > 0 => {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            let all = letters(text);
            let head = all.len().min(most - 1);
            let rest = all[head..].concat();
            all[..head].iter().cloned().chain((!rest.is_empty()).then_some(rest)).collect()
        }
        (_, "") => letters(text),
        (Some(most), _) if most > 0 => {
            text.splitn(usize::try_from(most).unwrap_or(usize::MAX), separator).map(String::from).collect()
        }
        _ => text.split(separator).map(String::from).collect(),
    };
    Value::list(parts.iter().map(|part| part.as_str().into()))
}

fn substring(text: &str, from: i64, to: Option<i64>) -> Result<Value, Fault> {
    let letters: Vec<char> = text.chars().collect();
    let wrong = || Fault::error(format!("index out of range: {from}"));
    let from = usize::try_from(from).map_err(|_| wrong())?;
    let to = to.map_or(Ok(letters.len()), usize::try_from).map_err(|_| wrong())?;
    let part = letters.get(from..to).ok_or_else(wrong)?;
    Ok(part.iter().collect::<String>().as_str().into())
}

/// The index of a character, given the index of its first byte. -1 for `None`.
fn place(text: &str, byte: Option<usize>) -> Value {
    let letters = byte.and_then(|byte| text.get(..byte)).map(|before| before.chars().count());
    Value::Int(letters.and_then(|count| i64::try_from(count).ok()).unwrap_or(-1))
}
