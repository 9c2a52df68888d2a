//! Converts thrown values of users' code to errors. Inspecting them may run users' code again, so
//! each step may fail and is then skipped.

use std::ffi::CStr;

use query_server::language::Error;
use quickjs::{Interrupted, Scope, Value};

/// The text for a thrown value that cannot be shown.
const UNSHOWN: &str = "a value that cannot be shown";

/// Returns the error for a thrown value: `{forbidden: …}`, `{unauthorized: …}`, an `Error`,
/// CouchDB's `["error", name, reason]`, or anything else. Its texts are cut here, so that a worker
/// sends no long ones, and keeps none for the other calls of a request.
pub(super) fn error<'js>(scope: &Scope<'js>, value: &Value<'js>) -> Error {
    whole_error(scope, value).bounded()
}

fn whole_error<'js>(scope: &Scope<'js>, value: &Value<'js>) -> Error {
    if !value.is_object() {
        let reason = text(scope, value).unwrap_or_else(|| UNSHOWN.into());
        let name = "unnamed_error".into();
        return Error::Thrown { name, reason };
    }
    if let Some(reason) = member(scope, value, c"forbidden") {
        return Error::Forbidden(reason);
    }
    if let Some(reason) = member(scope, value, c"unauthorized") {
        return Error::Unauthorized(reason);
    }
    if value.is_array()
        && let Some("error" | "fatal") = member(scope, value, c"0").as_deref()
        && let Some(name) = member(scope, value, c"1")
    {
        let reason = member(scope, value, c"2").unwrap_or_default();
        return named(name, reason);
    }
    let name = member(scope, value, c"name");
    let message = member(scope, value, c"message");
    match (name, message) {
        (Some(name), message) => named(name, message.unwrap_or_default()),
        (None, Some(reason)) => named("unnamed_error".into(), reason),
        (None, None) => {
            let reason = text(scope, value).unwrap_or_else(|| UNSHOWN.into());
            named("unnamed_error".into(), reason)
        }
    }
}

fn named(name: String, reason: String) -> Error {
    if name == "compilation_error" {
        return Error::Compile(reason);
    }
    Error::Thrown { name, reason }
}

/// Returns whether a map function threw what CouchDB treats as fatal: `"fatal_error"` or `["fatal",
/// name, reason]`.
pub(super) fn fatal<'js>(scope: &Scope<'js>, value: &Value<'js>) -> Option<Error> {
    if value.is_string() {
        if text(scope, value)? != "fatal_error" {
            return None;
        }
        return Some(Error::Thrown {
            name: "map_runtime_error".into(),
            reason: "function raised 'fatal_error'".into(),
        });
    }
    if value.is_array() && member(scope, value, c"0")? == "fatal" {
        return Some(error(scope, value));
    }
    None
}

/// Returns one line about a thrown value, for the log.
pub(super) fn line<'js>(scope: &Scope<'js>, value: &Value<'js>) -> String {
    if !value.is_object() {
        return text(scope, value).unwrap_or_else(|| UNSHOWN.into());
    }
    match error(scope, value) {
        Error::Thrown { name, reason } => format!("{name}: {reason}"),
        other => other.to_string(),
    }
}

/// Returns the line, from 1, of the called function in which it threw an `Error`, or called the
/// function that did: the last position of the stack in users' sources.
pub(super) fn place<'js>(scope: &Scope<'js>, value: &Value<'js>) -> Option<u32> {
    if !value.is_object() {
        return None;
    }
    let stack = member(scope, value, c"stack")?;
    let (_, last) = stack.rsplit_once("(function:")?;
    let digits = last.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok().filter(|line| *line > 0)
}

/// Returns a member's text, `None` when it is missing.
fn member<'js>(scope: &Scope<'js>, object: &Value<'js>, name: &CStr) -> Option<String> {
    let value = looked_at(scope, scope.get(object, name))?;
    if value.is_nothing() {
        return None;
    }
    text(scope, &value)
}

/// Returns a string unchanged, other values as JSON, or as JavaScript shows them.
fn text<'js>(scope: &Scope<'js>, value: &Value<'js>) -> Option<String> {
    if !value.is_object() {
        return looked_at(scope, scope.text(value));
    }
    let json = looked_at(scope, scope.stringify(value))?;
    let shown = if json.is_string() { &json } else { value };
    looked_at(scope, scope.text(shown))
}

/// Returns the result of a step; what it threw is discarded.
fn looked_at<T>(scope: &Scope<'_>, result: Result<T, Interrupted>) -> Option<T> {
    if result.is_err() {
        drop(scope.take_exception());
    }
    result.ok()
}
