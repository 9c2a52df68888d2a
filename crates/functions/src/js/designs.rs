//! Filters, updates, shows, lists, validations and rewrites, in this thread.
//!
//! What one call changes in its heap is not seen by the next: heaps are taken back to what they were when the design document
//! had just been read, its function compiled and its modules run.

use std::mem;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::Options;
use super::context::{Context, Prelude, Value};
use super::host;
use super::image::Image;
use super::runtime::Runtime;
use crate::{DesignDoc, Designs, Error, ListIo, SLICE};

/// Heaps kept for the next calls.
const IDLE_MAX: usize = 8;

/// Heaps of functions of design documents.
pub(super) struct Heaps {
    options: Options,
    /// The one used last is last.
    idle: Mutex<Vec<Heap>>,
}

/// The heap of one function.
struct Heap {
    // First, so that nothing of it is used after the runtime.
    context: Context,
    runtime: Runtime,
    /// `None` only while it is made.
    image: Option<Image>,
    ddoc: DesignDoc,
    path: Vec<String>,
    /// Modules that were run before the image was made; `None` until the function's first call tells which.
    modules: Option<Vec<u8>>,
}

// SAFETY: see `Runtime`; all in it is the runtime's.
unsafe impl Send for Heap {}

impl Heaps {
    pub fn new(options: &Options) -> Heaps {
        Heaps {
            options: options.clone(),
            idle: Mutex::default(),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Heap>> {
        // A panic cannot leave the list half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, ddoc: &DesignDoc, path: &[&str]) -> Result<Heap, Error> {
        let mut idle = self.idle();
        let same = |known: &DesignDoc| Arc::ptr_eq(&known.json, &ddoc.json) || known == ddoc;
        let fits = |heap: &Heap| heap.path == path && same(&heap.ddoc);
        let found = idle.iter().rposition(fits).map(|at| idle.remove(at));
        drop(idle);
        match found {
            Some(heap) => Ok(heap),
            None => Heap::new(&self.options, ddoc, path, None),
        }
    }

    /// Runs `work` in the heap of a function. After a limit was hit the heap is thrown away.
    fn with<T>(
        &self,
        ddoc: &DesignDoc,
        path: &[&str],
        work: impl FnOnce(&mut Context) -> T,
    ) -> Result<T, Error> {
        let mut heap = self.take(ddoc, path)?;
        let answer = heap.enter(|context| {
            context.control().log.borrow_mut().label = ddoc.id.clone();
            work(context)
        });
        self.give_back(heap);
        Ok(answer)
    }

    fn give_back(&self, mut heap: Heap) {
        if heap.runtime.control().over().is_some() {
            return;
        }
        if heap.modules.is_none() {
            let modules = heap.enter(|context| context.modules_of_design());
            let modules = modules.unwrap_or_else(|_| b"[]".to_vec());
            if modules != b"[]" {
                let path: Vec<&str> = heap.path.iter().map(String::as_str).collect();
                // One whose modules cannot be run ahead of a call goes on as it is.
                let again = Heap::new(&self.options, &heap.ddoc, &path, Some(&modules));
                if let Ok(again) = again {
                    heap = again;
                }
            }
            heap.modules = Some(modules);
        }
        heap.rewind();
        // What an idle heap takes is taken from the process.
        if heap.runtime.memory_used() > self.options.memory_bytes / 4 {
            return;
        }
        let mut idle = self.idle();
        if idle.len() == IDLE_MAX {
            drop(idle.remove(0));
        }
        idle.push(heap);
    }
}

impl Heap {
    fn new(
        options: &Options,
        ddoc: &DesignDoc,
        path: &[&str],
        modules: Option<&[u8]>,
    ) -> Result<Heap, Error> {
        let runtime = Runtime::new(options)?;
        let context = runtime.enter(|| {
            let mut context = Context::new(&runtime)?;
            host::install_random(context.ctx()).map_err(|_| context.error())?;
            context.control().log.borrow_mut().label = ddoc.id.clone();
            let id = context.string(&ddoc.id)?;
            let value = context.value(&ddoc.json)?;
            context.prelude(Prelude::AddDesign, &[id.raw(), value.raw()])?;
            let path = context.strings(path)?;
            let modules = context.value(modules.unwrap_or(b"[]"))?;
            runtime.control().start_clock();
            context.prelude(Prelude::Prepare, &[id.raw(), path.raw(), modules.raw()])?;
            Ok::<_, Error>(context)
        })?;
        runtime.raise_gc_threshold();
        let mut heap = Heap {
            context,
            runtime,
            image: None,
            ddoc: ddoc.clone(),
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            modules: modules.map(<[u8]>::to_vec),
        };
        heap.enter(Context::forget_names);
        // SAFETY: nothing runs in it; and what the context keeps of it besides are values that do not go.
        heap.image = Some(unsafe { heap.runtime.control().image() });
        Ok(heap)
    }

    fn enter<T>(&mut self, work: impl FnOnce(&mut Context) -> T) -> T {
        let context = &mut self.context;
        self.runtime.enter(|| work(context))
    }

    fn rewind(&mut self) {
        if let Some(image) = &self.image {
            self.context.abandon_names();
            // SAFETY: nothing runs in it, values of the call are gone, and names were the rest.
            unsafe { self.runtime.control().rewind(image) };
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if let Some(image) = self.image.take() {
            // SAFETY: the heap's runtime is dropped next, without looking at its heap.
            unsafe { self.runtime.control().forget(image) };
        }
    }
}

/// [`Designs`] that run in the calling thread.
pub(super) struct ThreadDesigns {
    pub heaps: Arc<Heaps>,
}

/// Calls the prelude's `call` or `list`.
fn call(
    context: &mut Context,
    function: Prelude,
    ddoc: &DesignDoc,
    path: &[&str],
    args: &[u8],
) -> Result<Value, Error> {
    context.control().start_clock();
    let id = context.string(&ddoc.id)?;
    let path = context.strings(path)?;
    let args = context.value(args)?;
    context.prelude(function, &[id.raw(), path.raw(), args.raw()])
}

impl Designs for ThreadDesigns {
    fn call(&mut self, ddoc: &DesignDoc, path: &[&str], args: &[u8]) -> Result<Vec<u8>, Error> {
        let mut replies = self.call_some(ddoc, path, &[args]);
        replies
            .pop()
            .unwrap_or_else(|| Err(Error::Process("no reply".into())))
    }

    /// These calls see what those before them left behind: they are of one request.
    fn call_some(
        &mut self,
        ddoc: &DesignDoc,
        path: &[&str],
        args: &[&[u8]],
    ) -> Vec<Result<Vec<u8>, Error>> {
        let started = Instant::now();
        let replies = self.heaps.with(ddoc, path, |context| {
            let mut replies = Vec::with_capacity(args.len());
            for args in args {
                let answer = call(context, Prelude::Call, ddoc, path, args);
                replies.push(answer.and_then(|answer| context.json(&answer)));
                if context.control().over().is_some() || started.elapsed() >= SLICE {
                    break;
                }
            }
            replies
        });
        replies.unwrap_or_else(|error| vec![Err(error)])
    }

    fn list(
        &mut self,
        ddoc: &DesignDoc,
        path: &[&str],
        args: &[u8],
        io: &mut dyn ListIo,
    ) -> Result<(), Error> {
        self.heaps.with(ddoc, path, |context| {
            // SAFETY: it only lengthens the lifetime of the reference; the pointer is taken away again below, before the
            // reference ends, and nothing between returns.
            let list = unsafe {
                mem::transmute::<NonNull<dyn ListIo + '_>, NonNull<dyn ListIo + 'static>>(
                    NonNull::from(io),
                )
            };
            context.control().list.set(Some(list));
            let answer = call(context, Prelude::List, ddoc, path, args);
            context.control().list.set(None);
            match context.control().list_error.take() {
                Some(error) => Err(error),
                None => answer.map(drop),
            }
        })?
    }
}
