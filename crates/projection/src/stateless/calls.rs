//! Calls: what is called, and whether it is harmless with these arguments.

use oxc_ast::ast::*;

use super::table::{Kind, Needs, global_function, is_constructor, method, static_function};
use super::{Checked, Checker, Rejection};

impl Checker<'_, '_> {
    pub(super) fn new_object(&mut self, new: &NewExpression<'_>) -> Checked<Kind> {
        let Expression::Identifier(class) = &new.callee else {
            return Err(Rejection);
        };
        // `new Object(x)` may be `x`.
        let makes =
            is_constructor(&class.name) || class.name == "Object" && new.arguments.is_empty();
        if self.symbol(class).is_some() || !makes {
            return Err(Rejection);
        }
        self.arguments(&new.arguments)?;
        Ok(Kind::Own)
    }

    /// Returns the kinds of arguments. Spread arguments may be anything.
    fn arguments(&mut self, arguments: &[Argument<'_>]) -> Checked<Vec<Kind>> {
        let mut kinds = Vec::with_capacity(arguments.len());
        for argument in arguments {
            kinds.push(match argument {
                Argument::SpreadElement(spread) => {
                    self.expression(&spread.argument)?;
                    Kind::Any
                }
                argument => self.expression(argument.as_expression().ok_or(Rejection)?)?,
            });
        }
        Ok(kinds)
    }

    pub(super) fn call(&mut self, call: &CallExpression<'_>) -> Checked<Kind> {
        match &call.callee {
            Expression::Identifier(callee) => match self.symbol(callee) {
                Some(symbol) if self.is_function(symbol) => {
                    self.arguments(&call.arguments)?;
                    Ok(Kind::Any)
                }
                Some(_) => Err(Rejection),
                None if callee.name == "toJSON" => {
                    self.needed(Needs::NoCallableButFirst, &call.arguments)?;
                    Ok(Kind::Primitive)
                }
                None => {
                    self.arguments(&call.arguments)?;
                    global_function(&callee.name).ok_or(Rejection)
                }
            },
            Expression::FunctionExpression(function) => {
                self.function(function, Kind::Any)?;
                self.arguments(&call.arguments)?;
                Ok(Kind::Any)
            }
            Expression::ArrowFunctionExpression(function) => {
                self.arrow(function, Kind::Any)?;
                self.arguments(&call.arguments)?;
                Ok(Kind::Any)
            }
            Expression::StaticMemberExpression(member) => self.method_call(member, &call.arguments),
            _ => Err(Rejection),
        }
    }

    fn method_call(
        &mut self,
        member: &StaticMemberExpression<'_>,
        arguments: &[Argument<'_>],
    ) -> Checked<Kind> {
        let name = member.property.name.as_str();
        if let Some(function) = self.prototype_member(&member.object) {
            // `Object.prototype.hasOwnProperty.call(x, name)`
            let (needs, gives) = method(&function).ok_or(Rejection)?;
            if name != "call" || needs != Needs::Nothing {
                return Err(Rejection);
            }
            self.arguments(arguments)?;
            return Ok(gives);
        }
        if let Expression::Identifier(object) = &member.object
            && self.symbol(object).is_none()
            && let Some((needs, gives)) = static_function(&object.name, name)
        {
            self.needed(needs, arguments)?;
            return Ok(gives);
        }
        let (needs, gives) = method(name).ok_or(Rejection)?;
        let object = self.expression(&member.object)?;
        let changes = matches!(needs, Needs::OwnObject | Needs::OwnObjectAndComparison);
        if changes && object == Kind::Any {
            return Err(Rejection);
        }
        self.needed(needs, arguments)?;
        Ok(gives)
    }

    /// Returns the name of `X.prototype.name` of a global class.
    fn prototype_member(&self, expression: &Expression<'_>) -> Option<String> {
        let Expression::StaticMemberExpression(function) = expression else {
            return None;
        };
        let Expression::StaticMemberExpression(prototype) = &function.object else {
            return None;
        };
        let Expression::Identifier(class) = &prototype.object else {
            return None;
        };
        let is_class = matches!(class.name.as_str(), "Object" | "Array" | "String");
        (is_class && prototype.property.name == "prototype" && self.symbol(class).is_none())
            .then(|| function.property.name.to_string())
    }

    /// Checks arguments by their use.
    fn needed(&mut self, needs: Needs, arguments: &[Argument<'_>]) -> Checked {
        match needs {
            Needs::Nothing | Needs::OwnObject => self.arguments(arguments).map(drop),
            Needs::NoCallable => self.not_callable(arguments),
            Needs::NoCallableButFirst => {
                let (first, rest) = arguments.split_at(arguments.len().min(1));
                self.arguments(first)?;
                match first {
                    [Argument::SpreadElement(_)] => Err(Rejection),
                    _ => self.not_callable(rest),
                }
            }
            Needs::One => match arguments {
                [Argument::SpreadElement(_)] => Err(Rejection),
                [_] => self.arguments(arguments).map(drop),
                _ => Err(Rejection),
            },
            Needs::OwnArgument => match self.arguments(arguments)?.first() {
                Some(kind) if *kind < Kind::Any => Ok(()),
                _ => Err(Rejection),
            },
            Needs::Callback | Needs::OwnObjectAndComparison => {
                let Some((first, rest)) = arguments.split_first() else {
                    return match needs {
                        Needs::Callback => Err(Rejection),
                        _ => Ok(()),
                    };
                };
                let first = first.as_expression().ok_or(Rejection)?;
                if !self.is_callback(first) {
                    return Err(Rejection);
                }
                // A global function has no kind as a value.
                if !matches!(first, Expression::Identifier(_)) {
                    self.expression(first)?;
                }
                self.arguments(rest).map(drop)
            }
        }
    }

    /// Returns whether arguments are functions of the source, or not callable.
    fn not_callable(&mut self, arguments: &[Argument<'_>]) -> Checked {
        for argument in arguments {
            let argument = argument.as_expression().ok_or(Rejection)?;
            if self.expression(argument)? == Kind::Any && !self.is_callback(argument) {
                return Err(Rejection);
            }
        }
        Ok(())
    }

    /// Returns a function that is written here, declared in the source, or a harmless one of the
    /// globals.
    fn is_callback(&self, expression: &Expression<'_>) -> bool {
        match expression {
            Expression::FunctionExpression(_) | Expression::ArrowFunctionExpression(_) => true,
            Expression::Identifier(id) => match self.symbol(id) {
                Some(symbol) => self.is_function(symbol),
                None => global_function(&id.name).is_some(),
            },
            _ => false,
        }
    }
}
