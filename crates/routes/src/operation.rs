//! Documentation of a route for clients: its operations, as the OpenAPI description lists them.

use crate::parameters::Group;
use crate::who::Who;

/// The content type of most bodies.
pub const JSON: &str = "application/json";
/// A body of any type.
pub const ANY: &str = "*/*";

/// A method of a route, with its parameters, body and answer. Schemas are named; the description of the API has them.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The method, in upper case.
    pub method: &'static str,
    /// A sentence that begins with a verb.
    pub summary: &'static str,
    /// The users with access, where the handler is stricter than the row.
    pub who: Option<Who>,
    /// Parameters of the query.
    pub query: &'static [&'static Group],
    /// Content type and schema of the body.
    pub body: Option<(&'static str, &'static str)>,
    /// Status of a success.
    pub status: u16,
    /// Content type and schema of the answer; none without a body.
    pub answer: Option<(&'static str, &'static str)>,
}

impl Operation {
    const fn new(method: &'static str, summary: &'static str, answer: &'static str) -> Operation {
        Operation {
            method,
            summary,
            who: None,
            query: &[],
            body: None,
            status: 200,
            answer: Some((JSON, answer)),
        }
    }

    /// Takes other parameters.
    pub(crate) const fn query(self, query: &'static [&'static Group]) -> Operation {
        Operation { query, ..self }
    }

    /// Takes a body of JSON.
    pub(crate) const fn body(self, schema: &'static str) -> Operation {
        let body = Some((JSON, schema));
        Operation { body, ..self }
    }

    /// Takes a body of another type.
    pub(crate) const fn takes(self, content_type: &'static str) -> Operation {
        let body = Some((content_type, "Bytes"));
        Operation { body, ..self }
    }

    /// Answers with another status than 200.
    pub(crate) const fn status(self, status: u16) -> Operation {
        Operation { status, ..self }
    }

    /// Answers with another type than JSON.
    pub(crate) const fn gives(self, content_type: &'static str) -> Operation {
        let answer = Some((content_type, "Bytes"));
        Operation { answer, ..self }
    }

    /// Answers only with errors, or without a body.
    pub(crate) const fn gives_nothing(self) -> Operation {
        Operation {
            answer: None,
            ..self
        }
    }

    /// Is checked further by the handler.
    pub(crate) const fn needs(self, who: Who) -> Operation {
        let who = Some(who);
        Operation { who, ..self }
    }
}

/// An operation that reads, with the schema of its answer.
pub(crate) const fn get(summary: &'static str, answer: &'static str) -> Operation {
    Operation::new("GET", summary, answer)
}

/// An operation with POST, with the schema of its answer.
pub(crate) const fn post(summary: &'static str, answer: &'static str) -> Operation {
    Operation::new("POST", summary, answer)
}

/// An operation with PUT, with the schema of its answer.
pub(crate) const fn put(summary: &'static str, answer: &'static str) -> Operation {
    Operation::new("PUT", summary, answer)
}

/// An operation with DELETE, with the schema of its answer.
pub(crate) const fn delete(summary: &'static str, answer: &'static str) -> Operation {
    Operation::new("DELETE", summary, answer)
}

/// An operation with COPY, with the schema of its answer.
pub(crate) const fn copy(summary: &'static str, answer: &'static str) -> Operation {
    Operation::new("COPY", summary, answer)
}
