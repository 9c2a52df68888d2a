//! Loading documents from files, folders and URLs into a database by `_bulk_docs`.
//!
//! CSV becomes documents with a member for each cell (`rows`). The types of columns are those of
//! the first rows (`column`), the delimiter is detected from the first lines (`dialect`).
//!
//! One thread reads, splits and batches the input; a few requests are under way at a time. Memory
//! holds at most a few batches, whatever the size of the input.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod batch;
mod collector;
mod column;
mod dialect;
mod document;
mod format;
mod preview;
mod progress;
mod report;
mod rows;
mod scanner;
mod shape;
mod source;
mod writer;

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use reqwest::{Client, ClientBuilder, Url};
use tokio::sync::mpsc;

pub use column::{Column, ColumnType, Layout};
pub use dialect::{CsvOptions, EmptyCell};
pub use preview::Preview;
pub use report::{LoadCause, LoadError, LoadReport, Refusal, Side};
pub use scanner::{InputError, Position, Scanner};
pub use shape::member_path;

use batch::{Batcher, Message};
use source::Input;
use writer::Writer;

/// Maximum time to connect to a source, and between two pieces of its responses.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);
const READ_TIME_MAX: Duration = Duration::from_secs(300);

/// Source and target of a load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// A file, a folder, an http(s) URL of a file or of a CouchDB database, `-` for standard
    /// input, or `sample:shop` for a small shop to try things with.
    pub source: String,
    /// The format; by default CSV for names that end in `.csv` or `.tsv`, and JSON for others.
    pub format: Option<InputFormat>,
    /// How CSV is read.
    pub csv: CsvOptions,
    /// The server, with credentials.
    pub url: String,
    /// The database.
    pub db: String,
    /// Documents in one request.
    pub batch_docs: usize,
    /// Bytes of documents in one request; a single larger document is sent alone.
    pub batch_bytes: usize,
    /// Requests under way at a time.
    pub parallel: usize,
    /// The member whose value (a string or a number) becomes `_id` of documents that have none.
    pub id_field: Option<String>,
    /// The input is one object, each member of which is a document whose id is the member's name.
    pub id_from_key: bool,
    /// Create the database if it does not exist.
    pub create: bool,
}

/// The format of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputFormat {
    /// Any of the forms of JSON that [`load`] detects.
    Json,
    /// A row for each document.
    Csv,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            source: "-".to_owned(),
            format: None,
            csv: CsvOptions::default(),
            url: String::new(),
            db: String::new(),
            batch_docs: 1_000,
            batch_bytes: 4 << 20,
            parallel: 4,
            id_field: None,
            id_from_key: false,
            create: true,
        }
    }
}

/// Reads all documents of the source and writes them to the database. Progress goes to standard
/// error.
///
/// The format is detected from the content: a JSON array of objects; JSON objects one after the
/// other (JSON Lines); one object; the body of `_all_docs?include_docs=true`,
/// `_changes?include_docs=true` or `_bulk_docs` (`{"docs": […]}`); couchbackup's lines of arrays;
/// any of these compressed with gzip. Names and [`LoadOptions::format`] say what is CSV. Documents
/// with a `_rev` keep it: they are written with `new_edits=false`, as by a replication.
///
/// # Errors
/// [`LoadError`] when the input is not JSON or ends early, or when the server stops answering or
/// refuses a whole request. Documents read before that are written, and reported in it. Single
/// refused documents are not errors: see [`LoadReport::refused`].
pub async fn load(options: LoadOptions) -> Result<LoadReport, LoadError> {
    let start = Instant::now();
    let mut report = LoadReport::default();
    let result = load_into(&options, &mut report).await;
    report.seconds = start.elapsed().as_secs_f64();
    match result {
        Ok(()) => Ok(report),
        Err(cause) => Err(LoadError {
            cause,
            report: Box::new(report),
        }),
    }
}

/// Reads the first documents of the source, and returns them with the columns of a CSV input.
/// Nothing is written.
///
/// # Errors
/// [`LoadCause`] when the source cannot be read.
pub async fn preview(options: LoadOptions) -> Result<Preview, LoadCause> {
    let input = source::open(&source_client()?, &options.source).await?;
    // Reading blocks.
    let read = tokio::task::spawn_blocking(move || {
        let mut preview = Preview::default();
        let read = input.read(&options, &ProgressBar::hidden(), &mut preview);
        read.map(|()| preview)
    });
    let preview = read
        .await
        .map_err(|_| LoadCause::Options("the reading thread has failed".to_owned()))?;
    preview.map_err(LoadCause::Input)
}

async fn load_into(options: &LoadOptions, report: &mut LoadReport) -> Result<(), LoadCause> {
    check(options)?;
    let client = http_client(Client::builder())?;
    let database = database_url(options)?;
    // First: a source that does not exist creates no database.
    let input = source::open(&source_client()?, &options.source).await?;
    report.database_created = writer::prepare(&client, &database, options.create).await?;
    let bar = progress::bar(input.bytes());
    let (sender, messages) = mpsc::channel(options.parallel);
    let reader = read_on_own_thread(input, options.clone(), sender, bar.clone())?;
    let written = Writer::new(client, database, options.parallel)
        .write(messages, report, &bar)
        .await;
    bar.finish_and_clear();
    // When writing failed, the channel to the reader is closed, and it has stopped.
    let read = reader
        .join()
        .map_err(|_| LoadCause::Options("the reading thread has failed".to_owned()))?;
    written.and(read.map_err(LoadCause::Input))
}

fn check(options: &LoadOptions) -> Result<(), LoadCause> {
    let refuse = |reason: &str| Err(LoadCause::Options(reason.to_owned()));
    match options {
        options if options.db.is_empty() => refuse("give the name of the database"),
        options if options.batch_docs == 0 || options.batch_bytes == 0 => {
            refuse("a batch must hold at least one document and one byte")
        }
        options if options.parallel == 0 => refuse("at least one request must be under way"),
        _ => Ok(()),
    }
}

/// Returns a client for sources, whose reads have a time-out. Writes have none.
fn source_client() -> Result<Client, LoadCause> {
    http_client(
        Client::builder()
            .connect_timeout(CONNECT_TIME_MAX)
            .read_timeout(READ_TIME_MAX),
    )
}

fn http_client(builder: ClientBuilder) -> Result<Client, LoadCause> {
    // Fails when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = builder.build();
    client.map_err(|error| LoadCause::Options(format!("HTTP cannot be set up: {error}")))
}

fn database_url(options: &LoadOptions) -> Result<Url, LoadCause> {
    let mut url = command_line::server_url(&options.url)
        .map_err(|failure| LoadCause::Options(failure.message))?;
    let shown = without_credentials(&url);
    url.path_segments_mut()
        .map_err(|()| LoadCause::Options(format!("{shown} is not the URL of a server")))?
        .pop_if_empty()
        .push(&options.db);
    Ok(url)
}

/// Returns the URL for display: without user and password.
fn without_credentials(url: &Url) -> String {
    let mut shown = url.clone();
    // Both fail only for URLs that can hold no credentials.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.to_string().trim_end_matches('/').to_owned()
}

fn read_on_own_thread(
    input: Input,
    options: LoadOptions,
    sender: mpsc::Sender<Message>,
    bar: ProgressBar,
) -> Result<std::thread::JoinHandle<Result<(), InputError>>, LoadCause> {
    std::thread::Builder::new()
        .name("load-reader".to_owned())
        .spawn(move || {
            let mut batcher = Batcher::new(options.batch_docs, options.batch_bytes, sender);
            let result = input.read(&options, &bar, &mut batcher);
            // Complete documents before an error are written all the same.
            batcher.flush();
            result
        })
        .map_err(|error| LoadCause::Options(format!("no thread for reading: {error}")))
}
