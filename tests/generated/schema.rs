//! The schema of the configuration, which editors read, compared with the parser: both accept the same types,
//! keys and words, and the schema accepts every configuration in this repository.

use std::fs;
use std::path::Path;

use boon::{Compiler, ErrorKind, SchemaIndex, Schemas, ValidationError};
use serde_json::{Map, Value, json};
use settings::{Finding, Needs, parse};

use super::folder;

const SCHEMA: &str = include_str!("../../packaging/config.schema.json");

/// A value of each JSON type.
fn samples() -> [Value; 6] {
    [json!("?"), json!(1), json!(1.5), json!(true), json!([]), json!({})]
}

/// Returns the schema that the package contains.
pub fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

/// A schema that is compiled for validation.
struct Validator {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Validator {
    fn of(schema: &Value) -> Self {
        const URL: &str = "https://pve-autoscaler.invalid/config.schema.json";
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource(URL, schema.clone()).unwrap();
        let index = compiler.compile(URL, &mut schemas).unwrap();
        Self { schemas, index }
    }

    fn takes(&self, value: &Value) -> bool {
        self.schemas.validate(value, self.index).is_ok()
    }

    /// Returns each violation of the schema: its location, and the keyword that it violates.
    fn refused(&self, value: &Value) -> Vec<(String, String)> {
        fn add(error: &ValidationError, errors: &mut Vec<(String, String)>) {
            if error.causes.is_empty() {
                errors.push((error.instance_location.to_string(), keyword(&error.kind).to_owned()));
            }
            error.causes.iter().for_each(|cause| add(cause, errors));
        }
        let mut errors = Vec::new();
        if let Err(error) = self.schemas.validate(value, self.index) {
            add(&error, &mut errors);
        }
        errors
    }
}

fn keyword(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Type { .. } => "type",
        ErrorKind::Enum { .. } | ErrorKind::Const { .. } => "enum",
        ErrorKind::Pattern { .. } => "pattern",
        ErrorKind::Required { .. } => "required",
        ErrorKind::AdditionalProperties { .. } => "additionalProperties",
        ErrorKind::Minimum { .. } => "minimum",
        ErrorKind::Maximum { .. } => "maximum",
        other => panic!("{other}"),
    }
}

/// Returns the parser's findings about a configuration.
fn findings(value: &Value) -> Vec<Finding> {
    let text = toml::to_string(value).unwrap();
    parse("c.toml", &text, Needs::Plan).err().map(|report| report.findings().to_vec()).unwrap_or_default()
}

/// A place that the schema describes.
struct Place<'s> {
    /// The part of the schema that describes the place.
    schema: &'s Value,
    /// The JSON pointer of the place, as in the validator's errors.
    pointer: String,
    /// A configuration with a value in this place, and with what the enclosing tables need.
    with: Box<dyn Fn(Value) -> Value + 's>,
}

/// Visits all places, starting with the outermost.
fn places<'s>(schema: &'s Value, visit: &mut dyn FnMut(&Place<'s>)) {
    walk(Place { schema, pointer: String::new(), with: Box::new(|value| value) }, visit);
}

fn walk<'s>(place: Place<'s>, visit: &mut dyn FnMut(&Place<'s>)) {
    visit(&place);
    let Place { schema, pointer, with } = place;
    let with = std::rc::Rc::new(with);
    if let Some(items) = schema.get("items") {
        let with = std::rc::Rc::clone(&with);
        let inner = Box::new(move |value| with(json!([value])));
        walk(Place { schema: items, pointer: format!("{pointer}/0"), with: inner }, visit);
    }
    let keys = schema["properties"].as_object().into_iter().flatten();
    let any = schema.get("additionalProperties").filter(|any| any.is_object());
    for (key, inner) in keys.map(|(key, inner)| (key.as_str(), inner)).chain(any.map(|any| ("any", any))) {
        let with = std::rc::Rc::clone(&with);
        let around = move |value| {
            let mut table = needed(schema);
            table.insert(key.to_owned(), value);
            with(table.into())
        };
        walk(Place { schema: inner, pointer: format!("{pointer}/{key}"), with: Box::new(around) }, visit);
    }
}

/// A table with its required keys.
fn needed(schema: &Value) -> Map<String, Value> {
    let needed = schema["required"].as_array().into_iter().flatten().map(|key| key.as_str().unwrap());
    needed.map(|key| (key.to_owned(), good(&schema["properties"][key]))).collect()
}

/// A value that the schema accepts.
fn good(schema: &Value) -> Value {
    let shown = schema.get("default").or_else(|| schema["examples"].get(0)).or_else(|| schema["enum"].get(0));
    let bare = || match schema["type"].as_str() {
        Some("object") => needed(schema).into(),
        Some("integer") => schema["minimum"].clone(),
        // Such strings are durations and sizes, in the inline tables of windows and disks.
        Some("string") if schema.get("pattern").is_some() => {
            let fits = ["1h", "1GiB"].map(Value::from);
            fits.into_iter().find(|value| Validator::of(schema).takes(value)).unwrap()
        }
        Some("string") => json!("a"),
        other => panic!("a value of {other:?}"),
    };
    shown.cloned().unwrap_or_else(bare)
}

/// Whether the parser refuses a value's type, or the shape of a table.
fn is_of_type(finding: &Finding) -> bool {
    let wrong = ["invalid type", "wanted string or table", "wanted exactly 1", "invalid length"];
    wrong.iter().any(|wrong| finding.title.starts_with(wrong))
}

#[test]
fn the_schema_takes_the_types_that_the_parser_takes() {
    let schema = schema();
    let validator = Validator::of(&schema);
    let mut asked = 0;
    places(&schema, &mut |place| {
        for sample in samples().iter().filter(|_| !place.pointer.is_empty()) {
            let value = (place.with)(sample.clone());
            let here = (place.pointer.clone(), "type".to_owned());
            let schema_takes = !validator.refused(&value).contains(&here);
            let parser_takes = !findings(&value).iter().any(is_of_type);
            assert_eq!(schema_takes, parser_takes, "{}: {sample}", place.pointer);
            asked += 1;
        }
    });
    assert!(asked > 2000, "{asked}");
}

#[test]
fn the_schema_has_the_keys_that_the_parser_knows_and_what_they_need() {
    let schema = schema();
    let unknown = |value: &Value, key: &str| {
        let title = format!("unknown field `{key}`");
        findings(value).iter().any(|finding| finding.title == title)
    };
    places(&schema, &mut |place| {
        let pointer = &place.pointer;
        let Some(keys) = place.schema["properties"].as_object() else { return };
        assert_eq!(place.schema["additionalProperties"], json!(false), "{pointer}");
        let with = |key: &str| (place.with)(json!({ key: 1 }));
        assert!(unknown(&with("unheard-of"), "unheard-of"), "{pointer}");
        for key in keys.keys() {
            assert!(!unknown(&with(key), key), "{pointer}: {key}");
        }
        let full = needed(place.schema);
        for key in full.keys() {
            let mut table = full.clone();
            table.remove(key);
            let title = format!("missing field `{key}`");
            let said = findings(&(place.with)(table.into()));
            assert!(said.iter().any(|finding| finding.title == title), "{pointer}: {key}: {said:?}");
        }
        let said = findings(&(place.with)(full.into()));
        assert!(
            !said.iter().any(|finding| finding.title.starts_with("missing field")),
            "{pointer}: {said:?}"
        );
    });
}

#[test]
fn the_schema_has_the_words_that_are_taken_and_no_others() {
    let schema = schema();
    let validator = Validator::of(&schema);
    let mut asked = Vec::new();
    places(&schema, &mut |place| {
        let Some(words) = place.schema["enum"].as_array() else { return };
        for word in words.iter().map(|word| word.as_str().unwrap()).chain(["nonsense"]) {
            let value = (place.with)(word.into());
            let text = toml::to_string(&value).unwrap();
            // Other settings may be missing: only findings about the word itself count.
            let is_wrong = findings(&value).iter().any(|finding| {
                let Some((at, label)) = &finding.at else { return false };
                let names = finding.title.contains(&format!("`{word}`")) || label.contains('"');
                text[at.clone()].trim_matches('"') == word && names
            });
            let expected = word == "nonsense";
            assert_eq!(is_wrong, expected, "{}: {word}: {:?}", place.pointer, findings(&value));
            let here = (place.pointer.clone(), "enum".to_owned());
            assert_eq!(validator.refused(&value).contains(&here), expected, "{}: {word}", place.pointer);
        }
        asked.push(place.pointer.clone());
    });
    assert!(["/mode", "/bootstrap/token", "/proxmox/ca"].iter().all(|it| asked.iter().any(|one| one == it)));
}

/// Returns all strings that consist of at most `most` of these parts.
fn strings(parts: &[&str], most: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut last = 0;
    for _ in 0..most {
        let from = std::mem::replace(&mut last, all.len());
        for at in from..last {
            all.extend(parts.iter().map(|part| format!("{}{part}", all[at])).collect::<Vec<_>>());
        }
    }
    all
}

/// Returns how many of the texts a setting accepts. Asserts that the setting's pattern matches every accepted
/// text, and that both the parser and the pattern refuse the wrong texts.
fn pattern_fits(key: &str, texts: &[String], wrong: &[&str]) -> usize {
    let schema = schema();
    let pattern = schema.pointer(&format!("/properties/{}", key.replace('.', "/properties/"))).unwrap();
    let pattern = Validator::of(pattern);
    let takes = |text: &str| {
        let (table, key) = key.rsplit_once('.').unwrap_or(("", key));
        let table = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
        parse("c.toml", &format!("{table}{key} = \"{text}\"\n"), Needs::Plan).is_ok()
    };
    for text in wrong {
        assert!(!takes(text) && !pattern.takes(&json!(text)), "{text:?}");
    }
    let taken = texts.iter().filter(|text| takes(text));
    taken.inspect(|text| assert!(pattern.takes(&json!(text)), "{text:?} is taken")).count()
}

#[test]
fn every_duration_and_size_that_is_taken_fits_its_pattern() {
    let durations = [
        "1h", "30m", "5s", "10", "2 hours", "1.5", "7", "ms", "min", "secs", "µs", " ", ", ", "PT", "H", "M",
        "S", "01", ":30", "+",
    ];
    let wrong = ["", "soon", "10", "1d", "2 weeks", "-1h", "h", "10 M B"];
    let taken = pattern_fits("scan_interval", &strings(&durations, 3), &wrong);
    assert!(taken > 100, "{taken}");
    let sizes = ["1", "0.", "K", "Ki", "Gi", "G", "m", "B", "e", "E3", "+", " "];
    let wrong = ["", "4GB", "4 GiB", "much", "1 000", "-1GiB", "8gib", "512mb"];
    let taken = pattern_fits("scale_up.max_memory_total", &strings(&sizes, 3), &wrong);
    assert!(taken > 100, "{taken}");
}

/// Returns the path and text of each configuration file below a folder.
fn files(below: &str, is_one: &dyn Fn(&Path) -> bool) -> Vec<(String, String)> {
    let (mut open, mut found) = (vec![folder(below)], Vec::new());
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if is_one(&path) {
            found.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

#[test]
fn the_schema_takes_the_configurations_that_there_are() {
    let validator = Validator::of(&schema());
    let mut all = files("tests/fixtures", &|path| path.ends_with("config.toml"));
    all.extend(files("tests/migration", &|path| path.extension().is_some_and(|it| it == "toml")));
    all.extend(files("lab/corpus/configuration", &|_| true));
    for one in ["config.example.toml", "packaging/config.minimal.toml", "examples/config.toml"] {
        all.extend(files(one, &|_| true));
    }
    let minimal = fs::read_to_string(folder("packaging/config.minimal.toml")).unwrap();
    all.push(("packaging/config.minimal.toml, filled in".to_owned(), minimal.replace("#: ", "")));
    all.retain(|(_, text)| parse("c.toml", text, Needs::Plan).is_ok());
    assert!(all.len() > 250, "{}", all.len());
    for (name, text) in all {
        let value = json!(toml::from_str::<toml::Table>(&text).unwrap());
        assert_eq!(validator.refused(&value), [], "{name}");
    }
}

#[test]
fn the_schema_takes_what_the_pages_show() {
    let validator = Validator::of(&schema());
    let mut shown = 0;
    let mut pages = files("docs", &|path| path.extension().is_some_and(|it| it == "md"));
    pages.extend(files("README.md", &|_| true));
    for (page, text) in pages {
        for block in text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
            // Pages show a part of a pool without the `[[pool]]` table above it.
            let is_part = block.contains("[pool.") && !block.contains("[[pool]]");
            let text = if is_part { format!("[[pool]]\n{block}") } else { block.to_owned() };
            let table: toml::Table =
                toml::from_str(&text).unwrap_or_else(|error| panic!("{page}: {error}\n{text}"));
            let mut errors = validator.refused(&json!(table));
            errors.retain(|(_, keyword)| keyword != "required");
            assert_eq!(errors, [], "{page}: {block}");
            shown += 1;
        }
    }
    assert!(shown > 25, "{shown}");
}

#[test]
fn the_schema_refuses_what_is_wrong_at_its_place() {
    let validator = Validator::of(&schema());
    let pool = "[[pool]]\nname = \"a\"\nmax = 1\ncores = 1\nmemory = \"1GiB\"\n";
    for (text, at, keyword) in [
        ("[scale_dwon]\n", "", "additionalProperties"),
        ("[scale_down]\nuneeded_time = \"10m\"\n", "/scale_down", "additionalProperties"),
        ("[scale_down]\nunneeded_time = \"10 days\"\n", "/scale_down/unneeded_time", "pattern"),
        ("[scale_down]\nutilization_threshold = 50\n", "/scale_down/utilization_threshold", "maximum"),
        ("[scale_down]\nenabled = \"no\"\n", "/scale_down/enabled", "type"),
        ("mode = \"obsrve\"\n", "/mode", "enum"),
        ("[pool]\nname = \"a\"\n", "/pool", "type"),
        ("[[pool]]\nname = \"a\"\nmax = 1\ncores = 1\n", "/pool/0", "required"),
        (&format!("{pool}vlan = 0\n"), "/pool/0/vlan", "minimum"),
        (&format!("{pool}vlan = 4095\n"), "/pool/0/vlan", "maximum"),
        (&format!("{pool}disk = \"40GB\"\n"), "/pool/0/disk", "pattern"),
        (&format!("{pool}taints = \"a=b:NoSchedule\"\n"), "/pool/0/taints", "type"),
        (
            &format!("{pool}[[pool.network]]\nbridge = \"b\"\nmodel = \"ne2k\"\n"),
            "/pool/0/network/0/model",
            "enum",
        ),
        (
            "[proxmox]\nendpoints = []\ntoken_id = \"\"\ntoken_file = \"t\"\n",
            "/proxmox/token_file",
            "pattern",
        ),
    ] {
        let value = json!(toml::from_str::<toml::Table>(text).unwrap());
        assert_eq!(validator.refused(&value), [(at.to_owned(), keyword.to_owned())], "{text}");
        assert!(parse("c.toml", text, Needs::Plan).is_err(), "{text}");
    }
}

#[test]
fn the_package_installs_the_schema_where_its_configurations_look_for_it() {
    let manifest: toml::Table = fs::read_to_string(folder("Cargo.toml")).unwrap().parse().unwrap();
    let assets = manifest["package"]["metadata"]["deb"]["assets"].as_array().unwrap();
    let asset =
        assets.iter().find(|asset| asset[0].as_str() == Some("packaging/config.schema.json")).unwrap();
    let line = format!("#:schema file:///{}", asset[1].as_str().unwrap());
    for file in ["config.example.toml", "packaging/config.minimal.toml"] {
        let text = fs::read_to_string(folder(file)).unwrap();
        assert_eq!(text.lines().next(), Some(line.as_str()), "{file}");
    }
    assert_eq!(pve_autoscaler::SCHEMA_LINE, line);
}
