//! Attachments as streams of bytes.

use bytes::Bytes;
use napi::bindgen_prelude::Buffer;
use napi_derive::napi;

use crate::database::Written;
use crate::error::{blocking, exception};

/// The bytes of an attachment.
#[napi]
pub struct Reader(embedded::Reader);

impl Reader {
    pub fn new(reader: embedded::Reader) -> Reader {
        Reader(reader)
    }
}

#[napi]
impl Reader {
    /// As it was said when it was written.
    #[napi(getter)]
    pub fn content_type(&self) -> String {
        self.0.info().content_type.clone()
    }

    /// Bytes of the whole.
    #[napi(getter)]
    pub fn length(&self) -> f64 {
        self.0.info().length as f64
    }

    /// `md5-…`
    #[napi(getter)]
    pub fn digest(&self) -> String {
        self.0.info().digest.clone()
    }

    /// The next bytes; nothing at the end.
    #[napi]
    pub async fn next(&self) -> napi::Result<Option<Buffer>> {
        let reader = self.0.clone();
        let piece = blocking(move || reader.next()).await?;
        Ok(piece.map(|bytes| Vec::from(bytes).into()))
    }

    /// Lets go of it.
    #[napi]
    pub async fn close(&self) -> napi::Result<()> {
        let reader = self.0.clone();
        blocking(move || {
            reader.close();
            Ok(())
        })
        .await
    }
}

/// An attachment that is being written.
#[napi]
pub struct Writer(embedded::Writer);

impl Writer {
    pub fn new(writer: embedded::Writer) -> Writer {
        Writer(writer)
    }
}

#[napi]
impl Writer {
    /// Takes the next bytes.
    #[napi]
    pub async fn write(&self, bytes: Buffer) -> napi::Result<()> {
        let bytes = Bytes::copy_from_slice(&bytes);
        self.0.write(bytes).await.map_err(exception)
    }

    /// Ends the upload, and writes the document's new revision.
    #[napi]
    pub async fn finish(&self) -> napi::Result<Written> {
        let written = self.0.finish().await;
        written.map(Written::from).map_err(exception)
    }

    /// Discards it.
    #[napi]
    pub async fn close(&self) -> napi::Result<()> {
        let writer = self.0.clone();
        blocking(move || {
            writer.close();
            Ok(())
        })
        .await
    }
}
