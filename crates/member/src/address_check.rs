//! Checks that a joining node's address leads to it: while it joins, it answers connections to its
//! address with a random number, and the node that admits it connects there.
//!
//! A node with a wrong address could send messages and receive none.

use std::time::Duration;

use data_encoding::HEXLOWER;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::Error;
use crate::membership::{Membership, random};

/// Time limit of a check.
const CHECK_TIME_MAX: Duration = Duration::from_secs(5);
/// Length of the number, in hexadecimal digits.
const PROOF_LEN: usize = 32;

/// Answers connections with a number until it is dropped.
pub(crate) struct Answering {
    /// The number.
    pub proof: String,
    task: JoinHandle<()>,
}

impl Answering {
    /// Listens at an address of this machine.
    ///
    /// # Errors
    /// [`Error::Listen`].
    pub async fn listen(address: &str) -> Result<Answering, Error> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|e| Error::Listen(address.to_owned(), e.to_string()))?;
        let proof = HEXLOWER.encode(&random::<{ PROOF_LEN / 2 }>()?);
        let said = proof.clone();
        let task = tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let said = said.clone();
                tokio::spawn(async move {
                    let answer = connection.write_all(said.as_bytes());
                    let _ = timeout(CHECK_TIME_MAX, answer).await;
                });
            }
        });
        Ok(Answering { proof, task })
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Checks that a node that never ran can listen at its address.
///
/// # Errors
/// [`Error::NodeAddress`].
pub(crate) async fn require_listening(home: &Membership) -> Result<(), Error> {
    if home.is_started {
        return Ok(());
    }
    let address = &home.member.address;
    let listener = TcpListener::bind(address.as_str()).await;
    let refused = |e: std::io::Error| Error::NodeAddress(address.clone(), e.to_string());
    listener.map(drop).map_err(refused)
}

/// Checks that an address answers with this number.
///
/// # Errors
/// The reason, in words for the administrator of the joining node.
pub(crate) async fn check(address: &str, proof: &str) -> Result<(), String> {
    let mut answer = [0; PROOF_LEN];
    let ask = async {
        let mut connection = TcpStream::connect(address).await?;
        connection.read_exact(&mut answer).await
    };
    let why = match timeout(CHECK_TIME_MAX, ask).await {
        Ok(Ok(_)) if answer == *proof.as_bytes() => return Ok(()),
        Ok(Ok(_)) => "another program answers there".to_owned(),
        Ok(Err(e)) => e.to_string(),
        Err(_) => format!("no response within {} s", CHECK_TIME_MAX.as_secs()),
    };
    Err(format!(
        "the cluster's nodes do not reach the joining node at {address}: {why}. Pass an address as --address that leads to it from the other nodes"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn free_address() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().to_string()
    }

    #[tokio::test]
    async fn only_the_joining_node_passes() {
        let address = free_address().await;
        let answering = Answering::listen(&address).await.unwrap();
        check(&address, &answering.proof).await.unwrap();
        let other = "0".repeat(PROOF_LEN);
        let why = check(&address, &other).await.unwrap_err();
        assert!(why.contains("another program"), "{why}");
        let proof = answering.proof.clone();
        drop(answering);
        let nobody = free_address().await;
        let why = check(&nobody, &proof).await.unwrap_err();
        assert!(why.contains("--address"), "{why}");
    }

    #[tokio::test]
    async fn an_address_of_another_machine_is_refused() {
        // TEST-NET-1: no machine has it.
        let refused = Answering::listen("192.0.2.1:5986").await;
        assert!(matches!(refused, Err(Error::Listen(..))));
    }
}
