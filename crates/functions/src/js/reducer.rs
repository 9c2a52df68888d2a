//! Custom reduce functions, in this thread.

use std::sync::Arc;

use language::{Error, ReduceRow, Reducer};
use quickjs::Value;

use super::environment::{Entered, Prelude};
use super::pool::{Pool, Source};

/// A [`Reducer`] that runs in the calling thread.
pub(super) struct ThreadReducer {
    pool: Arc<Pool>,
    source: Arc<Source>,
}

/// Arguments of a reduce function.
struct Arguments<'js> {
    keys: Value<'js>,
    values: Value<'js>,
    rereduce: bool,
}

impl ThreadReducer {
    pub fn new(pool: Arc<Pool>, source: &str, lib: Option<&str>) -> ThreadReducer {
        ThreadReducer {
            pool,
            source: Arc::new(Source {
                source: source.to_owned(),
                lib: lib.map(str::to_owned),
            }),
        }
    }

    fn call(
        &self,
        arguments: impl for<'a, 'js> FnOnce(&Entered<'a, 'js>) -> Result<Arguments<'js>, Error>,
    ) -> Result<Vec<u8>, Error> {
        self.pool.call(&self.source, |entered, function| {
            let Arguments {
                keys,
                values,
                rereduce,
            } = arguments(entered)?;
            let rereduce = entered.scope.boolean(rereduce);
            let answer = entered.prelude(Prelude::Reduce, [function, &keys, &values, &rereduce])?;
            entered.json(&answer)
        })
    }
}

impl Reducer for ThreadReducer {
    fn reduce(&mut self, rows: &[ReduceRow<'_>]) -> Result<Vec<u8>, Error> {
        self.call(|entered| {
            let mut keys = Vec::with_capacity(rows.len());
            let mut values = Vec::with_capacity(rows.len());
            for row in rows {
                let key = vec![entered.value(row.key)?, entered.value(row.id)?];
                keys.push(entered.array(key)?);
                values.push(entered.value(row.value)?);
            }
            Ok(Arguments {
                keys: entered.array(keys)?,
                values: entered.array(values)?,
                rereduce: false,
            })
        })
    }

    fn rereduce(&mut self, values: &[&[u8]]) -> Result<Vec<u8>, Error> {
        self.call(|entered| {
            let values = values.iter().map(|value| entered.value(value));
            let values = values.collect::<Result<Vec<_>, _>>()?;
            Ok(Arguments {
                keys: entered.scope.null(),
                values: entered.array(values)?,
                rereduce: true,
            })
        })
    }
}
