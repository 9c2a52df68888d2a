//! Times and limits.

use std::time::Duration;

/// Times and limits of the talk between nodes. The defaults are meant to be kept; tests shorten
/// them.
#[derive(Clone, Debug)]
pub struct Options {
    /// A peer that is silent for this time is disconnected.
    pub silence_max: Duration,
    /// Interval of pings to an idle peer.
    pub ping_every: Duration,
    /// Time limit of connecting to one address, including TLS and greeting.
    pub connect_time_max: Duration,
    /// The first pause before another attempt; it doubles each time.
    pub retry_min: Duration,
    /// The longest pause before another attempt.
    pub retry_max: Duration,
    /// Messages that wait for a peer; the oldest are dropped.
    pub queue_messages_max: usize,
    /// Their bytes.
    pub queue_bytes_max: usize,
    /// There is a connection for bulk messages to each peer.
    pub has_bulk: bool,
    /// Bytes of bulk messages that wait for a peer; more are refused.
    pub bulk_bytes_max: usize,
    /// Delay of the response to a wrong secret.
    pub refused_join_pause: Duration,
    /// The protocol version that this node announces.
    pub protocol: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            silence_max: Duration::from_secs(5),
            ping_every: Duration::from_secs(1),
            connect_time_max: Duration::from_secs(3),
            retry_min: Duration::from_millis(50),
            retry_max: Duration::from_secs(2),
            queue_messages_max: 16_384,
            queue_bytes_max: 16 << 20,
            has_bulk: false,
            bulk_bytes_max: 64 << 20,
            refused_join_pause: Duration::from_secs(1),
            protocol: crate::PROTOCOL,
        }
    }
}

/// Maximum number of bytes of one body in flight before its reader takes them.
pub const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// Requests of one peer at a time; others wait.
pub(crate) const STREAMS_MAX: u32 = 1_024;
/// Bodies whose readers are slow do not keep others from arriving: each has its window.
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = STREAMS_MAX * STREAM_WINDOW_BYTES;
/// Requests that their clients reset before they were taken. More than hyper's default: peers are
/// trusted.
pub(crate) const RESETS_MAX: usize = STREAMS_MAX as usize;
