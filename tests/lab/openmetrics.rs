//! Strictly reads the OpenMetrics text format. Panics on everything that a scraper or `promtool check
//! metrics` would complain about.

use std::collections::{BTreeMap, BTreeSet};

/// One metric family: its type, unit, help and labels, and the value of each sample. The key of a sample is
/// its line without the value.
#[derive(Debug, Default)]
pub struct Family {
    pub kind: String,
    pub unit: String,
    pub help: String,
    pub samples: BTreeMap<String, f64>,
    pub labels: BTreeSet<String>,
}

/// Families by name.
pub type Families = BTreeMap<String, Family>;

/// Reads a whole page.
pub fn read(text: &str) -> Families {
    let body = text.strip_suffix("# EOF\n").expect("the page ends with `# EOF`");
    let mut families = Families::new();
    let mut current = String::new();
    for line in body.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            let family = families.get_mut(&current).unwrap_or_else(|| panic!("no family for {line}"));
            sample(line, &current, family);
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        let (what, name, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap_or(""));
        if what == "HELP" {
            assert!(!families.contains_key(name), "{name} appears twice");
            assert!(is_name(name) && rest.ends_with('.') && !rest.ends_with(".."), "{line}");
            name.clone_into(&mut current);
        }
        assert_eq!(name, current, "families are mixed");
        let family = families.entry(current.clone()).or_default();
        match what {
            "HELP" => rest.clone_into(&mut family.help),
            "TYPE" => rest.clone_into(&mut family.kind),
            "UNIT" => rest.clone_into(&mut family.unit),
            other => panic!("what is {other}?"),
        }
    }
    for (name, family) in &families {
        assert!(!family.help.is_empty() && !family.kind.is_empty(), "{name} lacks help or type");
        assert!(name.ends_with(&family.unit), "the name {name} does not end in its unit {}", family.unit);
        assert!(!name.ends_with("_total") && !name.contains("__"), "{name}");
        assert!(["gauge", "counter", "histogram"].contains(&family.kind.as_str()), "{name}");
        if family.kind == "histogram" {
            histogram(name, family);
        }
    }
    families
}

impl Family {
    /// The value of the sample with these labels, e.g. `{pool="a"}`.
    pub fn value(&self, suffix: &str, labels: &str) -> Option<f64> {
        let ending = format!("{suffix}{labels}");
        let exact = |key: &&String| {
            let at = key.find('{').unwrap_or(key.len());
            key[..at].ends_with(suffix) && key.ends_with(&ending)
        };
        self.samples.iter().find(|(key, _)| exact(key)).map(|(_, value)| *value)
    }
}

fn sample(line: &str, family_name: &str, family: &mut Family) {
    let (key, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value in {line}"));
    let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number in {line}"));
    let (name, labels) = match key.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}').expect("labels end")),
        None => (key, ""),
    };
    let suffix = name.strip_prefix(family_name).unwrap_or_else(|| panic!("{line} is not of {family_name}"));
    let allowed: &[&str] = match family.kind.as_str() {
        "counter" => &["_total"],
        "histogram" => &["_bucket", "_sum", "_count"],
        _ => &[""],
    };
    assert!(allowed.contains(&suffix), "{line} in a {}", family.kind);
    assert!(family.kind == "gauge" || value >= 0.0, "{line}");
    let mut own = BTreeSet::new();
    for label in labels.split("\",").filter(|label| !label.is_empty()) {
        let (label, value) = label.split_once("=\"").unwrap_or_else(|| panic!("labels of {line}"));
        assert!(is_name(label) && !value.trim_end_matches('"').contains('"'), "{line}");
        assert!(own.insert(label), "{label} appears twice in {line}");
        if label != "le" {
            family.labels.insert(label.to_owned());
        }
    }
    assert!(family.samples.insert(key.to_owned(), value).is_none(), "{key} appears twice");
}

/// Asserts that the counts of a histogram's buckets never decrease, and that the last bucket is infinite and
/// counts all observations.
fn histogram(name: &str, family: &Family) {
    for (key, count) in family.samples.iter().filter(|(key, _)| key.starts_with(&format!("{name}_count"))) {
        let labels = key.strip_prefix(&format!("{name}_count")).unwrap();
        let inner = labels.trim_start_matches('{').trim_end_matches('}');
        let mut buckets: Vec<(f64, f64)> = family
            .samples
            .iter()
            .filter(|(key, _)| key.contains("_bucket{") && key.contains(inner))
            .map(|(key, value)| {
                let edge = key.split("le=\"").nth(1).unwrap().split('"').next().unwrap();
                (edge.parse().unwrap_or_else(|_| panic!("{key}")), *value)
            })
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{name}: {buckets:?}");
        assert_eq!(
            buckets.last().map(|(edge, all)| (edge.is_infinite(), *all)),
            Some((true, *count)),
            "{name}"
        );
    }
}

fn is_name(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
