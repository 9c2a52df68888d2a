//! Follows `doc` and its parts through a function.
//!
//! From each mention of `doc` the analysis climbs through the enclosing expression, collecting
//! member names, up to a use that determines what is needed. A part stored in a local variable is
//! followed through all mentions of that variable, whatever their order: a variable may stand for
//! several parts. A part that escapes into any other value is taken as a whole; if it is `doc`
//! itself, or if the use is unknown, the analysis gives up.

use std::collections::HashSet;

use oxc_ast::{AstKind, ast::*};
use oxc_semantic::{NodeId, Semantic, SymbolId};
use oxc_span::GetSpan;

use super::{
    need::{Need, Step},
    refusal::Refusal,
    usage::{
        calls_global, is_first_argument, is_global, is_global_named, is_written, key_name,
        literal_name,
    },
};

/// A part deeper than this is taken as a whole: loops along a list would have no end.
const DEPTH_MAX: usize = 8;
/// Maximum number of parts in variables that are followed.
const PARTS_MAX: usize = 500;

type Path = Vec<Step>;

/// Returns the members of its first parameter that the function can access.
pub(crate) fn follow(
    semantic: &Semantic<'_>,
    params: &FormalParameters<'_>,
) -> Result<Need, Refusal> {
    let mut follower = Follower {
        semantic,
        need: Need::default(),
        seen: HashSet::new(),
        todo: Vec::new(),
        doc: None,
    };
    let Some(param) = params.items.first() else {
        return match params.rest {
            Some(_) => Err(Refusal::Parameter),
            None => Ok(Need::default()),
        };
    };
    match &param.pattern {
        BindingPattern::ArrayPattern(_) => return Err(Refusal::Parameter),
        BindingPattern::BindingIdentifier(doc) => follower.doc_is(doc)?,
        _ => {}
    }
    follower.pattern(&param.pattern, Path::new())?;
    while let Some((symbol, path)) = follower.todo.pop() {
        follower.symbol(symbol, &path)?;
    }
    Ok(follower.need)
}

struct Follower<'s, 'a> {
    semantic: &'s Semantic<'a>,
    need: Need,
    seen: HashSet<(SymbolId, Path)>,
    todo: Vec<(SymbolId, Path)>,
    doc: Option<SymbolId>,
}

impl Follower<'_, '_> {
    /// Checks that nothing else can have the parameter's name where the parameter is meant.
    fn doc_is(&mut self, doc: &BindingIdentifier<'_>) -> Result<(), Refusal> {
        let scoping = self.semantic.scoping();
        let symbol = doc.symbol_id.get().ok_or(Refusal::NotFollowed)?;
        if !scoping.symbol_redeclarations(symbol).is_empty() {
            return Err(Refusal::Redeclared);
        }
        // Declared functions leave the blocks that they are in, in ways that not all engines agree
        // on.
        let function_of_that_name = self.semantic.nodes().iter().any(|node| {
            matches!(node.kind(), AstKind::Function(function)
                if function.is_declaration() && function.id.as_ref().is_some_and(|id| id.name == doc.name))
        });
        if function_of_that_name {
            return Err(Refusal::Redeclared);
        }
        self.doc = Some(symbol);
        Ok(())
    }

    /// The variable may hold the part at `path`.
    fn keep(&mut self, symbol: SymbolId, path: Path) -> Result<(), Refusal> {
        self.need.add(&path, false);
        if path.len() > DEPTH_MAX {
            self.need.add(&path, true);
            return Ok(());
        }
        if self.seen.len() > PARTS_MAX {
            return Err(Refusal::TooComplex);
        }
        if self.seen.insert((symbol, path.clone())) {
            self.todo.push((symbol, path));
        }
        Ok(())
    }

    /// All mentions of a variable that may hold the part at `path`.
    fn symbol(&mut self, symbol: SymbolId, path: &Path) -> Result<(), Refusal> {
        let semantic = self.semantic;
        for reference in semantic.scoping().get_resolved_references(symbol) {
            if reference.is_write() {
                if self.doc == Some(symbol) {
                    return Err(Refusal::Redeclared);
                }
                // `x = …` leaves the part alone, `x += …` and `x ||= …` read it.
                if reference.is_read() {
                    self.escape(path, Refusal::NotFollowed)?;
                }
            } else if is_written(semantic, reference.node_id()) {
                return Err(Refusal::Written);
            } else {
                self.climb(reference.node_id(), path.clone())?;
            }
        }
        Ok(())
    }

    /// The part escapes the analysis.
    fn escape(&mut self, path: &[Step], doc: Refusal) -> Result<(), Refusal> {
        if path.is_empty() {
            return Err(doc);
        }
        self.need.add(path, true);
        Ok(())
    }

    /// Records that only the existence and the kind of the part matter.
    fn kind(&mut self, path: &[Step]) -> Result<(), Refusal> {
        self.need.add(path, false);
        Ok(())
    }

    /// All names of the part, and the kinds of its members.
    fn names(&mut self, mut path: Path) -> Result<(), Refusal> {
        if path.is_empty() {
            return Err(Refusal::Iterated);
        }
        path.push(Step::Any);
        self.kind(&path)
    }

    /// Climbs from the expression at `id`, whose value may be the part at `path`, up to its use.
    fn climb(&mut self, mut id: NodeId, mut path: Path) -> Result<(), Refusal> {
        let semantic = self.semantic;
        let nodes = semantic.nodes();
        loop {
            if path.len() > DEPTH_MAX {
                return self.escape(&path, Refusal::NotFollowed);
            }
            let span = nodes.kind(id).span();
            let parent = nodes.parent_id(id);
            match nodes.kind(parent) {
                AstKind::ChainExpression(_) | AstKind::ParenthesizedExpression(_) => {}
                AstKind::StaticMemberExpression(member) => {
                    if is_written(semantic, parent) {
                        return Err(Refusal::Written);
                    }
                    let name = member.property.name.as_str();
                    if let AstKind::CallExpression(call) = nodes.parent_kind(parent)
                        && call.callee.span() == member.span
                        && self.known_method(name, call, &path)?
                    {
                        return Ok(());
                    }
                    path.push(Step::Name(name.to_owned()));
                }
                AstKind::ComputedMemberExpression(member) => {
                    if member.object.span() != span {
                        return self.escape(&path, Refusal::NotFollowed);
                    }
                    if is_written(semantic, parent) {
                        return Err(Refusal::Written);
                    }
                    path = self.step(path, literal_name(&member.expression))?;
                }
                AstKind::LogicalExpression(logical) => {
                    if logical.left.span() == span && logical.operator == LogicalOperator::And {
                        return self.kind(&path);
                    }
                }
                AstKind::ConditionalExpression(conditional) => {
                    if conditional.test.span() == span {
                        return self.kind(&path);
                    }
                }
                AstKind::SequenceExpression(sequence) => {
                    if sequence
                        .expressions
                        .last()
                        .is_none_or(|last| last.span() != span)
                    {
                        return self.kind(&path);
                    }
                }
                AstKind::AssignmentExpression(assignment) => {
                    if !self.assigned(assignment, &path)? {
                        return Ok(());
                    }
                }
                _ => return self.used(id, parent, path),
            }
            id = parent;
        }
    }

    fn step(&self, mut path: Path, name: Option<String>) -> Result<Path, Refusal> {
        path.push(match name {
            Some(name) => Step::Name(name),
            None if path.is_empty() => return Err(Refusal::DynamicMember),
            None => Step::Any,
        });
        Ok(path)
    }

    /// Handles `target = part`. Returns whether the value of the whole expression, which is the
    /// part, must still be followed.
    fn assigned(
        &mut self,
        assignment: &AssignmentExpression<'_>,
        path: &Path,
    ) -> Result<bool, Refusal> {
        let plain =
            assignment.operator == AssignmentOperator::Assign || assignment.operator.is_logical();
        if plain
            && let AssignmentTarget::AssignmentTargetIdentifier(target) = &assignment.left
            && let Some(symbol) = self.symbol_of(target)
        {
            self.keep(symbol, path.clone())?;
            return Ok(true);
        }
        self.escape(path, Refusal::Stored)?;
        Ok(false)
    }

    fn symbol_of(&self, identifier: &IdentifierReference<'_>) -> Option<SymbolId> {
        let reference = identifier.reference_id.get()?;
        self.semantic.scoping().get_reference(reference).symbol_id()
    }

    /// Handles the use at `parent` of the expression at `id`, whose value may be the part at
    /// `path`.
    fn used(&mut self, id: NodeId, parent: NodeId, path: Path) -> Result<(), Refusal> {
        let nodes = self.semantic.nodes();
        let span = nodes.kind(id).span();
        match nodes.kind(parent) {
            AstKind::CallExpression(call) => {
                if call.callee.span() == span {
                    self.called(path)
                } else {
                    self.passed(call, span, path)
                }
            }
            AstKind::TaggedTemplateExpression(_) => self.called(path),
            AstKind::NewExpression(_) => self.escape(&path, Refusal::Passed),
            AstKind::UnaryExpression(unary) => self.unary(unary.operator, &path),
            AstKind::UpdateExpression(_) => Err(Refusal::Written),
            AstKind::BinaryExpression(binary) => self.operand(binary, span, path),
            AstKind::ExpressionStatement(_)
            | AstKind::IfStatement(_)
            | AstKind::WhileStatement(_)
            | AstKind::DoWhileStatement(_)
            | AstKind::ForStatement(_)
            | AstKind::SwitchStatement(_)
            | AstKind::SwitchCase(_) => self.kind(&path),
            AstKind::VariableDeclarator(declarator) => self.pattern(&declarator.id, path),
            AstKind::AssignmentPattern(pattern) => self.pattern(&pattern.left, path),
            AstKind::FormalParameter(param) => self.pattern(&param.pattern, path),
            AstKind::ForInStatement(statement) => {
                if statement.right.span() != span {
                    return Err(Refusal::Written);
                }
                self.names(path)
            }
            AstKind::ForOfStatement(statement) => {
                if statement.right.span() != span {
                    return Err(Refusal::Written);
                }
                self.iterated(statement, path)
            }
            AstKind::ReturnStatement(_)
            | AstKind::ThrowStatement(_)
            | AstKind::YieldExpression(_)
            | AstKind::AwaitExpression(_)
            | AstKind::ArrowFunctionExpression(_) => self.escape(&path, Refusal::Returned),
            AstKind::SpreadElement(_) => self.escape(&path, Refusal::Iterated),
            AstKind::ArrayExpression(_)
            | AstKind::ObjectProperty(_)
            | AstKind::PropertyDefinition(_) => self.escape(&path, Refusal::Stored),
            AstKind::TemplateLiteral(_)
            | AstKind::BindingProperty(_)
            | AstKind::MethodDefinition(_)
            | AstKind::Class(_) => self.escape(&path, Refusal::NotFollowed),
            // Writing through a pattern is seen where the path is built; this is a default value or
            // a computed name.
            AstKind::AssignmentTargetWithDefault(_)
            | AstKind::AssignmentTargetPropertyProperty(_)
            | AstKind::AssignmentTargetPropertyIdentifier(_) => self.escape(&path, Refusal::Stored),
            _ => Err(Refusal::NotFollowed),
        }
    }

    fn unary(&mut self, operator: UnaryOperator, path: &Path) -> Result<(), Refusal> {
        match operator {
            UnaryOperator::LogicalNot | UnaryOperator::Typeof | UnaryOperator::Void => {
                self.kind(path)
            }
            UnaryOperator::Delete => Err(Refusal::Written),
            _ => self.escape(path, Refusal::NotFollowed),
        }
    }

    /// The part is called: the object that it is a member of is `this`.
    fn called(&mut self, mut path: Path) -> Result<(), Refusal> {
        path.pop();
        self.escape(&path, Refusal::MethodOfDoc)
    }

    fn passed(
        &mut self,
        call: &CallExpression<'_>,
        argument: oxc_span::Span,
        path: Path,
    ) -> Result<(), Refusal> {
        if is_first_argument(call, argument) {
            if calls_global(self.semantic, call, "Array", "isArray")
                || calls_global(self.semantic, call, "", "isArray")
            {
                return self.kind(&path);
            }
            if calls_global(self.semantic, call, "Object", "keys") {
                return self.names(path);
            }
        }
        self.escape(&path, Refusal::Passed)
    }

    fn operand(
        &mut self,
        binary: &BinaryExpression<'_>,
        span: oxc_span::Span,
        mut path: Path,
    ) -> Result<(), Refusal> {
        let left = binary.left.span() == span;
        let other = if left { &binary.right } else { &binary.left };
        match binary.operator {
            BinaryOperator::StrictEquality | BinaryOperator::StrictInequality => self.kind(&path),
            // Only comparing with these does not turn an object into a string or number.
            BinaryOperator::Equality | BinaryOperator::Inequality
                if matches!(other, Expression::NullLiteral(_))
                    || is_global_named(self.semantic, other, "undefined") =>
            {
                self.kind(&path)
            }
            BinaryOperator::In if !left => {
                path = self.step(path, literal_name(other))?;
                if matches!(path.last(), Some(Step::Name(name)) if name == "__proto__") {
                    return Err(Refusal::NotFollowed);
                }
                self.kind(&path)
            }
            BinaryOperator::Instanceof if left && self.is_standard_class(other) => self.kind(&path),
            _ => self.escape(&path, Refusal::NotFollowed),
        }
    }

    fn is_standard_class(&self, class: &Expression<'_>) -> bool {
        matches!(class, Expression::Identifier(class)
            if matches!(class.name.as_str(), "Array" | "Object" | "Date" | "String" | "Number" | "Boolean" | "RegExp")
                && is_global(self.semantic, class))
    }

    /// `for (… of part)`
    fn iterated(&mut self, statement: &ForOfStatement<'_>, mut path: Path) -> Result<(), Refusal> {
        if path.is_empty() || statement.r#await {
            return self.escape(&path, Refusal::Iterated);
        }
        path.push(Step::Any);
        match &statement.left {
            ForStatementLeft::VariableDeclaration(declaration) => {
                match declaration.declarations.first() {
                    Some(declarator) => self.pattern(&declarator.id, path),
                    None => self.escape(&path, Refusal::NotFollowed),
                }
            }
            ForStatementLeft::AssignmentTargetIdentifier(target) => match self.symbol_of(target) {
                Some(symbol) => self.keep(symbol, path),
                None => self.escape(&path, Refusal::Stored),
            },
            _ => self.escape(&path, Refusal::Stored),
        }
    }

    /// The names in a declaration get the part at `path`, or parts of it.
    fn pattern(&mut self, pattern: &BindingPattern<'_>, path: Path) -> Result<(), Refusal> {
        match pattern {
            BindingPattern::BindingIdentifier(name) => {
                let symbol = name.symbol_id.get().ok_or(Refusal::NotFollowed)?;
                self.keep(symbol, path)
            }
            BindingPattern::ObjectPattern(object) => {
                if object.rest.is_some() {
                    return self.escape(&path, Refusal::Iterated);
                }
                self.kind(&path)?;
                for property in &object.properties {
                    let part = self.step(path.clone(), key_name(&property.key))?;
                    self.pattern(&property.value, part)?;
                }
                Ok(())
            }
            BindingPattern::ArrayPattern(_) => self.escape(&path, Refusal::Iterated),
            BindingPattern::AssignmentPattern(with_default) => {
                self.pattern(&with_default.left, path)
            }
        }
    }

    /// Handles methods with a known use of the part. Returns whether `name` is one, and the call is
    /// as expected.
    fn known_method(
        &mut self,
        name: &str,
        call: &CallExpression<'_>,
        path: &Path,
    ) -> Result<bool, Refusal> {
        match name {
            "hasOwnProperty" => self.has_own_property(call, path),
            "forEach" | "map" | "some" | "every" if !path.is_empty() => {
                self.for_each(name, call, path)
            }
            _ => Ok(false),
        }
    }

    /// Handles `part.hasOwnProperty("name")`: it tests whether the member exists, unless the
    /// document has a member `hasOwnProperty`.
    fn has_own_property(
        &mut self,
        call: &CallExpression<'_>,
        path: &Path,
    ) -> Result<bool, Refusal> {
        let [argument] = call.arguments.as_slice() else {
            return Ok(false);
        };
        let Some(name) = argument.as_expression().and_then(literal_name) else {
            return Ok(false);
        };
        for name in ["hasOwnProperty", &name] {
            let mut path = path.clone();
            path.push(Step::Name(name.to_owned()));
            self.kind(&path)?;
        }
        Ok(true)
    }

    /// `part.forEach(function (element, index, array) {…})`: the elements are followed into the
    /// function. The function's result, for `map`, has escaped there.
    fn for_each(
        &mut self,
        name: &str,
        call: &CallExpression<'_>,
        path: &Path,
    ) -> Result<bool, Refusal> {
        let params = match call.arguments.first() {
            Some(Argument::FunctionExpression(function))
                if !function.r#async && !function.generator =>
            {
                &function.params
            }
            Some(Argument::ArrowFunctionExpression(function)) if !function.r#async => {
                &function.params
            }
            _ => return Ok(false),
        };
        if params.rest.is_some() || params.items.len() > 3 {
            return Ok(false);
        }
        for name in [name, "length"] {
            let mut path = path.clone();
            path.push(Step::Name(name.to_owned()));
            self.kind(&path)?;
        }
        let mut elements = path.clone();
        elements.push(Step::Any);
        if let Some(param) = params.items.first() {
            self.pattern(&param.pattern, elements)?;
        }
        if let Some(param) = params.items.get(2) {
            self.pattern(&param.pattern, path.clone())?;
        }
        Ok(true)
    }
}
