//! Finds out what the parser accepts at each place of the file by parsing values of each type, an unknown key
//! and an unknown word. The parser's errors name the valid keys and words.

use std::collections::BTreeMap;

use crate::Written;

/// A TOML value for each JSON type.
const SAMPLES: [(&str, &str); 6] = [
    ("string", "\"?\""),
    ("integer", "1"),
    ("number", "1.5"),
    ("boolean", "true"),
    ("array", "[]"),
    ("object", "{}"),
];

/// What the parser accepts at one place in the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// The accepted JSON types; `number` includes `integer`.
    pub types: Vec<&'static str>,
    /// The only accepted texts; empty: any text is accepted.
    pub words: Vec<String>,
    /// The smallest and the largest whole number that the type can hold.
    pub bounds: Option<(i64, i64)>,
    /// The shape of a list's elements.
    pub items: Option<Box<Shape>>,
    /// The keys of a table, unless it accepts any key.
    pub keys: BTreeMap<String, Shape>,
    /// The keys that the table requires.
    pub required: Vec<String>,
    /// The shape of the values in a table with arbitrary keys.
    pub values: Option<Box<Shape>>,
}

impl Shape {
    /// The shape of the whole file.
    pub fn of_file() -> Self {
        let place = Place { before: String::new(), after: String::new(), above: Vec::new() };
        let keys = place.keys("\"?\" = 1").expect("the file is a table with known keys");
        Self { types: vec!["object"], keys: place.inner(&keys, &[]), ..Self::default() }
    }

    /// The paths of all keys, e.g. `pool.name`. Keys inside a table with arbitrary keys are not included.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        for (key, shape) in &self.keys {
            let inner = shape.items.as_deref().unwrap_or(shape).paths();
            paths.push(key.clone());
            paths.extend(inner.into_iter().map(|path| format!("{key}.{path}")));
        }
        paths
    }

    pub fn takes(&self, kind: &str) -> bool {
        self.types.contains(&kind)
    }

    /// Whether values of all types are accepted.
    pub fn is_any(&self) -> bool {
        SAMPLES.iter().all(|(kind, _)| self.takes(kind))
    }
}

/// A place in a file: the text before and after it, and the tables that enclose it.
struct Place {
    before: String,
    after: String,
    /// For each enclosing table: the table's keys, and the key that leads to this place.
    above: Vec<(Vec<String>, String)>,
}

impl Place {
    /// Returns the parser's error if the file has this value at this place.
    fn error(&self, value: &str) -> Option<String> {
        let text = format!("{}{value}{}", self.before, self.after);
        toml::from_str::<Written>(&text).err().map(|error| error.message().to_owned())
    }

    /// Whether the type of this value is accepted. The parser may still refuse the value itself.
    fn takes(&self, value: &str) -> bool {
        self.error(value).is_none_or(|error| {
            // Each of these messages means a value of the wrong type. An enumeration accepts only a string or
            // a table, and a list may be read as the fields of a struct.
            let wrong = ["invalid type", "wanted string or table", "wanted exactly 1", "invalid length"];
            !wrong.iter().any(|wrong| error.starts_with(wrong))
        })
    }

    /// The valid keys of a table, from the error about an unknown key.
    fn keys(&self, table: &str) -> Option<Vec<String>> {
        let error = self.error(table)?;
        error.strip_prefix("unknown field `?`").map(words)
    }

    /// Returns the place of a key in a table. The other keys that the table requires are also set.
    fn key(&self, key: &str, keys: &[String], required: &[(String, String)]) -> Self {
        let mut above = self.above.clone();
        above.push((keys.to_vec(), key.to_owned()));
        if self.before.is_empty() {
            return Self { before: format!("{key} = "), after: String::new(), above };
        }
        let others = required.iter().filter(|(other, _)| other != key).cloned();
        let others = written(&others.collect::<Vec<_>>());
        let separator = if others.is_empty() { "" } else { ", " };
        let before = format!("{}{{ {others}{separator}\"{key}\" = ", self.before);
        Self { before, after: format!(" }}{}", self.after), above }
    }

    fn item(&self) -> Self {
        let (before, after) = (format!("{}[", self.before), format!("]{}", self.after));
        Self { before, after, above: self.above.clone() }
    }

    /// Returns the shape of each key of a table. If an enclosing table has the same keys (`proxmox` encloses
    /// `proxmox.also`), the result does not contain the key of the inner table (`also`).
    fn inner(&self, keys: &[String], required: &[(String, String)]) -> BTreeMap<String, Shape> {
        let again = self.above.iter().filter(|(other, _)| other == keys).map(|(_, key)| key).next();
        let keys_here = keys.iter().filter(|key| again != Some(key));
        keys_here.map(|key| (key.clone(), self.key(key, keys, required).shape())).collect()
    }

    /// Returns what the parser accepts at this place.
    fn shape(&self) -> Shape {
        let taken = SAMPLES.iter().filter(|(_, sample)| self.takes(sample));
        let mut shape = Shape { types: taken.map(|(kind, _)| *kind).collect(), ..Shape::default() };
        if shape.is_any() {
            return shape;
        }
        if shape.takes("string") {
            let error = self.error("\"?\"").unwrap_or_default();
            shape.words = error.strip_prefix("unknown variant `?`").map(words).unwrap_or_default();
        } else if shape.takes("integer") {
            shape.bounds = bounds(&self.error("\"?\"").unwrap_or_default());
        }
        if shape.takes("array") {
            shape.items = Some(Box::new(self.item().shape()));
        }
        if shape.takes("object") {
            if let Some(keys) = self.keys("{ \"?\" = 1 }") {
                let required = self.required(&keys);
                shape.keys = self.inner(&keys, &required);
                shape.required = required.into_iter().map(|(key, _)| key).collect();
            } else {
                shape.values = Some(Box::new(self.key("?", &[], &[]).shape()));
            }
        }
        shape
    }

    /// Returns the keys that a table requires, each with an accepted value.
    fn required(&self, keys: &[String]) -> Vec<(String, String)> {
        let mut required: Vec<(String, String)> = Vec::new();
        loop {
            let error = self.error(&format!("{{ {} }}", written(&required))).unwrap_or_default();
            let Some(missing) = error.strip_prefix("missing field `").and_then(|rest| rest.split('`').next())
            else {
                return required;
            };
            let is_new = required.iter().all(|(key, _)| key != missing);
            assert!(is_new && keys.iter().any(|key| key == missing), "{}…: {error}", self.before);
            let value = self.key(missing, keys, &required).least();
            required.push((missing.to_owned(), value));
        }
    }

    /// Returns the shortest value that is accepted at this place.
    fn least(&self) -> String {
        let (kind, sample) =
            SAMPLES.iter().find(|(_, sample)| self.takes(sample)).expect("a value of some type is accepted");
        let error = self.error(sample).unwrap_or_default();
        match *kind {
            "string" => error.strip_prefix("unknown variant `?`").map_or((*sample).to_owned(), |rest| {
                words(rest).first().map(|word| format!("\"{word}\"")).expect("the error names words")
            }),
            "object" => {
                let keys = self.keys("{ \"?\" = 1 }").unwrap_or_default();
                format!("{{ {} }}", written(&self.required(&keys)))
            }
            _ => (*sample).to_owned(),
        }
    }
}

/// The contents of an inline table that sets these keys.
fn written(set: &[(String, String)]) -> String {
    let set: Vec<String> = set.iter().map(|(key, value)| format!("\"{key}\" = {value}")).collect();
    set.join(", ")
}

/// Returns the words in backticks.
fn words(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect()
}

/// Returns the bounds of an integer type. `error` is the parser's error about a text in place of the number.
fn bounds(error: &str) -> Option<(i64, i64)> {
    match error.rsplit_once("expected ")?.1.trim() {
        "u8" => Some((0, u8::MAX.into())),
        "u16" => Some((0, u16::MAX.into())),
        "u32" => Some((0, u32::MAX.into())),
        "usize" => Some((0, i64::MAX)),
        "i32" => Some((i32::MIN.into(), i32::MAX.into())),
        _ => None,
    }
}
