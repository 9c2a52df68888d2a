//! Custom reduce functions, in this thread.

use std::sync::Arc;

use rquickjs_sys as qjs;

use super::context::{Context, Prelude, Value};
use super::pool::{Pool, Purpose};
use crate::{Error, ReduceRow, Reducer};

/// A [`Reducer`] that runs in the calling thread.
pub(super) struct ThreadReducer {
    pool: Arc<Pool>,
    purpose: Purpose,
}

impl ThreadReducer {
    pub fn new(pool: Arc<Pool>, source: &str, lib: Option<&str>) -> ThreadReducer {
        let source = (source.to_owned(), lib.map(str::to_owned));
        ThreadReducer {
            pool,
            purpose: Purpose::Reduce(Arc::new(source)),
        }
    }

    fn call(
        &self,
        args: impl FnOnce(&mut Context) -> Result<(Value, Value, bool), Error>,
    ) -> Result<Vec<u8>, Error> {
        let Purpose::Reduce(source) = &self.purpose;
        self.pool.with(Some(&self.purpose), |host| {
            let slot = host.slot(&self.purpose, |context| {
                let modules = context.modules(source.1.as_deref())?;
                context.compile(&source.0, modules.as_ref()).map(Some)
            })?;
            let function = slot.function;
            let context = &mut slot.context;
            context.control().start_clock();
            let (keys, values, rereduce) = args(context)?;
            let rereduce = if rereduce {
                qjs::JS_TRUE
            } else {
                qjs::JS_FALSE
            };
            let args = [function, keys.raw(), values.raw(), rereduce];
            let answer = context.prelude(Prelude::Reduce, &args)?;
            context.json(&answer)
        })
    }
}

impl Reducer for ThreadReducer {
    fn reduce(&mut self, rows: &[ReduceRow<'_>]) -> Result<Vec<u8>, Error> {
        self.call(|context| {
            let mut keys = Vec::with_capacity(rows.len());
            let mut values = Vec::with_capacity(rows.len());
            for row in rows {
                let key = vec![context.value(row.key)?, context.value(row.id)?];
                keys.push(context.array(key)?);
                values.push(context.value(row.value)?);
            }
            Ok((context.array(keys)?, context.array(values)?, false))
        })
    }

    fn rereduce(&mut self, values: &[&[u8]]) -> Result<Vec<u8>, Error> {
        self.call(|context| {
            let values = values.iter().map(|value| context.value(value));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            let null = context.own(qjs::JS_NULL)?;
            Ok((null, context.array(values)?, true))
        })
    }
}
