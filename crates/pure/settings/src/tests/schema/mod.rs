//! `packaging/config.schema.json`, the schema of the configuration for editors. It is generated from what the
//! parser accepts, what the checks report, and the comments in config.example.toml. It accepts everything
//! that the program accepts, except negative zero. Update it with `UPDATE=1 cargo test -p
//! pve-autoscaler-settings the_schema`.

mod example;
mod shape;

use std::path::Path;

use serde_json::{Map, Value, json};

use example::{Documents, EXAMPLE, Facts, Kind, Texts};
use shape::Shape;

/// A duration: `90s`, `1h30m`, and whatever else [`jiff::SignedDuration`] parses.
const DURATION: &str = r"^[+]?([0-9., ]+[hmsuµn][a-z]*[, ]*|[0-9]+:[0-9:.,]+)+$|^[+]?[Pp]";
/// A size: `8GiB`, `512MiB`, and other Kubernetes quantities.
const SIZE: &str = r"^\s*[+]?[0-9.]+([numkMGTPE]|([eE][+-]?[0-9]+|[KMGTPE]i)?B?)\s*$";

type Schema = Map<String, Value>;

/// Makes the schema.
struct Maker {
    texts: Texts,
    documents: Documents,
}

impl Maker {
    /// The schema for this shape.
    fn schema(&self, shape: &Shape, path: &str) -> Schema {
        let mut schema = types(shape);
        if let Some(items) = &shape.items {
            schema.insert("items".to_owned(), self.schema(items, path).into());
        }
        if let Some(values) = &shape.values {
            let values = self.schema(values, &format!("{path}.*"));
            schema.insert("additionalProperties".to_owned(), values.into());
        }
        if !shape.keys.is_empty() {
            let key = |(key, shape): (&String, &Shape)| (key.clone(), self.key(key, shape, path).into());
            let keys: Schema = shape.keys.iter().map(key).collect();
            schema.insert("properties".to_owned(), keys.into());
            schema.insert("additionalProperties".to_owned(), false.into());
        }
        if !shape.required.is_empty() {
            schema.insert("required".to_owned(), json!(shape.required));
        }
        schema
    }

    /// The schema of one key in a table.
    fn key(&self, key: &str, shape: &Shape, table: &str) -> Schema {
        let path = if table.is_empty() { key.to_owned() } else { format!("{table}.{key}") };
        let mut schema = self.schema(shape, &path);
        let text = self.texts.of(&path);
        let facts = self.documents.facts(&path, kind(shape));
        schema.extend(said(facts, &text));
        assert!(!text.is_empty(), "config.example.toml says nothing about `{path}`");
        schema.insert("description".to_owned(), text.into());
        schema
    }
}

/// Returns the parts of a schema that come from the parser: the types, the words and the bounds.
fn types(shape: &Shape) -> Schema {
    let mut schema = Schema::new();
    if shape.is_any() {
        return schema;
    }
    // The type `number` includes `integer`.
    let types = shape.types.iter().filter(|kind| **kind != "integer" || !shape.takes("number"));
    let types: Vec<&str> = types.copied().collect();
    schema.insert("type".to_owned(), if let [one] = types[..] { json!(one) } else { json!(types) });
    if !shape.words.is_empty() {
        schema.insert("enum".to_owned(), json!(shape.words));
    }
    if let Some((least, most)) = shape.bounds {
        schema.insert("minimum".to_owned(), json!(least));
        // `i64::MAX` is the largest integer in TOML, so it need not be stated as a maximum.
        if most < i64::MAX {
            schema.insert("maximum".to_owned(), json!(most));
        }
    }
    schema
}

/// Returns the parts of a key's schema that come from the checks. `text` is the key's comment in the example.
fn said(facts: Facts, text: &str) -> Schema {
    let mut schema = Schema::new();
    let mut say = |keyword: &str, value: Option<Value>| {
        schema.extend(value.map(|value| (keyword.to_owned(), value)));
    };
    // If the comment contains one of these phrases, the default depends on something else, for example on
    // another key.
    let words = ["without it", "without them", "without `", "unless `", "needed if", "default: "];
    let elsewhere = words.iter().any(|words| text.to_lowercase().contains(words));
    if facts.default.is_some() && !elsewhere {
        say("default", facts.default.map(|value| json!(value)));
    } else {
        say("examples", facts.example.map(|value| json!([value])));
    }
    say("pattern", facts.pattern.map(Value::from));
    say("enum", (!facts.words.is_empty()).then(|| json!(facts.words)));
    if let Some(apart) = facts.apart {
        say("minimum", Some(json!(apart)));
        say("anyOf", Some(json!([{ "const": apart }, { "minimum": facts.least }])));
    } else {
        say("minimum", facts.least.map(Value::from));
    }
    say("maximum", facts.most.map(Value::from));
    schema
}

fn kind(shape: &Shape) -> Kind {
    match (&shape.types[..], shape.bounds) {
        (["string", ..], _) if shape.words.is_empty() && !shape.is_any() => Kind::Text,
        (["integer"], bounds) => {
            let (least, most) = bounds.unwrap_or((i64::MIN, i64::MAX));
            Kind::Whole(least, most)
        }
        (["integer", "number"], _) => Kind::Fraction,
        _ => Kind::Other,
    }
}

/// Sorts the keys of all tables, regardless of how the JSON was built.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(table) => {
            let table: std::collections::BTreeMap<String, Value> =
                table.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            table.into_iter().collect::<Schema>().into()
        }
        Value::Array(list) => list.into_iter().map(sorted).collect(),
        other => other,
    }
}

fn made(shape: &Shape) -> String {
    let maker = Maker { texts: Texts::read(), documents: Documents::read() };
    let mut schema = maker.schema(shape, "");
    for (keyword, text) in [
        ("$schema", "http://json-schema.org/draft-07/schema#"),
        ("title", "Configuration of pve-autoscaler"),
        ("$comment", "Made by the tests of pve-autoscaler-settings."),
    ] {
        schema.insert(keyword.to_owned(), text.into());
    }
    format!("{:#}\n", sorted(schema.into()))
}

const WRITTEN: &str = include_str!("../../../../../../packaging/config.schema.json");

/// The keys of a top-level table.
pub(super) fn keys_of(table: &str) -> Vec<String> {
    Shape::of_file().keys[table].keys.keys().cloned().collect()
}

#[test]
fn the_example_names_every_key_that_the_parser_takes() {
    let texts = Texts::read();
    let paths = Shape::of_file().paths();
    assert!(paths.len() > 300, "{paths:?}");
    for path in paths {
        assert!(texts.name(&path), "config.example.toml does not name `{path}`");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test updates a file; it makes no decision")]
fn the_schema_is_what_the_settings_take() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/config.schema.json");
    let schema = made(&Shape::of_file());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let update = "UPDATE=1 cargo test -p pve-autoscaler-settings the_schema";
    assert!(schema == written, "packaging/config.schema.json differs: {update}");
}

#[test]
fn every_way_of_the_example_fits_the_schema() {
    const URL: &str = "https://pve-autoscaler.invalid/config.schema.json";
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource(URL, serde_json::from_str(WRITTEN).unwrap()).unwrap();
    let schema = compiler.compile(URL, &mut schemas).unwrap();
    for text in example::texts().into_iter().chain([EXAMPLE.to_owned()]) {
        let value = json!(toml::from_str::<toml::Table>(&text).unwrap());
        schemas.validate(&value, schema).unwrap_or_else(|error| panic!("{error:#}\n{text}"));
    }
}
