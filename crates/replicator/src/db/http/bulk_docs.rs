//! Writes documents by `_bulk_docs`.

use bytes::Bytes;
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;

use super::docs::edit_json;
use super::{Answer, AttemptFailure, Call, HttpDb, whole};
use crate::db::json_limits::{VALUES_MAX, opens_with, parse};
use crate::db::{Body, Doc, Rejection};
use crate::error::Error;

/// Number of values that a result of `_bulk_docs` has at most, in every server that is known.
const VALUES_A_RESULT: usize = 16;

impl HttpDb {
    pub async fn write(&self, docs: Vec<Doc>) -> Result<Vec<Rejection>, Error> {
        let docs: Vec<(String, Bytes)> = docs
            .into_iter()
            .filter_map(|doc| {
                let text = match doc.body {
                    Body::Json(text) => text,
                    Body::Edit(edit) => edit_json(&edit).into(),
                    // A document read as a stream is also written as a stream.
                    Body::Streamed(_) => return None,
                };
                Some((doc.id, text))
            })
            .collect();
        self.write_texts(&docs).await
    }

    async fn write_texts(&self, docs: &[(String, Bytes)]) -> Result<Vec<Rejection>, Error> {
        let call = Call::new(Method::POST, "_bulk_docs");
        let mut place = self.place().await;
        let take = |response| async {
            let answer: Answer = whole(response).await?;
            if answer.is_ok() && !(opens_with(&answer.body, b'[') && answer.is_json()) {
                return Err(AttemptFailure::of("the answer is not understood"));
            }
            Ok(answer)
        };
        let write = Call::post("_bulk_docs", bulk_docs_body(docs));
        let answer = self.call(&mut place.socket, write, take).await?;
        drop(place);
        match answer.status {
            200..300 => (refused(&answer, docs.len())).map_err(|told| self.error(&call, &told)),
            // Too large, or one document fails the others: retry in halves.
            400 | 413 if docs.len() > 1 => {
                let (first, second) = docs.split_at(docs.len() / 2);
                let mut refused = Box::pin(self.write_texts(first)).await?;
                refused.extend(Box::pin(self.write_texts(second)).await?);
                Ok(refused)
            }
            400 | 413 => Ok(docs
                .iter()
                .map(|(id, _)| Rejection {
                    id: id.clone(),
                    error: if answer.status == 413 {
                        "too_large"
                    } else {
                        "bad_request"
                    }
                    .into(),
                    reason: answer.reason(),
                })
                .collect()),
            _ => Err(self.refusal(&call, &answer)),
        }
    }
}

fn bulk_docs_body(docs: &[(String, Bytes)]) -> Vec<u8> {
    let length: usize = docs.iter().map(|(_, text)| text.len() + 1).sum();
    let mut body = Vec::with_capacity(length + 32);
    body.extend_from_slice(b"{\"new_edits\":false,\"docs\":[");
    for (i, (_, text)) in docs.iter().enumerate() {
        if i > 0 {
            body.push(b',');
        }
        body.extend_from_slice(text);
    }
    body.extend_from_slice(b"]}");
    body
}

/// Returns the refusals in a `_bulk_docs` response, which may list accepted documents as well: not
/// more than `docs`, the number of documents, whatever the target sends. In PouchDB `error` is `true`, and `name` is the kind.
fn refused(answer: &Answer, docs: usize) -> Result<Vec<Rejection>, String> {
    #[derive(Deserialize)]
    struct Row {
        #[serde(default)]
        id: Value,
        #[serde(default)]
        error: Value,
        #[serde(default)]
        name: Value,
        #[serde(default)]
        reason: Value,
    }
    let text = |value: Value| match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    };
    if answer.body.trim_ascii() == b"[]" {
        return Ok(vec![]);
    }
    let rows: Vec<Value> = parse(&answer.body, VALUES_MAX + docs * VALUES_A_RESULT)?;
    let refused = rows.into_iter().filter_map(|row| {
        let row: Row = serde_json::from_value(row).ok()?;
        let error = match (row.error, row.name) {
            (Value::Null | Value::Bool(false), _) => return None,
            (Value::Bool(true), Value::String(name)) => name,
            (error, _) => text(error),
        };
        Some(Rejection {
            id: text(row.id),
            error,
            reason: text(row.reason),
        })
    });
    Ok(refused.take(docs).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::long_responses::ResponsePermit;

    #[test]
    fn refusals_are_told_whatever_their_shape() {
        let body = r#"[{"id":"a","error":true,"name":"forbidden","status":403,"reason":"no"},
            {"id":"b","error":"unauthorized","reason":{"why":1}},{"ok":true,"id":"c","rev":"1-c"},7,{"id":5,"error":9}]"#;
        let answer = Answer {
            status: 201,
            body: Bytes::from(body),
            holding: ResponsePermit::default(),
        };
        let refusals = |docs: usize| -> Vec<String> {
            let all = refused(&answer, docs).unwrap().into_iter();
            all.map(|no| format!("{} {} {}", no.id, no.error, no.reason))
                .collect()
        };
        assert_eq!(
            refusals(5),
            ["a forbidden no", "b unauthorized {\"why\":1}", "5 9 "]
        );
        assert_eq!(refusals(1), ["a forbidden no"]);
    }
}
