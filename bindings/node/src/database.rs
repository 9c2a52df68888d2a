//! A database: JSON text in, JSON text out.

use napi_derive::napi;

use crate::attachments::{Reader, Writer};
use crate::bulk::Bulk;
use crate::cancel::cancellable;
use crate::error::{blocking, exception, text};
use crate::rows::{Feed, Rows};

/// A database.
#[napi]
pub struct Database(embedded::Database);

impl Database {
    pub fn new(db: embedded::Database) -> Database {
        Database(db)
    }
}

/// A written document.
#[napi(object)]
pub struct Written {
    /// Its id.
    pub id: String,
    /// The current revision.
    pub rev: String,
}

impl From<embedded::WriteResult> for Written {
    fn from(written: embedded::WriteResult) -> Written {
        Written {
            id: written.id,
            rev: written.rev,
        }
    }
}

#[napi]
impl Database {
    /// Its name.
    #[napi(getter)]
    pub fn name(&self) -> String {
        self.0.name().to_owned()
    }

    /// Counts and sizes, as JSON text.
    #[napi]
    pub async fn info(&self) -> napi::Result<String> {
        let db = self.0.clone();
        blocking(move || db.info()).await
    }

    /// Starts a compaction.
    #[napi]
    pub async fn compact(&self) -> napi::Result<()> {
        self.0.compact().map_err(exception)
    }

    /// A document, as JSON text.
    #[napi]
    pub async fn get(&self, id: String, options: String) -> napi::Result<String> {
        // A read is short; only what holds attachments is not.
        let document = match options.is_empty() {
            true => self.0.document(&id, "").map_err(exception)?,
            false => {
                let db = self.0.clone();
                blocking(move || db.document(&id, &options)).await?
            }
        };
        text(document)
    }

    /// Writes a document, JSON text.
    #[napi]
    pub async fn put(&self, document: String, options: String) -> napi::Result<Written> {
        let written = self.0.put(document.as_bytes(), &options).await;
        written.map(Written::from).map_err(exception)
    }

    /// Deletes a document.
    #[napi]
    pub async fn delete(&self, id: String, rev: String, options: String) -> napi::Result<Written> {
        let written = self.0.delete(&id, &rev, &options).await;
        written.map(Written::from).map_err(exception)
    }

    /// Writes documents, each JSON text, and returns the outcome of each, as JSON text.
    #[napi]
    pub async fn bulk(&self, documents: Vec<String>, options: String) -> napi::Result<String> {
        let answer = self.0.bulk(&documents, &options).await;
        text(answer.map_err(exception)?)
    }

    /// Begins a bulk whose attachments come as streams.
    #[napi]
    pub async fn begin_bulk(&self, options: String) -> napi::Result<Bulk> {
        self.0
            .begin_bulk(&options)
            .map(Bulk::new)
            .map_err(exception)
    }

    /// Documents by id.
    #[napi]
    pub async fn all_docs(&self, options: String) -> napi::Result<Rows> {
        let db = self.0.clone();
        blocking(move || db.all_docs(&options)).await.map(Rows::new)
    }

    /// Rows of a view.
    #[napi]
    pub async fn view(
        &self,
        design: String,
        view: String,
        options: String,
        cancel: u32,
    ) -> napi::Result<Rows> {
        let rows = cancellable(cancel, self.0.view(&design, &view, &options));
        rows.await.map(Rows::new)
    }

    /// Updates an index.
    #[napi]
    pub async fn build_index(&self, design: String, cancel: u32) -> napi::Result<()> {
        cancellable(cancel, self.0.build_index(&design)).await
    }

    /// Progress of an index's builds: processed changes and their total; nothing while none runs.
    #[napi]
    pub fn progress(&self, design: String) -> napi::Result<Option<Vec<f64>>> {
        let progress = self.0.progress(&design).map_err(exception)?;
        Ok(progress.map(|(done, total)| vec![done as f64, total as f64]))
    }

    /// Opens a feed.
    #[napi]
    pub async fn changes(&self, options: String) -> napi::Result<Feed> {
        let db = self.0.clone();
        blocking(move || db.changes(&options)).await.map(Feed::new)
    }

    /// Documents that match a query, JSON text.
    #[napi]
    pub async fn find(&self, query: String, cancel: u32) -> napi::Result<Rows> {
        let rows = cancellable(cancel, self.0.find(query.as_bytes()));
        rows.await.map(Rows::new)
    }

    /// Which index would answer a query, as JSON text.
    #[napi]
    pub async fn explain(&self, query: String) -> napi::Result<String> {
        let db = self.0.clone();
        text(blocking(move || db.explain(query.as_bytes())).await?)
    }

    /// The indexes, as JSON text.
    #[napi]
    pub async fn indexes(&self) -> napi::Result<String> {
        let db = self.0.clone();
        text(blocking(move || db.indexes()).await?)
    }

    /// Makes an index, and answers JSON text.
    #[napi]
    pub async fn create_index(&self, definition: String) -> napi::Result<String> {
        let made = self.0.create_index(definition.as_bytes()).await;
        made.map_err(exception)
    }

    /// Deletes an index.
    #[napi]
    pub async fn delete_index(&self, design: String, name: String) -> napi::Result<()> {
        let deleted = self.0.delete_index(&design, &name).await;
        deleted.map_err(exception)
    }

    /// Opens an attachment.
    #[napi]
    pub async fn attachment(
        &self,
        id: String,
        name: String,
        options: String,
    ) -> napi::Result<Reader> {
        let db = self.0.clone();
        let opened = blocking(move || db.attachment(&id, &name, &options));
        opened.await.map(Reader::new)
    }

    /// Begins to write an attachment.
    #[napi]
    pub async fn put_attachment(
        &self,
        id: String,
        name: String,
        options: String,
    ) -> napi::Result<Writer> {
        let db = self.0.clone();
        let begun = blocking(move || db.put_attachment(&id, &name, &options));
        begun.await.map(Writer::new)
    }

    /// Removes an attachment.
    #[napi]
    pub async fn delete_attachment(
        &self,
        id: String,
        name: String,
        rev: String,
    ) -> napi::Result<Written> {
        let written = self.0.delete_attachment(&id, &name, &rev).await;
        written.map(Written::from).map_err(exception)
    }
}
