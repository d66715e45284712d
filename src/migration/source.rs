//! The settings of another autoscaler as a tree. Each setting is removed when it is converted; the settings
//! that remain are unknown.

use serde_json::Value;

use super::SourceFile;

/// A file that cannot be used. Messages never contain the file's text, because it may contain secrets.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file is not YAML.
    #[error("`{name}` is not YAML{}", line_text(*.line))]
    Syntax {
        /// The file.
        name: String,
        /// The line, if the parser reports one.
        line: Option<u64>,
    },
    /// The files do not contain what is needed.
    #[error("none of the files has {wanted}")]
    Nothing {
        /// What the files should contain.
        wanted: &'static str,
    },
}

fn line_text(line: Option<u64>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

/// The documents of a file. Lists of Kubernetes objects are split into their items.
pub(super) fn documents(file: SourceFile<'_>) -> Result<Vec<Value>, SourceError> {
    let options = serde_saphyr::options! { strict_booleans: true };
    let values: Vec<Value> =
        serde_saphyr::from_multiple_with_options(file.text, options).map_err(|error| {
            let line = error.location().map(|location| location.line());
            SourceError::Syntax { name: file.name.to_owned(), line }
        })?;
    let mut documents = Vec::new();
    for value in values {
        match value {
            Value::Object(mut map) if map.get("kind").and_then(Value::as_str) == Some("List") => {
                if let Some(Value::Array(items)) = map.remove("items") {
                    documents.extend(items);
                }
            }
            Value::Null => {}
            other => documents.push(other),
        }
    }
    Ok(documents)
}

/// The documents of all files.
pub(super) fn all_documents(files: &[SourceFile<'_>]) -> Result<Vec<Value>, SourceError> {
    let mut all = Vec::new();
    for file in files {
        all.extend(documents(*file)?);
    }
    Ok(all)
}

/// The text in a document at this path.
pub(super) fn text_at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(value, |value, key| value.get(key))?.as_str()
}

/// A tree of settings that are taken out one by one.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    what: String,
    value: Value,
    odd: Vec<String>,
}

impl Tree {
    /// `what` names the object that has the settings; it is empty if there is none.
    pub fn new(what: impl Into<String>, value: Value) -> Self {
        Self { what: what.into(), value, odd: Vec::new() }
    }

    /// The object that the settings belong to.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Returns the setting's name for use in a comment.
    pub fn place(&self, path: &[&str]) -> String {
        let path = path.join(".");
        if self.what.is_empty() { path } else { format!("{}: {path}", self.what) }
    }

    /// Takes the value at a path; `None` if there is none, or if it is null or an empty string, list or map.
    pub fn take(&mut self, path: &[&str]) -> Option<Value> {
        let (last, parents) = path.split_last()?;
        let mut value = &mut self.value;
        for key in parents {
            value = value.get_mut(key)?;
        }
        value.as_object_mut()?.remove(*last).filter(|value| !is_empty(value))
    }

    /// The value at a path, without taking it; a number in the path is an index in a list.
    pub fn peek(&self, path: &[&str]) -> Option<Value> {
        path.iter()
            .try_fold(&self.value, |value, key| match value {
                Value::Array(list) => list.get(key.parse::<usize>().ok()?),
                other => other.get(key),
            })
            .cloned()
    }

    /// Takes a string. A number or Boolean is returned as a string.
    pub fn text(&mut self, path: &[&str]) -> Option<String> {
        match self.take(path)? {
            Value::String(text) => Some(text),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(truth) => Some(truth.to_string()),
            _ => self.is_odd(path),
        }
    }

    /// Takes a number that is not negative; it may be in quotes.
    pub fn number(&mut self, path: &[&str]) -> Option<f64> {
        let number = match self.take(path)? {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.filter(|number| number.is_finite() && *number >= 0.0).or_else(|| self.is_odd(path))
    }

    /// Takes a whole number that is not negative; it may be in quotes.
    pub fn whole(&mut self, path: &[&str]) -> Option<i64> {
        let number = match self.take(path)? {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.filter(|number| *number >= 0).or_else(|| self.is_odd(path))
    }

    /// Takes a Boolean; it may be in quotes.
    pub fn truth(&mut self, path: &[&str]) -> Option<bool> {
        match self.take(path)? {
            Value::Bool(truth) => Some(truth),
            Value::String(text) if text == "true" => Some(true),
            Value::String(text) if text == "false" => Some(false),
            _ => self.is_odd(path),
        }
    }

    /// Takes a list; empty if there is none.
    pub fn list(&mut self, path: &[&str]) -> Vec<Value> {
        match self.take(path) {
            Some(Value::Array(list)) => list,
            Some(_) => self.is_odd(path).unwrap_or_default(),
            None => Vec::new(),
        }
    }

    /// Takes a list of strings; other values in it are reported as invalid.
    pub fn texts(&mut self, path: &[&str]) -> Vec<String> {
        let list = self.list(path);
        let texts: Vec<_> = list.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect();
        if texts.len() < list.len() {
            self.is_odd::<()>(path);
        }
        texts
    }

    /// Takes the keys and scalar values of a map, in its order; other values are reported as invalid.
    pub fn pairs(&mut self, path: &[&str]) -> Vec<(String, String)> {
        let Some(value) = self.take(path) else { return Vec::new() };
        let Value::Object(map) = value else { return self.is_odd(path).unwrap_or_default() };
        let scalar = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(truth) => Some(truth.to_string()),
            _ => None,
        };
        let mut pairs = Vec::new();
        for (key, value) in &map {
            match scalar(value) {
                Some(value) => pairs.push((key.clone(), value)),
                // A key without a value.
                None if value.is_null() => {}
                None => {
                    let _: Option<()> = self.is_odd(&[path, &[key.as_str()]].concat());
                }
            }
        }
        pairs
    }

    /// Drops a value, e.g. a secret. Returns whether there was one.
    pub fn was(&mut self, path: &[&str]) -> bool {
        self.take(path).is_some()
    }

    /// Remembers the name of an invalid value.
    pub fn is_odd<T>(&mut self, path: &[&str]) -> Option<T> {
        self.odd.push(format!("{} (not a valid value)", self.place(path)));
        None
    }

    /// The settings that were not taken, by name.
    pub fn rest(mut self) -> Vec<String> {
        let mut names = std::mem::take(&mut self.odd);
        leaves(&self.value, &mut Vec::new(), &mut |path| names.push(self.place(path)));
        names
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn leaves<'a>(value: &'a Value, path: &mut Vec<&'a str>, found: &mut impl FnMut(&[&str])) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                path.push(key);
                leaves(value, path, found);
                path.pop();
            }
        }
        value if !is_empty(value) && !path.is_empty() => found(path),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_scalar_in_a_map_is_named() {
        let labels =
            json!({ "labels": { "a": "x", "b": 1, "c": true, "d": null, "e": ["y"], "f": { "g": "h" } } });
        let mut tree = Tree::new("NodePool w", labels);
        let pairs =
            [("a", "x"), ("b", "1"), ("c", "true")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(tree.pairs(&["labels"]), pairs);
        let odd = ["NodePool w: labels.e (not a valid value)", "NodePool w: labels.f (not a valid value)"];
        assert_eq!(tree.rest(), odd);
    }
}
