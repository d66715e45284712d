//! Taints of a pool's nodes: permanent ones, and those that another component removes once the node is set
//! up.

use toml::Spanned;

use super::Written;
use super::labels::OURS;
use crate::name_rules::{is_key, is_label, is_word};
use crate::values::Checker;
use model::node::{Taint, TaintEffect};
use model::passing::{TaintDomain, passes_by_itself};

/// The taints in `taints` and `startup_taints`.
pub(super) struct Taints {
    pub lasting: Vec<Taint>,
    pub startup: Vec<Taint>,
    /// Entries such as `example.com/*` in `startup_taints`.
    pub domains: Vec<TaintDomain>,
}

pub(super) fn check(pool: &Written, checker: &mut Checker) -> Taints {
    let name = pool.name.get_ref();
    let read = |list: &[&Spanned<String>], checker: &mut Checker| -> Vec<Taint> {
        list.iter().filter_map(|text| taint(name, text, checker)).collect()
    };
    let (domains, single): (Vec<_>, Vec<_>) =
        pool.startup_taints.iter().partition(|text| text.get_ref().contains('*'));
    let domains = domains.into_iter().filter_map(|text| domain(name, text, checker)).collect();
    let lists = (read(&pool.taints.iter().collect::<Vec<_>>(), checker), read(&single, checker));
    let mut seen: Vec<(Taint, &Spanned<String>)> = Vec::new();
    for text in pool.taints.iter().chain(single) {
        let Some(one) = parse(text.get_ref()) else { continue };
        let twice = seen.iter().find(|(other, _)| other.key == one.key && other.effect == one.effect);
        if let Some((_, first)) = twice {
            let title = format!("pool `{name}`: two taints `{}` with the same effect", one.key);
            let help = "a node has at most one taint per key and effect: remove one of the two";
            checker.clash(title, text.span(), "second", first.span(), help);
        }
        seen.push((one, text));
    }
    // A taint that is known to be temporary counts as a startup taint, even if it is in `taints`. Otherwise,
    // it would be set again after another component has removed it.
    let (passing, lasting) = lists.0.into_iter().partition(|taint| passes_by_itself(&taint.key));
    let startup = [passing, lists.1].concat();
    Taints { lasting, startup, domains }
}

/// Parses a taint as kubectl writes it: `key=value:Effect` or `key:Effect`.
fn parse(text: &str) -> Option<Taint> {
    let (left, effect) = text.rsplit_once(':')?;
    let (key, value) = left.split_once('=').unwrap_or((left, ""));
    let effect = effect_of(effect)?;
    let fine = is_key(key) && (value.is_empty() || is_word(value));
    fine.then(|| Taint { key: key.to_owned(), value: value.to_owned(), effect, time_added: None })
}

fn effect_of(text: &str) -> Option<TaintEffect> {
    match text {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

fn taint(name: &str, written: &Spanned<String>, checker: &mut Checker) -> Option<Taint> {
    let parsed = parse(written.get_ref());
    if parsed.is_none() {
        let title = format!("pool `{name}`: `{}` is not a taint", written.get_ref());
        let help = "the effect must be NoSchedule, PreferNoSchedule or NoExecute";
        checker.wrong(title, written.span(), "expected e.g. \"dedicated=batch:NoSchedule\"", help);
    }
    if parsed.as_ref().is_some_and(|taint| taint.key.starts_with(OURS)) {
        let title = format!("pool `{name}`: the taint `{}` is reserved for the daemon", written.get_ref());
        checker.wrong(title, written.span(), "reserved", "remove it");
    }
    parsed
}

/// Parses an entry for all taints of a domain: `example.com/*` or `example.com/*:Effect`.
fn domain(name: &str, written: &Spanned<String>, checker: &mut Checker) -> Option<TaintDomain> {
    let text = written.get_ref().as_str();
    let (keys, effect) = text.split_once(':').map_or((text, None), |(keys, effect)| (keys, Some(effect)));
    let prefix = keys.strip_suffix('*').filter(|prefix| {
        let domain = prefix.strip_suffix('/');
        domain.is_some_and(|domain| domain.len() <= 253 && domain.split('.').all(is_label))
    });
    let effect = effect.map(effect_of);
    let (Some(prefix), None | Some(Some(_))) = (prefix, effect) else {
        let title = format!("pool `{name}`: `{text}` is not a valid pattern for the taints of a domain");
        let help = "a `*` stands for all keys of the domain; the effect is optional";
        checker.wrong(title, written.span(), "expected e.g. \"example.com/*\"", help);
        return None;
    };
    Some(TaintDomain { prefix: prefix.to_owned(), effect: effect.flatten() })
}
