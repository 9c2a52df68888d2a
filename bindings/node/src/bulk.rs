//! Bulks whose attachments come as streams.

use bytes::Bytes;
use napi::bindgen_prelude::Buffer;
use napi_derive::napi;

use crate::error::{blocking, exception, text};

/// A bulk that is being gathered.
#[napi]
pub struct Bulk(embedded::Bulk);

impl Bulk {
    pub fn new(bulk: embedded::Bulk) -> Bulk {
        Bulk(bulk)
    }
}

#[napi]
impl Bulk {
    /// Adds a document, JSON text, and returns the names of its attachments whose content follows.
    #[napi]
    pub async fn add(&self, document: String) -> napi::Result<Vec<String>> {
        self.0.add(document.as_bytes()).map_err(exception)
    }

    /// Begins the content of the next attachment.
    #[napi]
    pub async fn begin(&self) -> napi::Result<()> {
        self.0.begin().map_err(exception)
    }

    /// Takes the next bytes of the content.
    #[napi]
    pub async fn write(&self, bytes: Buffer) -> napi::Result<()> {
        let bytes = Bytes::copy_from_slice(&bytes);
        self.0.write(bytes).await.map_err(exception)
    }

    /// Ends the content.
    #[napi]
    pub async fn end(&self) -> napi::Result<()> {
        self.0.end().await.map_err(exception)
    }

    /// Writes all documents, and returns their outcomes as JSON text.
    #[napi]
    pub async fn commit(&self) -> napi::Result<String> {
        text(self.0.commit().await.map_err(exception)?)
    }

    /// Gives it up.
    #[napi]
    pub async fn close(&self) -> napi::Result<()> {
        let bulk = self.0.clone();
        blocking(move || {
            bulk.close();
            Ok(())
        })
        .await
    }
}
