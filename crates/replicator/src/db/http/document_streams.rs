//! Reads and writes documents whose attachments are streams.

use bytes::Bytes;
use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body, Method, Response};
use url::Url;

use super::docs::is_database_gone;
use super::{Answer, Call, HttpDb, JSON, cause, doc_path, encoded, retried, whole};
use crate::db::budget::Socket;
use crate::db::outbound::TOKEN;
use crate::error::Error;

/// The result of sending a document as a stream.
pub enum Put {
    Done,
    /// Refused: error and reason.
    Refused(String, String),
    /// Failed: it may be retried.
    Failed(String),
}

impl HttpDb {
    /// Opens the response with a revision and all its attachments, preferably as
    /// `multipart/related`; `None` when the revision is gone. Attachments come as they are stored,
    /// including `gzipped` ones; otherwise decoded, in one JSON text.
    ///
    /// # Errors
    /// Errors of requests.
    pub async fn open_with_attachments(
        &self,
        socket: &mut Socket,
        (id, rev): (&str, &str),
        gzipped: bool,
    ) -> Result<Option<Response>, Error> {
        let path = format!(
            "{}?rev={}&revs=true&attachments=true&att_encoding_info={gzipped}",
            doc_path(id),
            encoded(rev)
        );
        // A multipart response has attachments as they are stored, whatever was requested; only
        // JSON has them decoded.
        let accept = match gzipped {
            true => "multipart/related, application/json",
            false => "application/json",
        };
        let call = Call {
            accept,
            ..Call::new(Method::GET, &path)
        };
        let response = self
            .call(socket, call.clone(), |response| async { Ok(response) })
            .await?;
        if response.status().is_success() {
            return Ok(Some(response));
        }
        let answer = whole(response)
            .await
            .map_err(|f| self.error(&call, &f.reason))?;
        match answer.status {
            404 if !is_database_gone(&answer) => Ok(None),
            _ => Err(self.refusal(&call, &answer)),
        }
    }

    /// Writes a revision from a stream, without retries.
    ///
    /// # Errors
    /// [`Error::NoDatabase`].
    pub async fn put_stream(
        &self,
        id: &str,
        content_type: &str,
        length: Option<u64>,
        body: Body,
    ) -> Result<Put, Error> {
        let _place = self.place().await;
        let path = format!("{}?new_edits=false", doc_path(id));
        let Ok(url) = Url::parse(&self.url(&path)) else {
            return Ok(Put::Failed("bad URL".into()));
        };
        let way = self.ways.to(&url).await?;
        let mut request = way
            .request(Method::PUT, url, true)
            .headers(self.headers.clone());
        if let Some(token) = &way.token {
            request = request.header(TOKEN, token.clone());
        }
        if !self.headers.contains_key(ACCEPT) {
            request = request.header(ACCEPT, JSON);
        }
        if let Some(length) = length {
            request = request.header(CONTENT_LENGTH, length);
        }
        let request = self
            .auth
            .sign(request.header(CONTENT_TYPE, content_type).body(body));
        let answer = match request.send().await {
            Ok(response) => whole(response).await,
            Err(e) => return Ok(Put::Failed(cause(&e))),
        };
        let answer: Answer = match answer {
            Ok(answer) => answer,
            Err(failed) => return Ok(Put::Failed(failed.reason)),
        };
        Ok(match answer.status {
            200..300 => Put::Done,
            404 if is_database_gone(&answer) => {
                return Err(Error::NoDatabase(self.base.to_string()));
            }
            401 if self.auth.has_session() => {
                // The session may have expired.
                self.auth.renew(&self.ways).await;
                Put::Failed(answer.reason())
            }
            status if retried(status) || status == 400 => Put::Failed(answer.reason()),
            _ => {
                let (error, reason) = error_of(&answer.body);
                Put::Refused(error, reason)
            }
        })
    }
}

fn error_of(body: &Bytes) -> (String, String) {
    #[derive(serde::Deserialize, Default)]
    struct ErrorBody {
        #[serde(default)]
        error: String,
        #[serde(default)]
        reason: String,
    }
    let body: ErrorBody = serde_json::from_slice(body).unwrap_or_default();
    (body.error, body.reason)
}
