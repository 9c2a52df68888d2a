//! Upper bounds of figures: the machine's loopback and disk, and the server's cheapest reply.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::BenchError;
use crate::slice::{Check, ClosedLoop, Slice};
use crate::system::System;
use crate::workload::{append_and_sync, repeat};

/// Each is measured for this share of a timed part's time, and at most for a second.
const SHARE: f64 = 0.1;
const SECONDS_MAX: f64 = 1.0;
const BLOCK_BYTES: usize = 256 * 1024;

/// Something that bounds figures, measured before the workloads and after them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ceiling {
    /// The description.
    pub name: String,
    /// The unit of the values.
    pub unit: String,
    /// Before the first workload.
    pub before: f64,
    /// After the last one.
    pub after: Option<f64>,
    /// Processors that the client's thread used for it.
    pub client_cpu: Option<f64>,
}

/// Measures all ceilings once.
pub(crate) async fn measure(
    systems: &[System],
    connections: usize,
    disk: &Path,
    seconds: f64,
) -> Result<Vec<Ceiling>, BenchError> {
    let length = Duration::from_secs_f64((seconds * SHARE).min(SECONDS_MAX));
    let ceiling = |name: String, unit: &str, before: f64| Ceiling {
        name,
        unit: unit.to_owned(),
        before,
        after: None,
        client_cpu: None,
    };
    let mut found = vec![
        ceiling(
            "loopback, one connection".to_owned(),
            "bytes/s",
            loopback(length)?,
        ),
        ceiling(
            format!("append of 1 KB and fdatasync in {}", disk.display()),
            "syncs/s",
            append_and_sync(disk, length)?.rate(),
        ),
    ];
    for (system, letter) in systems.iter().zip(["A", "B"]) {
        let (path, slice) = cheapest(system, connections, length).await?;
        found.push(Ceiling {
            client_cpu: slice
                .client
                .map(|client| client.cpu_seconds / slice.seconds),
            ..ceiling(
                format!("GET {path} of {letter}, {connections} connections"),
                "req/s",
                slice.rate(),
            )
        });
    }
    Ok(found)
}

/// Adds the measurements after the workloads.
pub(crate) fn measured_again(ceilings: &mut [Ceiling], again: Vec<Ceiling>) {
    for (ceiling, again) in ceilings.iter_mut().zip(again) {
        ceiling.after = Some(again.before);
    }
}

/// The route of a server that does least.
async fn cheapest(
    system: &System,
    connections: usize,
    length: Duration,
) -> Result<(&'static str, Slice), BenchError> {
    const CONSTANT: &str = "/_settee/constant?size=1";
    let has_constant = system.call("GET", CONSTANT, None).await?.0 == 200;
    let path = if has_constant { CONSTANT } else { "/" };
    let request = system.target.request("GET", path, None);
    let asking = ClosedLoop::timed(&system.target, length, Check::Status);
    Ok((path, asking.run(connections, repeat(request, 1)).await?))
}

/// Bytes a second through one connection of this machine with itself.
fn loopback(length: Duration) -> Result<f64, BenchError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let reading = std::thread::Builder::new()
        .name("bench-loopback".to_owned())
        .spawn(move || {
            let mut block = vec![0; BLOCK_BYTES];
            let mut bytes = 0_u64;
            while let Ok(read @ 1..) = receiver.read(&mut block) {
                bytes += read as u64;
            }
            bytes
        })?;
    let block = vec![0x5e; BLOCK_BYTES];
    let start = Instant::now();
    while start.elapsed() < length {
        sender.write_all(&block)?;
    }
    drop(sender);
    let bytes = reading.join().unwrap_or(0);
    Ok(bytes as f64 / start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_carries_something() {
        assert!(loopback(Duration::from_millis(20)).unwrap() > 1e6);
    }
}
