//! Checks that code leaves the built-in objects unchanged and has no other access to `doc`.
//!
//! Reading an absent member of `doc` consults the prototypes of objects and arrays, and `for (… of
//! …)` calls an iterator: code that puts a getter or an iterator there would get the object itself,
//! and see what is missing in it. Plain values on a prototype do no harm, since all members that
//! are read by name are taken.

use oxc_ast::{AstKind, ast::*};
use oxc_semantic::{NodeId, Semantic};
use oxc_span::GetSpan;

use super::{
    refusal::Refusal,
    usage::{is_dynamic, is_global, is_written, key_name, member_name, member_object},
};

/// The kind of code that is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Map,
    /// A CommonJS module: it never sees `doc`, only what maps hand to it.
    Module,
}

/// Names that lead to a prototype, or that define getters.
const UNSAFE_NAMES: &[&str] = &[
    "__proto__",
    "__defineGetter__",
    "__defineSetter__",
    "__lookupGetter__",
    "__lookupSetter__",
    "setPrototypeOf",
    "getPrototypeOf",
    "defineProperty",
    "defineProperties",
    "getOwnPropertyDescriptor",
    "getOwnPropertyDescriptors",
    "getOwnPropertySymbols",
    "caller",
    "callee",
    "arguments",
];

/// Globals that are refused at any mention.
const UNSAFE_GLOBALS: &[&str] = &[
    "Function",
    "Reflect",
    "Proxy",
    "globalThis",
    "Symbol",
    "Iterator",
    "global",
    "window",
    "self",
];

/// Globals that must keep their meaning.
const KEPT_GLOBALS: &[&str] = &[
    "Object",
    "Array",
    "String",
    "Number",
    "Boolean",
    "Date",
    "RegExp",
    "Math",
    "JSON",
    "Error",
    "TypeError",
    "RangeError",
    "SyntaxError",
    "ReferenceError",
    "EvalError",
    "URIError",
    "Map",
    "Set",
    "WeakMap",
    "WeakSet",
    "Promise",
    "BigInt",
    "parseInt",
    "parseFloat",
    "isNaN",
    "isFinite",
    "encodeURIComponent",
    "decodeURIComponent",
    "encodeURI",
    "decodeURI",
    "undefined",
    "NaN",
    "Infinity",
    "emit",
    "isArray",
    "toJSON",
    "sum",
    "log",
    "require",
];

/// The functions of `Object` that take no descriptors and give no prototypes.
const OBJECT_FUNCTIONS: &[&str] = &[
    "keys",
    "values",
    "entries",
    "fromEntries",
    "assign",
    "freeze",
    "isFrozen",
    "seal",
    "isSealed",
    "is",
    "create",
    "hasOwn",
    "getOwnPropertyNames",
    "prototype",
    "defineProperty",
];

pub(crate) fn check(semantic: &Semantic<'_>, place: Place) -> Result<(), Refusal> {
    let mut accessors = false;
    let mut dynamic_writes = false;
    for (id, node) in semantic.nodes().iter_enumerated() {
        let kind = node.kind();
        match kind {
            AstKind::IdentifierReference(identifier) => reference(semantic, id, identifier, place)?,
            AstKind::BindingIdentifier(identifier) => binding(semantic, id, identifier, place)?,
            AstKind::ThisExpression(_) => this(semantic, id)?,
            AstKind::WithStatement(_) => return Err(Refusal::Uses("with")),
            AstKind::ImportExpression(_) | AstKind::ImportMeta(_) => {
                return Err(Refusal::Uses("import"));
            }
            AstKind::VariableDeclaration(declaration)
                if matches!(
                    declaration.kind,
                    VariableDeclarationKind::Using | VariableDeclarationKind::AwaitUsing
                ) =>
            {
                return Err(Refusal::Uses("using"));
            }
            AstKind::StaticMemberExpression(_) | AstKind::ComputedMemberExpression(_) => {
                dynamic_writes |= member(semantic, id, kind, place)?;
            }
            AstKind::ObjectProperty(property) => {
                accessors |= property.kind != PropertyKind::Init;
                if key_name(&property.key).is_some_and(|name| name == "__proto__") {
                    return Err(Refusal::Builtins("__proto__"));
                }
            }
            AstKind::MethodDefinition(method) => {
                accessors |= matches!(
                    method.kind,
                    MethodDefinitionKind::Get | MethodDefinitionKind::Set
                );
            }
            AstKind::AccessorProperty(_) => accessors = true,
            AstKind::BindingProperty(property) => pattern_key(&property.key)?,
            AstKind::AssignmentTargetPropertyProperty(property) => pattern_key(&property.name)?,
            AstKind::AssignmentTargetPropertyIdentifier(property) => {
                pattern_name(property.binding.name.as_str())?;
            }
            AstKind::Decorator(_) => return Err(Refusal::Uses("a decorator")),
            _ => {}
        }
    }
    if accessors && dynamic_writes {
        return Err(Refusal::Builtins("getters, and members set at run time"));
    }
    Ok(())
}

fn reference(
    semantic: &Semantic<'_>,
    id: NodeId,
    identifier: &IdentifierReference<'_>,
    place: Place,
) -> Result<(), Refusal> {
    let name = identifier.name.as_str();
    match name {
        "eval" => return Err(Refusal::Uses("eval")),
        "arguments" if place == Place::Map => return Err(Refusal::Uses("arguments")),
        _ => {}
    }
    if !is_global(semantic, identifier) {
        return Ok(());
    }
    if let Some(&name) = UNSAFE_GLOBALS
        .iter()
        .find(|&&unsafe_name| unsafe_name == name)
    {
        return Err(Refusal::Uses(name));
    }
    if is_written(semantic, id) && KEPT_GLOBALS.contains(&name) {
        return Err(match name {
            "emit" => Refusal::Emit,
            _ => Refusal::Builtins("a global is assigned to"),
        });
    }
    if name == "Object" {
        return object(semantic, id, identifier);
    }
    Ok(())
}

/// Returns the global `Object`: only where no function of it that changes prototypes is in reach.
fn object(
    semantic: &Semantic<'_>,
    id: NodeId,
    identifier: &IdentifierReference<'_>,
) -> Result<(), Refusal> {
    let safe = match semantic.nodes().parent_kind(id) {
        AstKind::StaticMemberExpression(member) => {
            OBJECT_FUNCTIONS.contains(&member.property.name.as_str())
        }
        AstKind::BinaryExpression(_) | AstKind::UnaryExpression(_) => true,
        AstKind::CallExpression(call) => call.callee.span() == identifier.span,
        AstKind::NewExpression(new) => new.callee.span() == identifier.span,
        _ => false,
    };
    if safe {
        Ok(())
    } else {
        Err(Refusal::Builtins("Object is passed on"))
    }
}

fn binding(
    semantic: &Semantic<'_>,
    id: NodeId,
    identifier: &BindingIdentifier<'_>,
    place: Place,
) -> Result<(), Refusal> {
    match identifier.name.as_str() {
        "emit" if place == Place::Map => return Err(Refusal::Emit),
        "eval" => return Err(Refusal::Uses("eval")),
        "arguments" => return Err(Refusal::Uses("arguments")),
        _ => {}
    }
    // In `catch (e) { var e = 1 }` there are two variables, and it is ambiguous which one is meant.
    let mut is_var = false;
    for kind in semantic.nodes().ancestor_kinds(id) {
        match kind {
            AstKind::VariableDeclaration(declaration) => {
                is_var |= declaration.kind == VariableDeclarationKind::Var;
            }
            AstKind::CatchClause(clause) if is_var => {
                let same = |param: &CatchParameter<'_>| {
                    param
                        .pattern
                        .get_binding_identifiers()
                        .iter()
                        .any(|other| other.name == identifier.name)
                };
                if clause.param.as_ref().is_some_and(same) {
                    return Err(Refusal::NotFollowed);
                }
            }
            AstKind::Function(_)
            | AstKind::ArrowFunctionExpression(_)
            | AstKind::StaticBlock(_) => break,
            _ => {}
        }
    }
    Ok(())
}

/// Checks `this`, which may be the global object: its members may be read and set by name, except
/// those that must stay.
fn this(semantic: &Semantic<'_>, id: NodeId) -> Result<(), Refusal> {
    match semantic.nodes().parent_kind(id) {
        AstKind::StaticMemberExpression(member)
            if !KEPT_GLOBALS.contains(&member.property.name.as_str())
                && !UNSAFE_GLOBALS.contains(&member.property.name.as_str())
                && member.property.name != "eval" =>
        {
            Ok(())
        }
        _ => Err(Refusal::Uses("this")),
    }
}

/// Checks a member expression. Returns whether it sets a member whose name is known only at run
/// time.
fn member(
    semantic: &Semantic<'_>,
    id: NodeId,
    kind: AstKind<'_>,
    place: Place,
) -> Result<bool, Refusal> {
    let nodes = semantic.nodes();
    let span = kind.span();
    let written = is_written(semantic, id);
    if written
        && let Some(Expression::Identifier(object)) = member_object(kind)
        && is_global(semantic, object)
        && KEPT_GLOBALS.contains(&object.name.as_str())
    {
        return Err(Refusal::Builtins("a member of a global is set"));
    }
    if let AstKind::ComputedMemberExpression(member) = kind
        && is_dynamic(&member.expression)
    {
        let called = match nodes.parent_kind(id) {
            AstKind::CallExpression(call) => call.callee.span() == span,
            AstKind::NewExpression(new) => new.callee.span() == span,
            AstKind::TaggedTemplateExpression(tagged) => tagged.tag.span() == span,
            AstKind::ChainExpression(_) => {
                matches!(nodes.parent_kind(nodes.parent_id(id)), AstKind::CallExpression(call)
                    if call.callee.span() == span)
            }
            _ => false,
        };
        if called {
            return Err(Refusal::Builtins("a function is chosen at run time"));
        }
        return Ok(written);
    }
    let Some(name) = member_name(kind) else {
        return Ok(false);
    };
    match name.as_str() {
        "prototype" => prototype(semantic, id, kind)?,
        "constructor" => constructor(semantic, id, span)?,
        "defineProperty" if place == Place::Module && defines_export(semantic, id, span) => {}
        "arguments" | "callee" | "caller" if place == Place::Module => {}
        name => {
            if let Some(&name) = UNSAFE_NAMES
                .iter()
                .find(|&&unsafe_name| unsafe_name == name)
            {
                return Err(Refusal::Builtins(name));
            }
        }
    }
    Ok(false)
}

/// Checks `X.prototype`, which may be used to read a method off it
/// (`Array.prototype.slice.call(x)`). Functions and classes of the code's own may get methods.
fn prototype(semantic: &Semantic<'_>, id: NodeId, kind: AstKind<'_>) -> Result<(), Refusal> {
    let nodes = semantic.nodes();
    let parent = nodes.parent_id(id);
    let own = matches!(member_object(kind), Some(Expression::Identifier(object))
        if is_own_constructor(semantic, object));
    let safe = match nodes.kind(parent) {
        // `prototype` itself and `constructor` are checked where they are the outer name.
        AstKind::StaticMemberExpression(method) => {
            method.object.span() == kind.span() && (own || !is_written(semantic, parent))
        }
        _ => false,
    };
    if safe && !is_written(semantic, id) {
        Ok(())
    } else {
        Err(Refusal::Builtins("prototype"))
    }
}

/// Returns whether this names a function or class declared in the source and never assigned to.
fn is_own_constructor(semantic: &Semantic<'_>, identifier: &IdentifierReference<'_>) -> bool {
    let scoping = semantic.scoping();
    let Some(symbol) = identifier
        .reference_id
        .get()
        .and_then(|reference| scoping.get_reference(reference).symbol_id())
    else {
        return false;
    };
    let declared = matches!(
        semantic.nodes().kind(scoping.symbol_declaration(symbol)),
        AstKind::Function(_) | AstKind::Class(_)
    );
    declared
        && scoping.symbol_redeclarations(symbol).is_empty()
        && !scoping
            .get_resolved_references(symbol)
            .any(|reference| reference.is_write())
}

/// Checks `x.constructor`, which may be compared and passed on, but not called, stored or accessed:
/// a function's constructor is `Function`.
fn constructor(semantic: &Semantic<'_>, id: NodeId, span: oxc_span::Span) -> Result<(), Refusal> {
    let safe = match semantic.nodes().parent_kind(id) {
        AstKind::BinaryExpression(_)
        | AstKind::UnaryExpression(_)
        | AstKind::IfStatement(_)
        | AstKind::ExpressionStatement(_) => !is_written(semantic, id),
        AstKind::CallExpression(call) => call.callee.span() != span,
        AstKind::StaticMemberExpression(member) => member.property.name == "name",
        _ => false,
    };
    if safe {
        Ok(())
    } else {
        Err(Refusal::Builtins("constructor"))
    }
}

/// Returns whether this is the callee of `Object.defineProperty(exports, …)`, which compilers put
/// into modules.
fn defines_export(semantic: &Semantic<'_>, id: NodeId, span: oxc_span::Span) -> bool {
    match semantic.nodes().parent_kind(id) {
        AstKind::CallExpression(call) if call.callee.span() == span => {
            matches!(call.arguments.first(), Some(Argument::Identifier(object)) if object.name == "exports")
        }
        _ => false,
    }
}

fn pattern_key(key: &PropertyKey<'_>) -> Result<(), Refusal> {
    key_name(key).map_or(Ok(()), |name| pattern_name(&name))
}

fn pattern_name(name: &str) -> Result<(), Refusal> {
    match name {
        "prototype" | "constructor" => {
            Err(Refusal::Builtins("prototype or constructor in a pattern"))
        }
        name => match UNSAFE_NAMES
            .iter()
            .find(|&&unsafe_name| unsafe_name == name)
        {
            Some(&name) => Err(Refusal::Builtins(name)),
            None => Ok(()),
        },
    }
}
