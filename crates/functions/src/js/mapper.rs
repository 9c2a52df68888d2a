//! Map functions over documents, in this thread.

use std::time::{Duration, Instant};

use rquickjs_sys as qjs;

use super::Options;
use super::build::BuildError;
use super::context::{Context, Form, Value};
use super::runtime::{Limit, Runtime};
use super::thrown;
use super::write::Failed;
use crate::{Doc, Emit, Emits, Error, MapGroup, Mapper, SLICE};

/// Documents after which the garbage collector is told to wait, which it does not do by itself once it has run.
const DOCS_BETWEEN: usize = 64;

/// The functions of a group, compiled in a runtime of their own.
struct Compiled {
    // First, so that nothing of it is used after the runtime.
    context: Context,
    runtime: Runtime,
    /// Owned by the context's heap, freed with the runtime.
    functions: Vec<qjs::JSValue>,
}

// SAFETY: see `Runtime`; the functions are values of it.
unsafe impl Send for Compiled {}

impl Compiled {
    fn new(options: &Options, group: &MapGroup) -> Result<Compiled, Error> {
        let runtime = Runtime::new(options)?;
        runtime.control().log.borrow_mut().label = group.owner.to_string();
        let (context, functions) = runtime.enter(|| {
            let mut context = Context::new(&runtime)?;
            let modules = context.modules(group.lib.as_deref())?;
            let mut functions = Vec::with_capacity(group.maps.len());
            for source in &group.maps {
                runtime.control().start_clock();
                functions.push(context.compile(source, modules.as_ref())?.into_raw());
            }
            Ok::<_, Error>((context, functions))
        })?;
        Ok(Compiled {
            context,
            runtime,
            functions,
        })
    }
}

/// A [`Mapper`] that runs in the calling thread.
pub(super) struct ThreadMapper {
    options: Options,
    group: MapGroup,
    compiled: Option<Compiled>,
    /// The document that is mapped, as one JSON text.
    text: Vec<u8>,
}

impl ThreadMapper {
    pub fn new(options: &Options, group: &MapGroup) -> Result<ThreadMapper, Error> {
        Ok(ThreadMapper {
            options: options.clone(),
            group: group.clone(),
            compiled: Some(Compiled::new(options, group)?),
            text: Vec::new(),
        })
    }
}

#[cfg(test)]
impl ThreadMapper {
    fn compiled(&self) -> &Compiled {
        self.compiled.as_ref().expect("no limit was hit")
    }

    /// Bytes that the JavaScript heap has in use.
    pub fn memory_used(&self) -> usize {
        self.compiled().runtime.memory_used()
    }

    /// From now on garbage is collected whenever a document's object is made, which must not see anything half made.
    pub fn stress(&self) {
        self.compiled().runtime.control().stress.set(true);
    }

    pub fn collect(&self) {
        self.compiled().runtime.collect();
    }

    /// Takes the heap down in order; answers the bytes that were left.
    pub fn close(mut self) -> usize {
        let compiled = self.compiled.take().expect("no limit was hit");
        let ctx = compiled.context.ctx();
        for function in compiled.functions {
            // SAFETY: the functions are owned here.
            unsafe { qjs::JS_FreeValue(ctx, function) };
        }
        compiled.context.close();
        compiled.runtime.close()
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
            None => Compiled::new(&self.options, &self.group)?,
        };
        let Compiled {
            context,
            runtime,
            functions,
        } = &mut compiled;
        // With several functions, each gets a document of its own once one may have changed an array; those make what they ask for.
        let form = match (self.group.records, functions.len()) {
            (false, _) => Form::Lazy,
            (true, 1) => Form::Records,
            (true, _) => Form::LazyRecords,
        };
        let done = runtime.enter(|| {
            for (index, doc) in docs.iter().enumerate() {
                if index.is_multiple_of(DOCS_BETWEEN) {
                    runtime.raise_gc_threshold();
                }
                runtime.control().start_clock();
                whole(doc, &mut self.text);
                let mut pass = Pass {
                    context,
                    functions,
                    text: &self.text,
                    form,
                    doc,
                    index: index as u32,
                    end: (out.bytes.len()).saturating_add(self.options.emit_bytes_max),
                };
                pass.run(out)?;
                if started.elapsed() >= time {
                    return Ok(index + 1);
                }
            }
            Ok::<_, Error>(docs.len())
        })?;
        // After an error, a limit above all, the runtime is not used again.
        self.compiled = Some(compiled);
        Ok(done)
    }
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
struct Pass<'a> {
    context: &'a mut Context,
    functions: &'a [qjs::JSValue],
    text: &'a [u8],
    form: Form,
    doc: &'a Doc<'a>,
    index: u32,
    end: usize,
}

impl Pass<'_> {
    fn run(&mut self, out: &mut Emits) -> Result<(), Error> {
        let mut document = None;
        for (view, &function) in self.functions.iter().enumerate() {
            // What one function does to an array is not for the next to see.
            document.take_if(|document| self.context.may_have_changed(document));
            let document = match &mut document {
                Some(document) => document,
                empty => match self.context.document(self.text, self.form) {
                    Ok(document) => empty.insert(document),
                    Err(error) => return self.unbuilt(error),
                },
            };
            self.call(view, function, document, out)?;
        }
        Ok(())
    }

    fn call(
        &mut self,
        view: usize,
        function: qjs::JSValue,
        document: &Value,
        out: &mut Emits,
    ) -> Result<(), Error> {
        let control = self.context.control();
        control.emitting.set(true);
        let answer = self.context.call_raw(function, &[document.raw()]);
        // SAFETY: the answer is owned here, and freed once.
        let threw = unsafe {
            qjs::JS_FreeValue(self.context.ctx(), answer);
            qjs::JS_IsException(answer)
        };
        if !threw {
            self.context.run_jobs();
        }
        control.emitting.set(false);
        let mut emitted = control.emitted.take();
        let (bytes, rows) = (out.bytes.len(), out.rows.len());
        let written = if threw || control.over().is_some() {
            Err(Failed)
        } else {
            self.write(view, &emitted, out)
        };
        // SAFETY: `emit` put an owned reference of each in the list.
        unsafe {
            let ctx = self.context.ctx();
            for (key, value) in emitted.drain(..) {
                qjs::JS_FreeValue(ctx, key);
                qjs::JS_FreeValue(ctx, value);
            }
        }
        // The list keeps its memory for the next call.
        self.context.control().emitted.replace(emitted);
        if written.is_err() {
            out.bytes.truncate(bytes);
            out.rows.truncate(rows);
            return self.threw(view);
        }
        Ok(())
    }

    fn write(
        &mut self,
        view: usize,
        emitted: &[(qjs::JSValue, qjs::JSValue)],
        out: &mut Emits,
    ) -> Result<(), Failed> {
        for &(key, value) in emitted {
            let key = self.write_value(key, &mut out.bytes)?;
            let value = self.write_value(value, &mut out.bytes)?;
            out.rows.push(Emit {
                doc: self.index,
                view: view as u32,
                key,
                value,
            });
        }
        Ok(())
    }

    fn write_value(
        &mut self,
        value: qjs::JSValue,
        out: &mut Vec<u8>,
    ) -> Result<(u32, u32), Failed> {
        let start = out.len();
        self.context.write(value, out, self.end)?;
        let end = u32::try_from(out.len())
            .ok()
            .filter(|_| out.len() <= self.end);
        let Some(end) = end else {
            self.context.control().set_over(Limit::Bytes);
            return Err(Failed);
        };
        Ok((start as u32, end))
    }

    fn id(&self) -> String {
        let members = String::from_utf8_lossy(self.doc.members);
        let id = members.strip_prefix("\"_id\":\"").unwrap_or(&members);
        id.split('"').next().unwrap_or_default().to_owned()
    }

    /// A function threw, or hit a limit: the one is logged, the other ends the call.
    #[cold]
    fn threw(&mut self, view: usize) -> Result<(), Error> {
        let ctx = self.context.ctx();
        let control = self.context.control();
        // SAFETY: the context is entered; the exception is freed once, after its last use.
        let fatal = unsafe {
            let exception = qjs::JS_GetException(ctx);
            let fatal = thrown::fatal(ctx, exception);
            if fatal.is_none() && control.over().is_none() {
                let line = thrown::line(ctx, exception);
                control.log.borrow_mut().threw(view, &self.id(), &line);
            }
            qjs::JS_FreeValue(ctx, exception);
            fatal
        };
        if let Some(limit) = control.over() {
            return Err(control.limit_error(limit));
        }
        fatal.map_or(Ok(()), Err)
    }

    #[cold]
    fn unbuilt(&mut self, error: BuildError) -> Result<(), Error> {
        let control = self.context.control();
        let what = match error {
            BuildError::Exception => {
                let error = self.context.error();
                if let Some(limit) = control.over() {
                    return Err(control.limit_error(limit));
                }
                error.to_string()
            }
            BuildError::Depth => "the document nests too deeply".to_owned(),
            BuildError::Syntax => "the document is not JSON".to_owned(),
        };
        control.log.borrow_mut().threw(0, &self.id(), &what);
        Ok(())
    }
}
