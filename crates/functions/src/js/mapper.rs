//! Map functions over documents, in this thread.
//!
//! The functions of a group share a heap, which belongs to their database. It is rewound after each
//! call of a function that may leave something behind, and after each batch of documents.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use profiler::Label;
use projection::{Arguments, LastingEffect, lasting_effect, required};
use query_server::language::{
    Doc, EMITS_BYTES_MAX, Emit, Emits, Error, Indexes, MEMORY_LIMIT, MapFailure, MapGroup, Mapper,
    SLICE,
};
use quickjs::{BuildError, CallTimer, Form, Limit, Limits, RetainedValue, Scope, Value};
use telemetry::Tick;

use super::environment::{Entered, TOO_DEEP, failure, limit_error};
use super::host::Console;
use super::idle::Idle;
use super::sandbox::Sandbox;
use super::{IDLE_TIME_MAX, Options, thrown};

/// Number of documents after which the garbage collector's threshold is raised, which it does not
/// do on its own after a run.
const DOCS_BETWEEN: usize = 64;
/// Maximum number of idle heaps.
const IDLE_MAX: usize = 12;

/// The compiled functions of a group, in a heap of their own.
struct Compiled {
    sandbox: Sandbox,
    functions: Vec<RetainedValue>,
    /// Whether each function is known to leave nothing behind.
    leave_nothing: Vec<bool>,
    /// Names of the functions, for profiles.
    labels: Vec<Label>,
}

impl Compiled {
    fn new(limits: &Limits, group: &MapGroup) -> Result<Compiled, Error> {
        let console = Console::new(group.owner.to_string());
        let (sandbox, (functions, is_verbatim)) =
            Sandbox::new(limits, console, |entered| compile(entered, group))?;
        let labels = 0..group.maps.len();
        let leave_nothing = match is_verbatim {
            true => leave_nothing(group),
            false => vec![false; group.maps.len()],
        };
        Ok(Compiled {
            sandbox,
            functions,
            leave_nothing,
            labels: labels.map(|n| Label::new(&group.owner.view(n))).collect(),
        })
    }
}

/// Compiles the functions of a group; returns also whether all were compiled unchanged, so that a
/// check of their texts is a check of the functions. They are not if they keep matches of regular
/// expressions.
fn compile(
    entered: &Entered<'_, '_>,
    group: &MapGroup,
) -> Result<(Vec<RetainedValue>, bool), Error> {
    let modules = entered.modules(group.lib.as_deref())?;
    match group.indexes {
        Indexes::No => {}
        Indexes::Nouveau => entered.run(query_server::prelude::INDEX_OF_NOUVEAU, c"nouveau.js")?,
        Indexes::Clouseau => {
            entered.run(query_server::prelude::INDEX_OF_CLOUSEAU, c"clouseau.js")?
        }
    }
    let mut functions = Vec::with_capacity(group.maps.len());
    let texts = group.maps.iter().chain(&group.lib);
    let mut is_verbatim = !entered.adapt(texts.map(String::as_str))?;
    for source in &group.maps {
        entered.scope.start_clock();
        let function = entered.compile(source, modules.as_ref())?;
        is_verbatim = is_verbatim && entered.is_verbatim(&function)?;
        functions.push(entered.scope.keep(function));
    }
    if let Some(modules) = &modules {
        for source in &group.maps {
            entered.load(modules, &required(source))?;
        }
    }
    Ok((functions, is_verbatim))
}

/// Returns which functions of a group are known to leave nothing behind. That requires an
/// unmodified environment: none if compiling the others or loading their modules may change it.
fn leave_nothing(group: &MapGroup) -> Vec<bool> {
    let left = group.maps.iter();
    let left: Vec<_> = left
        .map(|map| lasting_effect(map, Arguments::Shared))
        .collect();
    let loads = |map: &String| group.lib.is_some() && !required(map).is_empty();
    let is_plain = !left.contains(&LastingEffect::ByCompilation) && !group.maps.iter().any(loads);
    let nothing = |left: &LastingEffect| is_plain && *left == LastingEffect::Nothing;
    left.iter().map(nothing).collect()
}

/// Idle compiled groups: mappers return them for the next mapper of the same group.
pub(super) struct Compilations {
    limits: Limits,
    idle: Idle<Unused>,
}

struct Unused {
    group: MapGroup,
    compiled: Compiled,
}

impl Compilations {
    pub fn new(options: &Options) -> Compilations {
        Compilations {
            limits: options.limits(),
            idle: Idle::new(
                IDLE_MAX.max(options.workers_max * 2),
                options.idle_bytes_max(),
            ),
        }
    }

    fn take(&self, group: &MapGroup) -> Result<Compiled, Error> {
        match self.idle.take(|unused| unused.group == *group) {
            Some(unused) => Ok(unused.compiled),
            None => Compiled::new(&self.limits, group),
        }
    }

    fn put(&self, group: MapGroup, compiled: Compiled) {
        let bytes = compiled.sandbox.footprint();
        self.idle.put(Unused { group, compiled }, bytes);
    }

    /// Drops those that were not used recently.
    pub fn rest(&self) {
        self.idle.rest(IDLE_TIME_MAX);
    }
}

/// A [`Mapper`] that runs in the calling thread.
pub(super) struct ThreadMapper {
    compilations: Arc<Compilations>,
    group: MapGroup,
    compiled: Option<Compiled>,
    /// The current document, as one JSON text.
    text: Vec<u8>,
}

impl ThreadMapper {
    pub fn new(compilations: &Arc<Compilations>, group: &MapGroup) -> Result<ThreadMapper, Error> {
        Ok(ThreadMapper {
            compiled: Some(compilations.take(group)?),
            compilations: compilations.clone(),
            group: group.clone(),
            text: Vec::new(),
        })
    }
}

impl Drop for ThreadMapper {
    fn drop(&mut self) {
        if let Some(compiled) = self.compiled.take() {
            let group = std::mem::take(&mut self.group);
            self.compilations.put(group, compiled);
        }
    }
}

#[cfg(test)]
impl ThreadMapper {
    /// Returns the JavaScript heap of a mapper that is not rewound.
    pub fn heap(&mut self) -> &mut quickjs::Heap {
        let compiled = self.compiled.as_mut().expect("no limit was hit");
        compiled.sandbox.heap()
    }

    /// Frees the heap normally; returns the bytes left.
    pub fn tear_down(mut self) -> usize {
        let compiled = self.compiled.take().expect("no limit was hit");
        compiled.sandbox.into_heap().tear_down()
    }
}

impl Mapper for ThreadMapper {
    fn map(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<(), Error> {
        self.map_for(docs, out, Duration::MAX, usize::MAX).map(drop)
    }

    fn map_some(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<usize, Error> {
        self.map_for(docs, out, SLICE, EMITS_BYTES_MAX)
    }
}

/// The next call: document and function, by index.
#[derive(Clone, Copy)]
struct At {
    doc: usize,
    view: usize,
    /// Measures the document's functions together.
    timer: CallTimer,
    /// The limit of the text of the document's rows.
    end: usize,
    /// The call, by document and view, that ran out of memory in a heap that may have kept some of earlier calls.
    retried: Option<(usize, usize)>,
}

impl At {
    fn is_second_try(&self) -> bool {
        self.retried == Some((self.doc, self.view))
    }
}

/// The reason for leaving the heap.
enum Left {
    /// All documents are mapped, or enough of them.
    Done,
    /// A function may have left something behind.
    ToRewind,
}

impl ThreadMapper {
    /// Maps documents until a time is over, or their rows take this number of bytes; returns their
    /// number.
    fn map_for(
        &mut self,
        docs: &[Doc<'_>],
        out: &mut Emits,
        time: Duration,
        bytes_max: usize,
    ) -> Result<usize, Error> {
        let (started, start) = (Instant::now(), out.size());
        let is_over = |size: usize| started.elapsed() >= time || size - start >= bytes_max;
        let mut at = At {
            doc: 0,
            view: 0,
            timer: CallTimer::start(self.compilations.limits.time),
            end: 0,
            retried: None,
        };
        loop {
            let limits = &self.compilations.limits;
            let mut compiled = match self.compiled.take() {
                Some(compiled) => compiled,
                None if at.is_second_try() => Compiled::new(limits, &self.group)?,
                None => self.compilations.take(&self.group)?,
            };
            if at.view > 0 && at.timer.is_late() {
                return Err(limit_error(limits, Limit::Time));
            }
            let left = match self.map_until(&mut compiled, docs, &mut at, out, is_over) {
                Ok(left) => left,
                // After an error, a limit above all, the heap is not used again.
                Err(error) => {
                    drop(compiled);
                    self.leave_out(error, &mut at, out)?;
                    let is_enough = at.doc == docs.len() || (at.doc > 0 && is_over(out.size()));
                    match at.view == 0 && is_enough {
                        true => return Ok(at.doc),
                        false => continue,
                    }
                }
            };
            if compiled.sandbox.rewind() {
                self.compiled = Some(compiled);
            }
            if let Left::Done = left {
                return Ok(at.doc);
            }
        }
    }

    /// Proceeds to the next call after one that failed, if the document is at fault and is to be left out.
    fn leave_out(&self, error: Error, at: &mut At, out: &mut Emits) -> Result<(), Error> {
        if !self.group.leaves_out || !error.is_of_document() {
            return Err(error);
        }
        // The time of the failed call is not that of the next.
        at.timer = CallTimer::start(self.compilations.limits.time);
        let is_of_memory = matches!(error, Error::Limit { limit, .. } if limit == MEMORY_LIMIT);
        if is_of_memory && !at.is_second_try() {
            at.retried = Some((at.doc, at.view));
            return Ok(());
        }
        let (doc, view) = (at.doc as u32, at.view as u32);
        out.thrown.push(MapFailure::new(doc, view, error, None));
        at.view += 1;
        if at.view >= self.group.maps.len() {
            at.view = 0;
            at.doc += 1;
        }
        Ok(())
    }

    /// Returns the form of a document for this number of functions.
    fn form(&self, functions: usize) -> Form {
        // With several functions, each gets a document of its own once one may have changed an
        // array; those build only what is accessed.
        match (self.group.records, functions) {
            (false, _) => Form::Lazy,
            (true, 1) => Form::Records,
            (true, _) => Form::LazyRecords,
        }
    }

    /// Maps documents until the heap has to be rewound, or until `is_over`, which gets the size of the
    /// rows after each document, returns true.
    fn map_until(
        &mut self,
        compiled: &mut Compiled,
        docs: &[Doc<'_>],
        at: &mut At,
        out: &mut Emits,
        is_over: impl Fn(usize) -> bool,
    ) -> Result<Left, Error> {
        let Compiled {
            sandbox,
            functions,
            leave_nothing,
            labels,
        } = compiled;
        let count = functions.len();
        let is_rewound = leave_nothing.contains(&false);
        let form = self.form(count);
        let (text, group) = (&mut self.text, &self.group);
        let limits = &self.compilations.limits;
        let (heap, environment, console) = sandbox.parts();
        environment.enter(heap, console, |entered| {
            let scope = entered.scope;
            let functions: Vec<_> = functions.iter().map(|kept| scope.kept(kept)).collect();
            while let Some(doc) = docs.get(at.doc) {
                if at.doc.is_multiple_of(DOCS_BETWEEN) {
                    scope.raise_gc_threshold();
                }
                if at.view == 0 {
                    // Functions that leave nothing share one clock, which the heap keeps.
                    if is_rewound {
                        at.timer = CallTimer::start(limits.time);
                    }
                    at.end = end(out.bytes.len(), limits.emit_bytes_max);
                    whole(doc, text);
                }
                scope.start_clock();
                let pass = Pass {
                    scope,
                    console,
                    text,
                    form,
                    doc,
                    labels,
                    leave_nothing,
                    indexes: group.indexes,
                    index: at.doc as u32,
                    tells: group.tells,
                    leaves_out: group.leaves_out,
                    end: at.end,
                };
                pass.run(&functions, &mut at.view, out)?;
                let last = leave_nothing.get(at.view.wrapping_sub(1));
                let is_restored = last.is_none_or(|nothing| *nothing);
                if at.view >= count {
                    at.view = 0;
                    at.doc += 1;
                    if is_over(out.size()) {
                        return Ok(Left::Done);
                    }
                }
                if !is_restored {
                    return Ok(match at.doc < docs.len() {
                        true => Left::ToRewind,
                        false => Left::Done,
                    });
                }
            }
            Ok(Left::Done)
        })
    }
}

/// Returns the limit of the text of rows. [`Emit`] has 32-bit numbers.
fn end(start: usize, emit_bytes_max: usize) -> usize {
    start.saturating_add(emit_bytes_max).min(u32::MAX as usize)
}

/// Joins the document's members and body to one object.
fn whole(doc: &Doc<'_>, text: &mut Vec<u8>) {
    text.clear();
    text.push(b'{');
    text.extend_from_slice(doc.members);
    let rest = doc.body.get(1..).unwrap_or(b"}");
    if rest != b"}" && !doc.members.is_empty() {
        text.push(b',');
    }
    text.extend_from_slice(rest);
}

/// One document on its way through all functions.
struct Pass<'a, 'js> {
    scope: &'a Scope<'js>,
    console: &'a Console,
    text: &'a [u8],
    form: Form,
    doc: &'a Doc<'a>,
    labels: &'a [Label],
    leave_nothing: &'a [bool],
    indexes: Indexes,
    index: u32,
    tells: bool,
    leaves_out: bool,
    end: usize,
}

impl<'js> Pass<'_, 'js> {
    /// Calls functions from `next` on, up to one that may leave something behind. Afterwards `next` is the function to
    /// call next, or the function that failed.
    fn run(
        &self,
        functions: &[Value<'js>],
        next: &mut usize,
        out: &mut Emits,
    ) -> Result<(), Error> {
        let mut document = None;
        for (view, function) in functions.iter().enumerate().skip(*next) {
            *next = view;
            // A function must not see what the one before did to an array.
            document.take_if(|document| self.scope.may_have_changed(document));
            let document = match &mut document {
                Some(document) => document,
                empty => match self.scope.document(self.text, self.form) {
                    Ok(document) => empty.insert(document),
                    Err(error) => {
                        self.unbuilt(error, view..functions.len(), out)?;
                        *next = functions.len();
                        return Ok(());
                    }
                },
            };
            let began = Tick::now();
            profiler::labelled(&self.labels[view], || {
                self.call(view, function, document, out)
            })?;
            out.note_spent(view, began.elapsed_ns());
            if !self.leave_nothing[view] {
                *next = view + 1;
                return Ok(());
            }
        }
        *next = functions.len();
        Ok(())
    }

    fn call(
        &self,
        view: usize,
        function: &Value<'js>,
        document: &Value<'js>,
        out: &mut Emits,
    ) -> Result<(), Error> {
        let Emits { bytes, rows, .. } = out;
        let before = (bytes.len(), rows.len());
        let span = |text: Range<usize>| (text.start as u32, text.end as u32);
        let row = |key, value| {
            rows.push(Emit {
                doc: self.index,
                view: view as u32,
                key: span(key),
                value: span(value),
            });
        };
        // Of this call only.
        self.scope.was_too_deep();
        let emitted = self
            .scope
            .call_emitting(function, document, bytes, self.end, row);
        if emitted.is_err() {
            out.bytes.truncate(before.0);
            out.rows.truncate(before.1);
            return self.threw(view, out);
        }
        Ok(())
    }

    fn id(&self) -> String {
        let members = String::from_utf8_lossy(self.doc.members);
        let id = members.strip_prefix("\"_id\":\"").unwrap_or(&members);
        id.split('"').next().unwrap_or_default().to_owned()
    }

    fn log(&self, view: usize, what: &str) {
        let mut log = self.console.log.borrow_mut();
        let view = (self.indexes == Indexes::No).then_some(view);
        log.threw(view, &self.id(), what);
    }

    fn tell(&self, view: usize, error: Error, line: Option<u32>, out: &mut Emits) {
        out.thrown
            .push(MapFailure::new(self.index, view as u32, error, line));
    }

    /// Leaves a document that nests too deeply out of views.
    fn leave_out(&self, views: Range<usize>, out: &mut Emits) {
        for view in views {
            let error = Error::BadArgument(TOO_DEEP.to_owned());
            self.tell(view, error, None, out);
        }
    }

    /// Handles a function that threw, which is logged, or hit a limit, which ends the call.
    #[cold]
    fn threw(&self, view: usize, out: &mut Emits) -> Result<(), Error> {
        let exception = self.scope.take_exception();
        let fatal = thrown::fatal(self.scope, &exception);
        match (fatal.is_some() || self.scope.over().is_some(), self.tells) {
            (true, _) => {}
            (false, true) => {
                let place = thrown::place(self.scope, &exception);
                let error = thrown::error(self.scope, &exception);
                self.tell(view, error, place, out);
            }
            (false, false) if self.leaves_out && self.scope.was_too_deep() => {
                self.leave_out(view..view + 1, out);
            }
            (false, false) => {
                let line = thrown::line(self.scope, &exception);
                self.log(view, &line);
            }
        }
        if let Some(limit) = self.scope.over() {
            return Err(limit_error(self.scope.limits(), limit));
        }
        out.note_failures(view, 1);
        fatal.map_or(Ok(()), Err)
    }

    #[cold]
    fn unbuilt(
        &self,
        error: BuildError,
        views: Range<usize>,
        out: &mut Emits,
    ) -> Result<(), Error> {
        if error == BuildError::Depth && self.leaves_out && !self.tells {
            self.leave_out(views, out);
            return Ok(());
        }
        let what = match error {
            BuildError::Exception => {
                let error = failure(self.scope);
                if self.scope.over().is_some() {
                    return Err(error);
                }
                error.to_string()
            }
            BuildError::Depth => TOO_DEEP.to_owned(),
            BuildError::Syntax => "the document is not JSON".to_owned(),
        };
        if self.tells {
            let error = Error::Thrown {
                name: "bad_request".into(),
                reason: what,
            };
            self.tell(0, error, None, out);
        } else {
            self.log(0, &what);
        }
        Ok(())
    }
}
