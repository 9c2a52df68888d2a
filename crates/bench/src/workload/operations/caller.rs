//! A client that sends one request after the other and keeps the responses.

use std::rc::Rc;

use crate::client::{CLOSE, Connection};
use crate::error::BenchError;
use crate::slice::connect;
use crate::target::Target;

/// A connection that is opened when it is needed, again after it broke.
pub(crate) struct Caller {
    pub(crate) target: Rc<Target>,
    connection: Option<Connection>,
    request: Vec<u8>,
    /// The body of the last reply, when that was a success.
    pub(crate) reply: Vec<u8>,
}

impl Caller {
    /// Connected, unless each of its requests will have a new connection.
    pub(crate) async fn connect(target: &Rc<Target>) -> Result<Self, BenchError> {
        let mut caller = Self::new(target);
        if !target.pace().new_connections {
            caller.connection = connect(target, 1).await?.pop();
        }
        Ok(caller)
    }

    /// Leaves its connection to the next one, if the target keeps them.
    pub(crate) fn leave(self) {
        if let Some(connection) = self.connection {
            self.target.kept().put(connection);
        }
    }

    /// A client that is not connected yet.
    pub(crate) fn new(target: &Rc<Target>) -> Self {
        Self {
            target: Rc::clone(target),
            connection: None,
            request: Vec::new(),
            reply: Vec::new(),
        }
    }

    /// Sends a request and reads the reply whole. Any status is returned.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<u16, BenchError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.target).await?,
        };
        self.request.clear();
        let request = &mut self.request;
        let has_new_connections = self.target.pace().new_connections;
        let headers = if has_new_connections { CLOSE } else { "" };
        self.target
            .write_request(request, method, path, headers, body);
        self.reply.clear();
        let exchanged = connection.exchange(request, &mut self.reply).await;
        let status = exchanged.map_err(|source| BenchError::Exchange {
            what: format!("{method} {path}"),
            source,
        })?;
        if !(200..300).contains(&status) {
            self.reply.clear();
            self.reply
                .extend_from_slice(connection.refusal().as_bytes());
        }
        if connection.is_usable() && !has_new_connections {
            self.connection = Some(connection);
        }
        Ok(status)
    }

    /// [`Caller::send`] of a request that must succeed.
    pub(crate) async fn require(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<(), BenchError> {
        let status = self.send(method, path, body).await?;
        if (200..300).contains(&status) {
            return Ok(());
        }
        Err(self.refused(method, path, status))
    }

    /// The error that the last reply was.
    pub(crate) fn refused(&self, method: &str, path: &str, status: u16) -> BenchError {
        BenchError::Refused {
            what: format!("{method} {path}"),
            status,
            body: String::from_utf8_lossy(&self.reply).into_owned(),
        }
    }
}
