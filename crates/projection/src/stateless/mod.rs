//! Checks whether a function can leave anything behind for its next call.
//!
//! The things that survive a call of a JavaScript function are changes of something that existed
//! before: a global variable, a built-in object or its prototype, a variable of an enclosing scope,
//! the function itself. The check accepts a function only if it can reach no operation that makes
//! such a change, whatever its arguments are. It is designed for hostile sources: everything not
//! known to be harmless is refused. A refused function runs anyway, in a heap that is restored
//! after each call.
//!
//! Each expression has a [`Kind`], and each local variable the highest kind that is assigned to it
//! anywhere. Only values of the kind `Own`, which the call itself has created, are changed. These
//! invariants make method calls predictable:
//!
//! - No object that a call creates has a callable member under a name of a method or another [reserved](table::is_reserved) one, so `x.slice()` is the
//!   built-in `slice` whatever `x` is, or throws. Function values are `Any`, which is not written to such a member.
//! - A member whose name is known only at run time gets no `Any`, unless the name is a number.
//! - Only functions of the source, known [methods](table::method), and built-in functions under their full names are called.
//!   A function that is passed as a callback is written in place or declared in the source.
//! - The parameters of functions, members, and return values of functions are `Any`.

use std::collections::HashMap;

use oxc_ast::{AstKind, ast::*};
use oxc_semantic::{Semantic, SymbolId};

mod calls;
mod expressions;
mod table;

use table::Kind;

/// Maximum number of passes over the source until the kinds of variables are stable: there are four
/// kinds for each.
const PASSES_MAX: usize = 24;

/// The other holders of a call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// Other calls get the same values: the function must not change them.
    Shared,
    /// They are created for one call. The function may change them, but not their contents.
    Own,
}

/// Effects of a function that outlive its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastingEffect {
    /// Calls leave nothing, nor does compiling the function.
    Nothing,
    /// A call may leave something.
    ByCalls,
    /// So may compiling the source, which is not one function expression.
    ByCompilation,
}

/// The source does something that is not known to be harmless.
struct Rejection;

type Checked<T = ()> = Result<T, Rejection>;

/// Returns what a function expression may leave behind.
pub(crate) fn check(
    semantic: &Semantic<'_>,
    function: &Expression<'_>,
    arguments: Arguments,
) -> LastingEffect {
    let mut checker = Checker {
        semantic,
        kinds: HashMap::new(),
        is_stable: false,
    };
    for _ in 0..PASSES_MAX {
        checker.is_stable = true;
        if checker.top(function, arguments).is_err() {
            return LastingEffect::ByCalls;
        }
        if checker.is_stable {
            return LastingEffect::Nothing;
        }
    }
    LastingEffect::ByCalls
}

struct Checker<'s, 'a> {
    semantic: &'s Semantic<'a>,
    /// By local variable. One that is absent has not been assigned to.
    kinds: HashMap<SymbolId, Kind>,
    /// No variable's kind has changed in this pass.
    is_stable: bool,
}

impl Checker<'_, '_> {
    fn top(&mut self, function: &Expression<'_>, arguments: Arguments) -> Checked {
        let kind = match arguments {
            Arguments::Shared => Kind::Any,
            Arguments::Own => Kind::Own,
        };
        match function {
            // A named one may call itself, with anything.
            Expression::FunctionExpression(function) if function.id.is_some() => {
                self.function(function, Kind::Any)
            }
            Expression::FunctionExpression(function) => self.function(function, kind),
            Expression::ArrowFunctionExpression(function) => self.arrow(function, kind),
            _ => Err(Rejection),
        }
    }

    fn assign(&mut self, symbol: Option<SymbolId>, kind: Kind) -> Checked {
        let symbol = symbol.ok_or(Rejection)?;
        let before = self.kinds.get(&symbol).copied();
        if before.is_none_or(|before| before < kind) {
            self.kinds.insert(symbol, kind);
            self.is_stable = false;
        }
        Ok(())
    }

    /// Returns the local variable that a name stands for; `None` for a global.
    fn symbol(&self, identifier: &IdentifierReference<'_>) -> Option<SymbolId> {
        let reference = identifier.reference_id.get()?;
        self.semantic.scoping().get_reference(reference).symbol_id()
    }

    // ---- functions ----

    fn function(&mut self, function: &Function<'_>, parameters: Kind) -> Checked {
        if function.r#async || function.generator {
            return Err(Rejection);
        }
        if let Some(id) = &function.id {
            self.binding(id, Kind::Any)?;
        }
        self.parameters(&function.params, parameters)?;
        let body = function.body.as_ref().ok_or(Rejection)?;
        self.body(&body.statements)
    }

    fn arrow(&mut self, function: &ArrowFunctionExpression<'_>, parameters: Kind) -> Checked {
        if function.r#async {
            return Err(Rejection);
        }
        self.parameters(&function.params, parameters)?;
        match &function.body {
            ArrowFunctionBody::FunctionBody(body) => self.body(&body.statements),
            body => self
                .expression(body.as_expression().ok_or(Rejection)?)
                .map(drop),
        }
    }

    fn parameters(&mut self, parameters: &FormalParameters<'_>, kind: Kind) -> Checked {
        for parameter in &parameters.items {
            // With defaults, parameters and variables of one name are two variables.
            if parameter.initializer.is_some() {
                return Err(Rejection);
            }
            match &parameter.pattern {
                BindingPattern::BindingIdentifier(id) => self.binding(id, kind)?,
                pattern => self.pattern(pattern)?,
            }
        }
        match &parameters.rest {
            Some(rest) => self.pattern(&rest.rest.argument),
            None => Ok(()),
        }
    }

    /// Analyses the statements of a function. Only here functions are declared: in blocks they are
    /// variables of two scopes.
    fn body(&mut self, statements: &[Statement<'_>]) -> Checked {
        for statement in statements {
            match statement {
                Statement::FunctionDeclaration(function) => self.function(function, Kind::Any)?,
                statement => self.statement(statement)?,
            }
        }
        Ok(())
    }

    fn binding(&mut self, id: &BindingIdentifier<'_>, kind: Kind) -> Checked {
        if matches!(id.name.as_str(), "arguments" | "eval") {
            return Err(Rejection);
        }
        self.assign(id.symbol_id.get(), kind)
    }

    /// All variables of a pattern, each of which may become anything.
    fn pattern(&mut self, pattern: &BindingPattern<'_>) -> Checked {
        match pattern {
            BindingPattern::BindingIdentifier(id) => self.binding(id, Kind::Any),
            BindingPattern::ObjectPattern(object) => {
                for property in &object.properties {
                    self.key(&property.key)?;
                    self.pattern(&property.value)?;
                }
                match &object.rest {
                    Some(rest) => self.pattern(&rest.argument),
                    None => Ok(()),
                }
            }
            BindingPattern::ArrayPattern(array) => {
                for element in array.elements.iter().flatten() {
                    self.pattern(element)?;
                }
                match &array.rest {
                    Some(rest) => self.pattern(&rest.argument),
                    None => Ok(()),
                }
            }
            BindingPattern::AssignmentPattern(assignment) => {
                self.expression(&assignment.right)?;
                self.pattern(&assignment.left)
            }
        }
    }

    /// Returns whether a variable only ever holds one function of the source.
    fn is_function(&self, symbol: SymbolId) -> bool {
        let scoping = self.semantic.scoping();
        let is_function = match self
            .semantic
            .nodes()
            .kind(scoping.symbol_declaration(symbol))
        {
            AstKind::Function(_) => true,
            AstKind::VariableDeclarator(declarator) => matches!(
                (&declarator.id, &declarator.init),
                (
                    BindingPattern::BindingIdentifier(_),
                    Some(
                        Expression::FunctionExpression(_) | Expression::ArrowFunctionExpression(_)
                    )
                )
            ),
            _ => false,
        };
        is_function
            && scoping.symbol_redeclarations(symbol).is_empty()
            && !scoping
                .get_resolved_references(symbol)
                .any(|reference| reference.is_write())
    }

    // ---- statements ----

    fn statements(&mut self, statements: &[Statement<'_>]) -> Checked {
        statements.iter().try_for_each(|s| self.statement(s))
    }

    fn statement(&mut self, statement: &Statement<'_>) -> Checked {
        match statement {
            Statement::BlockStatement(block) => self.statements(&block.body),
            Statement::BreakStatement(_)
            | Statement::ContinueStatement(_)
            | Statement::EmptyStatement(_) => Ok(()),
            Statement::ExpressionStatement(statement) => {
                self.expression(&statement.expression).map(drop)
            }
            Statement::VariableDeclaration(declaration) => self.declaration(declaration),
            Statement::ReturnStatement(statement) => self.optional(statement.argument.as_ref()),
            Statement::ThrowStatement(statement) => self.expression(&statement.argument).map(drop),
            Statement::IfStatement(statement) => {
                self.expression(&statement.test)?;
                self.statement(&statement.consequent)?;
                match &statement.alternate {
                    Some(alternate) => self.statement(alternate),
                    None => Ok(()),
                }
            }
            Statement::LabeledStatement(statement) => self.statement(&statement.body),
            Statement::SwitchStatement(statement) => {
                self.expression(&statement.discriminant)?;
                for case in &statement.cases {
                    self.optional(case.test.as_ref())?;
                    self.statements(&case.consequent)?;
                }
                Ok(())
            }
            Statement::TryStatement(statement) => {
                self.statements(&statement.block.body)?;
                if let Some(handler) = &statement.handler {
                    if let Some(parameter) = &handler.param {
                        self.pattern(&parameter.pattern)?;
                    }
                    self.statements(&handler.body.body)?;
                }
                match &statement.finalizer {
                    Some(finalizer) => self.statements(&finalizer.body),
                    None => Ok(()),
                }
            }
            statement => self.iteration(statement),
        }
    }

    fn iteration(&mut self, statement: &Statement<'_>) -> Checked {
        match statement {
            Statement::WhileStatement(statement) => {
                self.expression(&statement.test)?;
                self.statement(&statement.body)
            }
            Statement::DoWhileStatement(statement) => {
                self.expression(&statement.test)?;
                self.statement(&statement.body)
            }
            Statement::ForStatement(statement) => {
                match &statement.init {
                    None => {}
                    Some(ForStatementInit::VariableDeclaration(declaration)) => {
                        self.declaration(declaration)?;
                    }
                    Some(init) => self.optional(Some(init.as_expression().ok_or(Rejection)?))?,
                }
                self.optional(statement.test.as_ref())?;
                self.optional(statement.update.as_ref())?;
                self.statement(&statement.body)
            }
            Statement::ForInStatement(statement) => {
                self.expression(&statement.right)?;
                self.for_each(&statement.left, Kind::Primitive)?;
                self.statement(&statement.body)
            }
            Statement::ForOfStatement(statement) if !statement.r#await => {
                self.expression(&statement.right)?;
                self.for_each(&statement.left, Kind::Any)?;
                self.statement(&statement.body)
            }
            _ => Err(Rejection),
        }
    }

    fn optional(&mut self, expression: Option<&Expression<'_>>) -> Checked {
        match expression {
            Some(expression) => self.expression(expression).map(drop),
            None => Ok(()),
        }
    }

    /// Analyses the variable of `for (… in …)` and `for (… of …)`.
    fn for_each(&mut self, left: &ForStatementLeft<'_>, kind: Kind) -> Checked {
        match left {
            ForStatementLeft::VariableDeclaration(declaration) => {
                self.declaration(declaration)?;
                for declarator in &declaration.declarations {
                    match &declarator.id {
                        BindingPattern::BindingIdentifier(id) => self.binding(id, kind)?,
                        pattern => self.pattern(pattern)?,
                    }
                }
                Ok(())
            }
            ForStatementLeft::AssignmentTargetIdentifier(id) => {
                let symbol = self.symbol(id);
                self.assign(symbol, kind)
            }
            _ => Err(Rejection),
        }
    }

    fn declaration(&mut self, declaration: &VariableDeclaration<'_>) -> Checked {
        if matches!(
            declaration.kind,
            VariableDeclarationKind::Using | VariableDeclarationKind::AwaitUsing
        ) {
            return Err(Rejection);
        }
        for declarator in &declaration.declarations {
            let kind = match &declarator.init {
                Some(init) => self.expression(init)?,
                None => Kind::Primitive,
            };
            match &declarator.id {
                BindingPattern::BindingIdentifier(id) => self.binding(id, kind)?,
                pattern => self.pattern(pattern)?,
            }
        }
        Ok(())
    }
}
