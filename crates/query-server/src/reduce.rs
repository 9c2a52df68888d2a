//! Reduce functions.

use std::sync::Arc;

use super::{add_lib, prepare};
use crate::answer::{Answer, elements};
use crate::language::{Error, ReduceRow, Reducer};
use crate::pool::Pool;
use crate::process::{ReduceFunction, Taught};
use crate::settings::command_start;

pub(crate) struct ExternalReducer {
    pool: Arc<Pool>,
    language: String,
    function: Arc<ReduceFunction>,
}

impl ExternalReducer {
    pub fn new(pool: Arc<Pool>, language: String, function: ReduceFunction) -> Self {
        Self {
            pool,
            language,
            function: Arc::new(function),
        }
    }

    /// `["command",["source"],[`, to which the caller adds elements and `]]`.
    fn command(&self, command: &str) -> Vec<u8> {
        let mut out = command_start(command, &[]);
        out.push(b'[');
        document::write_json_string(&self.function.source, &mut out);
        out.extend_from_slice(b"],[");
        out
    }

    fn run(&self, command: &[u8]) -> Result<Vec<u8>, Error> {
        let rank = |taught: &Taught| match taught {
            Taught::Reduce(function) if *function == self.function => 2,
            _ => 0,
        };
        let mut lease = prepare(&self.pool, &self.language, rank, |process| {
            add_lib(process, self.function.lib.as_deref())?;
            process.taught = Taught::Reduce(self.function.clone());
            Ok(())
        })?;
        let process = lease.process();
        let answer = process.ask(command)?;
        let result = match &answer {
            Answer::Value(value) => match elements(value).as_slice() {
                [b"true", results] => match elements(results).as_slice() {
                    [result] => Some(result.to_vec()),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        };
        let result = result.ok_or_else(|| process.error_of(answer));
        lease.done();
        result
    }
}

impl Reducer for ExternalReducer {
    fn reduce(&mut self, rows: &[ReduceRow<'_>]) -> Result<Vec<u8>, Error> {
        let mut command = self.command("reduce");
        for (index, row) in rows.iter().enumerate() {
            if index > 0 {
                command.push(b',');
            }
            for (before, part) in [(&b"[["[..], row.key), (b",", row.id), (b"],", row.value)] {
                command.extend_from_slice(before);
                command.extend_from_slice(part);
            }
            command.push(b']');
        }
        command.extend_from_slice(b"]]");
        self.run(&command)
    }

    fn rereduce(&mut self, values: &[&[u8]]) -> Result<Vec<u8>, Error> {
        let mut command = self.command("rereduce");
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                command.push(b',');
            }
            command.extend_from_slice(value);
        }
        command.extend_from_slice(b"]]");
        self.run(&command)
    }
}
