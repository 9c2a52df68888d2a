//! Reading JavaScript source.

use std::thread;

use oxc_allocator::Allocator;
use oxc_ast::ast::{Expression, FormalParameters, Program, Statement};
use oxc_parser::{ParseOptions, Parser};
use oxc_semantic::{Semantic, SemanticBuilder};
use oxc_span::SourceType;

use super::{
    builtins, follow,
    need::Need,
    refusal::Refusal,
    stateless,
    stateless::{Arguments, LastingEffect},
};

/// Longer sources are not read, bytes.
const SOURCE_MAX: usize = 64 << 10;

/// Maximum nesting of brackets, counted without regard to strings and comments. The parser tries
/// parentheses as parameters first, and reads them again if that fails: its time grows with the
/// cube of the depth.
const BRACKETS_MAX: usize = 100;

/// The parser calls itself for each level of nesting, and one byte of source can be a level
/// (`!!!!…`). Measured with such sources: less than 512 bytes of stack a byte of source, in a
/// release build.
const STACK_PER_BYTE: usize = 4 << 10;
const STACK_MIN: usize = 1 << 20;

/// Runs `work` on a thread whose stack no source of this length can overflow. Only the used part of
/// a stack takes memory.
pub(crate) fn on_large_stack<T: Send>(
    source_len: usize,
    work: impl FnOnce() -> T + Send,
) -> Result<T, Refusal> {
    if source_len > SOURCE_MAX {
        return Err(Refusal::TooLong { max: SOURCE_MAX });
    }
    thread::scope(|scope| {
        thread::Builder::new()
            .name("projection".into())
            .stack_size(STACK_MIN + source_len * STACK_PER_BYTE)
            .spawn_scoped(scope, work)
            .map_err(|error| Refusal::Syntax(error.to_string()))?
            .join()
            .map_err(|_| Refusal::Syntax("the parser failed".into()))
    })
}

/// Returns the parts of its first parameter that a map function can access.
pub(crate) fn need_of_map(source: &str) -> Result<Need, Refusal> {
    // In scripts these start comments, in places where parsers may differ.
    if source.contains("<!--") || source.contains("-->") {
        return Err(Refusal::Uses("an HTML-like comment"));
    }
    let source = source.trim_end_matches(|c: char| c == ';' || c.is_whitespace());
    with_semantic(&format!("({source}\n)"), |program, semantic| {
        let params = function(program)?;
        let need = follow::follow(semantic, params)?;
        builtins::check(semantic, builtins::Place::Map)?;
        Ok(need)
    })
}

/// Longest source of [`lasting_effect`], in bytes: it is called where a function is compiled, on a
/// stack of its caller's process.
const STATELESS_SOURCE_MAX: usize = 16 << 10;

/// Returns what the function may leave behind.
pub(crate) fn lasting_effect(source: &str, arguments: Arguments) -> LastingEffect {
    if source.len() > STATELESS_SOURCE_MAX || source.contains("<!--") || source.contains("-->") {
        return LastingEffect::ByCompilation;
    }
    let source = source.trim_end_matches(is_cut_off);
    let script = format!("({source}\n)");
    let stack = STACK_MIN + source.len() * STACK_PER_BYTE;
    let checked = stacker::grow(stack, || {
        with_semantic(&script, |program, semantic| {
            Ok(match function_expression(program)? {
                Expression::FunctionExpression(_) | Expression::ArrowFunctionExpression(_) => {
                    stateless::check(semantic, function_expression(program)?, arguments)
                }
                _ => LastingEffect::ByCompilation,
            })
        })
    });
    checked.unwrap_or(LastingEffect::ByCompilation)
}

/// Returns whether the prelude cuts the character off the end of a function: the same text must be
/// checked and compiled.
fn is_cut_off(c: char) -> bool {
    let is_space = matches!(
        c,
        ' ' | '\t'..='\r' | '\u{a0}' | '\u{feff}' | '\u{2028}' | '\u{2029}'
    );
    c == ';' || is_space
}

/// Returns the parameters of the one function expression that the script consists of.
fn function<'b, 'a>(program: &'b Program<'a>) -> Result<&'b FormalParameters<'a>, Refusal> {
    match function_expression(program)? {
        Expression::FunctionExpression(function) if function.r#async || function.generator => {
            Err(Refusal::Suspends)
        }
        Expression::ArrowFunctionExpression(function) if function.r#async => Err(Refusal::Suspends),
        Expression::FunctionExpression(function) => Ok(&function.params),
        Expression::ArrowFunctionExpression(function) => Ok(&function.params),
        _ => Err(Refusal::NotAFunction),
    }
}

/// Returns the one expression that the script consists of.
fn function_expression<'b, 'a>(program: &'b Program<'a>) -> Result<&'b Expression<'a>, Refusal> {
    let [Statement::ExpressionStatement(statement)] = program.body.as_slice() else {
        return Err(Refusal::NotAFunction);
    };
    if !program.directives.is_empty() || program.hashbang.is_some() {
        return Err(Refusal::NotAFunction);
    }
    Ok(&statement.expression)
}

/// Checks that the modules of `views.lib` (its JSON text) leave the built-in objects unchanged: a
/// getter on a prototype would see all of `doc`.
pub(crate) fn check_library(lib: &str) -> Result<(), Refusal> {
    let lib: serde_json::Value = serde_json::from_str(lib).map_err(|_| Refusal::Library)?;
    let mut values = vec![&lib];
    while let Some(value) = values.pop() {
        match value {
            serde_json::Value::Array(elements) => values.extend(elements),
            serde_json::Value::Object(members) => values.extend(members.values()),
            serde_json::Value::String(source) => {
                if source.contains("<!--") || source.contains("-->") {
                    return Err(Refusal::Library);
                }
                on_large_stack(source.len(), || check_module(source))
                    .flatten()
                    .map_err(|_| Refusal::Library)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_module(source: &str) -> Result<(), Refusal> {
    with_semantic(
        &format!("(function (module, exports, require) {{{source}\n}})"),
        |program, semantic| {
            function(program)?;
            builtins::check(semantic, builtins::Place::Module)
        },
    )
}

/// Parses a script and resolves its names.
pub(crate) fn with_semantic<T>(
    script: &str,
    work: impl FnOnce(&Program<'_>, &Semantic<'_>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    if brackets(script) > BRACKETS_MAX {
        return Err(Refusal::TooComplex);
    }
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, script, SourceType::script())
        .with_options(ParseOptions {
            preserve_parens: false,
            ..ParseOptions::default()
        })
        .parse();
    if let Some(error) = parsed.diagnostics.into_iter().next() {
        return Err(Refusal::Syntax(error.to_string()));
    }
    if parsed.panicked {
        return Err(Refusal::Syntax("the parser gave up".into()));
    }
    let built = SemanticBuilder::new_compiler()
        .with_build_nodes(true)
        .build(&parsed.program);
    if let Some(error) = built.diagnostics.into_iter().next() {
        return Err(Refusal::Syntax(error.to_string()));
    }
    work(&parsed.program, &built.semantic)
}

/// Returns the nesting depth of brackets.
fn brackets(script: &str) -> usize {
    let (mut depth, mut max) = (0usize, 0);
    for byte in script.bytes() {
        match byte {
            b'(' | b'[' | b'{' => {
                depth += 1;
                max = max.max(depth);
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    max
}
