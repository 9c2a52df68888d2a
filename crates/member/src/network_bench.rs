//! Measures the connections to the other nodes: round trips, and throughput in both directions.

use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::NodeId;
use futures_util::stream;
use http::StatusCode;
use peers::{Body, BodyError, Call, Peers, Refusal, Reply};
use serde::Serialize;

use crate::members::Members;

/// The path of a call of a measurement: its response has as many bytes as its query requests, or,
/// without a query, the number of bytes that were received.
pub const BENCH: &str = "/bench";

/// Maximum number of bytes of a transfer, in either direction.
const TRANSFER_BYTES_MAX: usize = 64 << 20;
/// Bytes of a piece of a transfer.
const PIECE_BYTES: usize = 64 << 10;
static PIECE: [u8; PIECE_BYTES] = [0; PIECE_BYTES];
/// Maximum number of round trips.
const ROUND_TRIPS_MAX: usize = 10_000;
/// Bytes of a round trip's request, as of a message.
const ROUND_TRIP_BYTES: usize = 64;
/// Time limit of a response, in addition to the time of the measurement.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(5);

/// The measured connection to a node.
#[derive(Clone, Debug, Serialize)]
pub struct NetworkFigures {
    /// Number of round trips.
    pub round_trips: usize,
    /// Their median, in microseconds.
    pub p50_us: u64,
    /// The time that 99 of 100 did not exceed.
    pub p99_us: u64,
    /// Bytes sent to the node, and bytes per second.
    pub sent_bytes: u64,
    /// See `sent_bytes`.
    pub sent_bytes_per_s: u64,
    /// Bytes received from the node, and bytes per second.
    pub received_bytes: u64,
    /// See `received_bytes`.
    pub received_bytes_per_s: u64,
}

/// The connection to a node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeNetwork {
    /// Its name.
    pub node: String,
    /// The results; `None` with an error.
    #[serde(flatten)]
    pub figures: Option<NetworkFigures>,
    /// Why it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Answers a call of another node's measurement.
///
/// # Errors
/// The body is too long, or the query invalid.
pub async fn answer(query: &str, call: Call) -> Result<Reply, Refusal> {
    let bad = |text: String| Refusal::new(StatusCode::BAD_REQUEST, text);
    let wanted = match query.strip_prefix("bytes=") {
        Some(bytes) => bytes.parse::<usize>().ok(),
        None => Some(0),
    };
    let wanted = wanted.filter(|bytes| *bytes <= TRANSFER_BYTES_MAX);
    let wanted = wanted.ok_or_else(|| bad(format!("at most {TRANSFER_BYTES_MAX} bytes")))?;
    let mut body = call.body;
    let mut received = 0;
    while let Some(piece) = body.next().await {
        received += piece.map_err(|e| bad(e.to_string()))?.len();
        if received > TRANSFER_BYTES_MAX {
            return Err(bad(BodyError::TooLong(TRANSFER_BYTES_MAX).to_string()));
        }
    }
    Ok(Reply::ok(match wanted {
        0 => Body::from(Bytes::from(received.to_string())),
        wanted => pieces(wanted, None),
    }))
}

/// Returns a body of this many bytes, or less when the time is over.
fn pieces(bytes: usize, until: Option<Instant>) -> Body {
    let next = move |left: usize| async move {
        let is_over = until.is_some_and(|until| Instant::now() >= until);
        let length = left.min(PIECE_BYTES);
        let piece = Bytes::from_static(&PIECE[..length]);
        (length > 0 && !is_over).then_some((Ok(piece), left - length))
    };
    Body::stream(stream::unfold(bytes, next))
}

/// Measures the connections to all other nodes, one after the other; each of the three parts of a
/// measurement takes at most about `time`.
pub async fn measure_all(members: &Members, time: Duration) -> Vec<NodeNetwork> {
    let mut others = members.all();
    others.retain(|(id, _)| *id != members.me);
    others.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
    let mut all = vec![];
    for (id, member) in others {
        let measured = match members.peers() {
            Some(peers) if members.is_live(id) => measure(peers, id, time).await,
            _ => Err("it does not answer".to_owned()),
        };
        let error = measured.as_ref().err().cloned();
        all.push(NodeNetwork {
            node: member.name,
            figures: measured.ok(),
            error,
        });
    }
    all
}

/// Measures the connection to a node; each of the three parts takes at most about `time`.
///
/// # Errors
/// Why it failed.
pub async fn measure(
    peers: &Peers,
    node: NodeId,
    time: Duration,
) -> Result<NetworkFigures, String> {
    let mut trips = round_trips(peers, node, time).await?;
    trips.sort_unstable();
    let (sent_bytes, sent_bytes_per_s) = send(peers, node, time).await?;
    let (received_bytes, received_bytes_per_s) = receive(peers, node, time).await?;
    Ok(NetworkFigures {
        round_trips: trips.len(),
        p50_us: quantile(&trips, 50),
        p99_us: quantile(&trips, 99),
        sent_bytes,
        sent_bytes_per_s,
        received_bytes,
        received_bytes_per_s,
    })
}

/// Returns the time that this percentage of the sorted times do not exceed, in microseconds.
fn quantile(sorted: &[Duration], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    let time = sorted.get(rank - 1).copied().unwrap_or_default();
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

async fn round_trips(peers: &Peers, node: NodeId, time: Duration) -> Result<Vec<Duration>, String> {
    let began = Instant::now();
    let mut trips = vec![];
    while trips.is_empty() || began.elapsed() < time && trips.len() < ROUND_TRIPS_MAX {
        let sent = Instant::now();
        let body = Bytes::from_static(&PIECE[..ROUND_TRIP_BYTES]);
        let received = received_there(peers, node, body.into(), time).await?;
        trips.push(sent.elapsed());
        if received != ROUND_TRIP_BYTES as u64 {
            return Err(format!("{received} of {ROUND_TRIP_BYTES} bytes arrived"));
        }
    }
    Ok(trips)
}

/// Sends a body, and returns how many of its bytes the node reports.
async fn received_there(
    peers: &Peers,
    node: NodeId,
    body: Body,
    time: Duration,
) -> Result<u64, String> {
    let call = Call::new(BENCH, body);
    let reply = peers.call(node, call, time + RESPONSE_TIME_MAX).await;
    let reply = reply.map_err(|e| e.to_string())?;
    let read = tokio::time::timeout(RESPONSE_TIME_MAX, reply.body.read(PIECE_BYTES)).await;
    let read = read.map_err(|_| "the response did not arrive in time".to_owned())?;
    let text = read.map_err(|e| e.to_string())?;
    let number = std::str::from_utf8(&text).ok().and_then(|t| t.parse().ok());
    number.ok_or_else(|| "the response is not a number".to_owned())
}

/// Returns the bytes that the node received, and bytes per second.
async fn send(peers: &Peers, node: NodeId, time: Duration) -> Result<(u64, u64), String> {
    let began = Instant::now();
    let body = pieces(TRANSFER_BYTES_MAX, Some(began + time));
    let sent = received_there(peers, node, body, time).await?;
    Ok((sent, per_second(sent, began)))
}

/// Returns the bytes that the node sent, and bytes per second.
async fn receive(peers: &Peers, node: NodeId, time: Duration) -> Result<(u64, u64), String> {
    let began = Instant::now();
    let call = Call::new(format!("{BENCH}?bytes={TRANSFER_BYTES_MAX}"), Bytes::new());
    let reply = peers.call(node, call, RESPONSE_TIME_MAX).await;
    let mut body = reply.map_err(|e| e.to_string())?.body;
    let mut received = 0;
    while began.elapsed() < time {
        let piece = tokio::time::timeout(RESPONSE_TIME_MAX, body.next()).await;
        match piece.map_err(|_| "the transfer stalled".to_owned())? {
            Some(piece) => received += piece.map_err(|e| e.to_string())?.len() as u64,
            None => break,
        }
    }
    // Dropping the rest cancels the transfer.
    Ok((received, per_second(received, began)))
}

fn per_second(bytes: u64, began: Instant) -> u64 {
    let seconds = began.elapsed().as_secs_f64().max(1e-6);
    (bytes as f64 / seconds) as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use peers::{Authority, Handler, Identity, JoinRequest, Server};

    use super::*;

    /// Answers measurements.
    struct Other;

    impl Handler for Other {
        async fn message(&self, _: NodeId, _: Bytes) {}

        async fn call(&self, _: NodeId, call: Call) -> Result<Reply, Refusal> {
            let path = call.path.clone();
            let (path, query) = path.split_once('?').unwrap_or((&path, ""));
            assert_eq!(path, BENCH);
            answer(query, call).await
        }

        async fn join(&self, _: JoinRequest) -> Result<Bytes, Refusal> {
            Err(Refusal::new(StatusCode::FORBIDDEN, "nobody joins"))
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn connections_are_measured_within_bounds() {
        let now = SystemTime::now();
        let authority = Authority::create([7; 16], now).unwrap().to_pem().unwrap();
        let start = |node| {
            let dir = tempfile::tempdir().unwrap();
            let authority = Authority::from_pem(&authority).unwrap();
            let identity = Identity::create(dir.path(), authority, node, now).unwrap();
            (dir, Peers::new(identity).unwrap())
        };
        let ((_one, here), (_two, there)) = (start(1), start(2));
        let server = Server::bind("127.0.0.1:0", &there, Arc::new(Other)).await;
        let server = server.unwrap();
        here.set(2, vec![server.address().to_string()]);
        let figures = measure(&here, 2, Duration::from_millis(200)).await.unwrap();
        assert!((1..=ROUND_TRIPS_MAX).contains(&figures.round_trips));
        assert!(0 < figures.p50_us && figures.p50_us <= figures.p99_us);
        for bytes in [figures.sent_bytes, figures.received_bytes] {
            assert!((1..=TRANSFER_BYTES_MAX as u64).contains(&bytes));
        }
        assert!(figures.sent_bytes_per_s > 0 && figures.received_bytes_per_s > 0);
        // The connection is usable afterwards, and the bounds are those of the other side, too.
        let time = Duration::from_secs(20);
        let ask = |path: String| here.call(2, Call::new(path, Bytes::new()), time);
        let reply = ask(format!("{BENCH}?bytes=100000")).await.unwrap();
        assert_eq!(reply.body.read(200_000).await.unwrap().len(), 100_000);
        let refused = ask(format!("{BENCH}?bytes={}", TRANSFER_BYTES_MAX + 1)).await;
        assert!(matches!(refused, Err(peers::CallError::Refused { .. })));
        let long = Call::new(BENCH, pieces(TRANSFER_BYTES_MAX + 1, None));
        let refused = here.call(2, long, time).await;
        assert!(matches!(refused, Err(peers::CallError::Refused { .. })));
        let unknown = measure(&here, 3, Duration::from_millis(200)).await;
        assert!(unknown.is_err());
    }

    #[test]
    fn quantiles_are_of_sorted_times() {
        let times: Vec<_> = (1..=200).map(Duration::from_micros).collect();
        assert_eq!((quantile(&times, 50), quantile(&times, 99)), (100, 198));
        assert_eq!(quantile(&times[..1], 99), 1);
        assert_eq!(quantile(&[], 50), 0);
    }
}
