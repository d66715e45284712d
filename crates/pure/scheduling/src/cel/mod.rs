//! Device selectors: expressions of the Common Expression Language (CEL), in the environment that
//! `k8s.io/dynamic-resource-allocation/cel` defines.
//!
//! The `cel` crate only parses the expressions. This module evaluates them, because the crate's own
//! interpreter has no limit on cost, no maps with a default (such as `device.attributes`), and no Kubernetes
//! quantities or versions.

mod calls;
mod convert;
mod device;
mod evaluate;
mod lists;
mod strings;
mod value;

use std::sync::Arc;

use cel::IdedExpr;
use cel::parser::Parser;
use thiserror::Error;

pub(super) use device::value_of;
pub(super) use value::Value;

/// The maximum length of an expression that the API server accepts, in bytes.
const LONGEST: usize = 10 * 1024;
/// The maximum depth of nested brackets in an expression.
const DEEPEST: usize = 40;
/// The maximum number of chained operators. Each operator is a level of the parsed expression.
const LONGEST_CHAIN: usize = 250;

/// The reason why an expression could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The expression also fails in kube-scheduler.
    #[error("{0}")]
    Error(Arc<str>),
    /// The expression uses something that this module does not support.
    #[error("{0} is not supported")]
    Unsupported(Arc<str>),
    /// The evaluation takes too many steps.
    #[error("the evaluation takes too many steps")]
    TooCostly,
}

impl Fault {
    fn error(text: impl AsRef<str>) -> Self {
        Self::Error(Arc::from(text.as_ref()))
    }

    fn unsupported(what: impl AsRef<str>) -> Self {
        Self::Unsupported(Arc::from(what.as_ref()))
    }

    fn no_overload() -> Self {
        Self::error("no such overload")
    }
}

/// A parsed expression.
#[derive(Debug)]
pub(super) struct Program(IdedExpr);

impl Program {
    /// Parses an expression.
    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        if text.len() > LONGEST {
            return Err(Fault::error("the expression is too long"));
        }
        if depth(text) > DEEPEST {
            return Err(Fault::unsupported("an expression with too many levels of brackets"));
        }
        if chain(text) > LONGEST_CHAIN {
            return Err(Fault::unsupported("an expression with too many operators in a row"));
        }
        match Parser::new().enable_optional_syntax(true).max_recursion_depth(64).parse(text) {
            Ok(parsed) => Ok(Self(parsed)),
            Err(errors) => {
                let first = errors.errors.first().map(|error| error.msg.as_str());
                Err(Fault::error(format!("syntax error: {}", first.unwrap_or("unknown"))))
            }
        }
    }

    /// Whether the expression selects a device, given as the value from [`value_of`].
    pub(super) fn selects(&self, device: &Value) -> Result<bool, Fault> {
        match evaluate::run(&self.0, device)? {
            Value::Bool(selected) => Ok(selected),
            other => Err(Fault::error(format!("the value is of type {}, not bool", other.type_name()))),
        }
    }
}

/// The maximum nesting depth of brackets. Brackets in string literals count too.
fn depth(text: &str) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for letter in text.bytes() {
        match letter {
            b'(' | b'[' | b'{' => now += 1,
            b')' | b']' | b'}' => now = now.saturating_sub(1),
            _ => {}
        }
        most = most.max(now);
    }
    most
}

/// The length of the longest chain of operators and field selections. A part in brackets continues the chain
/// outside the brackets, and operators in string literals count too. `&&`, `||` and commas start a new chain,
/// because the parser does not nest the parts that they join.
fn chain(text: &str) -> usize {
    let (mut open, mut sum, mut most) = (vec![0_usize], 0_usize, 0);
    for letter in text.bytes() {
        let count = match letter {
            b')' | b']' | b'}' => {
                if open.len() > 1 {
                    sum -= open.pop().unwrap_or(0);
                }
                0
            }
            b'&' | b'|' | b',' => {
                sum -= open.last_mut().map_or(0, std::mem::take);
                0
            }
            b'.' | b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' | b'[' | b'(' | b'{'
            | b'?' => 1,
            _ => 0,
        };
        if let Some(last) = open.last_mut() {
            *last += count;
            sum += count;
        }
        if matches!(letter, b'(' | b'[' | b'{') {
            open.push(0);
        }
        most = most.max(sum);
    }
    most
}

#[cfg(test)]
mod tests;
