//! Reads assignments of plain values from a Python file. A settings file needs no more than these. No code is
//! run.

use serde_json::{Map, Value};

/// The assigned names, each with the last string, number or Boolean that is assigned to it. If only other
/// expressions are assigned, the value is `false`.
pub(super) fn assignments(text: &str) -> Map<String, Value> {
    let mut found = Map::new();
    for line in text.lines() {
        let Some((name, value)) = line.trim().split_once('=') else { continue };
        let name = name.trim();
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(word) || name.starts_with(|c: char| c.is_ascii_digit()) {
            continue;
        }
        if let Some(value) = literal(value.trim()) {
            found.insert(name.to_owned(), value);
        } else {
            // A value from the environment is unknown: `false` is stored only if no other line sets a plain
            // value.
            found.entry(name).or_insert(Value::Bool(false));
        }
    }
    found
}

/// A quoted string, a number or a Boolean, with or without a comment after it.
fn literal(text: &str) -> Option<Value> {
    let quote = text.chars().next().filter(|c| "'\"".contains(*c));
    if let Some(quote) = quote {
        let (inside, rest) = text.get(1..)?.split_once(quote)?;
        return ends(rest).then(|| Value::String(inside.to_owned())).filter(|_| !inside.contains('\\'));
    }
    let number = text.split('#').next().unwrap_or_default().trim();
    match number {
        "True" => return Some(Value::Bool(true)),
        "False" => return Some(Value::Bool(false)),
        _ => {}
    }
    let mut rest = number;
    let value = sum(&mut rest, 0)?;
    rest.trim().is_empty().then(|| value.json())
}

/// A Python number.
#[derive(Clone, Copy)]
enum Number {
    Whole(i64),
    Part(f64),
}

impl Number {
    #[expect(clippy::cast_precision_loss, reason = "as Python does")]
    fn part(self) -> f64 {
        match self {
            Self::Whole(whole) => whole as f64,
            Self::Part(part) => part,
        }
    }

    fn json(self) -> Value {
        match self {
            Self::Whole(whole) => whole.into(),
            Self::Part(part) => part.into(),
        }
    }

    fn with(
        self,
        other: Self,
        whole: fn(i64, i64) -> Option<i64>,
        part: fn(f64, f64) -> f64,
    ) -> Option<Self> {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => whole(a, b).map(Self::Whole),
            (a, b) => Some(Self::Part(part(a.part(), b.part()))).filter(|one| one.part().is_finite()),
        }
    }
}

/// The deepest nesting of parentheses and minus signs.
const DEEPEST: u32 = 20;

/// Parses a sum or difference of products.
fn sum(rest: &mut &str, depth: u32) -> Option<Number> {
    let mut value = product(rest, depth)?;
    loop {
        *rest = rest.trim_start();
        let (operator, after) = (rest.chars().next(), rest.get(1..));
        match operator {
            Some('+') => {
                *rest = after?;
                value = value.with(product(rest, depth)?, i64::checked_add, |a, b| a + b)?;
            }
            Some('-') => {
                *rest = after?;
                value = value.with(product(rest, depth)?, i64::checked_sub, |a, b| a - b)?;
            }
            _ => return Some(value),
        }
    }
}

/// Parses a product or quotient of numbers.
fn product(rest: &mut &str, depth: u32) -> Option<Number> {
    let mut value = factor(rest, depth)?;
    loop {
        *rest = rest.trim_start();
        if rest.starts_with("**") {
            return None;
        }
        if let Some(after) = rest.strip_prefix('*') {
            *rest = after;
            value = value.with(factor(rest, depth)?, i64::checked_mul, |a, b| a * b)?;
        } else if let Some(after) = rest.strip_prefix("//") {
            *rest = after;
            value = value.with(factor(rest, depth)?, floor_division, |a, b| (a / b).floor())?;
        } else if let Some(after) = rest.strip_prefix('/') {
            *rest = after;
            let part = value.part() / factor(rest, depth)?.part();
            value = Some(Number::Part(part)).filter(|_| part.is_finite())?;
        } else {
            return Some(value);
        }
    }
}

/// Python rounds the quotient down, even if the divisor is negative.
fn floor_division(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    let exact = a.checked_rem(b)? == 0;
    if exact || (a < 0) == (b < 0) { Some(quotient) } else { quotient.checked_sub(1) }
}

fn factor(rest: &mut &str, depth: u32) -> Option<Number> {
    *rest = rest.trim_start();
    if let Some(after) = rest.strip_prefix('-').filter(|_| depth < DEEPEST) {
        *rest = after;
        return Number::Whole(0).with(factor(rest, depth + 1)?, i64::checked_sub, |a, b| a - b);
    }
    if let Some(after) = rest.strip_prefix('(').filter(|_| depth < DEEPEST) {
        *rest = after;
        let value = sum(rest, depth + 1)?;
        *rest = rest.trim_start().strip_prefix(')')?;
        return Some(value);
    }
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '_').unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    let plain = word.replace('_', "");
    let digit = word.starts_with(|c: char| c.is_ascii_digit() || c == '.') && !word.ends_with('_');
    *rest = after;
    let whole = plain.parse::<i64>().ok().map(Number::Whole);
    whole.or_else(|| plain.parse::<f64>().ok().map(Number::Part)).filter(|_| digit)
}

fn ends(rest: &str) -> bool {
    let rest = rest.trim_start();
    rest.is_empty() || rest.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reckoned_is_a_number() {
        for (text, expected) in [
            ("15 * 60", Some(Value::from(900))),
            ("15*60  # a quarter", Some(Value::from(900))),
            ("2 * (3 + 4) - 1", Some(Value::from(13))),
            ("90 / 4", Some(Value::from(22.5))),
            ("90 // 4", Some(Value::from(22))),
            ("7 // -2", Some(Value::from(-4))),
            ("-7 // 2", Some(Value::from(-4))),
            ("-8 // -2", Some(Value::from(4))),
            ("1_000", Some(Value::from(1000))),
            ("-5", Some(Value::from(-5))),
            ("1e3", Some(Value::from(1000.0))),
            ("60 * MINUTES", None),
            ("int('5')", None),
            ("1 / 0", None),
            ("2 ** 3", None),
            ("(1", None),
            ("[1]", None),
        ] {
            assert_eq!(literal(text), expected, "{text}");
        }
    }

    #[test]
    fn plain_values_are_read_and_nothing_is_run() {
        let text = "import os\ntry:\n  host = os.environ[\"HOST\"]\nexcept KeyError:\n  host = \"10.0.0.1\"  # why\n\
                    user = os.environ['U']\nmax_size = 5 # five\npart = 0.5\nmask = '24'\non = True\nif a == 'b': pass\n";
        let found = assignments(text);
        assert_eq!(found["host"], "10.0.0.1");
        assert_eq!(found["user"], false);
        assert_eq!(found["max_size"], 5);
        assert_eq!(found["part"], 0.5);
        assert_eq!(found["mask"], "24");
        assert_eq!(found["on"], true);
        assert_eq!(found.len(), 6);
    }
}
