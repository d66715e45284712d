//! Parameters as the real server reads them: query, form and JSON bodies, with its peculiar rules for each.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::answer::Refusal;

/// Largest body of a request in bytes.
const MAX_BODY: usize = 512 * 1024;

/// Parameters by name. A key that came several times is an array, one without a value is null.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params(pub BTreeMap<String, Value>);

impl Params {
    /// Reads query and body. The query wins over the body.
    pub fn read(
        method: &Method,
        query: Option<&str>,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Self, Refusal> {
        let mut params = Self::default();
        if !body.is_empty() {
            if method == Method::GET || method == Method::DELETE {
                return Err(Refusal::Bare(501, format!("Unexpected content for method '{method}'")));
            }
            if body.len() > MAX_BODY {
                return Err(Refusal::Bare(501, "for data too large".into()));
            }
            let kind =
                headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
            match kind.split(';').next().unwrap_or_default().trim() {
                "" | "application/x-www-form-urlencoded" => {
                    params = Self::form(&String::from_utf8_lossy(body));
                }
                "application/json" => match serde_json::from_slice(body) {
                    Ok(Value::Object(members)) => params.0.extend(members),
                    _ => return Err(Refusal::Bare(500, "malformed JSON string".into())),
                },
                _ => return Err(Refusal::Bare(506, "unsupported content type".into())),
            }
        }
        if let Some(query) = query {
            params.0.extend(Self::form(query).0);
        }
        Ok(params)
    }

    /// Reads a form or a query: `;` separates like `&`, and what follows a second `=` is lost.
    pub fn form(text: &str) -> Self {
        let decode =
            |part: &str| percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned();
        let mut params = BTreeMap::new();
        for pair in text.split(['&', ';']).filter(|pair| !pair.is_empty()) {
            let mut parts = pair.split('=');
            let key = decode(parts.next().unwrap_or_default());
            let value = parts.next().map_or(Value::Null, |value| Value::String(decode(value)));
            match params.remove(&key) {
                None => params.insert(key, value),
                Some(Value::Array(mut values)) => {
                    values.push(value);
                    params.insert(key, Value::Array(values))
                }
                Some(first) => params.insert(key, Value::Array(vec![first, value])),
            };
        }
        Self(params)
    }

    /// A parameter as text; numbers and booleans as the real server would write them.
    pub fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).and_then(scalar)
    }

    /// A parameter as a flag, false when absent.
    pub fn flag(&self, name: &str) -> bool {
        self.text(name).as_deref() == Some("1")
    }

    /// A parameter as a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// A parameter as a VMID.
    pub fn vmid(&self, name: &str) -> Option<u32> {
        self.text(name)?.parse().ok()
    }

    /// A list parameter: an array, or a single value as a list of one.
    pub fn list(&self, name: &str) -> Vec<String> {
        match self.0.get(name) {
            Some(Value::Array(values)) => values.iter().filter_map(scalar).collect(),
            Some(value) => scalar(value).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// The items of a `*-list` string.
    pub fn words(&self, name: &str) -> Vec<String> {
        let words = self.list(name).join(",");
        words.split([',', ';', ' ', '\0']).filter(|word| !word.is_empty()).map(String::from).collect()
    }
}

/// A scalar as text.
pub fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(if *flag { "1" } else { "0" }.to_owned()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// What type a parameter has.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Any text, at most so many characters.
    Text(Option<usize>),
    /// An integer within bounds.
    Integer(Option<i64>, Option<i64>),
    /// A number.
    Number,
    /// `0`, `1`, or a JSON boolean.
    Boolean,
    /// A list.
    Array,
    /// One of these words.
    OneOf(Vec<String>),
}

/// One parameter of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its type.
    pub kind: Kind,
    /// Whether it must be there.
    pub required: bool,
    /// Its named format, such as `dns-name`.
    pub format: Option<String>,
}

/// The parameters of a call. A name that ends in `[n]` stands for `name0`, `name1` ….
pub type Rules = BTreeMap<String, Rule>;

/// Checks parameters against the rules of a call and names every offender. Values are normalised: booleans to `0`/`1`,
/// a scalar for an array parameter to an array of one.
pub fn check(params: &mut Params, rules: &Rules) -> Result<(), Refusal> {
    let mut errors = BTreeMap::new();
    for (name, value) in &mut params.0 {
        let Some(rule) = rule_for(rules, name) else {
            let text =
                "property is not defined in schema and the schema does not allow additional properties";
            errors.insert(name.clone(), text.to_owned());
            continue;
        };
        if value.is_null() {
            return Err(Refusal::failed(format!("unable to parse value of '{name}' - got undefined value")));
        }
        if let Err(text) = check_value(value, rule) {
            errors.insert(name.clone(), text);
        }
    }
    for (name, rule) in rules {
        if rule.required && !params.0.contains_key(name) {
            errors.insert(name.clone(), "property is missing and it is not optional".to_owned());
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(Refusal::Parameters(errors)) }
}

fn rule_for<'r>(rules: &'r Rules, name: &str) -> Option<&'r Rule> {
    rules.get(name).or_else(|| {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        (stem.len() < name.len()).then(|| rules.get(&format!("{stem}[n]")))?
    })
}

fn check_value(value: &mut Value, rule: &Rule) -> Result<(), String> {
    if rule.kind == Kind::Array {
        if !value.is_array() {
            *value = Value::Array(vec![value.take()]);
        }
        return Ok(());
    }
    // `*-list` formats take arrays as well.
    if value.is_array() && rule.format.as_deref().is_some_and(|format| format.ends_with("-list")) {
        return Ok(());
    }
    let Some(text) = scalar(value) else {
        let found = if value.is_array() { "array" } else { "object" };
        return Err(format!(
            "type check ('{}') failed - got {}",
            kind_name(&rule.kind),
            found.to_uppercase()
        ));
    };
    match &rule.kind {
        Kind::Boolean if text != "0" && text != "1" => {
            Err(format!("type check ('boolean') failed - got '{text}'"))
        }
        Kind::Integer(low, high) => check_integer(&text, *low, *high),
        Kind::Number if text.parse::<f64>().is_err() => {
            Err(format!("type check ('number') failed - got '{text}'"))
        }
        Kind::Text(Some(most)) if text.chars().count() > *most => {
            Err(format!("value may only be {most} characters long"))
        }
        Kind::OneOf(words) if !words.contains(&text) => {
            Err(format!("value '{text}' does not have a value in the enumeration '{}'", words.join(", ")))
        }
        _ => check_format(&text, rule.format.as_deref()),
    }
}

fn kind_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Text(_) | Kind::OneOf(_) => "string",
        Kind::Integer(..) => "integer",
        Kind::Number => "number",
        Kind::Boolean => "boolean",
        Kind::Array => "array",
    }
}

fn check_integer(text: &str, low: Option<i64>, high: Option<i64>) -> Result<(), String> {
    let Ok(number) = text.parse::<i64>() else {
        return Err(format!("type check ('integer') failed - got '{text}'"));
    };
    match (low, high) {
        (Some(low), _) if number < low => Err(format!("value must have a minimum value of {low}")),
        (_, Some(high)) if number > high => Err(format!("value must have a maximum value of {high}")),
        _ => Ok(()),
    }
}

fn check_format(text: &str, format: Option<&str>) -> Result<(), String> {
    match format {
        Some("dns-name") if !is_dns_name(text) => {
            Err("invalid format - value does not look like a valid DNS name\n".to_string())
        }
        Some("pve-tag-list") => {
            let bad = text.split([',', ';', ' ']).filter(|tag| !tag.is_empty()).find(|tag| !is_tag(tag));
            bad.map_or(Ok(()), |tag| Err(format!("invalid format - invalid characters in tag '{tag}'\n")))
        }
        Some("urlencoded")
            if !text.chars().all(|c| c.is_ascii_alphanumeric() || "-%_.!~*'()".contains(c)) =>
        {
            Err("invalid format - invalid urlencoded string\n".to_owned())
        }
        Some("pve-qm-ipconfig") => check_ipconfig(text),
        _ => Ok(()),
    }
}

/// Whether a text may be a VM's name.
pub fn is_dns_name(text: &str) -> bool {
    !text.is_empty()
        && text.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        })
}

fn is_tag(tag: &str) -> bool {
    tag.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && tag.chars().all(|c| c.is_ascii_alphanumeric() || "_-+.".contains(c))
}

/// `ip=dhcp|CIDR[,gw=]…`: a prefix is needed, a gateway needs an address; whether they fit is not checked.
fn check_ipconfig(text: &str) -> Result<(), String> {
    let mut seen = BTreeMap::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let Some((key, value)) = part.split_once('=') else {
            return Err(format!("invalid format - missing key in comma-separated list property: {part}\n"));
        };
        let good = match key {
            "ip" => value == "dhcp" || is_cidr::<std::net::Ipv4Addr>(value, 32),
            "ip6" => value == "dhcp" || value == "auto" || is_cidr::<std::net::Ipv6Addr>(value, 128),
            "gw" => value.parse::<std::net::Ipv4Addr>().is_ok(),
            "gw6" => value.parse::<std::net::Ipv6Addr>().is_ok(),
            _ => {
                return Err(format!(
                    "invalid format - format error\n{key}: property is not defined in schema\n"
                ));
            }
        };
        if !good {
            return Err(format!(
                "invalid format - format error\n{key}: invalid format - value does not look like a valid address\n"
            ));
        }
        seen.insert(key, value);
    }
    for (gateway, address) in [("gw", "ip"), ("gw6", "ip6")] {
        if seen.contains_key(gateway) && !seen.contains_key(address) {
            return Err(format!(
                "invalid format - format error\n{gateway}: missing property - '{address}' requires this property\n"
            ));
        }
    }
    Ok(())
}

fn is_cidr<A: std::str::FromStr>(text: &str, most: u8) -> bool {
    text.split_once('/').is_some_and(|(address, prefix)| {
        address.parse::<A>().is_ok() && prefix.parse::<u8>().is_ok_and(|p| p <= most)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn forms_split_at_semicolons_and_lose_what_follows_a_second_equals_sign() {
        let params = Params::form("tags=a;template&ipconfig0=ip=dhcp&name=x%20y&c=1&c=2");
        assert_eq!(
            serde_json::to_value(&params.0).expect("json"),
            json!({
                "tags": "a", "template": null, "ipconfig0": "ip", "name": "x y", "c": ["1", "2"],
            })
        );
    }

    #[test]
    fn ipconfig_wants_a_prefix_and_an_address_for_a_gateway() {
        for (text, good) in [
            ("ip=10.0.0.7/24,gw=10.0.0.1", true),
            ("ip=dhcp,gw=10.0.0.1", true),
            ("ip=10.0.0.7/24,gw=192.168.0.1", true),
            ("ip=10.0.0.7", false),
            ("ip=10.0.0.300/24", false),
            ("ip=10.0.0.7/33", false),
            ("gw=10.0.0.1", false),
        ] {
            assert_eq!(check_ipconfig(text).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn names_follow_dns_rules() {
        for (name, good) in [
            ("k8s-w-1", true),
            ("123", true),
            ("A.b", true),
            ("a_b", false),
            ("-a", false),
            ("a..b", false),
            ("", false),
        ] {
            assert_eq!(is_dns_name(name), good, "{name}");
        }
    }
}
