//! Differences that a source shows which compiles.

use std::collections::HashSet;

use oxc_ast::{AstKind, ast::*};
use oxc_semantic::{NodeId, Semantic};
use oxc_span::{GetSpan, Span};

use super::kind::*;
use crate::usage::{is_global, is_global_named, is_written, key_name, member_name, member_object};

/// Functions of `Array` that take the array as their first argument.
const ARRAY_STATICS: &str = "concat every filter forEach indexOf join lastIndexOf map pop push reduce \
     reduceRight reverse shift slice some sort splice unshift";
/// Functions of `String` that take the text as their first argument.
const STRING_STATICS: &str = "charAt charCodeAt concat endsWith indexOf lastIndexOf localeCompare match \
     normalize quote replace search slice split startsWith substr substring toLocaleLowerCase \
     toLocaleUpperCase toLowerCase toUpperCase trim trimLeft trimRight";
/// Global names.
const GLOBALS: &str = "StopIteration XML XMLList QName Namespace isXMLName yield";
/// Members of all objects, and of functions.
const MEMBERS: &str = "__noSuchMethod__ __iterator__ __parent__ __count__ isGenerator";
/// Methods of dates that depend on the time zone.
const LOCAL_TIME: &str = "getDate getDay getFullYear getHours getMinutes getMonth getTimezoneOffset getYear \
     setDate setFullYear setHours setMinutes setMonth setYear toDateString toTimeString \
     toLocaleDateString toLocaleTimeString toLocaleFormat";
/// Methods that take a locale, with the position of that.
const OF_LOCALE: &[(&str, usize)] = &[
    ("toLocaleString", 0),
    ("toLocaleDateString", 0),
    ("toLocaleTimeString", 0),
    ("toLocaleUpperCase", 0),
    ("toLocaleLowerCase", 0),
    ("localeCompare", 1),
];
/// Members of errors.
const OF_ERRORS: &str = "fileName lineNumber columnNumber";
/// Parts of the last match, besides `$1` to `$9`.
const PARTS_OF_MATCH: &str = "lastMatch lastParen leftContext rightContext";
/// The constructors of the values in documents.
const CONSTRUCTORS: [&str; 2] = ["Array", "Object"];
/// Methods whose result is created in the function.
const CREATING: &str = "concat exec filter keys map match slice split";

fn has(names: &str, name: &str) -> bool {
    names.split_ascii_whitespace().any(|known| known == name)
}

/// Returns places in the script, with their kinds.
pub(super) fn places(semantic: &Semantic<'_>) -> Vec<(Span, &'static Kind)> {
    let sight = Sight::new(semantic);
    let nodes = semantic.nodes().iter_enumerated();
    let found = nodes.filter_map(|(id, node)| {
        let kind = node.kind();
        Some((kind.span(), sight.kind_of(id, kind)?))
    });
    found.collect()
}

/// Facts about a whole script.
struct Sight<'s, 'a> {
    semantic: &'s Semantic<'a>,
    /// Names of members that the script defines, and of globals that it assigns or tests.
    own: HashSet<String>,
    /// Names of variables of errors that are caught.
    errors: HashSet<String>,
    /// Names of variables that are declared with a value that the script creates.
    created: HashSet<String>,
    /// Names of parameters, and of variables with another value.
    given: HashSet<String>,
    /// It names a part of the last match as a member of something.
    names_match: bool,
}

impl<'s, 'a> Sight<'s, 'a> {
    fn new(semantic: &'s Semantic<'a>) -> Sight<'s, 'a> {
        let mut sight = Sight {
            semantic,
            own: HashSet::new(),
            errors: HashSet::new(),
            created: HashSet::new(),
            given: HashSet::new(),
            names_match: false,
        };
        for (id, node) in semantic.nodes().iter_enumerated() {
            sight.note(id, node.kind());
        }
        sight
    }

    fn note(&mut self, id: NodeId, kind: AstKind<'a>) {
        match kind {
            AstKind::ObjectProperty(property) => self.own.extend(key_name(&property.key)),
            AstKind::MethodDefinition(method) => self.own.extend(key_name(&method.key)),
            AstKind::CatchParameter(parameter) => {
                let name = parameter.pattern.get_identifier_name();
                self.errors.extend(name.map(|name| name.to_string()));
            }
            AstKind::FormalParameter(parameter) => {
                let names = parameter.pattern.get_binding_identifiers().into_iter();
                self.given.extend(names.map(|name| name.name.to_string()));
            }
            AstKind::VariableDeclarator(variable) => self.note_variable(variable),
            AstKind::IdentifierReference(name) => {
                if self.is_tested(id) {
                    self.own.insert(name.name.to_string());
                }
                if is_written(self.semantic, id) {
                    self.given.insert(name.name.to_string());
                }
            }
            AstKind::StaticMemberExpression(_) | AstKind::ComputedMemberExpression(_) => {
                let Some(name) = member_name(kind) else {
                    return;
                };
                self.names_match |= has(PARTS_OF_MATCH, &name) || is_group(&name);
                if self.is_tested(id) {
                    self.own.insert(name);
                }
            }
            _ => {}
        }
    }

    fn note_variable(&mut self, variable: &VariableDeclarator<'a>) {
        let is_created = variable
            .init
            .as_ref()
            .is_some_and(|init| self.is_created(init));
        let names = variable.id.get_binding_identifiers().into_iter();
        let names = names.map(|name| name.name.to_string());
        match is_created {
            true => self.created.extend(names),
            false => self.given.extend(names),
        }
    }

    /// Returns whether the name at `id` is assigned to, or only tested: `typeof Intl`,
    /// `if (!Array.map)`, `Array.map || …`. Other uses of the name are reached only if it exists.
    fn is_tested(&self, id: NodeId) -> bool {
        let nodes = self.semantic.nodes();
        let span = nodes.kind(id).span();
        let is_test = match nodes.parent_kind(id) {
            AstKind::UnaryExpression(parent) => {
                matches!(
                    parent.operator,
                    UnaryOperator::Typeof | UnaryOperator::LogicalNot
                )
            }
            AstKind::LogicalExpression(parent) => parent.left.span() == span,
            AstKind::IfStatement(parent) => parent.test.span() == span,
            AstKind::ConditionalExpression(parent) => parent.test.span() == span,
            _ => false,
        };
        is_test || is_written(self.semantic, id)
    }

    fn kind_of(&self, id: NodeId, kind: AstKind<'a>) -> Option<&'static Kind> {
        match kind {
            AstKind::BinaryExpression(binary) => self.of_binary(id, binary),
            AstKind::IdentifierReference(name) => self.of_name(id, name),
            AstKind::CallExpression(call) => self.of_call(call),
            AstKind::NewExpression(call) => self.of_new(call),
            AstKind::StaticMemberExpression(_) | AstKind::ComputedMemberExpression(_) => {
                self.of_member(kind)
            }
            _ => None,
        }
    }

    fn is_constructor(&self, expression: &Expression<'_>) -> bool {
        let mut names = CONSTRUCTORS.iter();
        names.any(|name| is_global_named(self.semantic, expression, name))
    }

    /// `x instanceof Array`, `x.constructor === Array`.
    fn of_binary(&self, id: NodeId, binary: &BinaryExpression<'_>) -> Option<&'static Kind> {
        let (left, right) = (&binary.left, &binary.right);
        let differs = match binary.operator {
            BinaryOperator::Instanceof => self.is_constructor(right) && !self.is_created(left),
            operator if operator.is_equality() => {
                let of = |a: &Expression<'_>, b| is_constructor_of(a) && self.is_constructor(b);
                of(left, right) || of(right, left)
            }
            _ => false,
        };
        (differs && !self.is_covered(id)).then_some(&INSTANCE_OF)
    }

    /// Returns whether the value is created by the function itself.
    fn is_created(&self, expression: &Expression<'_>) -> bool {
        match expression {
            Expression::ThisExpression(_)
            | Expression::ArrayExpression(_)
            | Expression::ObjectExpression(_)
            | Expression::NewExpression(_) => true,
            Expression::CallExpression(call) => match &call.callee {
                Expression::StaticMemberExpression(member) => has(CREATING, &member.property.name),
                _ => false,
            },
            Expression::Identifier(name) => {
                let name = name.name.as_str();
                let is_created = self.created.contains(name) && !self.given.contains(name);
                is_created || self.errors.contains(name)
            }
            _ => false,
        }
    }

    /// Returns whether the test is an alternative to one that is true in both engines:
    /// `isArray(x) || x instanceof Array`.
    fn is_covered(&self, id: NodeId) -> bool {
        let nodes = self.semantic.nodes();
        let AstKind::LogicalExpression(either) = nodes.parent_kind(id) else {
            return false;
        };
        let is_check = |side: &Expression<'_>| match side {
            Expression::CallExpression(call) => match &call.callee {
                Expression::Identifier(name) => name.name == "isArray",
                Expression::StaticMemberExpression(member) => member.property.name == "isArray",
                _ => false,
            },
            _ => false,
        };
        either.operator == LogicalOperator::Or
            && (is_check(&either.left) || is_check(&either.right))
    }

    fn of_name(&self, id: NodeId, name: &IdentifierReference<'_>) -> Option<&'static Kind> {
        let text = name.name.as_str();
        if !is_global(self.semantic, name) {
            return None;
        }
        match text {
            "RegExp" => self.of_regexp(id),
            _ if self.own.contains(text) => None,
            "Intl" => Some(&INTL),
            _ => has(GLOBALS, text).then_some(&MISSING_GLOBAL),
        }
    }

    /// `RegExp` as a value, in a script that names parts of the last match.
    fn of_regexp(&self, id: NodeId) -> Option<&'static Kind> {
        let nodes = self.semantic.nodes();
        let span = nodes.kind(id).span();
        let is_seen = match nodes.parent_kind(id) {
            // The engine's text search finds these, except in parentheses, which are not in the tree.
            AstKind::StaticMemberExpression(member) => self.is_bare(span, member.property.span),
            AstKind::ComputedMemberExpression(member) => {
                self.is_bare(span, member.expression.span())
            }
            AstKind::VariableDeclarator(_)
            | AstKind::AssignmentExpression(_)
            | AstKind::BinaryExpression(_) => true,
            AstKind::NewExpression(parent) => parent.callee.span() == span,
            AstKind::CallExpression(parent) => parent.callee.span() == span,
            _ => false,
        };
        (self.names_match && !is_seen).then_some(&REGEXP_STATICS)
    }

    /// Returns whether no parenthesis closes between an object and the name of its member.
    fn is_bare(&self, object: Span, member: Span) -> bool {
        let script = self.semantic.source_text();
        let between = script.get(object.end as usize..member.start as usize);
        between.is_some_and(|between| !between.contains(')'))
    }

    fn of_call(&self, call: &CallExpression<'_>) -> Option<&'static Kind> {
        let count = call.arguments.len();
        let name = match &call.callee {
            Expression::Identifier(name) if is_global(self.semantic, name) => {
                return match name.name.as_str() {
                    "Iterator" => Some(&MISSING_GLOBAL),
                    "Date" => Some(&TIME_ZONE),
                    _ => None,
                };
            }
            Expression::StaticMemberExpression(member) => member.property.name.as_str(),
            _ => return None,
        };
        let locale = OF_LOCALE.iter().find(|(method, _)| *method == name);
        match name {
            _ if self.own.contains(name) => None,
            "toLocaleFormat" => Some(&MISSING_METHOD),
            "quote" if count == 0 => Some(&MISSING_METHOD),
            "watch" | "unwatch" if count > 0 => Some(&MISSING_METHOD),
            _ if has(LOCAL_TIME, name) => Some(&TIME_ZONE),
            _ => {
                let (_, at) = locale?;
                let is_plain = count <= *at || count == at + 1 && is_default(&call.arguments[*at]);
                (!is_plain).then_some(&LOCALE)
            }
        }
    }

    /// `new Date(year, month, …)`.
    fn of_new(&self, call: &NewExpression<'_>) -> Option<&'static Kind> {
        let is_date = is_global_named(self.semantic, &call.callee, "Date");
        (is_date && call.arguments.len() > 1).then_some(&TIME_ZONE)
    }

    fn of_member(&self, kind: AstKind<'a>) -> Option<&'static Kind> {
        let (name, object) = (member_name(kind)?, member_object(kind)?);
        let of_global = |global| is_global_named(self.semantic, object, global);
        if has(OF_ERRORS, &name) {
            let is_error = matches!(object, Expression::Identifier(of) if self.errors.contains(of.name.as_str()));
            return is_error.then_some(&ERROR_POSITION);
        }
        if self.own.contains(&name) {
            return None;
        }
        let is_static = has(ARRAY_STATICS, &name) && of_global("Array")
            || has(STRING_STATICS, &name) && of_global("String");
        match is_static {
            true => Some(&STATIC_METHODS),
            false => has(MEMBERS, &name).then_some(&MISSING_METHOD),
        }
    }
}

/// Returns whether it is `x.constructor`.
fn is_constructor_of(expression: &Expression<'_>) -> bool {
    match expression {
        Expression::StaticMemberExpression(member) => member.property.name == "constructor",
        _ => false,
    }
}

/// Returns whether an argument is the locale that is the default of both engines.
fn is_default(argument: &Argument<'_>) -> bool {
    match argument {
        Argument::StringLiteral(text) => matches!(text.value.as_str(), "en" | "en-US"),
        Argument::Identifier(name) => name.name == "undefined",
        _ => false,
    }
}

/// `$1` to `$9`.
fn is_group(name: &str) -> bool {
    matches!(name.as_bytes(), [b'$', b'1'..=b'9'])
}
