//! Filters, updates, shows, lists, validations and rewrites, in this thread.
//!
//! Each function of each database has a heap of its own. Changes of one call are not visible to the
//! next: the heap is rewound to the state when the design document had just been read, its function
//! compiled and its modules loaded. Calls with several documents (of a filter), or several calls at
//! a time (of a validation), are rewound in between unless the function is known to leave nothing
//! behind.

use std::sync::Arc;
use std::time::Instant;

use projection::{Arguments, LastingEffect, lasting_effect, required};
use query_server::language::{DesignDoc, Designs, Error, ListIo, SLICE};
use quickjs::{CallTimer, Limit, Limits};

use super::environment::{Entered, Prelude, limit_error};
use super::host::{Console, Listing};
use super::idle::Idle;
use super::sandbox::Sandbox;
use super::{IDLE_TIME_MAX, Options};

/// Maximum number of idle heaps.
const IDLE_MAX: usize = 16;

/// Heaps of functions of design documents.
pub(super) struct Heaps {
    limits: Limits,
    idle: Idle<Prepared>,
}

/// A function of a design document of a database.
struct Function<'a> {
    database: &'a str,
    ddoc: &'a DesignDoc,
    path: &'a [&'a str],
}

/// The heap of one function.
struct Prepared {
    sandbox: Sandbox,
    database: Arc<str>,
    ddoc: DesignDoc,
    path: Vec<String>,
    leaves_nothing: bool,
}

impl Heaps {
    pub fn new(options: &Options) -> Heaps {
        Heaps {
            limits: options.limits(),
            idle: Idle::new(IDLE_MAX, options.idle_bytes_max()),
        }
    }

    /// Drops heaps that were not used recently.
    pub fn rest(&self) {
        self.idle.rest(IDLE_TIME_MAX);
    }

    fn take(&self, function: &Function<'_>) -> Result<Prepared, Error> {
        match self.idle.take(|prepared| prepared.is(function)) {
            Some(prepared) => Ok(prepared),
            None => Prepared::new(&self.limits, function),
        }
    }

    /// Returns the heap for the next call, rewound; a new one if it cannot be rewound.
    fn next(&self, mut prepared: Prepared, function: &Function<'_>) -> Result<Prepared, Error> {
        match prepared.sandbox.rewind() {
            true => Ok(prepared),
            false => self.take(function),
        }
    }

    fn put(&self, mut prepared: Prepared) {
        if prepared.sandbox.rewind() {
            let bytes = prepared.sandbox.footprint();
            self.idle.put(prepared, bytes);
        }
    }

    /// Executes a call, and returns the heap to the pool unless it cannot be used again.
    fn answer(
        &self,
        mut prepared: Prepared,
        function: &Function<'_>,
        args: &[u8],
    ) -> (Result<Vec<u8>, Error>, Option<Prepared>) {
        if !prepared.leaves_nothing
            && let Some(documents) = Documents::of(function.path, args)
        {
            return match self.answer_each(prepared, function, &documents) {
                Ok((reply, prepared)) => (Ok(reply), Some(prepared)),
                Err(error) => (Err(error), None),
            };
        }
        let reply = prepared.call(function, args);
        (reply, Some(prepared))
    }

    /// Executes one call for each of several documents: the replies of all in one.
    fn answer_each(
        &self,
        mut prepared: Prepared,
        function: &Function<'_>,
        documents: &Documents<'_>,
    ) -> Result<(Vec<u8>, Prepared), Error> {
        let mut timer = CallTimer::start(self.limits.time);
        let mut passed: Vec<&str> = Vec::with_capacity(documents.each.len());
        for (n, document) in documents.each.iter().enumerate() {
            if n > 0 {
                prepared = self.next(prepared, function)?;
            }
            // All of them share the time limit of one call.
            if timer.is_late() {
                return Err(limit_error(&self.limits, Limit::Time));
            }
            let reply = prepared.call(function, &documents.only(document))?;
            passed.push(match &*reply {
                b"[true,[true]]" => "true",
                b"[true,[false]]" => "false",
                _ => return Err(Error::Process("a filter gave no answer".into())),
            });
        }
        let reply = format!("[true,[{}]]", passed.join(","));
        Ok((reply.into_bytes(), prepared))
    }
}

impl Prepared {
    fn new(limits: &Limits, function: &Function<'_>) -> Result<Prepared, Error> {
        let Function {
            database,
            ddoc,
            path,
        } = *function;
        let console = Console::new(format!("{database}/{}", ddoc.id));
        let (sandbox, (source, is_untouched)) = Sandbox::new(limits, console, |entered| {
            let id = entered.string(&ddoc.id)?;
            let value = entered.value(&ddoc.json)?;
            entered.prelude(Prelude::AddDesign, [&id, &value])?;
            let path = entered.strings(path)?;
            let source = entered.prelude(Prelude::Source, [&id, &path])?;
            let source = entered.done(entered.scope.text(&source))?;
            let names = required(&source);
            let loads = !names.is_empty();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let names = entered.strings(&names)?;
            // Loading modules may read matches, and modules that are loaded later may name them.
            let keeps = entered.adapt(std::str::from_utf8(&ddoc.json))?;
            entered.scope.start_clock();
            let is_verbatim = entered.prelude(Prelude::Prepare, [&id, &path, &names])?;
            // The check for state that a function leaves behind examines its text, and assumes an
            // unmodified environment.
            let is_untouched = entered.is_true(&is_verbatim)? && !loads && !keeps;
            Ok((source, is_untouched))
        })?;
        let left = || lasting_effect(&source, Arguments::Shared);
        Ok(Prepared {
            sandbox,
            database: database.into(),
            ddoc: ddoc.clone(),
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            leaves_nothing: is_untouched && left() == LastingEffect::Nothing,
        })
    }

    fn is(&self, function: &Function<'_>) -> bool {
        let same = |known: &DesignDoc, ddoc: &DesignDoc| {
            Arc::ptr_eq(&known.json, &ddoc.json) || known == ddoc
        };
        *self.database == *function.database
            && self.path == function.path
            && same(&self.ddoc, function.ddoc)
    }

    fn call(&mut self, function: &Function<'_>, args: &[u8]) -> Result<Vec<u8>, Error> {
        self.sandbox.enter(|entered| {
            let answer = call(entered, Prelude::Call, function, args)?;
            entered.json(&answer)
        })
    }
}

/// Calls the prelude's `call` or `list`.
fn call<'js>(
    entered: &Entered<'_, 'js>,
    prelude: Prelude,
    function: &Function<'_>,
    args: &[u8],
) -> Result<quickjs::Value<'js>, Error> {
    entered.scope.start_clock();
    let id = entered.string(&function.ddoc.id)?;
    let path = entered.strings(function.path)?;
    let args = entered.value(args)?;
    entered.prelude(prelude, [&id, &path, &args])
}

/// The arguments of a filter, `[[document, …], …]`.
struct Documents<'a> {
    each: Vec<&'a [u8]>,
    /// The text after the documents, including the final bracket.
    rest: &'a [u8],
}

impl<'a> Documents<'a> {
    /// Splits the arguments of a filter of more than one document.
    fn of(path: &[&str], args: &'a [u8]) -> Option<Documents<'a>> {
        if !matches!(path.first(), Some(&"filters" | &"views")) {
            return None;
        }
        let inner = args.strip_prefix(b"[[")?;
        let (mut each, mut start) = (Vec::new(), 0);
        let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
        for (at, &byte) in inner.iter().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_text => escaped = true,
                b'"' => in_text = !in_text,
                _ if in_text => {}
                b'[' | b'{' => depth += 1,
                b']' if depth == 0 => {
                    each.push(&inner[start..at]);
                    let rest = &inner[at + 1..];
                    return (each.len() > 1).then_some(Documents { each, rest });
                }
                b']' | b'}' => depth -= 1,
                b',' if depth == 0 => {
                    each.push(&inner[start..at]);
                    start = at + 1;
                }
                _ => {}
            }
        }
        None
    }

    /// Returns the arguments with one document.
    fn only(&self, document: &[u8]) -> Vec<u8> {
        [b"[[", document, b"]", self.rest].concat()
    }
}

/// [`Designs`] that run in the calling thread.
pub(super) struct ThreadDesigns {
    pub heaps: Arc<Heaps>,
    pub database: Arc<str>,
}

impl Designs for ThreadDesigns {
    fn call(&mut self, ddoc: &DesignDoc, path: &[&str], args: &[u8]) -> Result<Vec<u8>, Error> {
        let mut replies = self.call_some(ddoc, path, &[args]);
        replies
            .pop()
            .unwrap_or_else(|| Err(Error::Process("no reply".into())))
    }

    fn call_some(
        &mut self,
        ddoc: &DesignDoc,
        path: &[&str],
        args: &[&[u8]],
    ) -> Vec<Result<Vec<u8>, Error>> {
        let function = Function {
            database: &self.database,
            ddoc,
            path,
        };
        let started = Instant::now();
        let mut replies = Vec::with_capacity(args.len());
        let mut last: Option<Prepared> = None;
        for args in args {
            let prepared = match last.take() {
                Some(prepared) if prepared.leaves_nothing => Ok(prepared),
                Some(prepared) => self.heaps.next(prepared, &function),
                None => self.heaps.take(&function),
            };
            let prepared = match prepared {
                Ok(prepared) => prepared,
                Err(error) => {
                    replies.push(Err(error));
                    break;
                }
            };
            let (reply, prepared) = self.heaps.answer(prepared, &function, args);
            replies.push(reply);
            last = prepared;
            let is_over = last
                .as_ref()
                .is_none_or(|last| last.sandbox.over().is_some());
            if is_over || started.elapsed() >= SLICE {
                break;
            }
        }
        if let Some(last) = last {
            self.heaps.put(last);
        }
        replies
    }

    fn list(
        &mut self,
        ddoc: &DesignDoc,
        path: &[&str],
        args: &[u8],
        io: &mut dyn ListIo,
    ) -> Result<(), Error> {
        let function = Function {
            database: &self.database,
            ddoc,
            path,
        };
        let mut prepared = self.heaps.take(&function)?;
        let (heap, environment, console) = prepared.sandbox.parts();
        let listing = Listing::new(console, io);
        let answer = environment.enter(heap, &listing, |entered| {
            call(entered, Prelude::List, &function, args).map(drop)
        });
        let answer = listing.ended(answer);
        self.heaps.put(prepared);
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_a_filter_are_divided() {
        let only = |args: &str| -> Option<Vec<String>> {
            let documents = Documents::of(&["filters", "f"], args.as_bytes())?;
            let only = documents.each.iter().map(|one| documents.only(one));
            Some(only.map(|args| String::from_utf8(args).unwrap()).collect())
        };
        assert_eq!(
            only(r#"[[{"a":"],\"","b":[1,{}]},{"c":"\\"}],{"q":[]}]"#),
            Some(vec![
                r#"[[{"a":"],\"","b":[1,{}]}],{"q":[]}]"#.to_owned(),
                r#"[[{"c":"\\"}],{"q":[]}]"#.to_owned(),
            ])
        );
        assert_eq!(only("[[1,2]]"), Some(vec!["[[1]]".into(), "[[2]]".into()]));
        assert_eq!(only("[[1]]"), None);
        assert_eq!(only("[[]]"), None);
        assert_eq!(only("[[1,2"), None);
        assert!(Documents::of(&["validate_doc_update"], b"[[1,2]]").is_none());
    }
}
