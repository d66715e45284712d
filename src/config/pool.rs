//! `[[pool]]`: machines of one kind.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::report::Finding;
use super::values::Checker;
use crate::model::node::{Taint, TaintEffect};
use crate::model::quantity;
use crate::model::resources::Resources;
use crate::model::selector::Labels;

/// A checked `[[pool]]`.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its name, the first part of its machines' names.
    pub name: String,
    /// It never has fewer nodes.
    pub min: u32,
    /// It never has more machines.
    pub max: u32,
    /// vCPUs of a machine.
    pub cores: u32,
    /// Memory of a machine in bytes.
    pub memory: i64,
    /// Labels of its nodes.
    pub labels: Labels,
    /// Taints of its nodes.
    pub taints: Vec<Taint>,
    /// What a fresh node offers; `None`: learnt from a ready node, else computed from the VM's shape.
    pub allocatable: Option<Resources>,
    /// Rank for the `priority` expander: higher grows first.
    pub priority: i32,
    /// Hosts that its machines may be put on; empty: all.
    pub hosts: Vec<String>,
    /// vCPUs that a host may be given for each of its threads.
    pub cpu_overcommit: f64,
    /// Memory in bytes that stays free on each host.
    pub memory_reserve: i64,
    /// At most so many of its machines on one host.
    pub max_per_host: Option<u32>,
}

/// A `[[pool]]` as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    name: Spanned<String>,
    min: Option<Spanned<u32>>,
    max: Spanned<u32>,
    cores: Spanned<u32>,
    memory: Spanned<String>,
    #[serde(default)]
    labels: BTreeMap<Spanned<String>, Spanned<String>>,
    #[serde(default)]
    taints: Vec<Spanned<String>>,
    allocatable: Option<BTreeMap<String, Spanned<toml::Value>>>,
    #[serde(default)]
    priority: i32,
    #[serde(default)]
    hosts: Vec<String>,
    cpu_overcommit: Option<Spanned<f64>>,
    memory_reserve: Option<Spanned<String>>,
    max_per_host: Option<Spanned<u32>>,
}

#[cfg(test)]
pub(super) const KEYS: &[&str] = &[
    "name",
    "min",
    "max",
    "cores",
    "memory",
    "labels",
    "taints",
    "allocatable",
    "priority",
    "hosts",
    "cpu_overcommit",
    "memory_reserve",
    "max_per_host",
];

/// Checks all pools, each by itself and against the others.
pub(super) fn check_all(pools: &[Spanned<Written>], checker: &mut Checker) -> Vec<Pool> {
    let mut seen: BTreeMap<&str, Range<usize>> = BTreeMap::new();
    for pool in pools {
        let name = &pool.get_ref().name;
        if let Some(first) = seen.insert(name.get_ref(), name.span()) {
            checker.findings.push(Finding {
                title: format!("two pools are called `{}`", name.get_ref()),
                at: Some((name.span(), "must be unique".to_owned())),
                because: Some(first),
                help: Some("give one of them another name".to_owned()),
            });
        }
    }
    pools.iter().map(|pool| check(pool.get_ref(), checker)).collect()
}

fn check(pool: &Written, checker: &mut Checker) -> Pool {
    let name = pool.name.get_ref();
    if !is_label(name) || name.len() > 40 {
        let title = format!("`{name}` cannot be a pool's name");
        let label = "lower-case letters, digits and `-`, at most 40 characters";
        checker.wrong(
            title,
            pool.name.span(),
            label,
            "machines are called after their pool: it must fit a host name",
        );
    }
    let min = pool.min.as_ref().map_or(0, |min| *min.get_ref());
    if let Some(written) = pool.min.as_ref().filter(|_| min > *pool.max.get_ref()) {
        checker.findings.push(Finding {
            title: format!("pool `{name}`: `min` is greater than `max`"),
            at: Some((written.span(), format!("must be at most {}", pool.max.get_ref()))),
            because: Some(pool.max.span()),
            help: Some("raise `max`, or lower `min`".to_owned()),
        });
    }
    if *pool.cores.get_ref() == 0 {
        checker.wrong(format!("pool `{name}`: `cores` is zero"), pool.cores.span(), "must be at least 1", "");
    }
    if let Some(most) = pool.max_per_host.as_ref().filter(|most| *most.get_ref() == 0) {
        checker.wrong(
            format!("pool `{name}`: `max_per_host` is zero"),
            most.span(),
            "must be at least 1",
            "",
        );
    }
    let memory = checker.size(&format!("pool `{name}`: `memory`"), &pool.memory);
    if memory == 0 && pool.memory.get_ref().starts_with('0') {
        checker.wrong(
            format!("pool `{name}`: `memory` is zero"),
            pool.memory.span(),
            "must be more than zero",
            "",
        );
    }
    Pool {
        name: name.clone(),
        min,
        max: *pool.max.get_ref(),
        cores: *pool.cores.get_ref(),
        memory,
        labels: labels(name, pool, checker),
        taints: pool.taints.iter().filter_map(|text| taint(name, text, checker)).collect(),
        allocatable: pool.allocatable.as_ref().map(|list| allocatable(name, list, checker)),
        priority: pool.priority,
        hosts: pool.hosts.clone(),
        cpu_overcommit: checker.between("cpu_overcommit", pool.cpu_overcommit.as_ref(), (0.1, 100.0), 4.0),
        memory_reserve: pool
            .memory_reserve
            .as_ref()
            .map_or(2 << 30, |size| checker.size(&format!("pool `{name}`: `memory_reserve`"), size)),
        max_per_host: pool.max_per_host.as_ref().map(|most| *most.get_ref()),
    }
}

/// A DNS label (RFC 1123).
fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A label's key or value without the prefix: at most 63 of letters, digits, `-`, `_`, `.`, with an alphanumeric at both ends.
fn is_word(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.len() <= 63 && text.chars().all(inner) && edge(text.chars().next()) && edge(text.chars().next_back())
}

fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        None => is_word(text),
        Some((prefix, word)) => prefix.len() <= 253 && prefix.split('.').all(is_label) && is_word(word),
    }
}

fn labels(name: &str, pool: &Written, checker: &mut Checker) -> Labels {
    for (key, value) in &pool.labels {
        if !is_key(key.get_ref()) {
            let title = format!("pool `{name}`: `{}` is not a label's key", key.get_ref());
            checker.wrong(title, key.span(), "expected `name` or `prefix/name`", "");
        }
        if !value.get_ref().is_empty() && !is_word(value.get_ref()) {
            let title = format!("pool `{name}`: `{}` is not a label's value", value.get_ref());
            checker.wrong(title, value.span(), "at most 63 letters, digits, `-`, `_` and `.`", "");
        }
    }
    pool.labels.iter().map(|(key, value)| (key.get_ref().clone(), value.get_ref().clone())).collect()
}

/// A taint as kubectl writes it: `key=value:Effect` or `key:Effect`.
fn taint(name: &str, written: &Spanned<String>, checker: &mut Checker) -> Option<Taint> {
    let parsed = written.get_ref().rsplit_once(':').and_then(|(left, effect)| {
        let (key, value) = left.split_once('=').unwrap_or((left, ""));
        let effect = match effect {
            "NoSchedule" => TaintEffect::NoSchedule,
            "PreferNoSchedule" => TaintEffect::PreferNoSchedule,
            "NoExecute" => TaintEffect::NoExecute,
            _ => return None,
        };
        let fine = is_key(key) && (value.is_empty() || is_word(value));
        fine.then(|| Taint { key: key.to_owned(), value: value.to_owned(), effect, time_added: None })
    });
    if parsed.is_none() {
        let title = format!("pool `{name}`: `{}` is not a taint", written.get_ref());
        let help = "the effect is NoSchedule, PreferNoSchedule or NoExecute";
        checker.wrong(title, written.span(), "expected e.g. \"dedicated=batch:NoSchedule\"", help);
    }
    parsed
}

fn allocatable(
    name: &str,
    list: &BTreeMap<String, Spanned<toml::Value>>,
    checker: &mut Checker,
) -> Resources {
    let mut sum = Resources::default();
    for (key, written) in list {
        let text = match written.get_ref() {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            _ => String::new(),
        };
        let parsed = if key == "cpu" { quantity::milli(&text) } else { quantity::units(&text) };
        let Ok(amount) = parsed else {
            let title = format!("pool `{name}`: `allocatable.{key}` is not a quantity");
            checker.wrong(title, written.span(), "expected e.g. \"3900m\", \"7Gi\" or 110", "");
            continue;
        };
        match key.as_str() {
            "cpu" => sum.cpu_milli = amount,
            "memory" => sum.memory = amount,
            "ephemeral-storage" => sum.ephemeral_storage = amount,
            "pods" => sum.pods = amount,
            _ => {
                sum.other.insert(key.clone(), amount);
            }
        }
    }
    sum
}
