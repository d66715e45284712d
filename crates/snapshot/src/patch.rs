//! A patch from one JSON value to another. The patch is itself a JSON value.
//!
//! * `[]` removes the field. `[VALUE]` replaces the value. `[AT, CUT, [VALUE, …]]` replaces CUT items of a
//!   list, starting at index AT, with these values.
//! * `{"KEY": PATCH, …}` changes these fields of an object, or the items of a list at these indices.

use serde_json::{Map, Value};

/// The patch from `before` to `after`; `None` if they are equal.
pub(super) fn between(before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let patch = match (before, after) {
        (Value::Object(before), Value::Object(after)) => fields(before, after),
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let pairs = before.iter().zip(after).enumerate();
            let changed = pairs.filter_map(|(at, (b, a))| Some((at.to_string(), between(b, a)?)));
            Value::Object(changed.collect())
        }
        (Value::Array(before), Value::Array(after)) => splice(before, after),
        _ => whole(after),
    };
    Some(patch)
}

/// Applies a patch to a value.
///
/// # Errors
/// Returns an error if the patch does not fit this value.
pub(super) fn apply(to: &mut Value, patch: Value) -> Result<(), &'static str> {
    match (patch, to) {
        (Value::Array(mut words), to) => match words.len() {
            1 => *to = words.pop().unwrap_or_default(),
            3 => spliced(to, &words)?,
            _ => return Err("the change is neither a new value nor a list change"),
        },
        (Value::Object(changes), Value::Object(fields)) => {
            for (key, change) in changes {
                if change.as_array().is_some_and(Vec::is_empty) {
                    fields.remove(&key).ok_or("the change drops a field that does not exist")?;
                } else {
                    apply(fields.entry(key).or_insert(Value::Null), change)?;
                }
            }
        }
        (Value::Object(changes), Value::Array(items)) => {
            for (at, change) in changes {
                let at: usize = at
                    .parse()
                    .map_err(|_| "the change refers to a list item by something other than an index")?;
                apply(
                    items.get_mut(at).ok_or("the change affects a list item that does not exist")?,
                    change,
                )?;
            }
        }
        _ => return Err("the change affects fields, but the value has none"),
    }
    Ok(())
}

fn whole(value: &Value) -> Value {
    Value::Array(vec![value.clone()])
}

fn fields(before: &Map<String, Value>, after: &Map<String, Value>) -> Value {
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let mut patch: Map<String, Value> = gone.map(|key| (key.clone(), Value::Array(Vec::new()))).collect();
    for (key, value) in after {
        let change = before.get(key).map_or_else(|| Some(whole(value)), |before| between(before, value));
        patch.extend(change.map(|change| (key.clone(), change)));
    }
    Value::Object(patch)
}

fn splice(before: &[Value], after: &[Value]) -> Value {
    let same = |one: &(&Value, &Value)| one.0 == one.1;
    let first = before.iter().zip(after).take_while(same).count();
    let rest = (&before[first..], &after[first..]);
    let last = rest.0.iter().rev().zip(rest.1.iter().rev()).take_while(same).count();
    let put = &rest.1[..rest.1.len() - last];
    Value::Array(vec![first.into(), (rest.0.len() - last).into(), put.into()])
}

fn spliced(to: &mut Value, words: &[Value]) -> Result<(), &'static str> {
    let number = |at: usize| words.get(at).and_then(Value::as_u64).and_then(|one| usize::try_from(one).ok());
    let (Some(first), Some(cut), Some(put)) = (number(0), number(1), words.get(2).and_then(Value::as_array))
    else {
        return Err("the change does not state which list items it affects");
    };
    let items = to.as_array_mut().ok_or("the change affects list items, but the value is not a list")?;
    let end = first.checked_add(cut).filter(|end| *end <= items.len());
    items.splice(first..end.ok_or("the change affects list items that do not exist")?, put.iter().cloned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), (0..3).prop_map(Value::from), "[ab]".prop_map(Value::from)];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_patch_makes_the_one_of_the_other(before in value(), after in value()) {
            let mut made = before.clone();
            if let Some(patch) = between(&before, &after) {
                apply(&mut made, patch).unwrap();
            }
            prop_assert_eq!(made, after);
        }
    }

    #[test]
    fn only_what_changes_is_said() {
        let before = json!({"a": 1, "b": {"c": [1, 2, 3], "d": 4}, "e": null});
        let after = json!({"a": 1, "b": {"c": [1, 7, 2, 3], "d": 5}});
        let patch = between(&before, &after).unwrap();
        assert_eq!(patch, json!({"b": {"c": [1, 0, [7]], "d": [5]}, "e": []}));
    }

    #[test]
    fn what_is_no_patch_of_a_value_is_refused() {
        for (of, patch) in [
            (json!({"a": 1}), json!({"b": []})),
            (json!({"a": 1}), json!({"a": {"b": [1]}})),
            (json!([1]), json!({"1": [2]})),
            (json!([1]), json!({"x": [2]})),
            (json!([1]), json!([1, 1, []])),
            (json!([1]), json!([0, "x", []])),
            (json!(1), json!([0, 0, [1]])),
            (json!(1), json!([])),
            (json!(1), json!(2)),
        ] {
            assert!(apply(&mut of.clone(), patch.clone()).is_err(), "{of} {patch}");
        }
    }
}
