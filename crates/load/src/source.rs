//! Sources of documents: standard input, a file, a folder, a URL of a file, or another CouchDB
//! database.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;
use reqwest::{Client, Response, Url};
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::collector::Collector;
use crate::dialect;
use crate::format::{self, Rules};
use crate::report::{LoadCause, Side};
use crate::rows::{self, RowRules};
use crate::scanner::{InputError, Scanner};
use crate::{InputFormat, LoadOptions, without_credentials};

const BUFFER_BYTES: usize = 256 * 1024;
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const EXTENSIONS: [&str; 6] = [
    ".json",
    ".jsonl",
    ".ndjson",
    ".json.gz",
    ".jsonl.gz",
    ".ndjson.gz",
];
/// A reply shorter than this may be the information about a database.
const DATABASE_INFO_BYTES_MAX: usize = 16 * 1024;
/// Documents a page of another database: pages come with attachments, so they are small.
const PAGE_DOCS: usize = 500;
/// A page with more bytes is read in smaller ones. A document with more cannot be loaded.
const PAGE_BYTES_MAX: usize = 256 << 20;
/// The beginning of a response that is reported.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// Pieces of a download that wait for the reading thread.
const PIECES_WAITING: usize = 16;

/// An opened source.
pub(crate) enum Input {
    /// One stream of documents.
    Stream {
        name: String,
        reader: Box<dyn Read + Send>,
        bytes: Option<u64>,
        /// Whether the source consists of pages of a dump.
        pages: bool,
    },
    /// Files below a folder, with their paths relative to it.
    Folder {
        files: Vec<(PathBuf, String)>,
        bytes: u64,
    },
}

/// A database to try things with, as the web interface loads it too: the body of a `_bulk_docs`.
const SHOP: &[u8] = include_bytes!("../../../web/public/shop.json");

/// Opens a source. URLs are fetched by tasks of the current runtime.
pub(crate) async fn open(client: &Client, source: &str) -> Result<Input, LoadCause> {
    if source == "-" {
        return Ok(Input::Stream {
            name: "standard input".to_owned(),
            reader: Box::new(io::stdin()),
            bytes: None,
            pages: false,
        });
    }
    if source == "sample:shop" {
        return Ok(Input::Stream {
            name: source.to_owned(),
            reader: Box::new(SHOP),
            bytes: Some(SHOP.len() as u64),
            pages: false,
        });
    }
    if source.contains("://") {
        return fetch(client, source).await;
    }
    let sample = source.strip_prefix("sample:");
    if let Some(name) = sample.filter(|_| !Path::new(source).exists()) {
        return Err(LoadCause::Options(format!(
            "there is no sample {name}: the only one is sample:shop"
        )));
    }
    open_path(Path::new(source)).map_err(|error| {
        LoadCause::Input(InputError::Read {
            name: source.to_owned(),
            source: error,
        })
    })
}

fn open_path(path: &Path) -> io::Result<Input> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return folder(path);
    }
    Ok(Input::Stream {
        name: path.display().to_string(),
        reader: Box::new(File::open(path)?),
        bytes: metadata.is_file().then_some(metadata.len()),
        pages: false,
    })
}

fn folder(root: &Path) -> io::Result<Input> {
    let mut files = Vec::new();
    let mut bytes = 0;
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let path = entry.path();
            // A link to a folder is not followed: it may lead back.
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if has_extension(&path) && path.is_file() {
                bytes += fs::metadata(&path)?.len();
                let relative = path.strip_prefix(root).unwrap_or(&path);
                let id = relative.to_string_lossy().into_owned();
                files.push((path, id));
            }
        }
    }
    files.sort_by(|(_, a), (_, b)| a.cmp(b));
    Ok(Input::Folder { files, bytes })
}

fn has_extension(path: &Path) -> bool {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    EXTENSIONS.iter().any(|extension| name.ends_with(extension))
}

impl Input {
    /// Its size as stored, where that is known.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Stream { bytes, .. } => *bytes,
            Self::Folder { bytes, .. } => Some(*bytes),
        }
    }

    /// Reads all documents. Blocks, so it belongs on a thread of its own.
    pub(crate) fn read(
        self,
        options: &LoadOptions,
        bar: &ProgressBar,
        collector: &mut dyn Collector,
    ) -> Result<(), InputError> {
        let rules = Rules {
            id_field: options.id_field.as_deref(),
            id_from_key: options.id_from_key,
            file_id: None,
            pages: false,
        };
        match self {
            Self::Stream {
                name,
                reader,
                pages,
                ..
            } => {
                let rules = if pages {
                    Rules {
                        pages,
                        id_from_key: false,
                        ..rules
                    }
                } else {
                    rules
                };
                read_stream(name, bar.wrap_read(reader), rules, options, collector)
            }
            Self::Folder { files, .. } => files.into_iter().try_for_each(|(path, id)| {
                let name = path.display().to_string();
                let file = File::open(&path).map_err(|source| InputError::Read {
                    name: name.clone(),
                    source,
                })?;
                let rules = Rules {
                    file_id: Some(&id),
                    ..rules
                };
                read_stream(name, bar.wrap_read(file), rules, options, collector)
            }),
        }
    }
}

fn read_stream(
    name: String,
    reader: impl Read,
    rules: Rules<'_>,
    options: &LoadOptions,
    collector: &mut dyn Collector,
) -> Result<(), InputError> {
    let mut raw = BufReader::with_capacity(BUFFER_BYTES, reader);
    let compressed = raw
        .fill_buf()
        .map(|start| start.starts_with(GZIP_MAGIC))
        .map_err(|source| InputError::Read {
            name: name.clone(),
            source,
        })?;
    if compressed {
        let plain = BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(raw));
        read_plain(name, plain, rules, options, collector)
    } else {
        read_plain(name, raw, rules, options, collector)
    }
}

fn read_plain(
    name: String,
    input: impl BufRead,
    rules: Rules<'_>,
    options: &LoadOptions,
    collector: &mut dyn Collector,
) -> Result<(), InputError> {
    let by_name = match dialect::is_csv(&name) {
        true => InputFormat::Csv,
        false => InputFormat::Json,
    };
    match options.format.unwrap_or(by_name) {
        InputFormat::Csv if !rules.pages => {
            let rules = RowRules {
                name: &name,
                options: &options.csv,
                id_field: rules.id_field,
            };
            rows::documents(input, rules, collector)
        }
        _ => format::documents(Scanner::new(input, name)?, rules, collector),
    }
}

async fn fetch(client: &Client, source: &str) -> Result<Input, LoadCause> {
    let url =
        command_line::server_url(source).map_err(|failure| LoadCause::Options(failure.message))?;
    let name = without_credentials(&url);
    let mut response = get(client, &url, false).await?;
    let bytes = response.content_length();
    let (beginning, ended) = beginning(&mut response, &url).await?;
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    let pages = ended && is_database_info(&beginning);
    if pages {
        let pager = Pager {
            client: client.clone(),
            database: url,
            sender,
            page_bytes_max: PAGE_BYTES_MAX,
        };
        tokio::spawn(pager.run());
    } else {
        tokio::spawn(download(response, beginning, sender));
    }
    Ok(Input::Stream {
        name,
        reader: Box::new(Pieces {
            receiver,
            piece: Bytes::new(),
        }),
        bytes: bytes.filter(|_| !pages),
        pages,
    })
}

async fn get(client: &Client, url: &Url, has_answered: bool) -> Result<Response, LoadCause> {
    let response = client.get(url.clone()).send().await;
    let response = response.map_err(|source| silence(url, has_answered, source))?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = String::from_utf8_lossy(&start_of(response).await).into_owned();
    let is_couchdb = body.starts_with('{');
    match is_couchdb {
        true => Err(LoadCause::Refused {
            side: Side::Source,
            url: url.clone(),
            status: status.as_u16(),
            body,
        }),
        // The URL of a file has any server.
        false => Err(LoadCause::Reply {
            what: format!("GET {}", without_credentials(url)),
            problem: format!("status {}", status.as_u16()),
        }),
    }
}

fn silence(url: &Url, has_answered: bool, source: reqwest::Error) -> LoadCause {
    LoadCause::Http {
        url: url.clone(),
        has_answered,
        source,
    }
}

/// Returns the beginning of a body.
async fn start_of(mut response: Response) -> Vec<u8> {
    let mut start = vec![];
    while start.len() < REFUSAL_BYTES_MAX
        && let Ok(Some(piece)) = response.chunk().await
    {
        start.extend_from_slice(&piece);
    }
    start
}

/// Returns the whole body, or `None` if it has more than `bytes_max` bytes.
async fn whole(
    mut response: Response,
    url: &Url,
    bytes_max: usize,
) -> Result<Option<Bytes>, LoadCause> {
    let mut whole: Vec<u8> = vec![];
    loop {
        let piece = response.chunk().await;
        let piece = piece.map_err(|source| silence(url, true, source))?;
        let Some(piece) = piece else {
            return Ok(Some(whole.into()));
        };
        if whole.len() + piece.len() > bytes_max {
            return Ok(None);
        }
        whole.extend_from_slice(&piece);
    }
}

/// Returns the first pieces of the body, and whether they are all of it.
async fn beginning(response: &mut Response, url: &Url) -> Result<(Vec<Bytes>, bool), LoadCause> {
    let mut pieces = Vec::new();
    let mut bytes = 0;
    while bytes <= DATABASE_INFO_BYTES_MAX {
        let piece = response.chunk().await;
        let piece = piece.map_err(|source| silence(url, true, source))?;
        let Some(piece) = piece else {
            return Ok((pieces, true));
        };
        bytes += piece.len();
        pieces.push(piece);
    }
    Ok((pieces, false))
}

fn is_database_info(pieces: &[Bytes]) -> bool {
    #[derive(Deserialize)]
    struct Info {
        #[serde(rename = "db_name")]
        _db_name: String,
        #[serde(rename = "doc_count")]
        _doc_count: u64,
    }
    serde_json::from_slice::<Info>(&pieces.concat()).is_ok()
}

type Piece = io::Result<Bytes>;

/// The bytes that a task fetches, for the reading thread.
struct Pieces {
    receiver: mpsc::Receiver<Piece>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
        }
        let bytes = out.len().min(self.piece.len());
        out[..bytes].copy_from_slice(&self.piece.split_to(bytes));
        Ok(bytes)
    }
}

async fn download(mut response: Response, beginning: Vec<Bytes>, sender: mpsc::Sender<Piece>) {
    for piece in beginning {
        if sender.send(Ok(piece)).await.is_err() {
            return;
        }
    }
    while let Some(piece) = response.chunk().await.map_err(io::Error::other).transpose() {
        let failed = piece.is_err();
        if sender.send(piece).await.is_err() || failed {
            return;
        }
    }
}

/// Reads another database page by page, so that each page is a short request.
struct Pager {
    client: Client,
    database: Url,
    sender: mpsc::Sender<Piece>,
    page_bytes_max: usize,
}

#[derive(Deserialize)]
struct Page {
    rows: Vec<PageRow>,
}

#[derive(Deserialize)]
struct PageRow {
    id: String,
}

impl Pager {
    async fn run(self) {
        if let Err(error) = self.pages().await {
            // The reader may have stopped before; then the message has no receiver.
            let _ = self
                .sender
                .send(Err(io::Error::other(error.to_string())))
                .await;
        }
    }

    async fn pages(&self) -> Result<(), LoadCause> {
        let mut after: Option<String> = None;
        let mut docs_max = PAGE_DOCS;
        loop {
            let url = self.page_url(after.as_deref(), docs_max)?;
            let response = get(&self.client, &url, true).await?;
            let problem = |problem: String| LoadCause::Reply {
                what: format!("GET {}", without_credentials(&url)),
                problem,
            };
            let Some(body) = whole(response, &url, self.page_bytes_max).await? else {
                if docs_max == 1 {
                    let most = self.page_bytes_max;
                    return Err(problem(format!("the document has more than {most} bytes")));
                }
                docs_max = (docs_max / 8).max(1);
                continue;
            };
            let page: Page =
                serde_json::from_slice(&body).map_err(|error| problem(error.to_string()))?;
            let Some(last) = page.rows.last() else {
                return Ok(());
            };
            after = Some(last.id.clone());
            let ended = page.rows.len() < docs_max;
            // Large documents may be in one place of the database only.
            if body.len() < self.page_bytes_max / 4 {
                docs_max = (docs_max * 2).min(PAGE_DOCS);
            }
            if self.sender.send(Ok(body)).await.is_err() || ended {
                return Ok(());
            }
        }
    }

    /// A page starts at the last id itself, which is then skipped. Should that document be deleted
    /// in between, its successor is skipped: a load of a changing database guarantees no more than
    /// that.
    fn page_url(&self, after: Option<&str>, docs_max: usize) -> Result<Url, LoadCause> {
        let mut url = self.database.clone();
        url.path_segments_mut()
            .map_err(|()| LoadCause::Options("the source is not the URL of a database".to_owned()))?
            .pop_if_empty()
            .push("_all_docs");
        url.query_pairs_mut()
            .clear()
            .append_pair("include_docs", "true")
            .append_pair("attachments", "true")
            .append_pair("limit", &docs_max.to_string());
        if let Some(id) = after {
            let key = serde_json::Value::from(id).to_string();
            url.query_pairs_mut()
                .append_pair("startkey", &key)
                .append_pair("skip", "1");
        }
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn pages_go_on_behind_an_id_of_any_characters() {
        let (sender, _pieces) = mpsc::channel(1);
        let _ = rustls::crypto::ring::default_provider().install_default();
        let pager = Pager {
            client: Client::new(),
            database: Url::parse("http://a:b@127.0.0.1:5984/db/").unwrap(),
            sender,
            page_bytes_max: PAGE_BYTES_MAX,
        };
        let url = pager.page_url(Some("a\"ü"), PAGE_DOCS).unwrap();
        assert_eq!(url.path(), "/db/_all_docs");
        let key = url
            .query_pairs()
            .find(|(name, _)| name == "startkey")
            .unwrap()
            .1;
        assert_eq!(key, r#""a\"ü""#);
    }

    /// A server that answers each request with these bytes, and then with endless pieces;
    /// returns its URL, and the targets of the requests.
    fn endless(start: &'static str) -> (String, std::sync::mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/db", listener.local_addr().unwrap());
        let (sender, targets) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut line = String::new();
                if BufReader::new(&stream).read_line(&mut line).is_ok() {
                    sender.send(line).ok();
                }
                stream.write_all(start.as_bytes()).ok();
                while stream.write_all(&[b' '; 4096]).is_ok() {}
            }
        });
        (url, targets)
    }

    #[tokio::test]
    async fn endless_pages_are_not_read() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (url, targets) = endless("HTTP/1.1 200 OK\r\n\r\n");
        let (sender, _pieces) = mpsc::channel(1);
        let pager = Pager {
            client: Client::new(),
            database: Url::parse(&url).unwrap(),
            sender,
            page_bytes_max: 1 << 20,
        };
        let refused = pager.pages().await.unwrap_err().to_string();
        assert!(refused.contains("more than 1048576 bytes"), "{refused}");
        let limits: Vec<String> = targets
            .try_iter()
            .map(|line| {
                let (_, limit) = line.split_once("limit=").unwrap();
                limit.split(['&', ' ']).next().unwrap().to_owned()
            })
            .collect();
        assert_eq!(limits, ["500", "62", "7", "1"]);
    }

    /// A database of which the first 30 of 2,000 documents are large. Returns its URL, and the
    /// limits of the requests.
    fn uneven_database() -> (String, std::sync::mpsc::Receiver<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/db", listener.local_addr().unwrap());
        let (sender, limits) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let mut lines = BufReader::new(&stream).lines();
                let target = lines.next().unwrap().unwrap();
                while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                let number = |start: &str| {
                    let (_, rest) = target.split_once(start)?;
                    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
                    digits.parse::<usize>().ok()
                };
                let limit = number("limit=").unwrap();
                sender.send(limit).ok();
                let first = number("startkey=%22").map_or(0, |last| last + 1);
                let rows: Vec<String> = (first..2_000.min(first + limit))
                    .map(|at| {
                        let filling = if at < 30 { 4 << 10 } else { 0 };
                        format!(r#"{{"id":"{at:04}","x":"{}"}}"#, "x".repeat(filling))
                    })
                    .collect();
                let body = format!(r#"{{"rows":[{}]}}"#, rows.join(","));
                let head = format!(
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                (&stream).write_all((head + &body).as_bytes()).ok();
            }
        });
        (url, limits)
    }

    #[tokio::test]
    async fn pages_grow_again_behind_large_documents() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (url, limits) = uneven_database();
        let (sender, mut pieces) = mpsc::channel(1_000);
        let pager = Pager {
            client: Client::new(),
            database: Url::parse(&url).unwrap(),
            sender,
            page_bytes_max: 64 << 10,
        };
        pager.pages().await.unwrap();
        drop(pager);
        let mut ids = vec![];
        while let Some(piece) = pieces.recv().await {
            let page: Page = serde_json::from_slice(&piece.unwrap()).unwrap();
            ids.extend(page.rows.into_iter().map(|row| row.id));
        }
        let all: Vec<String> = (0..2_000).map(|at| format!("{at:04}")).collect();
        assert_eq!(ids, all);
        let limits: Vec<usize> = limits.try_iter().collect();
        assert_eq!(limits[..3], [500, 62, 7]);
        assert_eq!(limits.last(), Some(&500));
        assert!(limits.len() < 30, "{limits:?}");
    }

    #[tokio::test]
    async fn endless_refusals_are_not_read() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (url, _targets) = endless("HTTP/1.1 500 No\r\n\r\n{");
        match fetch(&Client::new(), &url).await.err() {
            Some(LoadCause::Refused { status, body, .. }) => {
                assert_eq!(status, 500);
                assert!(
                    body.len() < 2 * REFUSAL_BYTES_MAX + (1 << 20),
                    "{}",
                    body.len()
                );
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_database_is_told_from_a_file() {
        let info = |text: &'static str| is_database_info(&[Bytes::from_static(text.as_bytes())]);
        assert!(info(r#"{"db_name":"a","doc_count":3,"sizes":{}}"#));
        assert!(!info(r#"{"_id":"a","doc_count":3}"#));
        assert!(!info("[]"));
    }

    #[test]
    fn only_json_files_of_a_folder_are_taken() {
        for (name, taken) in [
            ("a.json", true),
            ("b.JSONL.gz", true),
            ("c.txt", false),
            ("json", false),
        ] {
            assert_eq!(has_extension(Path::new(name)), taken, "{name}");
        }
    }
}
