//! Parses parameters as the real server does: from the query, a form or a JSON body, each with its quirks.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{answer::Refusal, formats};

/// The maximum size of a request body, in bytes.
const MAX_BODY: usize = 512 * 1024;

const HTTP_SERVER: &str = "/usr/share/perl5/PVE/APIServer/AnyEvent.pm";

fn no_json(what: &str) -> Refusal {
    Refusal::Plain(
        500,
        format!("malformed JSON string, {what} (before \"(end of string)\") at {HTTP_SERVER} line 934.\n"),
    )
}

/// Parameters by name. A key that was sent several times has an array as its value, and a key without a value
/// has null.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params(pub BTreeMap<String, Value>);

impl Params {
    /// Reads the parameters in the query and the body. If both contain a parameter, the query takes
    /// precedence.
    pub fn read(
        method: &Method,
        query: Option<&str>,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Result<Self, Refusal> {
        let mut params = Self::default();
        let kind =
            headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let writes = method == Method::POST || method == Method::PUT;
        if writes && body.is_empty() && kind == "application/json" {
            return Err(no_json("neither tag, array, object, number, string or atom, at character offset 0"));
        }
        if !body.is_empty() {
            if method == Method::GET || method == Method::DELETE {
                return Err(Refusal::Plain(501, format!("Unexpected content for method '{method}'")));
            }
            if body.len() > MAX_BODY {
                return Err(Refusal::Bare(501, "for data too large".into()));
            }
            match kind {
                "" | "application/x-www-form-urlencoded" => {
                    params = Self::form(&String::from_utf8_lossy(body));
                }
                "application/json" => match serde_json::from_slice(body) {
                    Ok(Value::Object(members)) => params.0.extend(members),
                    Ok(_) => {
                        return Err(Refusal::Plain(
                            500,
                            format!("Not a HASH reference at {HTTP_SERVER} line 978.\n"),
                        ));
                    }
                    Err(error) if error.is_eof() && body.starts_with(b"{") => {
                        let what = format!(
                            ", or }} expected while parsing object/hash, at character offset {}",
                            body.len()
                        );
                        let end = format!("(before \"(end of string)\") at {HTTP_SERVER} line 934.\n");
                        return Err(Refusal::Plain(500, format!("{what} {end}")));
                    }
                    Err(_) => return Err(no_json("neither tag, array, object, number, string or atom")),
                },
                _ => {
                    return Err(Refusal::Plain(
                        506,
                        format!("upload 'Content-Type '{kind}' not implemented"),
                    ));
                }
            }
        }
        if let Some(query) = query {
            params.0.extend(Self::form(query).0);
        }
        Ok(params)
    }

    /// Parses a form or a query. `;` separates pairs as `&` does, and everything after the second `=` of a
    /// pair is ignored.
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

    /// Returns a parameter as text. Numbers and booleans are written as the real server would write them.
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
        // Perl writes a whole number without a decimal point.
        Value::Number(number) => Some(match number.as_f64() {
            Some(float) if number.is_f64() => float.to_string(),
            _ => number.to_string(),
        }),
        Value::Bool(flag) => Some(if *flag { "1" } else { "0" }.to_owned()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The type of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Any text, with at most this many characters if there is a limit.
    Text(Option<usize>),
    /// An integer within bounds.
    Integer(Option<i64>, Option<i64>),
    /// A number up to a bound.
    Number(Option<f64>),
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
    /// Whether the parameter is required.
    pub required: bool,
    /// Its named format, such as `dns-name`.
    pub format: Option<String>,
}

/// The parameters of a call. A name that ends in `[n]` stands for `name0`, `name1` ….
pub type Rules = BTreeMap<String, Rule>;

/// Checks parameters against the rules of a call, and reports every invalid one. Values are normalized:
/// booleans become `0` or `1`, and a scalar for an array parameter becomes an array of one.
pub fn check(params: &mut Params, rules: &Rules) -> Result<(), Refusal> {
    let mut errors = BTreeMap::new();
    for (name, value) in &mut params.0 {
        let Some(rule) = rule_for(rules, name) else {
            let text =
                "property is not defined in schema and the schema does not allow additional properties";
            let name = if name.is_empty() { "_root" } else { name };
            errors.insert(name.to_owned(), text.to_owned());
            continue;
        };
        if value.is_null() {
            return Err(Refusal::failed(format!("unable to parse value of '{name}' - got undefined value")));
        }
        if let Err(text) = check_value(name, value, rule) {
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

fn check_value(name: &str, value: &mut Value, rule: &Rule) -> Result<(), String> {
    if rule.kind == Kind::Array {
        if value == "" {
            return Err("type check ('array') failed".to_owned());
        }
        if !value.is_array() {
            *value = Value::Array(vec![value.take()]);
        }
        return Ok(());
    }
    // `*-list` formats accept arrays, too.
    if value.is_array() && rule.format.as_deref().is_some_and(|format| format.ends_with("-list")) {
        return Ok(());
    }
    let Some(text) = scalar(value) else {
        let found = if value.is_array() { "ARRAY" } else { "HASH" };
        return Err(format!("type check ('{}') failed - got {found}", kind_name(&rule.kind)));
    };
    if matches!(rule.kind, Kind::Integer(..)) && text.parse::<i64>().is_err() {
        return Err(format!("type check ('integer') failed - got '{text}'"));
    }
    if let Some(format) = &rule.format {
        formats::check(name, &text, format)?;
    }
    match &rule.kind {
        Kind::Boolean if text != "0" && text != "1" => {
            Err(format!("type check ('boolean') failed - got '{text}'"))
        }
        Kind::Integer(low, high) => check_integer(&text, *low, *high),
        Kind::Number(high) => match text.parse::<f64>() {
            Err(_) => Err(format!("type check ('number') failed - got '{text}'")),
            Ok(number) if high.is_some_and(|high| number > high) => {
                Err(format!("value must have a maximum value of {}", high.unwrap_or_default()))
            }
            Ok(_) => Ok(()),
        },
        Kind::Text(Some(most)) if text.chars().count() > *most => {
            Err(format!("value may only be {most} characters long"))
        }
        Kind::OneOf(words) if !words.contains(&text) => {
            Err(format!("value '{text}' does not have a value in the enumeration '{}'", words.join(", ")))
        }
        _ => Ok(()),
    }
}

fn kind_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Text(_) | Kind::OneOf(_) => "string",
        Kind::Integer(..) => "integer",
        Kind::Number(_) => "number",
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
}
