//! Assignments of plain values in a Python file: all that a settings file needs. Nothing is run.

use serde_json::{Map, Value};

/// The names that are given a value, with the last one that is plain text or a number; other expressions have none.
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
            // What comes from the environment is a name without a value, unless another line has one.
            found.entry(name).or_insert(Value::Bool(false));
        }
    }
    found
}

/// A text in quotes or a number, with a comment behind it or not.
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
    let whole = number.parse::<i64>().ok().map(Value::from);
    whole.or_else(|| number.parse::<f64>().ok().map(Value::from))
}

fn ends(rest: &str) -> bool {
    let rest = rest.trim_start();
    rest.is_empty() || rest.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::*;

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
