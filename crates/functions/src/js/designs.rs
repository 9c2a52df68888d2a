//! Filters, updates, shows, lists, validations and rewrites, in this thread.

use std::ptr::NonNull;
use std::sync::Arc;

use super::context::{Context, Prelude, Value};
use super::pool::{Pool, Purpose};
use crate::{DesignDoc, Designs, Error, ListIo};

/// [`Designs`] that run in the calling thread.
pub(super) struct ThreadDesigns {
    pub pool: Arc<Pool>,
}

/// Runs `work` in the context of a design document.
fn with_design<T>(
    pool: &Pool,
    ddoc: &DesignDoc,
    work: impl FnOnce(&mut Context) -> Result<T, Error>,
) -> Result<T, Error> {
    let purpose = Purpose::Design(ddoc.clone());
    pool.with(Some(&purpose), |host| {
        let slot = host.slot(&purpose, |context| {
            context.control().log.borrow_mut().label = ddoc.id.clone();
            let id = context.string(&ddoc.id)?;
            let value = context.value(&ddoc.json)?;
            context.prelude(Prelude::AddDesign, &[id.raw(), value.raw()])?;
            Ok(None)
        })?;
        let context = &mut slot.context;
        context.control().log.borrow_mut().label = ddoc.id.clone();
        context.control().start_clock();
        work(context)
    })
}

/// Calls the prelude's `call` or `list`.
fn call(
    context: &mut Context,
    function: Prelude,
    ddoc: &DesignDoc,
    path: &[&str],
    args: &[u8],
) -> Result<Value, Error> {
    let id = context.string(&ddoc.id)?;
    let path = path.iter().map(|part| context.string(part));
    let path = path.collect::<Result<Vec<_>, _>>()?;
    let path = context.array(path)?;
    let args = context.value(args)?;
    context.prelude(function, &[id.raw(), path.raw(), args.raw()])
}

impl Designs for ThreadDesigns {
    fn call(&mut self, ddoc: &DesignDoc, path: &[&str], args: &[u8]) -> Result<Vec<u8>, Error> {
        with_design(&self.pool, ddoc, |context| {
            let answer = call(context, Prelude::Call, ddoc, path, args)?;
            context.json(&answer)
        })
    }

    fn list(
        &mut self,
        ddoc: &DesignDoc,
        path: &[&str],
        args: &[u8],
        io: &mut dyn ListIo,
    ) -> Result<(), Error> {
        with_design(&self.pool, ddoc, |context| {
            // SAFETY: it only lengthens the lifetime of the reference; the pointer is taken away again below, before the
            // reference ends, and nothing between returns.
            let list = unsafe {
                std::mem::transmute::<NonNull<dyn ListIo + '_>, NonNull<dyn ListIo + 'static>>(
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
        })
    }
}
