//! Clients' requests that another node forwards: they are answered as if they had come to this
//! server's own port.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderValue};
use hyper_util::rt::TokioIo;
use member::Clients;
use peers::{Body, Call, Refusal, Reply};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::app::App;

/// How long a request waits for a connection to the own port.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The header of requests that this server forwards to itself for another node.
const FORWARDED: &str = "x-settee-forwarded";

/// Returns the address of the client of a request that another node forwards, and removes the headers
/// that contain it: functions see a request's headers. Removes what only other nodes may say.
pub fn client_address(app: &App, headers: &mut HeaderMap) -> Option<IpAddr> {
    app.node.member()?;
    let (token, address) = (
        headers.remove(FORWARDED),
        headers.remove(member::CLIENT_ADDRESS),
    );
    let is_ours = token.is_some_and(|t| t.as_bytes() == app.forwarding_token.as_bytes());
    if !is_ours {
        // Only other nodes may name the shards that a request is about.
        headers.remove(member::PART);
        return None;
    }
    address?.to_str().ok()?.parse().ok()
}

/// Answers clients' requests that other nodes forward to this server, at most `connections` at a
/// time. Each uses a connection to the server's own port.
pub fn forwarded_clients(app: &Arc<App>, connections: usize) -> Arc<dyn Clients> {
    let connections = connections.clamp(1, Semaphore::MAX_PERMITS);
    Arc::new(OwnPort {
        app: Arc::downgrade(app),
        connections: Arc::new(Semaphore::new(connections)),
    })
}

/// The port of this server that its own clients use.
struct OwnPort {
    app: Weak<App>,
    connections: Arc<Semaphore>,
}

impl Clients for OwnPort {
    fn answer(&self, call: Call) -> Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send>> {
        let app = self.app.upgrade();
        let token = app.as_ref().map(|app| app.forwarding_token.clone());
        let address = app.and_then(|app| own_address(&app));
        let connections = self.connections.clone();
        Box::pin(async move {
            let failed = |why: String| Refusal::new(StatusCode::BAD_GATEWAY, why);
            let address = address.ok_or_else(|| failed("the server is starting".into()))?;
            let place = place(connections, WAIT_MAX).await?;
            let token = token.and_then(|token| HeaderValue::try_from(token).ok());
            answer(address, call, token, place).await.map_err(failed)
        })
    }
}

/// Where this server's own clients come in.
fn own_address(app: &App) -> Option<SocketAddr> {
    let mut address = *app.node.listening().first()?;
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    Some(address)
}

/// Waits for a connection's place.
async fn place(
    connections: Arc<Semaphore>,
    wait_max: Duration,
) -> Result<OwnedSemaphorePermit, Refusal> {
    let place = tokio::time::timeout(wait_max, connections.acquire_owned());
    let busy = "too many requests are passed on to this node";
    match place.await {
        Ok(Ok(place)) => Ok(place),
        _ => Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, busy)),
    }
}

/// `place` is held as long as the connection is open: until the answer was read, or dropped.
async fn answer(
    address: SocketAddr,
    call: Call,
    token: Option<HeaderValue>,
    place: OwnedSemaphorePermit,
) -> Result<Reply, String> {
    let stream = TcpStream::connect(address).await;
    let stream = TokioIo::new(stream.map_err(|e| e.to_string())?);
    let connected = hyper::client::conn::http1::handshake(stream).await;
    let (mut sender, connection) = connected.map_err(|e| e.to_string())?;
    tokio::spawn(async move {
        let _place = place;
        // The reader of the response notices errors.
        let _ = connection.await;
    });
    let mut request = hyper::Request::builder().method(call.method).uri(call.path);
    if let Some(headers) = request.headers_mut() {
        *headers = call.headers;
        if let Some(host) = headers.get(member::CLIENT).cloned() {
            headers.insert(hyper::header::HOST, host);
        }
        if let Some(token) = token {
            headers.insert(FORWARDED, token);
        }
    }
    let request = request.body(call.body).map_err(|e| e.to_string())?;
    let answered = sender.send_request(request).await;
    let (head, body) = answered.map_err(|e| e.to_string())?.into_parts();
    Ok(Reply {
        status: head.status,
        headers: head.headers,
        body: Body::of(body),
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    async fn serve(listener: TcpListener) {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                let _ = stream.read(&mut request).await;
                let head = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\na";
                let _ = stream.write_all(head.as_bytes()).await;
                // The rest comes never.
                let _ = stream.read(&mut request).await;
            });
        }
    }

    #[tokio::test]
    async fn a_place_is_held_until_the_answer_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener));
        let connections = Arc::new(Semaphore::new(1));
        let first = place(connections.clone(), Duration::ZERO).await.unwrap();
        let reply = answer(address, Call::new("/", Body::empty()), None, first).await;
        let reply = reply.unwrap();
        let refused = place(connections.clone(), Duration::ZERO).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        drop(reply);
        let again = place(connections, WAIT_MAX).await;
        assert!(again.is_ok());
    }
}
