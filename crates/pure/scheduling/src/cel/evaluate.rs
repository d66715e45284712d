//! Evaluation of expressions, with a limit on the steps.

use std::cell::Cell;
use std::cmp::Ordering;
use std::sync::Arc;

use cel::IdedExpr;
use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr, operators};

use super::value::{Map, Value};
use super::{Fault, calls, convert};

/// The maximum cost of an expression (`CELSelectorExpressionMaxCost`).
const MOST_STEPS: u64 = 1_000_000;

/// The value of an expression for a device.
pub(super) fn run(expression: &IdedExpr, device: &Value) -> Result<Value, Fault> {
    let mut run = Run { steps: 0, variables: vec![("device", Ok(device.clone()))] };
    run.value(expression)
}

/// An evaluation in progress.
pub(super) struct Run<'e> {
    steps: u64,
    /// The variables, the innermost last. A variable may hold a fault, which only matters if the result
    /// depends on the variable.
    variables: Vec<(&'e str, Result<Value, Fault>)>,
}

impl<'e> Run<'e> {
    /// Adds this many steps to the number of used steps. Fails if the limit is exceeded.
    pub(super) fn pay(&mut self, steps: usize) -> Result<(), Fault> {
        self.steps = self.steps.saturating_add(u64::try_from(steps).unwrap_or(u64::MAX));
        if self.steps > MOST_STEPS { Err(Fault::TooCostly) } else { Ok(()) }
    }

    /// Runs a comparison that may use all remaining steps, and deducts the steps that the comparison used.
    fn compare<T>(&mut self, compare: impl FnOnce(&Cell<usize>) -> Result<T, Fault>) -> Result<T, Fault> {
        let left = usize::try_from(MOST_STEPS.saturating_sub(self.steps)).unwrap_or(usize::MAX);
        let cell = Cell::new(left);
        let found = compare(&cell);
        self.pay(left - cell.get())?;
        found
    }

    /// The operator `==`.
    pub(super) fn equal(&mut self, a: &Value, b: &Value) -> Result<bool, Fault> {
        self.compare(|left| a.equals(b, left))
    }

    /// The position of the first item that equals `one`. An item that cannot be compared with `one` is not
    /// equal.
    pub(super) fn find<'v>(
        &mut self,
        items: impl Iterator<Item = &'v Value>,
        one: &Value,
    ) -> Result<Option<usize>, Fault> {
        self.compare(|left| {
            for (at, item) in items.enumerate() {
                if item.is_same(one, left)? {
                    return Ok(Some(at));
                }
            }
            Ok(None)
        })
    }

    /// Evaluates a part of the expression.
    pub(super) fn value(&mut self, part: &'e IdedExpr) -> Result<Value, Fault> {
        self.pay(1)?;
        match &part.expr {
            Expr::Literal(literal) => Ok(literal_value(literal)),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(all) => self.comprehension(all),
            Expr::List(list) => {
                let mut items = Vec::with_capacity(list.elements.len());
                for (at, element) in list.elements.iter().enumerate() {
                    match self.value(element)? {
                        Value::Optional(value) if list.optional_indices.contains(&at) => {
                            items.extend(value.map(|value| value.as_ref().clone()));
                        }
                        value => items.push(value),
                    }
                }
                Ok(Value::list(items))
            }
            Expr::Map(map) => {
                let mut entries = Vec::with_capacity(map.entries.len());
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    let key = self.value(&entry.key)?;
                    match self.value(&entry.value)? {
                        Value::Optional(value) if entry.optional => {
                            entries.extend(value.map(|value| (key, value.as_ref().clone())));
                        }
                        value => entries.push((key, value)),
                    }
                }
                Ok(Value::map(entries))
            }
            Expr::Struct(made) => Err(Fault::unsupported(format!("the type {}", made.type_name))),
            Expr::Unspecified => Err(Fault::error("a part of the expression is missing")),
        }
    }

    /// Evaluates a part of the expression with the variable `name` set to `value`.
    pub(super) fn with(
        &mut self,
        name: &'e str,
        value: Result<Value, Fault>,
        part: &'e IdedExpr,
    ) -> Result<Value, Fault> {
        self.variables.push((name, value));
        let found = self.value(part);
        self.variables.pop();
        found
    }

    fn variable(&self, name: &str) -> Result<Value, Fault> {
        let name = name.strip_prefix('.').unwrap_or(name);
        match self.variables.iter().rev().find(|(known, _)| *known == name) {
            Some((_, value)) => value.clone(),
            None => convert::type_named(name)
                .map(Value::Type)
                .ok_or_else(|| Fault::error(format!("undeclared reference to '{name}'"))),
        }
    }

    fn select(&mut self, select: &'e SelectExpr) -> Result<Value, Fault> {
        let operand = self.value(&select.operand)?;
        let key = Value::from(select.field.as_str());
        calls::pay_for_keys(self, &operand)?;
        if select.test {
            return match &operand {
                Value::Map(map) => Ok(Value::Bool(map.find(&key).is_some())),
                Value::Optional(value) => Ok(Value::Bool(
                    matches!(value.as_deref(), Some(Value::Map(map)) if map.find(&key).is_some()),
                )),
                _ => Err(Fault::no_overload()),
            };
        }
        look_up(&operand, &key)
    }

    fn call(&mut self, call: &'e CallExpr) -> Result<Value, Fault> {
        let arguments = call.args.as_slice();
        if call.target.is_none() {
            match (call.func_name.as_str(), arguments) {
                (operators::LOGICAL_AND, [a, b]) => return self.logical(a, b, false),
                (operators::LOGICAL_OR, [a, b]) => return self.logical(a, b, true),
                (operators::CONDITIONAL, [condition, yes, no]) => {
                    let chosen = if self.value(condition)?.bool()? { yes } else { no };
                    return self.value(chosen);
                }
                (operators::NOT_STRICTLY_FALSE, [a]) => {
                    return Ok(Value::Bool(!matches!(self.value(a), Ok(Value::Bool(false)))));
                }
                _ => {}
            }
        }
        if let Some(target) = &call.target
            && let Some(found) = self.macro_call(target, &call.func_name, arguments)
        {
            return found;
        }
        let space = call.target.as_ref().and_then(|target| self.space(target));
        let target = call.target.as_ref().filter(|_| space.is_none());
        let target = target.map(|target| self.value(target)).transpose()?;
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            values.push(self.value(argument)?);
        }
        match (target, space) {
            (Some(target), _) => calls::method(self, &call.func_name, &target, &values),
            (None, Some(space)) => calls::in_space(self, space, &call.func_name, &values),
            (None, None) => calls::function(self, &call.func_name, &values),
        }
    }

    /// The part before the dot in the name of a function, such as `sets`. `None` if the target is a value.
    fn space(&self, target: &'e IdedExpr) -> Option<&'e str> {
        let Expr::Ident(name) = &target.expr else { return None };
        let known = self.variables.iter().any(|(known, _)| known == name);
        (!known).then_some(name.as_str())
    }

    /// `&&` and `||`: if one side decides the result, it does not matter whether the other side can be
    /// evaluated.
    fn logical(&mut self, a: &'e IdedExpr, b: &'e IdedExpr, decides: bool) -> Result<Value, Fault> {
        let first = self.value(a).and_then(|value| value.bool());
        if first == Ok(decides) {
            return Ok(Value::Bool(decides));
        }
        let second = self.value(b).and_then(|value| value.bool());
        if second == Ok(decides) {
            return Ok(Value::Bool(decides));
        }
        first.and(second).map(Value::Bool)
    }

    /// Evaluates `all`, `exists`, `map` and similar macros, which the parser has already expanded.
    fn comprehension(&mut self, all: &'e ComprehensionExpr) -> Result<Value, Fault> {
        let range = self.value(&all.iter_range)?;
        let pairs = pairs(&range)?;
        let mut so_far = self.value(&all.accu_init);
        for (key, value) in pairs {
            self.variables.push((&all.accu_var, so_far));
            let goes_on = self.value(&all.loop_cond).and_then(|value| value.bool());
            if goes_on == Ok(false) {
                so_far = self.popped();
                break;
            }
            if let Err(fault) = goes_on {
                self.variables.pop();
                return Err(fault);
            }
            let next = match &all.iter_var2 {
                None => {
                    let item = if matches!(range, Value::Map(_)) { key } else { value };
                    self.with(&all.iter_var, Ok(item), &all.loop_step)
                }
                Some(second) => {
                    self.variables.push((&all.iter_var, Ok(key)));
                    let found = self.with(second, Ok(value), &all.loop_step);
                    self.variables.pop();
                    found
                }
            };
            self.variables.pop();
            if matches!(next, Err(Fault::TooCostly)) {
                return Err(Fault::TooCostly);
            }
            so_far = next;
        }
        self.with(&all.accu_var, so_far, &all.result)
    }

    fn popped(&mut self) -> Result<Value, Fault> {
        self.variables.pop().map_or(Ok(Value::Null), |(_, value)| value)
    }

    /// Evaluates a macro that the parser does not expand, and whose arguments must not be evaluated first.
    /// Returns `None` if the call is not such a macro.
    fn macro_call(
        &mut self,
        target: &'e IdedExpr,
        name: &str,
        arguments: &'e [IdedExpr],
    ) -> Option<Result<Value, Fault>> {
        let named = |part: &'e IdedExpr| match &part.expr {
            Expr::Ident(name) => Some(name.as_str()),
            _ => None,
        };
        match (name, arguments) {
            ("bind", [variable, value, body]) if named(target) == Some("cel") => {
                let variable = named(variable)?;
                // cel-go evaluates the value only when the variable is first used. This code evaluates the
                // value immediately, but a fault in it does not matter until the variable is used.
                let value = self.value(value);
                Some(self.with(variable, value, body))
            }
            ("all" | "exists" | "existsOne" | "exists_one", [first, second, test]) => {
                let (first, second) = (named(first)?, named(second)?);
                Some(self.over_two(target, name, (first, second), test))
            }
            ("optMap" | "optFlatMap", [variable, body]) => {
                let variable = named(variable)?;
                Some(self.optional_map(target, variable, body, name == "optMap"))
            }
            // These macros, which transform keys and values, are not supported: no selector is known to use
            // them.
            ("transformList" | "transformMap" | "transformMapEntry", _) => {
                Some(Err(Fault::unsupported(format!("the function {name}"))))
            }
            _ => None,
        }
    }

    fn over_two(
        &mut self,
        target: &'e IdedExpr,
        name: &str,
        (first, second): (&'e str, &'e str),
        test: &'e IdedExpr,
    ) -> Result<Value, Fault> {
        let range = self.value(target)?;
        let (mut held, mut fault) = (0, None);
        for (key, value) in pairs(&range)? {
            self.variables.push((first, Ok(key)));
            let found = self.with(second, Ok(value), test).and_then(|value| value.bool());
            self.variables.pop();
            match (found, name) {
                (Ok(false), "all") => return Ok(Value::Bool(false)),
                (Ok(true), "exists") => return Ok(Value::Bool(true)),
                (Ok(holds), _) => held += i64::from(holds),
                (Err(Fault::TooCostly), _) => return Err(Fault::TooCostly),
                (Err(why), _) => fault = Some(why),
            }
        }
        match (fault, name) {
            (Some(why), _) => Err(why),
            (None, "all") => Ok(Value::Bool(true)),
            (None, "exists") => Ok(Value::Bool(false)),
            (None, _) => Ok(Value::Bool(held == 1)),
        }
    }

    fn optional_map(
        &mut self,
        target: &'e IdedExpr,
        variable: &'e str,
        body: &'e IdedExpr,
        wraps: bool,
    ) -> Result<Value, Fault> {
        match self.value(target)? {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(value)) => {
                let found = self.with(variable, Ok(value.as_ref().clone()), body)?;
                Ok(if wraps { Value::Optional(Some(Arc::new(found))) } else { found })
            }
            _ => Err(Fault::no_overload()),
        }
    }
}

/// Returns the value of a key in a map, or the item of a list at an index. Fails if the key or the index does
/// not exist.
pub(super) fn look_up(container: &Value, key: &Value) -> Result<Value, Fault> {
    match container {
        Value::Map(map) => map.find(key).cloned().ok_or_else(|| no_such(key)),
        Value::List(items) => {
            let at = convert::whole(key).ok_or_else(Fault::no_overload)?;
            let found = usize::try_from(at).ok().and_then(|at| items.get(at));
            found.cloned().ok_or_else(|| Fault::error(format!("index out of bounds: {at}")))
        }
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(value)) => Ok(optional(value, key)),
        _ => Err(Fault::no_overload()),
    }
}

/// Returns the value of a key in a map, or the item of a list at an index, as an optional. The optional is
/// empty if the look-up fails.
pub(super) fn optional(container: &Value, key: &Value) -> Value {
    match container {
        Value::Optional(Some(value)) => optional(value, key),
        _ => Value::Optional(look_up(container, key).ok().map(Arc::new)),
    }
}

fn no_such(key: &Value) -> Fault {
    match key {
        Value::Text(name) => Fault::error(format!("no such key: {name}")),
        _ => Fault::error("no such key"),
    }
}

/// The keys of a map with their values, or the indices of a list with its items.
fn pairs(range: &Value) -> Result<Vec<(Value, Value)>, Fault> {
    match range {
        Value::List(items) => {
            let place = |at: usize| Value::Int(i64::try_from(at).unwrap_or(i64::MAX));
            Ok(items.iter().enumerate().map(|(at, item)| (place(at), item.clone())).collect())
        }
        Value::Map(map) => Ok(Map::clone(map).entries),
        _ => Err(Fault::no_overload()),
    }
}

fn literal_value(literal: &LiteralValue) -> Value {
    match literal {
        LiteralValue::Boolean(value) => Value::Bool(*value.inner()),
        LiteralValue::Bytes(value) => Value::Bytes(Arc::from(value.inner())),
        LiteralValue::Double(value) => Value::Double(*value.inner()),
        LiteralValue::Int(value) => Value::Int(*value.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(value) => value.inner().into(),
        LiteralValue::UInt(value) => Value::Uint(*value.inner()),
    }
}

/// Whether the result of comparing two values satisfies an operator such as `<`.
pub(super) fn satisfies(operator: &str, order: Ordering) -> bool {
    match operator {
        operators::LESS => order == Ordering::Less,
        operators::LESS_EQUALS => order != Ordering::Greater,
        operators::GREATER => order == Ordering::Greater,
        _ => order != Ordering::Less,
    }
}
