//! The server whose functions are checked, as a client sees it. All requests are GETs.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use command_line::{LoginPlace, RefusedRequest, connection_failure, connection_loss};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use reqwest::Url;
use reqwest::header::LOCATION;
use reqwest::redirect::Policy;
use serde_json::Value;

use crate::error::Error;
use crate::sample::Document;

/// Maximum time until a response is complete.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(300);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);
/// The largest response that is read.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// Design documents of one request.
const PAGE: usize = 100;
/// All ids of design documents are from the first of these texts up to the second.
const DESIGNS: [&str; 2] = ["_design/", "_design0"];

/// Characters that are not encoded in a segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

pub struct Client {
    client: reqwest::Client,
    /// Without credentials, a database and a slash at the end.
    base: String,
    /// The URL of the server, without credentials.
    url: Url,
    credentials: Option<(String, String)>,
    database: Option<String>,
    has_answered: AtomicBool,
}

impl Client {
    /// # Errors
    /// [`Error::Url`].
    pub fn new(text: &str) -> Result<Client, Error> {
        let mut url =
            command_line::server_url(text).map_err(|failure| Error::Url(failure.message))?;
        let credentials = (!url.username().is_empty()).then(|| {
            let password = url.password().unwrap_or_default();
            (decode(url.username()), decode(password))
        });
        // Both fail only for URLs without a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        let segments = url.path_segments().into_iter().flatten();
        let segments: Vec<String> = segments
            .filter(|part| !part.is_empty())
            .map(decode)
            .collect();
        let database = match <[String; 1]>::try_from(segments) {
            Ok([name]) => Some(name),
            Err(none) if none.is_empty() => None,
            Err(_) => {
                let mistake = format!("{url}: it names more than a database");
                return Err(Error::Url(mistake));
            }
        };
        url.set_path("");
        // reqwest takes the process's provider. Set already is fine too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIME_MAX)
            .timeout(ANSWER_TIME_MAX)
            // Another server is not the one to check.
            .redirect(Policy::none())
            .build()
            .map_err(|error| Error::Url(error.to_string()))?;
        Ok(Client {
            client,
            base: url.as_str().trim_end_matches('/').to_owned(),
            url,
            credentials,
            database,
            has_answered: AtomicBool::new(false),
        })
    }

    /// Returns the database that the URL names.
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// Requests the names of all databases.
    pub async fn databases(&self) -> Result<Vec<String>, Error> {
        let url = format!("{}/_all_dbs", self.base);
        let names = self.get(&url).await?;
        serde_json::from_value(names).map_err(|_| Error::Strange(url))
    }

    /// Requests all design documents of a database.
    pub async fn designs(&self, database: &str) -> Result<Vec<Document>, Error> {
        let [mut start, end] = DESIGNS.map(str::to_owned);
        let mut designs = vec![];
        loop {
            let range = format!("startkey={}&endkey={}", key(&start), key(&end));
            let page = format!("{range}&inclusive_end=false&limit={}", PAGE + 1);
            let mut docs = self.documents(database, &page).await?;
            let next = (docs.len() > PAGE).then(|| docs.pop()).flatten();
            designs.append(&mut docs);
            match next.as_ref().and_then(|next| next.get("_id")?.as_str()) {
                Some(id) => id.clone_into(&mut start),
                None => return Ok(designs),
            }
        }
    }

    /// Requests documents of a database, without design documents, half of them from either end
    /// of the ids.
    pub async fn sample(&self, database: &str, max: usize) -> Result<Vec<Document>, Error> {
        let (first, last) = (max.div_ceil(2), max / 2);
        let page = |limit: usize, descending: bool| {
            format!("conflicts=true&limit={limit}&descending={descending}")
        };
        let mut docs = self.documents(database, &page(first, false)).await?;
        if last > 0 {
            let mut end = self.documents(database, &page(last, true)).await?;
            end.retain(|doc| docs.iter().all(|known| known.get("_id") != doc.get("_id")));
            docs.append(&mut end);
        }
        let is_design = |doc: &Document| {
            let id = doc.get("_id").and_then(Value::as_str);
            id.is_none_or(|id| id.starts_with(DESIGNS[0]))
        };
        docs.retain(|doc| !is_design(doc));
        Ok(docs)
    }

    async fn documents(&self, database: &str, query: &str) -> Result<Vec<Document>, Error> {
        let name = utf8_percent_encode(database, SEGMENT);
        let url = format!("{}/{name}/_all_docs?include_docs=true&{query}", self.base);
        let mut answer = self.get(&url).await?;
        let Some(Value::Array(rows)) = answer.get_mut("rows").map(Value::take) else {
            return Err(Error::Strange(url));
        };
        let docs = rows
            .into_iter()
            .filter_map(|mut row| match row.get_mut("doc")?.take() {
                Value::Object(doc) => Some(doc),
                _ => None,
            });
        Ok(docs.collect())
    }

    async fn get(&self, url: &str) -> Result<Value, Error> {
        let unreachable = |error: reqwest::Error| {
            Error::Unreachable(match self.has_answered.load(Relaxed) {
                true => connection_loss(&self.url, &error),
                false => connection_failure(&self.url, &error),
            })
        };
        let mut request = self.client.get(url).header("Accept", "application/json");
        if let Some((name, password)) = &self.credentials {
            request = request.basic_auth(name, Some(password));
        }
        let mut response = request.send().await.map_err(unreachable)?;
        self.has_answered.store(true, Relaxed);
        let status = response.status().as_u16();
        let location = response.headers().get(LOCATION).cloned();
        let mut body: Vec<u8> = vec![];
        while let Some(piece) = response.chunk().await.map_err(unreachable)? {
            if body.len() + piece.len() > ANSWER_BYTES_MAX {
                let (url, bytes_max) = (url.to_owned(), ANSWER_BYTES_MAX);
                return Err(Error::TooLarge { url, bytes_max });
            }
            body.extend_from_slice(&piece);
        }
        let json: Option<Value> = serde_json::from_slice(&body).ok();
        if status == 200 {
            return json.ok_or_else(|| Error::Strange(url.to_owned()));
        }
        let refused = RefusedRequest {
            status,
            reason: json.as_ref().and_then(|json| json.get("reason")?.as_str()),
            has_login: self.credentials.is_some(),
            needs: "a user who may read all databases",
            login_place: LoginPlace::UrlOrCredentials,
            location: location.as_ref().and_then(|value| value.to_str().ok()),
        };
        Err(Error::Refused(refused.description(&self.url)))
    }
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// A key of a query.
fn key(text: &str) -> String {
    utf8_percent_encode(&Value::from(text).to_string(), NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_of_a_server_or_of_a_database() {
        let of = |url: &str| Client::new(url).unwrap();
        let server = of("http://a%40b:p%2Fw@host:5984/");
        assert_eq!(
            (server.base.as_str(), server.database()),
            ("http://host:5984", None)
        );
        let credentials = ("a@b".to_owned(), "p/w".to_owned());
        assert_eq!(server.credentials, Some(credentials));
        let database = of("http://host:5984/a%2Fb/");
        assert_eq!(
            (database.base.as_str(), database.database()),
            ("http://host:5984", Some("a/b"))
        );
        for bad in ["ftp://host", "host", "http://u:secret@host/db/_design/x"] {
            let Err(error) = Client::new(bad) else {
                panic!("{bad} is accepted")
            };
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
