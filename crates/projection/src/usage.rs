//! Questions about a node and its place that both analyses ask.

use oxc_ast::{AstKind, ast::*};
use oxc_semantic::{NodeId, Semantic};
use oxc_span::{GetSpan, Span};

/// Returns the constant member name of an expression in brackets. `None` if it is known only at run
/// time.
pub(crate) fn literal_name(key: &Expression<'_>) -> Option<String> {
    match key {
        Expression::StringLiteral(text) if !text.lone_surrogates => Some(text.value.to_string()),
        Expression::NumericLiteral(number) => integer_name(number.value),
        Expression::TemplateLiteral(template) if template.expressions.is_empty() => {
            match template.quasis.as_slice() {
                [text] if !text.lone_surrogates => {
                    text.value.cooked.map(|cooked| cooked.to_string())
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// Returns the name of a property in a literal or pattern.
pub(crate) fn key_name(key: &PropertyKey<'_>) -> Option<String> {
    match key {
        PropertyKey::StaticIdentifier(name) => Some(name.name.to_string()),
        PropertyKey::PrivateIdentifier(_) => None,
        _ => key.as_expression().and_then(literal_name),
    }
}

/// Returns whether an expression in brackets may be the name of any member. Numbers and similar
/// values name no built-in member.
pub(crate) fn is_dynamic(key: &Expression<'_>) -> bool {
    !matches!(
        key,
        Expression::NumericLiteral(_)
            | Expression::BooleanLiteral(_)
            | Expression::NullLiteral(_)
            | Expression::BigIntLiteral(_)
            | Expression::StringLiteral(_)
    ) && literal_name(key).is_none()
}

fn integer_name(value: f64) -> Option<String> {
    let small = (0.0..4_294_967_296.0).contains(&value) && value.fract() == 0.0;
    small.then(|| format!("{}", value as u64))
}

/// Returns the name that a member expression reads, if it is constant.
pub(crate) fn member_name(kind: AstKind<'_>) -> Option<String> {
    match kind {
        AstKind::StaticMemberExpression(member) => Some(member.property.name.to_string()),
        AstKind::ComputedMemberExpression(member) => literal_name(&member.expression),
        _ => None,
    }
}

/// Returns the value whose member an expression reads.
pub(crate) fn member_object<'b, 'a>(kind: AstKind<'a>) -> Option<&'b Expression<'a>>
where
    'a: 'b,
{
    match kind {
        AstKind::StaticMemberExpression(member) => Some(&member.object),
        AstKind::ComputedMemberExpression(member) => Some(&member.object),
        _ => None,
    }
}

/// Returns whether the expression at `id` is assigned to, updated or deleted.
pub(crate) fn is_written(semantic: &Semantic<'_>, id: NodeId) -> bool {
    let nodes = semantic.nodes();
    let span = nodes.kind(id).span();
    match nodes.parent_kind(id) {
        AstKind::AssignmentExpression(parent) => parent.left.span() == span,
        AstKind::UpdateExpression(_)
        | AstKind::ArrayAssignmentTarget(_)
        | AstKind::AssignmentTargetRest(_) => true,
        AstKind::AssignmentTargetWithDefault(parent) => parent.binding.span() == span,
        AstKind::AssignmentTargetPropertyProperty(parent) => parent.binding.span() == span,
        AstKind::AssignmentTargetPropertyIdentifier(parent) => parent.binding.span() == span,
        AstKind::ForInStatement(parent) => parent.left.span() == span,
        AstKind::ForOfStatement(parent) => parent.left.span() == span,
        AstKind::UnaryExpression(parent) => parent.operator == UnaryOperator::Delete,
        AstKind::ChainExpression(_) => is_written(semantic, nodes.parent_id(id)),
        _ => false,
    }
}

/// Returns whether this is the name of a global, declared nowhere in the source.
pub(crate) fn is_global(semantic: &Semantic<'_>, identifier: &IdentifierReference<'_>) -> bool {
    semantic.is_reference_to_global_variable(identifier)
}

/// Returns whether the expression is the global of this name.
pub(crate) fn is_global_named(
    semantic: &Semantic<'_>,
    expression: &Expression<'_>,
    name: &str,
) -> bool {
    matches!(expression, Expression::Identifier(identifier)
        if identifier.name == name && is_global(semantic, identifier))
}

/// Returns whether `call` is `object.method(…)` of a global object, or `method(…)` of a global
/// function if `object` is empty.
pub(crate) fn calls_global(
    semantic: &Semantic<'_>,
    call: &CallExpression<'_>,
    object: &str,
    method: &str,
) -> bool {
    match &call.callee {
        callee if object.is_empty() => is_global_named(semantic, callee, method),
        Expression::StaticMemberExpression(member) => {
            member.property.name == method && is_global_named(semantic, &member.object, object)
        }
        _ => false,
    }
}

/// Returns whether the argument at `span` is the first of `call`.
pub(crate) fn is_first_argument(call: &CallExpression<'_>, span: Span) -> bool {
    call.arguments
        .first()
        .is_some_and(|first| first.span() == span)
}
