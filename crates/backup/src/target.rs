//! A place that holds backups of one server: a directory, or a bucket of an object store that
//! speaks S3.
//!
//! ```text
//! settee-backups.json       what this place is: its format, and the server's uuid
//! backups/NAME.json         a backup: the list of its files (manifest.rs)
//! files/AB/ABCD…            a file of a store, under the BLAKE3 of its content
//! leases/backup-…, prune-…  who is at work here (lease.rs)
//! ```

use std::io::ErrorKind;
use std::path::{self, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    ClientOptions, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt as _, RetryConfig,
};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::manifest::{self, Manifest};
use crate::permit;

/// Identifies the place as a backup target.
const MARK: &str = "settee-backups.json";
const FORMAT: u32 = 1;
const BACKUPS: &str = "backups";
const FILES: &str = "files";
/// At the root of an ext4 file system.
const FILE_SYSTEM_OWN: &str = "lost+found";
/// Longest time of one request: a part of a file, or of a list, over a slow line.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request is retried while the target or the network fails.
const RETRY_TIMEOUT: Duration = Duration::from_secs(180);
const RETRIES_MAX: usize = 12;
/// Descriptions of backups that are read at a time.
const MANIFESTS_AT_ONCE: usize = 8;

/// The name of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetName {
    /// A directory of this machine, absolute.
    Directory(PathBuf),
    /// Objects of a bucket under a prefix.
    S3 {
        /// The bucket.
        bucket: String,
        /// Without slashes at its ends; empty for the whole bucket.
        prefix: String,
    },
}

impl TargetName {
    /// Reads `s3://BUCKET/PREFIX`, `file:///DIRECTORY` or the path of a directory.
    ///
    /// # Errors
    /// [`Error::Name`], also for a URL with a password: others could read it in the list of
    /// processes.
    pub fn parse(text: &str) -> Result<TargetName> {
        let wrong = |why: &str| Error::Name(why.to_owned());
        if !text.contains("://") {
            let path = path::absolute(text).map_err(|_| wrong("a target has a name"))?;
            return Ok(TargetName::Directory(path));
        }
        // The text itself is not repeated: it may have a password where none belongs.
        let url = url::Url::parse(text).map_err(|e| wrong(&format!("the target's URL: {e}")))?;
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
            return Err(wrong(
                "a target's URL has no name, password or parameters: credentials are in the environment \
                 (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), or in [backup] of the server's settings",
            ));
        }
        match (url.scheme(), url.host_str()) {
            ("file", None) => {
                let path = url
                    .to_file_path()
                    .map_err(|()| wrong("the target's URL has no path"))?;
                Ok(TargetName::Directory(path))
            }
            ("s3", Some(bucket)) => Ok(TargetName::S3 {
                bucket: bucket.to_owned(),
                prefix: percent_decode_str(url.path().trim_matches('/'))
                    .decode_utf8()
                    .map_err(|_| wrong("the target's prefix is not UTF-8"))?
                    .into_owned(),
            }),
            _ => Err(wrong(
                "a target is a directory, file:///DIRECTORY, or s3://BUCKET/PREFIX",
            )),
        }
    }
}

impl std::fmt::Display for TargetName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TargetName::Directory(path) => write!(f, "{}", path.display()),
            TargetName::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            TargetName::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

/// Options that take precedence over the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
/// `AWS_REGION`, `AWS_ENDPOINT_URL` and others of the AWS SDKs) for a bucket.
#[derive(Clone, Default)]
pub struct S3Options {
    /// URL of a server that is not Amazon's.
    pub endpoint: Option<String>,
    /// Its region.
    pub region: Option<String>,
    /// The name of a key.
    pub access_key_id: Option<String>,
    /// The key.
    pub secret_access_key: Option<String>,
}

impl S3Options {
    fn store(&self, bucket: &str) -> object_store::Result<impl ObjectStore> {
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if let Some(id) = &self.access_key_id {
            builder = builder.with_access_key_id(id);
        }
        if let Some(key) = &self.secret_access_key {
            builder = builder.with_secret_access_key(key);
        }
        let of_environment = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
        let of_environment = of_environment
            .iter()
            .find_map(|key| std::env::var(key).ok());
        let endpoint = self.endpoint.clone().or(of_environment);
        // A URL without TLS is taken as intended.
        let is_plain = endpoint.is_some_and(|url| url.starts_with("http://"));
        let client = ClientOptions::new()
            .with_allow_http(is_plain)
            .with_timeout(REQUEST_TIMEOUT)
            .with_connect_timeout(CONNECT_TIMEOUT);
        let retry = RetryConfig {
            max_retries: RETRIES_MAX,
            retry_timeout: RETRY_TIMEOUT,
            ..RetryConfig::default()
        };
        builder
            .with_client_options(client)
            .with_retry(retry)
            .build()
    }
}

impl std::fmt::Debug for S3Options {
    /// Names no values: one is secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Options").finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
struct Mark {
    format: u32,
    server: String,
}

/// An open target. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Target {
    name: Arc<TargetName>,
    store: Arc<dyn ObjectStore>,
}

/// An object at a path of a target.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub path: Path,
    pub bytes: u64,
    pub modified: DateTime<Utc>,
}

impl Target {
    /// Opens a target that a backup created.
    ///
    /// # Errors
    /// [`Error::NoBackups`], [`Error::Later`], and those of the target.
    pub async fn open(name: &TargetName, s3: &S3Options) -> Result<Target> {
        if let TargetName::Directory(path) = name
            && !path.is_dir()
        {
            return Err(Error::NoBackups(name.to_string()));
        }
        let target = Target::at(name, s3)?;
        match target.mark().await? {
            Some(_) => Ok(target),
            None => Err(Error::NoBackups(name.to_string())),
        }
    }

    /// Opens a target, and claims it for this server if it has no owner.
    ///
    /// # Errors
    /// [`Error::Occupied`], [`Error::OtherServer`], [`Error::Later`], and those of the target.
    pub async fn open_or_create(name: &TargetName, s3: &S3Options, server: &str) -> Result<Target> {
        if let TargetName::Directory(path) = name {
            std::fs::create_dir_all(path).map_err(|e| match is_refusal(&e) {
                true => Error::NotAllowed {
                    target: name.to_string(),
                    reason: e.to_string(),
                },
                false => Error::file(path)(e),
            })?;
        }
        let target = Target::at(name, s3)?;
        if target.mark().await?.is_none() {
            let found = target.store.list_with_delimiter(None).await;
            let found = found.map_err(|e| target.failed(e))?;
            let is_foreign = |folder: &Path| folder.as_ref() != FILE_SYSTEM_OWN;
            let is_other = |file: &ObjectMeta| !file.location.as_ref().starts_with(permit::PREFIX);
            let has_others = found.objects.iter().any(is_other);
            if has_others || found.common_prefixes.iter().any(is_foreign) {
                return Err(Error::Occupied(name.to_string()));
            }
            let mark = Mark {
                format: FORMAT,
                server: server.to_owned(),
            };
            let text = serde_json::to_vec(&mark).expect("a number and a text");
            target.put(&Path::from(MARK), text.into()).await?;
        }
        // Read in any case: of two concurrent creators the last writer owns it.
        match target.mark().await? {
            Some(mark) if mark.server == server => Ok(target),
            Some(mark) => Err(Error::OtherServer {
                target: name.to_string(),
                found: mark.server,
                own: server.to_owned(),
            }),
            None => Err(Error::NoBackups(name.to_string())),
        }
    }

    fn at(name: &TargetName, s3: &S3Options) -> Result<Target> {
        let store: object_store::Result<Arc<dyn ObjectStore>> = match name {
            TargetName::Directory(path) => LocalFileSystem::new_with_prefix(path)
                .map(|files| Arc::new(files.with_fsync(true)) as _),
            TargetName::S3 { bucket, prefix } => s3
                .store(bucket)
                .map(|objects| Arc::new(PrefixStore::new(objects, prefix.as_str())) as _),
        };
        match store {
            Ok(store) => Ok(Target {
                name: Arc::new(name.clone()),
                store,
            }),
            Err(source) => Err(Error::Target {
                target: name.to_string(),
                source,
            }),
        }
    }

    async fn mark(&self) -> Result<Option<Mark>> {
        let Some(text) = self.get(&Path::from(MARK)).await? else {
            return Ok(None);
        };
        let mark: Mark = serde_json::from_slice(&text).map_err(|e| Error::Manifest {
            name: MARK.to_owned(),
            reason: e.to_string(),
        })?;
        if mark.format > FORMAT {
            return Err(Error::Later(self.name.to_string()));
        }
        Ok(Some(mark))
    }

    /// Returns the name.
    pub fn name(&self) -> &TargetName {
        &self.name
    }

    pub(crate) fn failed(&self, source: object_store::Error) -> Error {
        let target = self.name.to_string();
        match refused(&source) {
            Some(e) if matches!(*self.name, TargetName::Directory(_)) => Error::NotAllowed {
                target,
                reason: e.to_string(),
            },
            _ => Error::Target { target, source },
        }
    }

    pub(crate) async fn get(&self, path: &Path) -> Result<Option<Bytes>> {
        let found = match self.store.get(path).await {
            Ok(found) => found.bytes().await,
            Err(e) => Err(e),
        };
        match found {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed(e)),
        }
    }

    /// Returns the bytes of an object in parts, in order; each is one request, which is tried again
    /// when the connection breaks.
    pub(crate) async fn part(&self, path: &Path, from: u64, to: u64) -> Result<Option<Bytes>> {
        match self.store.get_range(path, from..to).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed(e)),
        }
    }

    pub(crate) async fn put(&self, path: &Path, content: Bytes) -> Result<()> {
        let done = self.store.put(path, content.into()).await;
        done.map(|_| ()).map_err(|e| self.failed(e))
    }

    pub(crate) async fn upload(&self, path: &Path) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.store.put_multipart(path).await;
        upload.map_err(|e| self.failed(e))
    }

    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<Object>> {
        let folder = Path::from(folder);
        let found: object_store::Result<Vec<Object>> = self
            .store
            .list(Some(&folder))
            .map_ok(|meta| Object {
                path: meta.location,
                bytes: meta.size,
                modified: meta.last_modified,
            })
            .try_collect()
            .await;
        match found {
            Ok(found) => Ok(found),
            // A directory that does not exist yet.
            Err(object_store::Error::NotFound { .. }) => Ok(vec![]),
            Err(e) => Err(self.failed(e)),
        }
    }

    /// Removes objects; missing ones are not an error.
    pub(crate) async fn remove(&self, paths: Vec<Path>) -> Result<()> {
        let paths = futures_util::stream::iter(paths.into_iter().map(Ok)).boxed();
        let mut removed = self.store.delete_stream(paths);
        while let Some(removed) = removed.next().await {
            match removed {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
                Err(e) => return Err(self.failed(e)),
            }
        }
        Ok(())
    }

    /// Returns the path of a file.
    pub(crate) fn file_path(blake3: &str) -> Path {
        Path::from_iter([FILES, &blake3[..2], blake3])
    }

    /// Returns the existing files: hashes with sizes.
    pub(crate) async fn files(&self) -> Result<Vec<(String, u64)>> {
        let objects = self.list(FILES).await?;
        let named = objects.into_iter().filter_map(|object| {
            let name = object.path.filename()?;
            manifest::is_hash(name).then(|| (name.to_owned(), object.bytes))
        });
        Ok(named.collect())
    }

    pub(crate) fn manifest_path(name: &str) -> Path {
        Path::from_iter([BACKUPS.to_owned(), format!("{name}.json")])
    }

    /// Returns the names of the backups, which are not read.
    pub(crate) async fn names(&self) -> Result<Vec<String>> {
        let objects = self.list(BACKUPS).await?;
        let names = objects.iter().filter_map(|object| {
            let name = object.path.filename()?.strip_suffix(".json")?;
            manifest::is_name(name).then(|| name.to_owned())
        });
        Ok(names.collect())
    }

    /// Returns whether a backup of this name exists, without reading it.
    pub(crate) async fn has_backup(&self, name: &str) -> Result<bool> {
        match self.store.head(&Target::manifest_path(name)).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(e) => Err(self.failed(e)),
        }
    }

    /// Returns the backup of this name.
    ///
    /// # Errors
    /// [`Error::NoSuchBackup`], [`Error::Manifest`], and those of the target.
    pub async fn backup(&self, name: &str) -> Result<Manifest> {
        let none = || Error::NoSuchBackup(name.to_owned());
        if !manifest::is_name(name) {
            return Err(none());
        }
        let text = self
            .get(&Target::manifest_path(name))
            .await?
            .ok_or_else(none)?;
        let broken = |reason| Error::Manifest {
            name: name.to_owned(),
            reason,
        };
        let manifest = Manifest::decode(&text).map_err(broken)?;
        if manifest.name != name {
            return Err(broken(format!("its name is {}", manifest.name)));
        }
        Ok(manifest)
    }

    /// All backups, the oldest first, and what is wrong with those that cannot be read.
    ///
    /// # Errors
    /// Errors of the target.
    pub async fn backups(&self) -> Result<(Vec<Manifest>, Vec<Error>)> {
        let names = self.names().await?;
        let mut read = futures_util::stream::iter(names)
            .map(|name| async move { self.backup(&name).await })
            .buffered(MANIFESTS_AT_ONCE);
        let (mut backups, mut broken) = (vec![], vec![]);
        while let Some(read) = read.next().await {
            match read {
                Ok(manifest) => backups.push(manifest),
                // A prune took it away meanwhile.
                Err(Error::NoSuchBackup(_)) => {}
                Err(e @ Error::Manifest { .. }) => broken.push(e),
                Err(e) => return Err(e),
            }
        }
        backups.sort_by(|a, b| (a.time, &a.name).cmp(&(b.time, &b.name)));
        Ok((backups, broken))
    }
}

/// Returns the system's error, when it denies this process an operation.
fn refused(error: &object_store::Error) -> Option<&std::io::Error> {
    let first: &(dyn std::error::Error + 'static) = error;
    let causes = std::iter::successors(Some(first), |e| e.source());
    let mut said = causes.filter_map(|e| e.downcast_ref::<std::io::Error>());
    said.find(|e| is_refusal(e))
}

/// Whether the system denies this process an operation.
fn is_refusal(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
    )
}

/// Whether a directory holds backups of this server. Only who can write there can make it look so.
pub fn is_of_server(directory: &std::path::Path, server: &str) -> bool {
    let text = std::fs::read(directory.join(MARK)).unwrap_or_default();
    serde_json::from_slice(&text).is_ok_and(|mark: Mark| mark.server == server)
}

/// Whether a directory holds backups, rather than being a copy of a store.
pub fn holds_backups(directory: &std::path::Path) -> bool {
    directory.join(MARK).is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_names() {
        let parse = |text| TargetName::parse(text).map(|name| name.to_string());
        assert_eq!(parse("/backups/").unwrap(), "/backups/");
        assert_eq!(parse("file:///a%20b").unwrap(), "/a b");
        assert_eq!(parse("s3://bucket").unwrap(), "s3://bucket");
        assert_eq!(parse("s3://bucket/a/b/").unwrap(), "s3://bucket/a/b");
        assert_eq!(parse("s3://bucket/a%20b").unwrap(), "s3://bucket/a b");
        for text in ["", "ftp://x/y", "s3:///x", "file://host/x", "s3://b/x?y=z"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_password_in_a_url_is_refused_and_not_repeated() {
        for text in [
            "s3://id:geheim@bucket/x",
            "s3://id:geheim@",
            "s3://id:geheim@b:x/",
        ] {
            let error = TargetName::parse(text).unwrap_err().to_string();
            assert!(!error.contains("geheim"), "{error}");
        }
        let options = S3Options {
            secret_access_key: Some("geheim".into()),
            ..S3Options::default()
        };
        assert!(!format!("{options:?}").contains("geheim"));
    }

    #[tokio::test]
    async fn a_place_is_one_servers_and_holds_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let name = |n: &str| TargetName::Directory(dir.path().join(n));
        let s3 = S3Options::default();
        let none = Target::open(&name("a"), &s3).await.unwrap_err();
        assert!(matches!(none, Error::NoBackups(_)), "{none}");
        Target::open_or_create(&name("a"), &s3, "one")
            .await
            .unwrap();
        Target::open_or_create(&name("a"), &s3, "one")
            .await
            .unwrap();
        Target::open(&name("a"), &s3).await.unwrap();
        assert!(holds_backups(&dir.path().join("a")));
        assert!(is_of_server(&dir.path().join("a"), "one"));
        assert!(!is_of_server(&dir.path().join("a"), "two"));
        assert!(!is_of_server(dir.path(), ""));
        let other = Target::open_or_create(&name("a"), &s3, "two").await;
        assert!(matches!(other, Err(Error::OtherServer { .. })), "{other:?}");

        // A new file system is empty but for what is its own.
        let fresh = dir.path().join("disk/lost+found");
        std::fs::create_dir_all(&fresh).unwrap();
        std::fs::write(fresh.join("x"), "x").unwrap();
        Target::open_or_create(&name("disk"), &s3, "one")
            .await
            .unwrap();

        std::fs::create_dir(dir.path().join("b")).unwrap();
        std::fs::write(dir.path().join("b/photo"), "x").unwrap();
        let occupied = Target::open_or_create(&name("b"), &s3, "one").await;
        assert!(matches!(occupied, Err(Error::Occupied(_))), "{occupied:?}");
    }
}
