//! Communication between the nodes of a cluster. Bytes in, bytes out.
//!
//! Every node has an [`Identity`]: a certificate with its number, signed by the cluster's own
//! [`Authority`]. A [`Server`] accepts connections of other nodes, [`Peers`] keeps connections to
//! them: [`Peers::send`] and [`Peers::send_bulk`] send a message without an answer, which may be lost,
//! [`Peers::call`] a request with one. A new node has no certificate yet: it [`join`]s with a [`Token`].
//!
//! A *peer* is another node of the cluster. This crate does not know the contents: no slots,
//! records, databases or clients.

#![forbid(unsafe_code)]

mod authority;
mod body;
mod call;
mod certificate;
mod channel;
mod client;
mod connection;
mod error;
mod frame;
mod hello;
mod identity;
mod join;
mod line;
mod link;
mod options;
mod queue;
mod registry;
mod server;
mod tls;
mod token;
mod traffic;

pub use authority::Authority;
pub use body::{Body, BodyError};
pub use call::{Call, CallError, Refusal, Reply};
pub use certificate::{ClusterId, NodeId, node_name, times_of};
pub use client::Peers;
pub use error::IdentityError;
pub use frame::{Decoder, FrameError, MESSAGE_BYTES_MAX, encode};
pub use hello::PROTOCOL;
pub use identity::Identity;
pub use join::{FACTS_BYTES_MAX, JoinError, JoinRequest, join};
pub use options::{Options, STREAM_WINDOW_BYTES};
pub use server::{Event, Handler, Server};
pub use token::{Secret, Token, TokenError, TokenId, TokenRecord, Tokens, check};
pub use traffic::Traffic;
