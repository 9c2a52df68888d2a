//! Why an export stopped.

use std::io;

use command_line::{LoginPlace, RefusedRequest};
use load::InputError;
use reqwest::Url;
use serde::Deserialize;

/// An export stopped before its end.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Options that cannot be used.
    #[error("{0}")]
    Options(String),
    /// The server refused a request.
    #[error("{}", refusal(url, *status, body))]
    Refused {
        /// The URL.
        url: Box<Url>,
        /// HTTP status.
        status: u16,
        /// The body.
        body: String,
    },
    /// No usable response.
    #[error("{}", command_line::connection_failure(url, source))]
    Http {
        /// The URL.
        url: Box<Url>,
        /// The client's error.
        source: reqwest::Error,
    },
    /// A connection that broke within a response.
    #[error("{}", command_line::connection_loss(url, source))]
    Broken {
        /// The URL.
        url: Box<Url>,
        /// The reason.
        source: io::Error,
    },
    /// A response that ends early, or is not one of CouchDB's.
    #[error(transparent)]
    Response(#[from] InputError),
    /// An element of the response is not what it should be.
    #[error("the response of the server: {0}")]
    Element(String),
    /// The output cannot be written.
    #[error("{name}: {source}")]
    Output {
        /// The file.
        name: String,
        /// The reason.
        source: io::Error,
    },
}

impl ExportError {
    /// Returns whether the reader of the output has closed it, as `head` does.
    pub fn is_closed_output(&self) -> bool {
        matches!(self, Self::Output { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// An error within the response of a URL.
    pub(crate) fn within(url: &Url, error: Self) -> Self {
        match error {
            Self::Response(InputError::Read { source, .. }) => Self::Broken {
                url: Box::new(url.clone()),
                source,
            },
            other => other,
        }
    }

    pub(crate) fn output(source: io::Error) -> Self {
        Self::Output {
            name: "output".to_owned(),
            source,
        }
    }
}

fn refusal(url: &Url, status: u16, body: &str) -> String {
    #[derive(Deserialize)]
    struct Body {
        reason: String,
    }
    let body: Option<Body> = serde_json::from_str(body).ok();
    let refused = RefusedRequest {
        status,
        reason: body.as_ref().map(|body| body.reason.as_str()),
        has_login: !url.username().is_empty(),
        needs: "a user who may read the database",
        login_place: LoginPlace::UrlOrCredentials,
        location: None,
    };
    refused.description(url)
}
