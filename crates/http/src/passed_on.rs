//! Clients' requests that another node passes on: they are answered as if they had come to this server's own port.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Weak};

use hyper::StatusCode;
use hyper_util::rt::TokioIo;
use member::Clients;
use peers::{Body, Call, Refusal, Reply};
use tokio::net::TcpStream;

use crate::app::App;

/// Who answers clients' requests that other nodes pass on to this server.
pub fn passed_on(app: &Arc<App>) -> Arc<dyn Clients> {
    Arc::new(Own(Arc::downgrade(app)))
}

struct Own(Weak<App>);

impl Clients for Own {
    fn answer(&self, call: Call) -> Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send>> {
        let address = self.0.upgrade().and_then(|app| own_address(&app));
        Box::pin(async move {
            let failed = |why: String| Refusal::new(StatusCode::BAD_GATEWAY, why);
            let address = address.ok_or_else(|| failed("the server is starting".into()))?;
            answer(address, call).await.map_err(failed)
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

async fn answer(address: SocketAddr, call: Call) -> Result<Reply, String> {
    let stream = TcpStream::connect(address).await;
    let stream = TokioIo::new(stream.map_err(|e| e.to_string())?);
    let connected = hyper::client::conn::http1::handshake(stream).await;
    let (mut sender, connection) = connected.map_err(|e| e.to_string())?;
    tokio::spawn(connection);
    let mut request = hyper::Request::builder().method(call.method).uri(call.path);
    if let Some(headers) = request.headers_mut() {
        *headers = call.headers;
        if let Some(host) = headers.get(member::CLIENT).cloned() {
            headers.insert(hyper::header::HOST, host);
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
