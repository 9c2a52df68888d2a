//! Reads the changes of a database behind HTTP, and requests the revisions that it lacks.

use bytes::Bytes;
use reqwest::Method;
use serde_json::{Value, json};

use super::super::batch::{Change, ChangesQuery};
use super::super::changes::HttpFeed;
use super::diff::missing_revs;
use super::{Answer, AttemptFailure, Call, HttpDb, encoded, whole};
use crate::db::MissingRevs;
use crate::db::budget::Socket;
use crate::error::Error;
use crate::options::Selection;

impl HttpDb {
    /// Returns path and body of a `_changes` request.
    pub(super) fn changes_request(
        &self,
        query: &ChangesQuery,
        since: &Value,
    ) -> (String, Option<Bytes>) {
        let mut path = String::from("_changes?style=");
        path.push_str(if query.winning_revs_only {
            "main_only"
        } else {
            "all_docs"
        });
        let since = since
            .as_str()
            .map_or_else(|| since.to_string(), str::to_owned);
        path.push_str(&format!("&since={}", encoded(&since)));
        if query.continuous {
            let heartbeat = (self.timeout.as_millis() / 3).max(1);
            path.push_str(&format!("&feed=continuous&heartbeat={heartbeat}"));
        } else {
            path.push_str("&feed=normal");
        }
        if query.include_docs {
            path.push_str("&include_docs=true");
        }
        let body = match &query.selection {
            Selection::All => None,
            Selection::Ids(ids) => {
                path.push_str("&filter=_doc_ids");
                Some(json!({"doc_ids": **ids}))
            }
            Selection::Selector(selector) => {
                path.push_str("&filter=_selector");
                Some(json!({"selector": **selector}))
            }
            Selection::Filter { name, params } => {
                path.push_str(&format!("&filter={}", encoded(name)));
                for (name, value) in params {
                    let text = value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned);
                    path.push_str(&format!("&{}={}", encoded(name), encoded(&text)));
                }
                None
            }
        };
        (path, body.map(|b| b.to_string().into()))
    }

    pub async fn pending(&self, query: &ChangesQuery, since: &Value) -> Option<u64> {
        // Unfiltered, as in CouchDB: no filter runs just to count.
        let once = ChangesQuery {
            continuous: false,
            include_docs: false,
            selection: Selection::All,
            ..query.clone()
        };
        let (path, _) = self.changes_request(&once, since);
        let path = format!("{path}&limit=0");
        self.answer(Call::new(Method::GET, &path))
            .await
            .ok()?
            .json()?
            .get("pending")?
            .as_u64()
    }

    pub async fn changes(&self, query: &ChangesQuery, since: &Value) -> Result<HttpFeed, Error> {
        let (path, body) = self.changes_request(query, since);
        let mut call = match body {
            None => Call::new(Method::GET, &path),
            Some(body) => Call::post(&path, body),
        };
        // A filter may skip many changes, and a feed that ends has no heartbeats.
        call.patient = !query.continuous && query.selection != Selection::All;
        let place = self.connections.clone().acquire_owned().await;
        let place = place.map_err(|_| Error::Stopped)?;
        let response = self
            .call(&mut Socket::of_feed(), call.clone(), |response| async {
                Ok(response)
            })
            .await?;
        if !response.status().is_success() {
            let answer = whole(response)
                .await
                .map_err(|f| self.error(&call, &f.reason))?;
            return Err(self.refusal(&call, &answer));
        }
        Ok(HttpFeed::new(response, query.clone(), since.clone(), place))
    }

    pub async fn revs_diff(&self, changes: &[Change]) -> Result<Vec<MissingRevs>, Error> {
        let mut body = Vec::with_capacity(changes.len() * 96 + 2);
        body.push(b'{');
        for (i, change) in changes.iter().enumerate() {
            if i > 0 {
                body.push(b',');
            }
            document::write_json_string(&change.id, &mut body);
            body.extend_from_slice(b":[");
            for (i, rev) in change.revs.iter().enumerate() {
                if i > 0 {
                    body.push(b',');
                }
                document::write_json_string(rev, &mut body);
            }
            body.push(b']');
        }
        body.push(b'}');
        let call = Call::post("_revs_diff", body);
        let mut place = self.place().await;
        let take = |response| async {
            let answer: Answer = whole(response).await?;
            if !answer.is_ok() {
                return Ok(Err(answer));
            }
            let diff = missing_revs(&answer.body, changes).map(Ok);
            diff.map_err(|e| AttemptFailure::of(format!("the answer is not understood: {e}")))
        };
        let mut diff = match self.call(&mut place.socket, call.clone(), take).await? {
            Ok(diff) => diff,
            Err(answer) => return Err(self.refusal(&call, &answer)),
        };
        // In the order of the changes.
        let missing = changes.iter().filter_map(|c| {
            let (id, revs) = diff.remove_entry(&c.id)?;
            (!revs.is_empty()).then_some(MissingRevs { id, revs })
        });
        Ok(missing.collect())
    }
}
