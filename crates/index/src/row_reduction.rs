//! Reduction of rows that come one after the other. Long ones are reduced in several calls, so that few
//! bytes of them are in memory.

use document::write_json_string;

use crate::Error;
use crate::blocks::State;
use crate::keys::RowValue;
use crate::reduce::Builtin;
use crate::reducer::{Reducers, RowBatch};

/// A call of a built-in function gets rows up to this size, in bytes, and the row that exceeds it.
const BUILTIN_BYTES_MAX: usize = 1 << 20;

/// The order in which a function gets rows, compared with the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOrder {
    /// The function gets rows as they come.
    Same,
    /// The function gets the last row first.
    Reversed,
    /// The opposite order, but rows of one document with one key stay in the order of their values.
    LastToFirst,
}

/// Rows to be reduced by one function.
pub(crate) struct RowReduction<'a> {
    reducers: &'a Reducers,
    view: usize,
    function: usize,
    builtin: Option<Builtin>,
    order: RowOrder,
    /// A longer batch is reduced, in bytes.
    bytes_max: usize,
    /// Rows that are not reduced yet.
    batch: RowBatch,
    /// The state of the rows that came before the batch, of a built-in function.
    reduced: Option<Vec<u8>>,
    /// The states of the batches before this one, of a custom function.
    states: Vec<State>,
    rows: u64,
    /// Bytes of all keys and values.
    bytes: usize,
}

impl<'a> RowReduction<'a> {
    pub fn new(
        reducers: &'a Reducers,
        (view, function): (usize, usize),
        order: RowOrder,
    ) -> RowReduction<'a> {
        let builtin = reducers.builtin(view, function);
        RowReduction {
            reducers,
            view,
            function,
            builtin,
            order,
            bytes_max: match builtin {
                Some(_) => BUILTIN_BYTES_MAX,
                None => reducers.custom_bytes_max(),
            },
            batch: RowBatch::default(),
            reduced: None,
            states: vec![],
            rows: 0,
            bytes: 0,
        }
    }

    /// Adds a row, of which only what the function needs is copied. `id` returns its document.
    pub fn push(
        &mut self,
        row: &RowValue<'_>,
        id: impl FnOnce() -> Result<String, Error>,
    ) -> Result<(), Error> {
        let (key, value) = (row.key, row.value);
        self.rows += 1;
        self.bytes += key.len() + value.len();
        match self.builtin {
            Some(Builtin::Count) => return Ok(()),
            Some(Builtin::ApproxCountDistinct) => self.batch.push(key, b"", b""),
            Some(_) => self.batch.push(b"", b"", value),
            None => {
                let mut quoted = vec![];
                write_json_string(&id()?, &mut quoted);
                self.batch.push(key, &quoted, value);
            }
        }
        match self.batch.bytes() > self.bytes_max {
            true => self.reduce_batch(),
            false => Ok(()),
        }
    }

    /// Returns the state of the rows, and forgets them; `None` of no rows.
    pub fn finish(&mut self) -> Result<Option<State>, Error> {
        let (rows, bytes) = (self.rows, std::mem::take(&mut self.bytes));
        let state = match self.builtin {
            _ if rows == 0 => None,
            None => {
                let states = self.finish_states()?;
                Some(self.reducers.rereduce(self.view, self.function, &states)?)
            }
            Some(builtin) => {
                self.reduce_batch()?;
                let state = match builtin {
                    Builtin::Count => rows.to_string().into_bytes(),
                    _ => self.reduced.take().unwrap_or_default(),
                };
                let of = (self.view, builtin);
                Some(self.reducers.limited(of, || bytes, state))
            }
        };
        self.rows = 0;
        Ok(state)
    }

    /// Returns the states of the rows by a custom function, in the order in which it gets them, and
    /// forgets the rows. There is one unless the rows are long; none of no rows.
    pub fn finish_states(&mut self) -> Result<Vec<State>, Error> {
        self.reduce_batch()?;
        (self.rows, self.bytes) = (0, 0);
        let mut states = std::mem::take(&mut self.states);
        if self.order != RowOrder::Same {
            states.reverse();
        }
        Ok(states)
    }

    fn reduce_batch(&mut self) -> Result<(), Error> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let rows = match self.order {
            RowOrder::Same => self.batch.rows(false),
            RowOrder::Reversed => self.batch.rows(true),
            RowOrder::LastToFirst => self.batch.last_to_first(),
        };
        match self.builtin {
            None => {
                let state = self.reducers.reduce(self.view, self.function, &rows)?;
                self.states.push(state);
            }
            Some(builtin) => {
                let rows = rows.iter().map(|row| (row.key, row.value));
                self.reduced = Some(match (self.reduced.take(), self.order) {
                    (None, _) => builtin.reduce(rows),
                    // Stored states are those of all rows of a block.
                    (Some(before), RowOrder::Same) => builtin.reduce_more(&before, rows),
                    (Some(after), _) => {
                        let state = builtin.reduce(rows);
                        builtin.rereduce([&state[..], &after[..]].into_iter())
                    }
                });
            }
        }
        self.batch.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use functions::{NoLanguages, Owner};
    use proptest::prelude::*;

    use super::*;
    use crate::reduce::ReduceLimit;
    use crate::spec::{ReduceSpec, Spec, ViewSpec};

    const ALL: [Builtin; 8] = [
        Builtin::Sum,
        Builtin::Count,
        Builtin::Stats,
        Builtin::ApproxCountDistinct,
        Builtin::First,
        Builtin::Last,
        Builtin::Top(3),
        Builtin::Bottom(3),
    ];

    fn reducers(limit: Option<ReduceLimit>) -> Reducers {
        let view = ViewSpec {
            map: String::new(),
            reduces: ALL.map(ReduceSpec::Builtin).into(),
            raw: false,
        };
        let spec = Spec {
            language: String::new(),
            lib: None,
            views: vec![view],
            include_design: false,
            local_seq: false,
            partitioned: false,
            dialect: None,
            by_access: false,
        };
        let languages = Arc::new(NoLanguages);
        Reducers::new(Arc::new(spec), languages, limit, &Owner::default())
    }

    fn push(reduction: &mut RowReduction<'_>, key: &str, value: &str) {
        let row = RowValue {
            sort_len: 0,
            key: key.as_bytes(),
            value: value.as_bytes(),
        };
        reduction.push(&row, || Ok(String::new())).unwrap();
    }

    /// Reduces keys and values in their order, or in the opposite one.
    fn reduced(reduction: &mut RowReduction<'_>, rows: &[(String, String)]) -> Option<State> {
        let mut rows: Vec<_> = rows.iter().collect();
        if reduction.order == RowOrder::Reversed {
            rows.reverse();
        }
        for (key, value) in rows {
            push(reduction, key, value);
        }
        reduction.finish().unwrap()
    }

    fn value() -> impl Strategy<Value = String> {
        let number = || (-1000..1000i64).prop_map(|n| n.to_string());
        let numbers = prop::collection::vec(number(), 0..60);
        prop_oneof![
            8 => number(),
            4 => (-1e9..1e9f64).prop_map(|n| format!("{n:?}")),
            2 => numbers.prop_map(|all| format!("[{}]", all.join(","))),
            1 => "[a-c]{0,40}".prop_map(|text| format!("\"{text}\"")),
        ]
    }

    proptest! {
        #[test]
        fn rows_reduced_in_parts_have_the_state_of_all_rows(
            rows in prop::collection::vec(((0..40u32).prop_map(|n| n.to_string()), value()), 0..40),
            numbers in any::<bool>(),
            bytes_max in 0..200usize,
            limit in prop::option::of(1..50usize),
            reversed in any::<bool>(),
        ) {
            let limit = limit.map(|threshold| ReduceLimit { threshold, ratio: 2.0 });
            let reducers = reducers(limit);
            let order = if reversed { RowOrder::Reversed } else { RowOrder::Same };
            let mut rows = rows;
            if numbers {
                rows.retain(|(_, value)| value.parse::<i64>().is_ok());
            }
            for (function, builtin) in ALL.iter().enumerate() {
                let whole = rows.iter().map(|(key, value)| functions::ReduceRow {
                    key: key.as_bytes(),
                    id: b"",
                    value: value.as_bytes(),
                });
                let whole: Vec<_> = whole.collect();
                let expected = (!whole.is_empty())
                    .then(|| reducers.reduce(0, function, &whole).unwrap());
                let mut reduction = RowReduction::new(&reducers, (0, function), order);
                prop_assert_eq!(&reduced(&mut reduction, &rows), &expected, "{:?}", builtin);
                // From the last row on, errors and rounding depend on the parts, as they do on blocks.
                if numbers || !reversed || !matches!(builtin, Builtin::Sum | Builtin::Stats) {
                    reduction.bytes_max = bytes_max;
                    prop_assert_eq!(&reduced(&mut reduction, &rows), &expected, "{:?}", builtin);
                }
            }
        }
    }

    #[test]
    fn few_bytes_of_long_rows_are_in_memory() {
        let reducers = reducers(None);
        let value = format!("\"{}\"", "x".repeat(100_000));
        for (function, builtin) in ALL.into_iter().enumerate() {
            let mut reduction = RowReduction::new(&reducers, (0, function), RowOrder::Same);
            let mut bytes_max = 0;
            for n in 0..100 {
                push(&mut reduction, &n.to_string(), &value);
                bytes_max = bytes_max.max(reduction.batch.bytes());
            }
            let limit = match builtin {
                Builtin::Count => 0,
                Builtin::ApproxCountDistinct => 1000,
                _ => BUILTIN_BYTES_MAX + value.len(),
            };
            assert!(bytes_max <= limit, "{builtin:?}: {bytes_max}");
            assert!(reduction.finish().unwrap().is_some());
        }
    }
}
