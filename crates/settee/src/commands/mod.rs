//! The commands beside `serve`: one file each. Most are clients of a server.

/// Prints a line, as `println` does; who reads no further has seen enough.
macro_rules! say {
    ($($what:tt)*) => {
        $crate::commands::print(format_args!($($what)*))
    };
}

pub mod backup;
pub mod bench;
pub mod check;
pub mod cluster;
pub mod completions;
pub mod doctor;
pub mod healthcheck;
pub mod load;
pub mod man;
pub mod migrate;
pub mod monitoring;
pub mod profile;
pub mod repair;
pub mod top;
pub mod traffic;

use std::fmt::Arguments;
use std::io::Write as _;

use crate::Failure;

/// Prints a line. Ends the program when nobody reads what it prints, as of `settee … | head -1`.
fn print(line: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{line}").and_then(|()| out.flush()) {
        let is_enough = error.kind() == std::io::ErrorKind::BrokenPipe;
        if !is_enough {
            eprintln!("settee: {error}");
        }
        std::process::exit(i32::from(!is_enough));
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::new)
}

/// Name and password of a URL, which go into a header: the URL may end up in messages.
fn take_credentials(url: &mut reqwest::Url) -> (String, Option<String>) {
    let name = decode(url.username());
    let password = url.password().map(decode);
    // Both fail only for URLs that can hold no credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    (name, password)
}

fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let hex = bytes
            .get(i + 1..i + 3)
            .and_then(|h| std::str::from_utf8(h).ok())
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match hex {
            Some(b) if bytes[i] == b'%' => {
                out.push(b);
                i += 3;
            }
            _ => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
