//! Reads Proxmox VE's answers leniently. Perl scalars arrive as numbers or strings, and booleans as 0, 1,
//! "0", "1", true or false.

use http::Response;
use serde_json::Value;

use super::error::Error;

/// Returns the `data` of an answer, or its error.
pub(super) fn read(call: &str, response: &Response<bytes::Bytes>) -> Result<Value, Error> {
    let status = response.status().as_u16();
    let body: Value = serde_json::from_slice(response.body()).unwrap_or(Value::Null);
    if status == 200 {
        return match body {
            Value::Object(mut object) => Ok(object.remove("data").unwrap_or(Value::Null)),
            _ => Err(Error::malformed(call, "no JSON object")),
        };
    }
    Err(Error::new(call, status, text(response, &body)))
}

/// The text of an error: the message (since Proxmox VE 8.4) or, if there is none, the HTTP reason phrase. The
/// rejected parameters follow.
fn text(response: &Response<bytes::Bytes>, body: &Value) -> String {
    let reason = response.extensions().get::<hyper::ext::ReasonPhrase>();
    let reason = reason.map(|reason| String::from_utf8_lossy(reason.as_bytes()).into_owned());
    let canonical = || response.status().canonical_reason().unwrap_or("no reason given").to_owned();
    let message = body.get("message").and_then(Value::as_str).map(ToOwned::to_owned);
    let mut text = message.or(reason).unwrap_or_else(canonical).trim().replace('\n', " ");
    for (name, wrong) in body.get("errors").and_then(Value::as_object).into_iter().flatten() {
        text.extend([" ", name, ": ", wrong.as_str().unwrap_or_default().trim()]);
    }
    text
}

/// A field as text.
pub(super) fn text_of(value: &Value, field: &str) -> Option<String> {
    match value.get(field)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(set) => Some(u8::from(*set).to_string()),
        _ => None,
    }
}

/// Returns a field as an integer. The fraction of a JSON number is discarded.
pub(super) fn number_of(value: &Value, field: &str) -> Option<i64> {
    match value.get(field)? {
        Value::Number(number) => number.as_i64().or_else(|| {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the values are sizes and counts, and `as` saturates"
            )]
            number.as_f64().map(|number| number as i64)
        }),
        Value::String(text) => text.trim().parse().ok(),
        Value::Bool(set) => Some(i64::from(*set)),
        _ => None,
    }
}

/// Returns a field as a boolean. A missing field is `false`.
pub(super) fn flag_of(value: &Value, field: &str) -> bool {
    number_of(value, field).is_some_and(|number| number != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_read_in_any_of_their_forms() {
        let value = json!({"a": 1, "b": "1", "c": true, "d": 0, "e": "0", "f": 2.9, "g": null, "h": "9101"});
        let flags = ["a", "b", "c", "d", "e", "g", "z"].map(|field| flag_of(&value, field));
        assert_eq!(flags, [true, true, true, false, false, false, false]);
        assert_eq!(number_of(&value, "f"), Some(2));
        assert_eq!(number_of(&value, "h"), Some(9101));
        assert_eq!(text_of(&value, "a").as_deref(), Some("1"));
    }
}
