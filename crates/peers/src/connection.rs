//! One connection of another node: what it asks, and what it is answered.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;

use crate::channel::Channel;
use crate::client::without_connection;
use crate::hello::{Hello, REFUSED};
use crate::line::Line;
use crate::registry::{NodeEntry, Registration, Turn};
use crate::server::{Handler, ServerState};
use crate::{Body, BodyError, Call, Decoder, Event, JoinRequest, NodeId, Refusal};

/// Maximum size of a request to join, in bytes.
pub(crate) const JOIN_BYTES_MAX: usize = 64 << 10;

/// One connection.
pub(crate) struct Connection<H> {
    serving: Arc<ServerState<H>>,
    /// The node that the certificate names, if any.
    from: Option<NodeId>,
    line: Arc<Line>,
    greeted: OnceLock<(Hello, Registration)>,
    has_asked_to_join: AtomicBool,
}

impl<H: Handler> Connection<H> {
    pub fn new(serving: Arc<ServerState<H>>, from: Option<NodeId>, line: Arc<Line>) -> Arc<Self> {
        Arc::new(Connection {
            serving,
            from,
            line,
            greeted: OnceLock::new(),
            has_asked_to_join: AtomicBool::new(false),
        })
    }

    /// Returns whether a complete request to join has arrived.
    pub fn has_asked_to_join(&self) -> bool {
        self.has_asked_to_join.load(Relaxed)
    }

    pub async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        let answer = match (path, self.from) {
            ("/join", _) => self.join(request).await,
            (_, None) => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "this needs a certificate of the cluster",
            )),
            ("/hello", Some(node)) => self.hello(node, &request),
            (_, Some(node)) => match (Channel::of_path(path), self.greeted.get()) {
                (_, None) => Err(Refusal::new(
                    StatusCode::PRECONDITION_REQUIRED,
                    "a connection begins with /hello",
                )),
                _ if !self.serving.handler.admits(node) => Err(no_member(node)),
                (Some(channel), Some((hello, _))) => {
                    self.messages(node, channel, hello, request).await
                }
                _ => self.call(node, request).await,
            },
        };
        answer.unwrap_or_else(|refusal| self.refuse(refusal))
    }

    fn refuse(&self, refusal: Refusal) -> Response<Body> {
        let mut response = Response::new(Body::from(Bytes::from(refusal.text)));
        *response.status_mut() = refusal.status;
        response.headers_mut().insert(REFUSED, 1.into());
        response
    }

    fn hello(&self, node: NodeId, request: &Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let shared = &self.serving.shared;
        let bad = || Refusal::new(StatusCode::BAD_REQUEST, "no greeting");
        let theirs = Hello::read(request.headers()).ok_or_else(bad)?;
        let ours = Hello::new(shared.options.protocol, shared.identity.instance(), 0);
        if let Some(text) = theirs.mismatch(node, ours.protocol) {
            self.serving.refused(text.clone());
            let mut response = self.refuse(Refusal::new(StatusCode::UPGRADE_REQUIRED, &text));
            ours.write(response.headers_mut());
            shared.report(Event::OtherProtocol {
                node,
                theirs: theirs.protocol,
                text,
            });
            return Ok(response);
        }
        if !self.serving.handler.admits(node) {
            return Err(no_member(node));
        }
        self.greeted.get_or_init(|| {
            let entered = shared.enter(node, theirs.instance, self.line.clone());
            let known = shared.known(node);
            known.arrivals.send_modify(|arrivals| *arrivals += 1);
            (theirs, entered)
        });
        let mut response = Response::new(Body::empty());
        ours.write(response.headers_mut());
        Ok(response)
    }

    async fn messages(
        &self,
        node: NodeId,
        channel: Channel,
        hello: &Hello,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        let known: Arc<NodeEntry> = self.serving.shared.known(node);
        let reader = Reader {
            handler: self.serving.handler.clone(),
            node,
            channel,
            connection: hello.connection,
            turn: known.turn(hello.instance, channel),
            known,
            body: Body::of(request.into_body()),
            decoder: Decoder::default(),
        };
        // The response has no bytes. It lasts as long as messages are read, and they are read as
        // long as the sender waits for it.
        let reading = futures_util::stream::once(async move {
            let read = reader.read().await;
            read.map(|()| Bytes::new())
        });
        Ok(Response::new(Body::stream(reading)))
    }

    async fn call(
        &self,
        node: NodeId,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        let (head, body) = request.into_parts();
        let target = head.uri.path_and_query().map_or("", |p| p.as_str());
        let path = target.strip_prefix("/call").unwrap_or_default().to_owned();
        if !path.starts_with('/') {
            return Err(Refusal::new(StatusCode::NOT_FOUND, "there is no such path"));
        }
        let call = Call {
            method: head.method,
            path,
            headers: head.headers,
            body: Body::of(body),
        };
        let reply = self.serving.handler.call(node, call).await?;
        let mut response = Response::new(reply.body);
        *response.status_mut() = reply.status;
        let headers = response.headers_mut();
        *headers = without_connection(reply.headers);
        // The reply may be that of a user's function.
        headers.remove(REFUSED);
        Ok(response)
    }

    async fn join(&self, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let busy = |_| {
            let text = "other nodes are joining: try again";
            Refusal::new(StatusCode::TOO_MANY_REQUESTS, text)
        };
        let bad = |text: String| Refusal::new(StatusCode::BAD_REQUEST, text);
        let body = Body::of(request.into_body());
        let bytes = body.read(JOIN_BYTES_MAX).await;
        let bytes = bytes.map_err(|e| bad(e.to_string()))?;
        let request = JoinRequest::read(&bytes).ok_or_else(|| bad("no request to join".into()))?;
        self.has_asked_to_join.store(true, Relaxed);
        // Only for a request that has arrived: a client that sends none does not block others.
        let places = match self.serving.handler.knows_token(&request) {
            true => &self.serving.joins,
            false => &self.serving.unknown_joins,
        };
        let place = places.try_acquire().map_err(busy)?;
        let answer = self.serving.handler.join(request).await;
        drop(place);
        if let Err(refusal) = &answer {
            tracing::warn!("a node did not join: {refusal}");
            tokio::time::sleep(self.serving.shared.options.refused_join_pause).await;
        }
        Ok(Response::new(Body::from(answer?)))
    }
}

fn no_member(node: NodeId) -> Refusal {
    let text = format!("node {node} is not a member of this cluster");
    Refusal::new(StatusCode::FORBIDDEN, text)
}

/// Delivers the messages of one connection.
struct Reader<H> {
    handler: Arc<H>,
    node: NodeId,
    channel: Channel,
    connection: u64,
    turn: Arc<Turn>,
    known: Arc<NodeEntry>,
    body: Body,
    decoder: Decoder,
}

impl<H: Handler> Reader<H> {
    async fn read(mut self) -> Result<(), BodyError> {
        while let Some(piece) = self.body.next().await {
            self.decoder.push(&piece?);
            // Messages of an earlier connection are too late: they would be out of order.
            let mut turn = self.turn.lock().await;
            if *turn > self.connection || !self.handler.admits(self.node) {
                return Ok(());
            }
            *turn = self.connection;
            loop {
                match self.decoder.take() {
                    Ok(Some(message)) => {
                        let bytes = message.len() as u64;
                        self.known.received.fetch_add(1, Relaxed);
                        self.known.received_bytes.fetch_add(bytes, Relaxed);
                        match self.channel {
                            Channel::Messages => self.handler.message(self.node, message).await,
                            Channel::Bulk => self.handler.bulk_message(self.node, message).await,
                        }
                    }
                    Ok(None) => break,
                    Err(e) => return Err(BodyError::Source(e.into())),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use futures_util::stream;
    use parking_lot::Mutex;

    use super::*;
    use crate::{Reply, encode};

    /// Keeps messages.
    #[derive(Default)]
    struct RecordingHandler(Mutex<Vec<Bytes>>);

    impl Handler for RecordingHandler {
        async fn message(&self, _: NodeId, message: Bytes) {
            self.0.lock().push(message);
        }

        async fn call(&self, _: NodeId, _: Call) -> Result<Reply, Refusal> {
            Ok(Reply::ok(Body::empty()))
        }

        async fn join(&self, _: JoinRequest) -> Result<Bytes, Refusal> {
            Ok(Bytes::new())
        }
    }

    #[tokio::test]
    async fn an_earlier_connection_that_is_read_late_is_not_heard() {
        let (handler, turn) = (
            Arc::new(RecordingHandler::default()),
            Arc::new(Turn::default()),
        );
        let known = Arc::new(NodeEntry::default());
        for (connection, message) in [(2, "b"), (1, "a"), (3, "c")] {
            let mut bytes = BytesMut::new();
            encode(message.as_bytes(), &mut bytes);
            let reader = Reader {
                handler: handler.clone(),
                node: 1,
                channel: Channel::Messages,
                connection,
                turn: turn.clone(),
                known: known.clone(),
                body: Body::stream(stream::iter([Ok(bytes.freeze())])),
                decoder: Decoder::default(),
            };
            reader.read().await.unwrap();
        }
        assert_eq!(*handler.0.lock(), ["b", "c"]);
        let received = known.received.load(Relaxed);
        assert_eq!((received, known.received_bytes.load(Relaxed)), (2, 2));
    }
}
