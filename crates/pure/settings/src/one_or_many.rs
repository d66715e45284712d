//! A setting that is one value or a list of values: `9100`, `"9100-9149"` or `["9100-9149", 9200]`. Each
//! value keeps its place in the file.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use toml::Spanned;

/// A string, a whole number or a boolean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    /// A string, in quotes.
    Text(String),
    /// A whole number, without quotes.
    Number(i64),
    /// `true` or `false`.
    Truth(bool),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
            Self::Truth(truth) => truth.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seen;
        impl Visitor<'_> for Seen {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a whole number")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar::Text(text.to_owned()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar::Number(number))
            }

            fn visit_bool<E: Error>(self, truth: bool) -> Result<Scalar, E> {
                Ok(Scalar::Truth(truth))
            }
        }
        deserializer.deserialize_any(Seen)
    }
}

/// One value or a list of values.
#[derive(Debug)]
pub(super) enum Listed {
    /// A single value, outside a list.
    One(Scalar),
    /// The values of a list.
    Many(Vec<Spanned<Scalar>>),
}

impl Listed {
    /// Returns the values in order, each with its place in the file.
    pub(super) fn items(written: &Spanned<Self>) -> Vec<(String, Range<usize>)> {
        match written.get_ref() {
            Self::One(one) => vec![(one.to_string(), written.span())],
            Self::Many(all) => all.iter().map(|one| (one.get_ref().to_string(), one.span())).collect(),
        }
    }
}

impl<'de> Deserialize<'de> for Listed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seen;
        impl<'de> Visitor<'de> for Seen {
            type Value = Listed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a whole number or a list of them")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Listed, E> {
                Ok(Listed::One(Scalar::Text(text.to_owned())))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Listed, E> {
                Ok(Listed::One(Scalar::Number(number)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Listed, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = list.next_element()? {
                    all.push(one);
                }
                Ok(Listed::Many(all))
            }
        }
        deserializer.deserialize_any(Seen)
    }
}
