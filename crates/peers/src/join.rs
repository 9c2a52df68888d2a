//! Joining: the request of a new node, and how the cluster reads it.

use std::time::{Duration, SystemTime};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Method, StatusCode};
use thiserror::Error;

use crate::certificate::unix_seconds;
use crate::line::Line;
use crate::link::{RawConnection, refusal_text, request};
use crate::token::{Secret, Token, TokenError, TokenId};
use crate::{Body, Options, Refusal, tls};

/// Maximum size of a new node's facts, in bytes.
pub const FACTS_BYTES_MAX: usize = (64 << 10) - HEAD_BYTES;
/// Id and secret.
const HEAD_BYTES: usize = 16 + 32;
/// Maximum size of the cluster's response, in bytes.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Time limit for one member.
const JOIN_TIME_MAX: Duration = Duration::from_secs(60);
/// A name of the form that TLS requires; the certificate's own is checked.
const ANY_NAME: &str = "join.settee.internal";

/// A node that requests to join. Nothing of it is verified: the handler redeems its token.
#[derive(Debug)]
pub struct JoinRequest {
    /// Which token it has.
    pub id: TokenId,
    /// Its secret.
    pub secret: Secret,
    /// Its facts.
    pub facts: Bytes,
}

impl JoinRequest {
    pub(crate) fn write(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_slice(&self.id);
        bytes.put_slice(&self.secret.0);
        bytes.put_slice(&self.facts);
        bytes.freeze()
    }

    pub(crate) fn read(bytes: &Bytes) -> Option<JoinRequest> {
        let (id, rest) = bytes.split_first_chunk()?;
        let secret = rest.first_chunk()?;
        Some(JoinRequest {
            id: *id,
            secret: Secret(*secret),
            facts: bytes.slice(HEAD_BYTES..),
        })
    }
}

/// Why a node did not join.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The token is of no use.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The facts exceed the maximum size of a request.
    #[error("more than {FACTS_BYTES_MAX} bytes about this node")]
    TooLong,
    /// No member could be reached. The token was not used.
    #[error("no member of the cluster can be reached: {0}")]
    Unreachable(String),
    /// A member refused.
    #[error("the cluster refused: {0}")]
    Refused(Refusal),
    /// The connection broke while the member answered: the token may have been used.
    #[error("the answer was lost, make a new token: {0}")]
    Lost(String),
    /// TLS could not be set up.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// Requests the members that a token names to admit this node, one after another; returns the
/// response of the first one that can be reached. That one has proved that it belongs to the
/// cluster that issued the token.
///
/// # Errors
/// [`JoinError`].
pub async fn join(token: &Token, facts: Bytes, now: SystemTime) -> Result<Bytes, JoinError> {
    if token.expires <= unix_seconds(now) {
        return Err(TokenError::Expired.into());
    }
    if facts.len() > FACTS_BYTES_MAX {
        return Err(JoinError::TooLong);
    }
    let (id, secret) = (token.id, token.secret);
    let body = JoinRequest { id, secret, facts }.write();
    let mut failures = vec![];
    for address in &token.addresses {
        match open(token, address).await {
            Ok(raw) => return ask(raw, body).await,
            Err(why) => failures.push(why),
        }
    }
    Err(JoinError::Unreachable(failures.join("; ")))
}

async fn open(token: &Token, address: &str) -> Result<RawConnection, String> {
    let tls = tls::joiner(token.fingerprint).map_err(|e| e.to_string())?;
    let options = Options::default();
    let who = format!("the node at {address}");
    let line = Line::new(who.clone());
    let opening = RawConnection::open(address, &who, ANY_NAME, tls, &options, line);
    match tokio::time::timeout(options.connect_time_max, opening).await {
        Ok(raw) => raw,
        Err(_) => Err(format!("{who} did not answer")),
    }
}

async fn ask(mut raw: RawConnection, body: Bytes) -> Result<Bytes, JoinError> {
    let request = request(Method::POST, "/join", body.into());
    let asking = async {
        let lost = |e: String| JoinError::Lost(raw.line.failure().unwrap_or(e));
        let response = raw.sender.send_request(request).await;
        let response = response.map_err(|e| lost(e.to_string()))?;
        let status = response.status();
        if status != StatusCode::OK {
            let refusal = Refusal::new(status, refusal_text(response).await);
            return Err(JoinError::Refused(refusal));
        }
        let answer = Body::of(response.into_body()).read(ANSWER_BYTES_MAX).await;
        answer.map_err(|e| lost(e.to_string()))
    };
    let answer = tokio::time::timeout(JOIN_TIME_MAX, asking).await;
    answer.unwrap_or_else(|_| Err(JoinError::Lost("the member did not answer".into())))
}
