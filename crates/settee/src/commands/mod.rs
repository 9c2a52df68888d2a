//! The commands that are clients of a server: one file each.

pub mod backup;
pub mod bench;
pub mod cluster;
pub mod load;
pub mod migrate;

use crate::Failure;

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
