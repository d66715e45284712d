//! Values of expressions, how they are compared, and the names of their types.

use std::cell::Cell;
use std::cmp::Ordering;
use std::sync::Arc;

use super::Fault;
use model::amount::Amount;
use model::semver::Version;

/// The maximum number of comparisons for deciding whether two map keys are equal. It can be low, because keys
/// are short.
const FOR_A_KEY: usize = 100;

/// A value.
#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    List(Arc<[Self]>),
    Map(Arc<Map>),
    /// A quantity.
    Amount(Amount),
    /// A semantic version.
    Version(Arc<Version>),
    Optional(Option<Arc<Self>>),
    /// The name of a type, as a value.
    Type(&'static str),
}

/// A map. If `default` is set, it is the value of every missing key. In the map of domains, the default is an
/// empty map.
#[derive(Clone, Debug, Default)]
pub struct Map {
    pub(super) entries: Vec<(Value, Value)>,
    pub(super) default: Option<Value>,
}

impl Map {
    /// The value of the entry with this key, without regard to the default.
    pub(super) fn own(&self, key: &Value) -> Option<&Value> {
        let is_it = |one: &Value| one.equals(key, &Cell::new(FOR_A_KEY)) == Ok(true);
        self.entries.iter().find(|(one, _)| is_it(one)).map(|(_, value)| value)
    }

    fn equals(&self, other: &Self, left: &Cell<usize>) -> Result<bool, Fault> {
        if self.entries.len() != other.entries.len() {
            return Ok(false);
        }
        for (key, value) in &self.entries {
            take(left, other.entries.len())?;
            let Some(there) = other.own(key) else { return Ok(false) };
            if !value.is_same(there, left)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The value of the entry with this key, or else the default.
    pub(super) fn find(&self, key: &Value) -> Option<&Value> {
        self.own(key).or(self.default.as_ref())
    }
}

/// Deducts `comparisons` from the number of comparisons that may still be made (`left`).
fn take(left: &Cell<usize>, comparisons: usize) -> Result<(), Fault> {
    let after = left.get().checked_sub(comparisons);
    left.set(after.unwrap_or(0));
    after.map(|_| ()).ok_or(Fault::TooCostly)
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Arc::from(text))
    }
}

impl Value {
    /// A list.
    pub(super) fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self::List(items.into_iter().collect())
    }

    /// A map without a default.
    pub(super) fn map(entries: Vec<(Self, Self)>) -> Self {
        Self::Map(Arc::new(Map { entries, default: None }))
    }

    /// The name of the value's type in CEL.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Amount(_) => "kubernetes.Quantity",
            Self::Version(_) => "kubernetes.Semver",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
        }
    }

    pub(super) fn bool(&self) -> Result<bool, Fault> {
        if let Self::Bool(value) = self { Ok(*value) } else { Err(Fault::no_overload()) }
    }

    pub(super) fn int(&self) -> Result<i64, Fault> {
        if let Self::Int(value) = self { Ok(*value) } else { Err(Fault::no_overload()) }
    }

    pub(super) fn text(&self) -> Result<&str, Fault> {
        if let Self::Text(value) = self { Ok(value) } else { Err(Fault::no_overload()) }
    }

    pub(super) fn items(&self) -> Result<&[Self], Fault> {
        if let Self::List(value) = self { Ok(value) } else { Err(Fault::no_overload()) }
    }

    /// The operator `==`. Values of different types are not equal, except for numbers. A quantity or a
    /// version on the left can only be compared with its own type and with null. At most `left` comparisons
    /// are made, because a short expression can create lists that take a very long time to compare: lists can
    /// share their parts.
    pub(super) fn equals(&self, other: &Self, left: &Cell<usize>) -> Result<bool, Fault> {
        take(left, 1)?;
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Null, _) | (_, Self::Null) => false,
            (Self::Amount(a), Self::Amount(b)) => a == b,
            (Self::Version(a), Self::Version(b)) => a.cmp(b) == Ordering::Equal,
            (Self::Amount(_) | Self::Version(_), _) => return Err(Fault::no_overload()),
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => {
                take(left, a.len().min(b.len()) / 100)?;
                a == b
            }
            (Self::Bytes(a), Self::Bytes(b)) => {
                take(left, a.len().min(b.len()) / 100)?;
                a == b
            }
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::List(a), Self::List(b)) if a.len() != b.len() => false,
            (Self::List(a), Self::List(b)) => {
                for (a, b) in a.iter().zip(b.iter()) {
                    if !a.is_same(b, left)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Map(a), Self::Map(b)) => a.equals(b, left)?,
            (Self::Optional(a), Self::Optional(b)) => match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => a.equals(b, left)?,
                _ => false,
            },
            _ => compare_numbers(self, other) == Some(Ordering::Equal),
        })
    }

    /// Whether the values are equal. Values that cannot be compared are not equal.
    pub(super) fn is_same(&self, other: &Self, left: &Cell<usize>) -> Result<bool, Fault> {
        match self.equals(other, left) {
            Err(Fault::TooCostly) => Err(Fault::TooCostly),
            other => Ok(other == Ok(true)),
        }
    }

    /// Compares the values for `<`, `<=`, `>` and `>=`.
    pub(super) fn compare(&self, other: &Self) -> Result<Ordering, Fault> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Ok(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) => Ok(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Ok(a.cmp(b)),
            _ => match (self.is_number(), other.is_number()) {
                (true, true) => {
                    compare_numbers(self, other).ok_or_else(|| Fault::error("NaN values cannot be ordered"))
                }
                _ => Err(Fault::no_overload()),
            },
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Int(_) | Self::Uint(_) | Self::Double(_))
    }
}

/// Compares two numbers, which may be of different types.
#[expect(
    clippy::cast_precision_loss,
    reason = "if one of the numbers is a double, the other is converted to a double"
)]
fn compare_numbers(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Int(a), Value::Double(b)) => (*a as f64).partial_cmp(b),
        (Value::Double(a), Value::Int(b)) => a.partial_cmp(&(*b as f64)),
        (Value::Uint(a), Value::Double(b)) => (*a as f64).partial_cmp(b),
        (Value::Double(a), Value::Uint(b)) => a.partial_cmp(&(*b as f64)),
        _ => None,
    }
}
