//! A server under measurement: where it is, and the request bytes it is sent.

use std::cell::Cell;
use std::io::Write as _;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::client::ConnectionPool;
use crate::error::BenchError;
use crate::pace::Pace;

/// A resolved server address with its credentials.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The URL without user and password, for people.
    pub(crate) label: String,
    /// The URL without credentials, with the port that is used.
    url: Url,
    pub(crate) address: SocketAddr,
    /// `Host` and, when the URL has credentials, `Authorization` lines.
    common_headers: String,
    /// Path before every request's path; without a slash at the end.
    prefix: String,
    /// How its timed loops send.
    pace: Cell<Pace>,
    kept: ConnectionPool,
}

impl Target {
    /// Parses `http://[user:password@]host[:port][/prefix]` and resolves the host.
    ///
    /// # Errors
    /// [`BenchError::Url`] for anything but http: the measured loops speak plain TCP, so that TLS in the client
    /// is not measured with the server.
    pub(crate) async fn resolve(text: &str) -> Result<Self, BenchError> {
        let mut url = command_line::server_url(text)
            .map_err(|failure| BenchError::Server(failure.message))?;
        let shown = without_credentials(&url);
        if url.scheme() != "http" {
            return Err(refuse(
                &shown,
                "only http:// can be measured (put a TLS terminator in front, or measure without TLS)",
            ));
        }
        let host = url.host_str().ok_or_else(|| refuse(&shown, "no host"))?;
        let port = url.port().unwrap_or(5984);
        let address = lookup(host, port, &url).await?;
        let mut common_headers = format!("Host: {host}:{port}\r\n");
        if let Some(credentials) = credentials(&url) {
            common_headers.push_str(&format!(
                "Authorization: Basic {}\r\n",
                STANDARD.encode(credentials)
            ));
        }
        let prefix = url.path().trim_end_matches('/').to_owned();
        command_line::take_credentials(&mut url);
        // It fails only for URLs without a host.
        let _ = url.set_port(Some(port));
        Ok(Self {
            label: shown,
            url,
            address,
            common_headers,
            prefix,
            pace: Cell::default(),
            kept: ConnectionPool::default(),
        })
    }

    /// Returns its URL without credentials, with the port that is used.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// How timed loops send to it.
    pub(crate) fn pace(&self) -> Pace {
        self.pace.get()
    }

    /// Sets the pace of the timed loops that start from now on.
    pub(crate) fn set_pace(&self, pace: Pace) {
        self.pace.set(pace);
    }

    /// Connections that wait for a next slice.
    pub(crate) fn kept(&self) -> &ConnectionPool {
        &self.kept
    }

    /// Appends a whole HTTP/1.1 request to `out`. `path` begins with a slash; `headers` are complete lines.
    pub(crate) fn write_request(
        &self,
        out: &mut Vec<u8>,
        method: &str,
        path: &str,
        headers: &str,
        body: Option<&[u8]>,
    ) {
        for part in [
            method,
            " ",
            &self.prefix,
            path,
            " HTTP/1.1\r\n",
            &self.common_headers,
            "Accept: application/json\r\n",
            headers,
        ] {
            out.extend_from_slice(part.as_bytes());
        }
        match body {
            Some(body) => {
                // Writing to a Vec cannot fail.
                let _ = write!(
                    out,
                    "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                out.extend_from_slice(body);
            }
            None => out.extend_from_slice(b"\r\n"),
        }
    }

    /// The text of a whole request.
    pub(crate) fn request(&self, method: &str, path: &str, body: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + body.map_or(0, <[u8]>::len));
        self.write_request(&mut out, method, path, "", body);
        out
    }

    /// A database of the server, as the endpoint of a replication.
    pub(crate) fn endpoint(&self, database: &str) -> serde_json::Value {
        let url = format!("http://{}{}/{database}", self.address, self.prefix);
        let mut lines = self.common_headers.lines();
        match lines.find_map(|line| line.strip_prefix("Authorization: ")) {
            Some(value) => serde_json::json!({"url": url, "headers": {"Authorization": value}}),
            None => serde_json::json!({"url": url}),
        }
    }

    /// The value of one of the headers that every request has, by its name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.common_headers.lines();
        let mut pairs = lines.filter_map(|line| line.split_once(": "));
        let found = pairs.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// The prefix of every path, without a slash at the end.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Does the server run on this machine?
    pub(crate) fn is_loopback(&self) -> bool {
        self.address.ip().is_loopback()
    }
}

async fn lookup(host: &str, port: u16, url: &Url) -> Result<SocketAddr, BenchError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let found = tokio::net::lookup_host((bare, port))
        .await
        .map_err(|error| BenchError::Server(command_line::connection_failure(url, &error)))?
        .collect::<Vec<_>>();
    // CouchDB and Settee bind to 127.0.0.1, so of `localhost`'s two addresses IPv4 is the one that answers.
    found
        .iter()
        .find(|address| address.is_ipv4())
        .or(found.first())
        .copied()
        .ok_or_else(|| refuse(&without_credentials(url), "the host has no address"))
}

fn credentials(url: &Url) -> Option<Vec<u8>> {
    if url.username().is_empty() {
        return None;
    }
    let mut bytes: Vec<u8> = percent_decode_str(url.username()).collect();
    bytes.push(b':');
    bytes.extend(percent_decode_str(url.password().unwrap_or_default()));
    Some(bytes)
}

/// The URL as it may be shown: without user and password.
pub(crate) fn without_credentials(url: &Url) -> String {
    let mut shown = url.clone();
    // Both fail only for URLs that can hold no credentials.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.to_string().trim_end_matches('/').to_owned()
}

fn refuse(url: &str, reason: &str) -> BenchError {
    BenchError::Url {
        url: url.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_carries_host_credentials_prefix_and_length() {
        let target = Target::resolve("http://admin:p%40ss@127.0.0.1:5984/couch/")
            .await
            .unwrap();
        let text = String::from_utf8(target.request("PUT", "/db/a", Some(b"{}"))).unwrap();
        assert_eq!(
            text,
            "PUT /couch/db/a HTTP/1.1\r\nHost: 127.0.0.1:5984\r\nAuthorization: Basic YWRtaW46cEBzcw==\r\n\
             Accept: application/json\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        );
        assert_eq!(target.label, "http://127.0.0.1:5984/couch");
        assert!(target.is_loopback());
    }

    #[tokio::test]
    async fn https_is_refused_without_showing_the_password() {
        let error = Target::resolve("https://admin:secret@localhost:6984")
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("only http://"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}
