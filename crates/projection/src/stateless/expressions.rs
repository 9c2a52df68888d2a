//! Expressions: the kind of each value, and what is changed.

use oxc_ast::ast::*;

use super::table::{Kind, is_constructor, is_reserved};
use super::{Checked, Checker, Rejection};
use crate::usage::{is_global, literal_name};

impl Checker<'_, '_> {
    pub(super) fn expression(&mut self, expression: &Expression<'_>) -> Checked<Kind> {
        Ok(match expression {
            Expression::NumericLiteral(_) | Expression::BigIntLiteral(_) => Kind::Number,
            Expression::BooleanLiteral(_)
            | Expression::NullLiteral(_)
            | Expression::StringLiteral(_) => Kind::Primitive,
            Expression::RegExpLiteral(_) => Kind::Own,
            Expression::TemplateLiteral(template) => {
                for part in &template.expressions {
                    self.expression(part)?;
                }
                Kind::Primitive
            }
            Expression::Identifier(identifier) => self.identifier(identifier)?,
            Expression::ParenthesizedExpression(inner) => self.expression(&inner.expression)?,
            Expression::FunctionExpression(function) => {
                self.function(function, Kind::Any)?;
                Kind::Any
            }
            Expression::ArrowFunctionExpression(function) => {
                self.arrow(function, Kind::Any)?;
                Kind::Any
            }
            Expression::ArrayExpression(array) => {
                for element in &array.elements {
                    match element {
                        ArrayExpressionElement::Elision(_) => {}
                        ArrayExpressionElement::SpreadElement(spread) => {
                            self.expression(&spread.argument)?;
                        }
                        element => {
                            self.expression(element.as_expression().ok_or(Rejection)?)?;
                        }
                    }
                }
                Kind::Own
            }
            Expression::ObjectExpression(object) => self.object(object)?,
            Expression::StaticMemberExpression(member) => self.member(&member.object, None)?,
            Expression::ComputedMemberExpression(member) => {
                self.member(&member.object, Some(&member.expression))?
            }
            Expression::ChainExpression(chain) => match &chain.expression {
                ChainElement::CallExpression(call) => self.call(call)?,
                ChainElement::StaticMemberExpression(member) => {
                    self.member(&member.object, None)?
                }
                ChainElement::ComputedMemberExpression(member) => {
                    self.member(&member.object, Some(&member.expression))?
                }
                _ => return Err(Rejection),
            },
            Expression::CallExpression(call) => self.call(call)?,
            Expression::NewExpression(new) => self.new_object(new)?,
            Expression::AssignmentExpression(assignment) => self.assignment(assignment)?,
            Expression::UpdateExpression(update) => self.update(update)?,
            expression => self.operation(expression)?,
        })
    }

    fn operation(&mut self, expression: &Expression<'_>) -> Checked<Kind> {
        Ok(match expression {
            Expression::UnaryExpression(unary) => self.unary(unary)?,
            Expression::BinaryExpression(binary) => self.binary(binary)?,
            Expression::LogicalExpression(logical) => {
                let left = self.expression(&logical.left)?;
                left.max(self.expression(&logical.right)?)
            }
            Expression::ConditionalExpression(conditional) => {
                self.expression(&conditional.test)?;
                let consequent = self.expression(&conditional.consequent)?;
                consequent.max(self.expression(&conditional.alternate)?)
            }
            Expression::SequenceExpression(sequence) => {
                let mut last = Kind::Primitive;
                for part in &sequence.expressions {
                    last = self.expression(part)?;
                }
                last
            }
            _ => return Err(Rejection),
        })
    }

    /// Checks a global, which may be used by name only: its value is not passed on.
    fn identifier(&mut self, identifier: &IdentifierReference<'_>) -> Checked<Kind> {
        match self.symbol(identifier) {
            Some(symbol) => Ok(self.kinds.get(&symbol).copied().unwrap_or(Kind::Number)),
            None if identifier.name == "undefined" => Ok(Kind::Primitive),
            None if matches!(identifier.name.as_str(), "NaN" | "Infinity") => Ok(Kind::Number),
            None => Err(Rejection),
        }
    }

    fn member(&mut self, object: &Expression<'_>, key: Option<&Expression<'_>>) -> Checked<Kind> {
        let is_global_object = matches!(object, Expression::Identifier(id)
            if self.symbol(id).is_none() && matches!(id.name.as_str(), "Math" | "Number"));
        if !is_global_object {
            self.expression(object)?;
        }
        self.optional(key)?;
        Ok(Kind::Any)
    }

    pub(super) fn key(&mut self, key: &PropertyKey<'_>) -> Checked {
        match key {
            PropertyKey::StaticIdentifier(_) => Ok(()),
            key => self.optional(Some(key.as_expression().ok_or(Rejection)?)),
        }
    }

    fn object(&mut self, object: &ObjectExpression<'_>) -> Checked<Kind> {
        for property in &object.properties {
            let property = match property {
                ObjectPropertyKind::SpreadProperty(spread) => {
                    self.expression(&spread.argument)?;
                    continue;
                }
                ObjectPropertyKind::ObjectProperty(property) => property,
            };
            if property.kind != PropertyKind::Init {
                return Err(Rejection);
            }
            let value = self.expression(&property.value)?;
            match &property.key {
                PropertyKey::StaticIdentifier(name) => named(&name.name, value)?,
                key => {
                    let key = key.as_expression().ok_or(Rejection)?;
                    self.chosen(key, value)?;
                }
            }
        }
        Ok(Kind::Own)
    }

    /// Checks whether a value may be assigned to a computed name.
    fn chosen(&mut self, key: &Expression<'_>, value: Kind) -> Checked {
        let kind = self.expression(key)?;
        match literal_name(key) {
            Some(name) => named(&name, value),
            None if kind == Kind::Number || value < Kind::Any => Ok(()),
            None => Err(Rejection),
        }
    }

    fn unary(&mut self, unary: &UnaryExpression<'_>) -> Checked<Kind> {
        match (unary.operator, &unary.argument) {
            (UnaryOperator::Delete, Expression::StaticMemberExpression(member)) => {
                self.own(&member.object)?;
                return Ok(Kind::Primitive);
            }
            (UnaryOperator::Delete, Expression::ComputedMemberExpression(member)) => {
                self.own(&member.object)?;
                self.expression(&member.expression)?;
                return Ok(Kind::Primitive);
            }
            (UnaryOperator::Delete, _) => return Err(Rejection),
            (UnaryOperator::Typeof, Expression::Identifier(id)) if self.symbol(id).is_none() => {
                return Ok(Kind::Primitive);
            }
            _ => {}
        }
        self.expression(&unary.argument)?;
        Ok(match unary.operator {
            UnaryOperator::UnaryNegation | UnaryOperator::UnaryPlus | UnaryOperator::BitwiseNot => {
                Kind::Number
            }
            _ => Kind::Primitive,
        })
    }

    fn binary(&mut self, binary: &BinaryExpression<'_>) -> Checked<Kind> {
        let left = self.expression(&binary.left)?;
        if binary.operator == BinaryOperator::Instanceof
            && let Expression::Identifier(class) = &binary.right
            && is_global(self.semantic, class)
            && (is_constructor(&class.name) || class.name == "Object")
        {
            return Ok(Kind::Primitive);
        }
        let right = self.expression(&binary.right)?;
        Ok(match binary.operator {
            BinaryOperator::Addition => left.max(right).min(Kind::Primitive),
            BinaryOperator::Subtraction
            | BinaryOperator::Multiplication
            | BinaryOperator::Division
            | BinaryOperator::Remainder
            | BinaryOperator::Exponential
            | BinaryOperator::ShiftLeft
            | BinaryOperator::ShiftRight
            | BinaryOperator::ShiftRightZeroFill
            | BinaryOperator::BitwiseOR
            | BinaryOperator::BitwiseXOR
            | BinaryOperator::BitwiseAnd => Kind::Number,
            _ => Kind::Primitive,
        })
    }

    /// Checks an object that is changed: this call must have created it.
    fn own(&mut self, object: &Expression<'_>) -> Checked {
        match self.expression(object)? {
            Kind::Any => Err(Rejection),
            _ => Ok(()),
        }
    }

    fn update(&mut self, update: &UpdateExpression<'_>) -> Checked<Kind> {
        match &update.argument {
            SimpleAssignmentTarget::AssignmentTargetIdentifier(id) => {
                let symbol = self.symbol(id);
                self.assign(symbol, Kind::Number)?;
            }
            SimpleAssignmentTarget::StaticMemberExpression(member) => self.own(&member.object)?,
            SimpleAssignmentTarget::ComputedMemberExpression(member) => {
                self.own(&member.object)?;
                self.expression(&member.expression)?;
            }
            _ => return Err(Rejection),
        }
        Ok(Kind::Number)
    }

    fn assignment(&mut self, assignment: &AssignmentExpression<'_>) -> Checked<Kind> {
        let right = self.expression(&assignment.right)?;
        let assigned = match assignment.operator {
            AssignmentOperator::Assign
            | AssignmentOperator::LogicalOr
            | AssignmentOperator::LogicalAnd
            | AssignmentOperator::LogicalNullish => right,
            AssignmentOperator::Addition => Kind::Primitive,
            _ => Kind::Number,
        };
        match &assignment.left {
            AssignmentTarget::AssignmentTargetIdentifier(id) => {
                let symbol = self.symbol(id).ok_or(Rejection)?;
                let before = self.kinds.get(&symbol).copied().unwrap_or(Kind::Number);
                let assigned = match assignment.operator {
                    AssignmentOperator::Addition => before.max(right).min(Kind::Primitive),
                    _ => assigned,
                };
                self.assign(Some(symbol), assigned)?;
                return Ok(match assignment.operator.is_logical() {
                    true => before.max(assigned),
                    false => assigned,
                });
            }
            AssignmentTarget::StaticMemberExpression(member) => {
                self.own(&member.object)?;
                named(&member.property.name, assigned)?;
            }
            AssignmentTarget::ComputedMemberExpression(member) => {
                self.own(&member.object)?;
                self.chosen(&member.expression, assigned)?;
            }
            _ => return Err(Rejection),
        }
        Ok(match assignment.operator.is_logical() {
            true => Kind::Any,
            false => assigned,
        })
    }
}

/// Checks whether a value may be assigned to a name.
fn named(name: &str, value: Kind) -> Checked {
    match name {
        "__proto__" => Err(Rejection),
        name if value == Kind::Any && is_reserved(name) => Err(Rejection),
        _ => Ok(()),
    }
}
