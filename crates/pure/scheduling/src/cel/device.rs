//! The variable `device`, as expressions see it.

use std::sync::Arc;

use super::Fault;
use super::value::{Map, Value};
use model::devices::{Attribute, Device};
use model::semver::Version;

/// A device of this driver, as expressions see it. If an attribute of the device cannot be read, every
/// expression fails for the device.
pub fn value_of(driver: &str, device: &Device) -> Result<Value, Fault> {
    let mut attributes = Domains::default();
    for (name, attribute) in &device.attributes {
        let value =
            attribute_value(attribute).map_err(|why| Fault::error(format!("attribute {name}: {why}")))?;
        attributes.add(driver, name, value);
    }
    let mut capacity = Domains::default();
    for (name, one) in &device.capacity {
        capacity.add(driver, name, Value::Amount(one.value));
    }
    Ok(Value::map(vec![
        ("driver".into(), driver.into()),
        ("allowMultipleAllocations".into(), Value::Bool(device.shared)),
        ("attributes".into(), attributes.into_value()),
        ("capacity".into(), capacity.into_value()),
    ]))
}

/// The attributes or capacities of a device, by domain and name.
#[derive(Default)]
struct Domains(Vec<(String, Vec<(Value, Value)>)>);

impl Domains {
    fn add(&mut self, driver: &str, name: &str, value: Value) {
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        let at = self.0.iter().position(|(known, _)| known == domain).unwrap_or_else(|| {
            self.0.push((domain.to_owned(), Vec::new()));
            self.0.len() - 1
        });
        self.0[at].1.push((id.into(), value));
    }

    fn into_value(self) -> Value {
        let entries = self.0.into_iter().map(|(domain, values)| (domain.as_str().into(), Value::map(values)));
        let default = Some(Value::map(Vec::new()));
        Value::Map(Arc::new(Map { entries: entries.collect(), default }))
    }
}

fn attribute_value(attribute: &Attribute) -> Result<Value, &'static str> {
    let version = |text: &String| {
        let read = Version::read(text).ok_or("it is not a semantic version")?;
        Ok::<_, &'static str>(Value::Version(Arc::new(read)))
    };
    Ok(match attribute {
        Attribute::String(text) => text.as_str().into(),
        Attribute::Int(number) => Value::Int(*number),
        Attribute::Bool(value) => Value::Bool(*value),
        Attribute::Version(text) => version(text)?,
        Attribute::Strings(all) => Value::list(all.iter().map(|text| text.as_str().into())),
        Attribute::Ints(all) => Value::list(all.iter().map(|number| Value::Int(*number))),
        Attribute::Bools(all) => Value::list(all.iter().map(|value| Value::Bool(*value))),
        Attribute::Versions(all) => Value::list(all.iter().map(version).collect::<Result<Vec<_>, _>>()?),
        Attribute::Unknown => return Err("its type is unknown"),
    })
}
