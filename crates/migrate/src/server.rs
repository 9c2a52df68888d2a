//! A client of one of the two servers.

use std::error::Error as _;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use command_line::{LoginPlace, RefusedRequest, connection_failure, connection_loss};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use reqwest::header::LOCATION;
use reqwest::redirect::Policy;
use reqwest::{Method, Response, Url};
use serde_json::{Map, Value};

use crate::Error;

/// Maximum time until a response starts, and between two of its pieces, except for replications.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(300);
/// The largest response that is read as a whole. None has the contents of attachments.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// The largest response of a request that failed.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);
/// How often a read-only request is retried, and the first delay.
const TRIES_MAX: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// How often a server that does not listen yet is tried, with [`FIRST_WAIT`] between the tries.
const START_TRIES_MAX: u32 = 10;

/// Characters that are not encoded in a segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'(')
    .remove(b')');

pub struct Server {
    client: reqwest::Client,
    /// Without credentials and without a slash at the end.
    base: String,
    /// The same address, parsed.
    address: Url,
    credentials: Option<(String, String)>,
    /// The environment variable that may hold the URL.
    variable: &'static str,
    has_answered: AtomicBool,
    answer_bytes_max: usize,
}

/// Names and values of a query.
pub type Query<'a> = &'a [(&'a str, &'a str)];

impl Server {
    /// A client of a server whose URL may be in an environment variable.
    ///
    /// # Errors
    /// [`Error::Url`].
    pub fn new(text: &str, variable: &'static str) -> Result<Server, Error> {
        let mut url =
            command_line::server_url(text).map_err(|failure| Error::Url(failure.message))?;
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let credentials = (!url.username().is_empty()).then(|| {
            (
                decode(url.username()),
                decode(url.password().unwrap_or_default()),
            )
        });
        // Both fail only for URLs without a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        // reqwest takes the process's provider. Set already is fine too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIME_MAX)
            .tcp_keepalive(Duration::from_secs(30))
            // CouchDB redirects none of these requests, and another server is not the source.
            .redirect(Policy::none())
            .build()
            .map_err(|e| Error::Url(e.to_string()))?;
        Ok(Server {
            client,
            base: url.as_str().trim_end_matches('/').to_owned(),
            address: url,
            credentials,
            variable,
            has_answered: AtomicBool::new(false),
            answer_bytes_max: ANSWER_BYTES_MAX,
        })
    }

    /// Returns the URL without credentials.
    pub fn shown(&self) -> &str {
        &self.base
    }

    /// Returns whether the host in the URL is the loopback interface.
    pub fn is_loopback(&self) -> bool {
        let host = self.address.host_str();
        host.is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]"))
    }

    /// Returns a database, as a replication's source.
    pub fn endpoint(&self, db: &str) -> Value {
        let mut endpoint = Map::new();
        endpoint.insert("url".into(), self.url(&[db]).into());
        if let Some((name, password)) = &self.credentials {
            endpoint.insert(
                "auth".into(),
                serde_json::json!({"basic": {"username": name, "password": password}}),
            );
        }
        endpoint.into()
    }

    fn url(&self, path: &[&str]) -> String {
        let mut url = self.base.clone();
        for segment in path {
            url.push('/');
            // A slash in a document's name of one of these kinds is a separator.
            match segment.split_once('/') {
                Some((kind @ ("_design" | "_local"), id)) => {
                    url.push_str(kind);
                    url.push('/');
                    url.extend(utf8_percent_encode(id, SEGMENT));
                }
                _ => url.extend(utf8_percent_encode(segment, SEGMENT)),
            }
        }
        url
    }

    async fn send(
        &self,
        method: Method,
        path: &[&str],
        query: Query<'_>,
        body: Option<&Value>,
        time_max: Option<Duration>,
    ) -> Result<Response, Error> {
        let described = format!("{method} /{}", path.join("/"));
        let mut request = self.client.request(method, self.url(path)).query(query);
        if let Some((name, password)) = &self.credentials {
            request = request.basic_auth(name, Some(password));
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let sent = request.send();
        let sent = match time_max {
            None => sent.await,
            Some(time_max) => match tokio::time::timeout(time_max, sent).await {
                Ok(sent) => sent,
                Err(_) => {
                    let reason = format!("{} did not answer in time", self.base);
                    return Err(unreachable(described, reason));
                }
            },
        };
        let response = match sent {
            Ok(response) => response,
            Err(e) => return Err(self.silence(described, &e)),
        };
        self.has_answered.store(true, Relaxed);
        match response.status().as_u16() {
            ..300 => Ok(response),
            _ => Err(self.refusal(response, described).await),
        }
    }

    /// Describes a response by which the server refuses a request.
    async fn refusal(&self, response: Response, request: String) -> Error {
        let status = response.status().as_u16();
        let location = response.headers().get(LOCATION).cloned();
        let time_max = Some(ANSWER_TIME_MAX);
        let body = self.whole(response, &request, REFUSAL_BYTES_MAX, time_max);
        let body = body.await.unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let reason = RefusedRequest {
            status,
            reason: body["reason"].as_str(),
            has_login: self.credentials.is_some(),
            needs: "a server admin",
            login_place: LoginPlace::UrlInVariable(self.variable),
            location: location.as_ref().and_then(|value| value.to_str().ok()),
        };
        Error::Refused {
            reason: reason.description(&self.address),
            request,
            status,
        }
    }

    /// Describes why the server did not answer, or not to the end.
    fn silence(&self, request: String, error: &reqwest::Error) -> Error {
        let reason = match self.has_answered.load(Relaxed) {
            true => connection_loss(&self.address, error),
            false => connection_failure(&self.address, error),
        };
        match is_refused(error) {
            true => Error::ConnectionRefused { request, reason },
            false => unreachable(request, reason),
        }
    }

    /// Reads a response of at most `bytes_max` bytes, each piece within `time_max`.
    async fn whole(
        &self,
        mut response: Response,
        request: &str,
        bytes_max: usize,
        time_max: Option<Duration>,
    ) -> Result<Vec<u8>, Error> {
        let mut whole = vec![];
        while let Some(piece) = self.next(&mut response, request, time_max).await? {
            if whole.len() + piece.len() > bytes_max {
                return Err(Error::TooLong {
                    server: self.base.clone(),
                    request: request.to_owned(),
                    bytes_max,
                });
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole)
    }

    async fn next(
        &self,
        response: &mut Response,
        request: &str,
        time_max: Option<Duration>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let piece = response.chunk();
        let piece = match time_max {
            None => piece.await,
            Some(time_max) => match tokio::time::timeout(time_max, piece).await {
                Ok(piece) => piece,
                Err(_) => {
                    let reason = format!("nothing more came from {}", self.base);
                    return Err(unreachable(request.to_owned(), reason));
                }
            },
        };
        let piece = piece.map_err(|e| self.silence(request.to_owned(), &e))?;
        Ok(piece.map(|bytes| bytes.to_vec()))
    }

    async fn json_of(
        &self,
        response: Response,
        path: &[&str],
        time_max: Option<Duration>,
    ) -> Result<Value, Error> {
        let request = format!("/{}", path.join("/"));
        let text = self
            .whole(response, &request, self.answer_bytes_max, time_max)
            .await?;
        serde_json::from_slice(&text).map_err(|_| Error::Strange {
            server: self.base.clone(),
            request,
        })
    }

    /// Requests JSON; retried while the server is unreachable for a while.
    ///
    /// # Errors
    /// The server's error, or that it is unreachable.
    pub async fn get(&self, path: &[&str], query: Query<'_>) -> Result<Value, Error> {
        let mut wait = FIRST_WAIT;
        for _ in 1..TRIES_MAX {
            match self.get_once(path, query).await {
                Err(e) if e.is_passing() => {
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                }
                done => return done,
            }
        }
        self.get_once(path, query).await
    }

    /// Requests the welcome message. While nothing listens at the server's address, it may be
    /// starting: this is retried for a few seconds, without output.
    ///
    /// # Errors
    /// Errors of [`Server::get`]; only refused connections are retried.
    pub async fn welcome(&self) -> Result<Value, Error> {
        for _ in 1..START_TRIES_MAX {
            match self.get_once(&[], &[]).await {
                Err(Error::ConnectionRefused { .. }) => tokio::time::sleep(FIRST_WAIT).await,
                done => return done,
            }
        }
        self.get_once(&[], &[]).await
    }

    /// Requests JSON once.
    ///
    /// # Errors
    /// Errors of [`Server::get`].
    pub async fn get_once(&self, path: &[&str], query: Query<'_>) -> Result<Value, Error> {
        let response = self
            .send(Method::GET, path, query, None, Some(ANSWER_TIME_MAX))
            .await?;
        self.json_of(response, path, Some(ANSWER_TIME_MAX)).await
    }

    /// Starts reading a long response.
    ///
    /// # Errors
    /// Errors of [`Server::get`], without retries.
    pub async fn stream(&self, path: &[&str], query: Query<'_>) -> Result<Response, Error> {
        self.send(Method::GET, path, query, None, Some(ANSWER_TIME_MAX))
            .await
    }

    /// Returns the next piece of a long answer.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when it ends early.
    pub async fn piece(&self, response: &mut Response) -> Result<Option<Vec<u8>>, Error> {
        self.next(response, "reading", Some(ANSWER_TIME_MAX)).await
    }

    /// # Errors
    /// As [`Server::get`], without trying again.
    pub async fn put(&self, path: &[&str], query: Query<'_>, body: &Value) -> Result<Value, Error> {
        let response = self
            .send(Method::PUT, path, query, Some(body), Some(ANSWER_TIME_MAX))
            .await?;
        self.json_of(response, path, Some(ANSWER_TIME_MAX)).await
    }

    /// # Errors
    /// As [`Server::get`], without trying again.
    pub async fn post(&self, path: &[&str], body: &Value) -> Result<Value, Error> {
        let response = self
            .send(Method::POST, path, &[], Some(body), Some(ANSWER_TIME_MAX))
            .await?;
        self.json_of(response, path, Some(ANSWER_TIME_MAX)).await
    }

    /// Sends a POST request with a query.
    ///
    /// # Errors
    /// Errors of [`Server::get`], without retries.
    pub async fn post_with(
        &self,
        path: &[&str],
        query: Query<'_>,
        body: &Value,
    ) -> Result<Value, Error> {
        let response = self
            .send(Method::POST, path, query, Some(body), Some(ANSWER_TIME_MAX))
            .await?;
        self.json_of(response, path, Some(ANSWER_TIME_MAX)).await
    }

    /// Sends a request without a time limit.
    ///
    /// # Errors
    /// Errors of [`Server::get`], without retries.
    pub async fn post_and_wait(&self, path: &[&str], body: &Value) -> Result<Value, Error> {
        let response = self.send(Method::POST, path, &[], Some(body), None).await?;
        self.json_of(response, path, None).await
    }
}

/// Returns whether no connection was made because nothing listens.
fn is_refused(error: &reqwest::Error) -> bool {
    let mut next = error.source();
    while let Some(error) = next {
        let error_kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if error_kind == Some(io::ErrorKind::ConnectionRefused) {
            return true;
        }
        next = error.source();
    }
    false
}

fn unreachable(request: String, reason: String) -> Error {
    Error::Unreachable { request, reason }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use tokio::net::TcpSocket;

    use super::*;

    #[test]
    fn credentials_are_taken_out_of_the_url() {
        let server = Server::new("http://a%40b:p%2Fw@host:5984/couch/", "").unwrap();
        assert_eq!(server.shown(), "http://host:5984/couch");
        let endpoint = server.endpoint("a/b+c");
        assert_eq!(endpoint["url"], "http://host:5984/couch/a%2Fb%2Bc");
        assert_eq!(endpoint["auth"]["basic"]["username"], "a@b");
        assert_eq!(endpoint["auth"]["basic"]["password"], "p/w");
    }

    #[test]
    fn a_bad_url_is_named_without_its_password() {
        for text in ["ftp://u:secret@host", "http://u:secret@:x", "host"] {
            let Err(e) = Server::new(text, "") else {
                panic!("{text} is accepted")
            };
            assert!(!e.to_string().contains("secret"), "{e}");
        }
    }

    #[test]
    fn local_and_design_documents_keep_their_slash() {
        let server = Server::new("http://h", "").unwrap();
        assert_eq!(server.url(&["d", "_local/a/b"]), "http://h/d/_local/a%2Fb");
        assert_eq!(server.url(&["d", "x/y"]), "http://h/d/x%2Fy");
    }

    /// A server that sends this head to each client, and then endless pieces.
    fn endless(head: &'static str) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if stream.read(&mut [0; 4096]).unwrap_or(0) > 0 {
                    let _ = stream.write_all(head.as_bytes());
                }
                while stream.write_all(&[b' '; 4096]).is_ok() {}
            }
        });
        Server {
            answer_bytes_max: 1 << 20,
            ..Server::new(&format!("http://{address}"), "").unwrap()
        }
    }

    #[tokio::test]
    async fn endless_answers_are_not_read() {
        let server = endless("HTTP/1.1 200 OK\r\n\r\n");
        for answer in [
            server.get(&["db"], &[]).await,
            server.put(&["db"], &[], &Value::Null).await,
            server.post_and_wait(&["_replicate"], &Value::Null).await,
        ] {
            assert!(matches!(answer, Err(Error::TooLong { .. })), "{answer:?}");
        }
        let server = endless("HTTP/1.1 400 Bad Request\r\n\r\n");
        let answer = server.get(&["db"], &[]).await;
        assert!(answer.unwrap_err().is_status(400));
    }

    #[tokio::test]
    async fn another_server_is_not_asked_instead() {
        let head = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n";
        let answer = endless(head).get(&["db"], &[]).await;
        assert!(answer.unwrap_err().is_status(302));
    }

    /// Answers one request with these bytes, and closes the connection.
    fn answer_once(listener: TcpListener, answer: &'static str) {
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            stream.write_all(answer.as_bytes()).unwrap();
        });
    }

    #[tokio::test]
    async fn a_server_that_is_starting_is_waited_for() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        let server = Server::new(&url, "").unwrap();
        let refused = server.get_once(&[], &[]).await.unwrap_err();
        assert!(
            matches!(refused, Error::ConnectionRefused { .. }),
            "{refused}"
        );
        let mut welcome = std::pin::pin!(server.welcome());
        let early = tokio::time::timeout(FIRST_WAIT / 2, welcome.as_mut()).await;
        assert!(early.is_err(), "{early:?}");
        let listener = socket.listen(1).unwrap().into_std().unwrap();
        listener.set_nonblocking(false).unwrap();
        answer_once(listener, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        assert_eq!(welcome.await.unwrap(), serde_json::json!({}));
    }

    #[tokio::test]
    async fn only_refused_connections_are_retried_at_the_start() {
        for (answer, wanted) in [
            ("", "write https://"),
            ("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "a proxy"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
                "in the middle of a response",
            ),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            // A second request would be refused.
            answer_once(listener, answer);
            let server = Server::new(&url, "").unwrap();
            let error = server.welcome().await.unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn loopback_is_seen() {
        let is = |url: &str| Server::new(url, "").unwrap().is_loopback();
        assert!(is("http://127.0.0.1:1") && is("http://localhost") && is("http://[::1]:2"));
        assert!(!is("http://example.com") && !is("http://10.0.0.1"));
    }
}
