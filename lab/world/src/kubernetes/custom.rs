//! Custom resources. They are served once their CustomResourceDefinition exists, and are validated against
//! its schema.
//!
//! The supported parts of a structural schema are types, properties, pruning, defaults, required fields,
//! minima, lengths, enums, and validation rules (`x-kubernetes-validations`) that use only `has`, `!`, `&&`
//! and `||`. Rules that restrict changes (`oldSelf`) are ignored.

use serde_json::{Value, json};

use super::{
    kinds::{CUSTOM_RESOURCE, Kind, POD_GROUP},
    object::{list, text},
    quantity,
    refusal::{Cause, Refusal},
    state::State,
};

impl State {
    /// Whether the API server serves this kind.
    pub(super) fn serves(&self, kind: &Kind) -> bool {
        if *kind == POD_GROUP {
            return self.spec.pod_groups;
        }
        !kind.is_custom() || self.schema(kind).is_some()
    }

    /// The schema of a custom kind, if its version is served.
    fn schema(&self, kind: &Kind) -> Option<Value> {
        let name = format!("{}.{}", kind.plural, kind.group);
        let definition = self.store.get(&CUSTOM_RESOURCE, "", &name)?;
        let served = |one: &&Value| one["name"] == kind.version && one["served"] == true;
        let version = list(&definition, "/spec/versions").iter().find(served)?;
        Some(version["schema"]["openAPIV3Schema"].clone())
    }

    /// Fills in the defaults of a custom object, drops fields that its schema does not have, and validates
    /// it.
    ///
    /// # Errors
    /// Returns 422 with the API server's message if the object does not match the schema.
    pub(super) fn keep_to_schema(&self, kind: &Kind, new: &mut Value) -> Result<(), Refusal> {
        let Some(schema) = self.schema(kind) else { return Ok(()) };
        let mut causes = Vec::new();
        for part in ["spec", "status"] {
            let of = &schema["properties"][part];
            if !new[part].is_null() {
                settle(of, &mut new[part], part, &mut causes);
            } else if list(&schema, "/required").iter().any(|name| name == part) {
                causes.push(Cause::new(part, "FieldValueRequired", "Required value"));
            }
        }
        if let Some(fields) = new.as_object_mut() {
            let known = |name: &str| {
                matches!(name, "apiVersion" | "kind" | "metadata") || !schema["properties"][name].is_null()
            };
            fields.retain(|name, value| known(name) && !value.is_null());
        }
        let name = text(new, "/metadata/name").to_owned();
        if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid(kind, &name, &causes)) }
    }
}

fn settle(schema: &Value, value: &mut Value, path: &str, causes: &mut Vec<Cause>) {
    let invalid = |value: &Value, rule: &str| {
        Cause::new(path, "FieldValueInvalid", format!("Invalid value: {value}: {path} in body {rule}"))
    };
    if schema["x-kubernetes-int-or-string"] == true {
        let text = value.as_str().map_or_else(|| value.to_string(), String::from);
        if quantity::milli(&text).is_none() {
            causes.push(invalid(value, &format!("should match '{}'", text_of(schema, "pattern"))));
        }
        return;
    }
    let kind = text_of(schema, "type");
    let fits = match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        _ => true,
    };
    if !fits {
        let found = if value.is_string() { "string" } else { "another type" };
        let message =
            format!("Invalid value: \"{found}\": {path} in body must be of type {kind}: \"{found}\"");
        causes.push(Cause::new(path, "FieldValueTypeInvalid", message));
        return;
    }
    match kind {
        "object" => settle_fields(schema, value, path, causes),
        "array" => {
            for (at, one) in value.as_array_mut().into_iter().flatten().enumerate() {
                settle(&schema["items"], one, &format!("{path}[{at}]"), causes);
            }
        }
        "integer" => {
            if let (Some(least), Some(number)) = (schema["minimum"].as_i64(), value.as_i64())
                && number < least
            {
                causes.push(invalid(value, &format!("should be greater than or equal to {least}")));
            }
        }
        "string" => {
            let length = value.as_str().map_or(0, |text| text.chars().count());
            let bound = |name: &str| schema[name].as_u64().and_then(|bound| usize::try_from(bound).ok());
            if bound("minLength").is_some_and(|least| length < least) {
                causes
                    .push(invalid(value, &format!("should be at least {} chars long", schema["minLength"])));
            }
            if bound("maxLength").is_some_and(|most| length > most) {
                causes.push(invalid(value, &format!("should be at most {} chars long", schema["maxLength"])));
            }
            let listed = list(schema, "/enum");
            if !listed.is_empty() && !listed.contains(value) {
                let all: Vec<String> = listed.iter().map(ToString::to_string).collect();
                let message = format!("Unsupported value: {value}: supported values: {}", all.join(", "));
                causes.push(Cause::new(path, "FieldValueNotSupported", message));
            }
        }
        _ => {}
    }
    let all = list(schema, "/x-kubernetes-validations").iter();
    for rule in all.filter(|rule| !text_of(rule, "rule").contains("oldSelf")) {
        if !Rule::holds(text_of(rule, "rule"), value) {
            let message = format!("Invalid value: {}", text_of(rule, "message"));
            causes.push(Cause::new(path, "FieldValueInvalid", message));
        }
    }
}

fn settle_fields(schema: &Value, value: &mut Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(fields) = value.as_object_mut() else { return };
    fields.retain(|_, value| !value.is_null());
    let properties = schema["properties"].as_object();
    for (name, of) in properties.into_iter().flatten() {
        if !of["default"].is_null() && !fields.contains_key(name) {
            fields.insert(name.clone(), of["default"].clone());
        }
    }
    for name in list(schema, "/required").iter().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            causes.push(Cause::new(format!("{path}.{name}"), "FieldValueRequired", "Required value"));
        }
    }
    let more = &schema["additionalProperties"];
    let known = |name: &String| properties.is_some_and(|all| all.contains_key(name)) || !more.is_null();
    fields.retain(|name, _| known(name));
    for (name, value) in fields {
        let of = properties.and_then(|all| all.get(name)).unwrap_or(more);
        settle(of, value, &format!("{path}.{name}"), causes);
    }
}

fn text_of<'a>(schema: &'a Value, field: &str) -> &'a str {
    schema[field].as_str().unwrap_or("")
}

/// A validation rule that is being evaluated.
struct Rule<'a> {
    rest: &'a str,
    of: &'a Value,
}

impl Rule<'_> {
    fn holds(rule: &str, of: &Value) -> bool {
        Rule { rest: rule.trim(), of }.any()
    }

    fn takes(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn any(&mut self) -> bool {
        let mut is = self.all();
        while self.takes("||") {
            is |= self.all();
        }
        is
    }

    fn all(&mut self) -> bool {
        let mut is = self.one();
        while self.takes("&&") {
            is &= self.one();
        }
        is
    }

    fn one(&mut self) -> bool {
        if self.takes("!") {
            return !self.one();
        }
        if self.takes("has(self.") {
            let (name, rest) = self.rest.split_once(')').unwrap_or((self.rest, ""));
            self.rest = rest;
            return !self.of[name].is_null();
        }
        let inner = self.takes("(") && self.any();
        self.takes(")");
        inner
    }
}

/// The status of a CustomResourceDefinition that is served.
pub(super) fn established() -> Value {
    json!({ "conditions": [
        { "type": "NamesAccepted", "status": "True", "reason": "NoConflicts" },
        { "type": "Established", "status": "True", "reason": "InitialNamesAccepted" },
    ]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let spec = json!({ "a": 1, "b": 2 });
        for (rule, expected) in [
            ("has(self.a)", true),
            ("!has(self.a) || has(self.b)", true),
            ("!has(self.a) || has(self.c) || has(self.d)", false),
            ("!(has(self.a) && has(self.b))", false),
            ("!(has(self.a) && has(self.c))", true),
        ] {
            assert_eq!(Rule::holds(rule, &spec), expected, "{rule}");
        }
    }
}
