//! Differences: constructs by which a function depends on a behaviour of SpiderMonkey, CouchDB's
//! engine, that this project's engine does not have.
//!
//! Behaviour that this engine shares with SpiderMonkey (sorting by inconsistent comparisons, `RegExp.$1`,
//! dates in other forms than ISO 8601, `toSource` and so on) is not listed: see
//! `crates/query-server/prelude/spidermonkey.js`.

mod design;
mod kind;
mod legacy;
mod tokens;
mod tree;

pub use design::{DesignFunction, Form, design_functions};
pub use kind::{Effect, KINDS, Kind};

use oxc_span::Span;

use crate::refusal::Refusal;
use crate::source;

/// Longest excerpt of a source, in characters.
const EXCERPT_CHARS_MAX: usize = 60;

/// A place in a source that depends on the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The difference.
    pub kind: &'static Kind,
    /// The line in the source, from 1.
    pub line: u32,
    /// The column in that line, in characters, from 1.
    pub column: u32,
    /// The source from there on: a line of at most 60 characters.
    pub code: String,
}

/// Places in a script, with their kinds.
type Places = Vec<(Span, &'static Kind)>;

/// Returns the places in a source that depend on the engine, in their order.
///
/// ```
/// use projection::{Form, differences};
///
/// let map = "function (doc) {\n  if (doc.tags instanceof Array) doc.tags.forEach(emit);\n}";
/// let found = differences(map, Form::Function).unwrap();
/// assert_eq!((found[0].kind.id, found[0].line, found[0].column), ("instanceof", 2, 7));
/// assert_eq!(found[0].code, "doc.tags instanceof Array");
/// assert!(differences("function (doc) { emit(doc.a) }", Form::Function).unwrap().is_empty());
/// ```
///
/// # Errors
/// Why the source cannot be read: it is too long, or does not compile for a reason that is not a
/// difference.
pub fn differences(source: &str, form: Form) -> Result<Vec<Difference>, Refusal> {
    source::on_large_stack(source.len(), || match form {
        Form::Function => of_function(source),
        Form::Module => of_module(source),
    })?
}

fn of_function(source: &str) -> Result<Vec<Difference>, Refusal> {
    let trimmed = source.trim_end_matches(|c: char| c == ';' || c.is_whitespace());
    let expression = format!("({trimmed}\n)");
    let found = places(&expression).map(|places| (places, 1));
    // Named functions may follow other statements.
    let found =
        found.or_else(|refusal| places(source).map(|found| (found, 0)).map_err(|_| refusal));
    located(source, found)
}

fn of_module(source: &str) -> Result<Vec<Difference>, Refusal> {
    const START: &str = "(function (module, exports, require) { ";
    let script = format!("{START}{source}\n }})");
    located(source, places(&script).map(|places| (places, START.len())))
}

fn places(script: &str) -> Result<Places, Refusal> {
    source::with_semantic(script, |_, semantic| Ok(tree::places(semantic)))
}

/// Locates places of a script in the source that begins in it at an offset. A source that does not
/// compile is searched for syntax of old versions.
fn located(
    source: &str,
    found: Result<(Places, usize), Refusal>,
) -> Result<Vec<Difference>, Refusal> {
    let mut found: Vec<(usize, Option<usize>, &'static Kind)> = match found {
        Ok((places, start)) => {
            let in_source = |at: u32| (at as usize).saturating_sub(start);
            let places = places.into_iter();
            places
                .map(|(span, kind)| (in_source(span.start), Some(in_source(span.end)), kind))
                .collect()
        }
        Err(refusal) => {
            let places = legacy::legacy(source);
            if places.is_empty() {
                return Err(refusal);
            }
            places
                .into_iter()
                .map(|(at, kind)| (at, None, kind))
                .collect()
        }
    };
    found.sort_by_key(|(at, ..)| *at);
    let differences = found.into_iter();
    Ok(differences
        .map(|(at, end, kind)| difference(source, at, end, kind))
        .collect())
}

/// `at` and `end` are offsets of characters in the source.
fn difference(source: &str, at: usize, end: Option<usize>, kind: &'static Kind) -> Difference {
    let (before, rest) = source.split_at(source.floor_char_boundary(at));
    let line = before.rsplit('\n').next().unwrap_or_default();
    let code = match end {
        Some(end) => &rest[..rest.floor_char_boundary(end.saturating_sub(before.len()))],
        None => rest,
    };
    let code = code.lines().next().unwrap_or_default().trim_end();
    let is_cut = code.chars().count() > EXCERPT_CHARS_MAX;
    let mut code: String = code.chars().take(EXCERPT_CHARS_MAX).collect();
    if is_cut {
        code.push('…');
    }
    Difference {
        kind,
        line: before.matches('\n').count() as u32 + 1,
        column: line.chars().count() as u32 + 1,
        code,
    }
}
