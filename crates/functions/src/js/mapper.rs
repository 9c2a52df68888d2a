//! Map functions over documents, in this thread.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use language::{Doc, Emit, Emits, Error, Indexes, MapGroup, Mapper, SLICE, Thrown};
use parking_lot::Mutex;
use profiler::Label;
use quickjs::{BuildError, Form, Heap, Kept, Limits, Scope, Value};
use telemetry::Tick;

use super::environment::{Environment, failure, limit_error, new_heap};
use super::host::Console;
use super::{IDLE_TIME_MAX, Options, thrown};

/// Documents after which the garbage collector is told to wait, which it does not do by itself once it has run.
const DOCS_BETWEEN: usize = 64;

/// The functions of a group, compiled in a heap of their own.
struct Compiled {
    heap: Heap,
    environment: Environment,
    console: Console,
    functions: Vec<Kept>,
    /// Names of the functions, for profiles.
    labels: Vec<Label>,
}

impl Compiled {
    fn new(limits: &Limits, group: &MapGroup) -> Result<Compiled, Error> {
        let mut heap = new_heap(limits)?;
        let console = Console::new(group.owner.to_string());
        let environment = Environment::new(&mut heap, &console)?;
        let functions = environment.enter(&mut heap, &console, |entered| {
            let modules = entered.modules(group.lib.as_deref())?;
            match group.indexes {
                Indexes::No => {}
                Indexes::Nouveau => entered.run(prelude::INDEX_OF_NOUVEAU, c"nouveau.js")?,
                Indexes::Clouseau => entered.run(prelude::INDEX_OF_CLOUSEAU, c"clouseau.js")?,
            }
            let mut functions = Vec::with_capacity(group.maps.len());
            for source in &group.maps {
                entered.scope.start_clock();
                let function = entered.compile(source, modules.as_ref())?;
                functions.push(entered.scope.keep(function));
            }
            Ok::<_, Error>(functions)
        })?;
        let labels = 0..group.maps.len();
        Ok(Compiled {
            heap,
            environment,
            console,
            functions,
            labels: labels.map(|n| Label::new(&group.owner.view(n))).collect(),
        })
    }
}

/// Compiled groups that no mapper uses at the moment: mappers come and go, and leave these for the next of the same group.
pub(super) struct Compilations {
    limits: Limits,
    idle_max: usize,
    /// The one used last is last.
    idle: Mutex<Vec<Unused>>,
}

struct Unused {
    group: MapGroup,
    compiled: Compiled,
    since: Instant,
}

impl Compilations {
    pub fn new(options: &Options) -> Compilations {
        Compilations {
            limits: options.limits(),
            idle_max: options.workers_max * 2,
            idle: Mutex::default(),
        }
    }

    fn take(&self, group: &MapGroup) -> Result<Compiled, Error> {
        let mut idle = self.idle.lock();
        let found = idle.iter().rposition(|unused| unused.group == *group);
        let found = found.map(|at| idle.remove(at));
        drop(idle);
        match found {
            Some(unused) => Ok(unused.compiled),
            None => Compiled::new(&self.limits, group),
        }
    }

    fn give_back(&self, group: MapGroup, compiled: Compiled) {
        // What an idle heap takes is taken from the process.
        if compiled.heap.memory_used() > self.limits.memory_bytes / 4 {
            return;
        }
        let unused = Unused {
            group,
            compiled,
            since: Instant::now(),
        };
        let mut idle = self.idle.lock();
        idle.push(unused);
        let oldest = (idle.len() > self.idle_max).then(|| idle.remove(0));
        drop(idle);
        drop(oldest);
    }

    /// Lets go of those that nobody used lately.
    pub fn rest(&self) {
        let mut idle = self.idle.lock();
        let ended: Vec<_> = idle
            .extract_if(.., |u| u.since.elapsed() > IDLE_TIME_MAX)
            .collect();
        drop(idle);
        drop(ended);
    }
}

/// A [`Mapper`] that runs in the calling thread.
pub(super) struct ThreadMapper {
    compilations: Arc<Compilations>,
    group: MapGroup,
    compiled: Option<Compiled>,
    /// The document that is mapped, as one JSON text.
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
            self.compilations.give_back(group, compiled);
        }
    }
}

#[cfg(test)]
impl ThreadMapper {
    /// The JavaScript heap.
    pub fn heap(&mut self) -> &mut Heap {
        &mut self.compiled.as_mut().expect("no limit was hit").heap
    }

    /// Takes the heap down in order; answers the bytes that were left.
    pub fn tear_down(mut self) -> usize {
        let compiled = self.compiled.take().expect("no limit was hit");
        compiled.heap.tear_down()
    }
}

impl Mapper for ThreadMapper {
    fn map(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<(), Error> {
        self.map_for(docs, out, Duration::MAX).map(drop)
    }

    fn map_some(&mut self, docs: &[Doc<'_>], out: &mut Emits) -> Result<usize, Error> {
        self.map_for(docs, out, SLICE)
    }
}

impl ThreadMapper {
    /// Maps documents until a time is over; answers how many.
    fn map_for(
        &mut self,
        docs: &[Doc<'_>],
        out: &mut Emits,
        time: Duration,
    ) -> Result<usize, Error> {
        let started = Instant::now();
        let mut compiled = match self.compiled.take() {
            Some(compiled) => compiled,
            None => self.compilations.take(&self.group)?,
        };
        let Compiled {
            heap,
            environment,
            console,
            functions,
            labels,
        } = &mut compiled;
        // With several functions, each gets a document of its own once one may have changed an array; those make what they ask for.
        let form = match (self.group.records, functions.len()) {
            (false, _) => Form::Lazy,
            (true, 1) => Form::Records,
            (true, _) => Form::LazyRecords,
        };
        let (text, tells) = (&mut self.text, self.group.tells);
        let emit_bytes_max = self.compilations.limits.emit_bytes_max;
        let done = environment.enter(heap, console, |entered| {
            let scope = entered.scope;
            let functions: Vec<_> = functions.iter().map(|kept| scope.kept(kept)).collect();
            for (index, doc) in docs.iter().enumerate() {
                if index.is_multiple_of(DOCS_BETWEEN) {
                    scope.raise_gc_threshold();
                }
                scope.start_clock();
                whole(doc, text);
                let pass = Pass {
                    scope,
                    console,
                    text,
                    form,
                    doc,
                    labels,
                    indexes: self.group.indexes,
                    index: index as u32,
                    tells,
                    end: end(out.bytes.len(), emit_bytes_max),
                };
                pass.run(&functions, out)?;
                if started.elapsed() >= time {
                    return Ok(index + 1);
                }
            }
            Ok::<_, Error>(docs.len())
        })?;
        // After an error, a limit above all, the heap is not used again.
        self.compiled = Some(compiled);
        Ok(done)
    }
}

/// Where the text of rows is to end. [`Emit`] has no larger numbers than 32 bits have.
fn end(start: usize, emit_bytes_max: usize) -> usize {
    start.saturating_add(emit_bytes_max).min(u32::MAX as usize)
}

/// The document's members and body as one object.
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

/// One document going through all functions.
struct Pass<'a, 'js> {
    scope: &'a Scope<'js>,
    console: &'a Console,
    text: &'a [u8],
    form: Form,
    doc: &'a Doc<'a>,
    labels: &'a [Label],
    indexes: Indexes,
    index: u32,
    tells: bool,
    end: usize,
}

impl<'js> Pass<'_, 'js> {
    fn run(&self, functions: &[Value<'js>], out: &mut Emits) -> Result<(), Error> {
        let mut document = None;
        for (view, function) in functions.iter().enumerate() {
            // What one function does to an array is not for the next to see.
            document.take_if(|document| self.scope.may_have_changed(document));
            let document = match &mut document {
                Some(document) => document,
                empty => match self.scope.document(self.text, self.form) {
                    Ok(document) => empty.insert(document),
                    Err(error) => return self.unbuilt(error, out),
                },
            };
            let began = Tick::now();
            profiler::labelled(&self.labels[view], || {
                self.call(view, function, document, out)
            })?;
            out.note_spent(view, began.elapsed_ns());
        }
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
        let emitted = self
            .scope
            .call_emitting(function, document, bytes, self.end, row);
        if emitted.is_err() {
            out.bytes.truncate(before.0);
            out.rows.truncate(before.1);
            out.note_failures(view, 1);
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
            .push(Thrown::new(self.index, view as u32, error, line));
    }

    /// A function threw, or hit a limit: the one is logged, the other ends the call.
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
            (false, false) => {
                let line = thrown::line(self.scope, &exception);
                self.log(view, &line);
            }
        }
        if let Some(limit) = self.scope.over() {
            return Err(limit_error(self.scope.limits(), limit));
        }
        fatal.map_or(Ok(()), Err)
    }

    #[cold]
    fn unbuilt(&self, error: BuildError, out: &mut Emits) -> Result<(), Error> {
        let what = match error {
            BuildError::Exception => {
                let error = failure(self.scope);
                if self.scope.over().is_some() {
                    return Err(error);
                }
                error.to_string()
            }
            BuildError::Depth => "the document nests too deeply".to_owned(),
            BuildError::Syntax => "the document is not JSON".to_owned(),
        };
        if self.tells {
            let error = Error::Thrown {
                name: "badarg".into(),
                reason: what,
            };
            self.tell(0, error, None, out);
        } else {
            self.log(0, &what);
        }
        Ok(())
    }
}
