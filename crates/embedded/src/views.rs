//! Listings and views.

use functions::Requester;
use serde_json::{Map, Value};

use crate::batch::{Rows, Source};
use crate::{Database, Error, Result, options};

impl Source for database::Rows {
    fn next(&mut self, out: &mut Vec<u8>, soft_bytes: usize) -> Result<bool> {
        Ok(self.next_chunk(out, soft_bytes)?)
    }
}

impl Source for database::ViewRows {
    fn next(&mut self, out: &mut Vec<u8>, soft_bytes: usize) -> Result<bool> {
        Ok(self.next_chunk(out, soft_bytes)?)
    }
}

fn head(
    total_rows: Option<u64>,
    offset: Option<u64>,
    update_seq: Option<&String>,
) -> Map<String, Value> {
    let number = |name: &str, n: Option<u64>| Some((name.to_owned(), n?.into()));
    let seq = update_seq.map(|seq| ("update_seq".to_owned(), seq.as_str().into()));
    let numbers = [number("total_rows", total_rows), number("offset", offset)];
    numbers.into_iter().chain([seq]).flatten().collect()
}

/// `name`, or `_design/name`.
pub(crate) fn design_id(name: &str) -> String {
    match name.starts_with("_design/") {
        true => name.to_owned(),
        false => format!("_design/{name}"),
    }
}

impl Database {
    /// Documents by id. `options`: JSON text of an object.
    ///
    /// # Errors
    /// 404 `not_found`, 400 `query_parse_error`.
    pub fn all_docs(&self, options: &str) -> Result<Rows> {
        let query = options::read::<options::AllDocs>(options)?.query()?;
        let rows = self.get()?.rows(query)?;
        let head = head(rows.total_rows, rows.offset, rows.update_seq.as_ref());
        Ok(Rows::new(&self.directory, rows, head))
    }

    /// Returns rows of a view, once its index includes every change of the database, unless
    /// `options` say otherwise. A cancelled wait does not end the build.
    ///
    /// # Errors
    /// 404 `not_found`, 400 `query_parse_error`, and exceptions of the functions.
    pub async fn view(&self, design: &str, view: &str, options: &str) -> Result<Rows> {
        let query = options::read::<options::View>(options)?.query()?;
        let db = self.get()?;
        let design = db.design(&design_id(design))?;
        let at = design
            .view(view)
            .ok_or_else(|| Error::missing("missing_named_view"))?;
        query.check(&design, at)?;
        let index = db.view_index(&design)?;
        if db.view_must_wait(&index, query.update) {
            let current = async { Ok(db.update_view(&index, &Requester::Admin).await?) };
            self.directory.while_open(current).await?;
        } else if query.update == database::Update::Lazy {
            db.update_view_later(&index, &Requester::Admin);
        }
        let mut rows = db.view_rows(&design, &index, at, query)?;
        if !rows.is_placed() {
            let placed = async {
                // Other tasks of the thread get their turn.
                while rows.place()? {
                    tokio::task::yield_now().await;
                }
                Ok(())
            };
            self.directory.while_open(placed).await?;
        }
        let head = head(rows.total_rows, rows.offset, rows.update_seq.as_ref());
        Ok(Rows::new(&self.directory, rows, head))
    }

    /// Waits until the index of a design document holds everything that the database does.
    ///
    /// # Errors
    /// 404 `not_found`, and what the functions threw.
    pub async fn build_index(&self, design: &str) -> Result<()> {
        let db = self.get()?;
        let design = db.design(&design_id(design))?;
        let index = db.view_index(&design)?;
        let current = async { Ok(db.update_view(&index, &Requester::Admin).await?) };
        self.directory.while_open(current).await
    }

    /// Returns the progress of building a design document's index: changes done and in total.
    /// `None` while nothing is built.
    ///
    /// # Errors
    /// [`Error::closed`], [`Error::forked`].
    pub fn progress(&self, design: &str) -> Result<Option<(u64, u64)>> {
        let id = design_id(design);
        let tasks = self.directory.databases()?.tasks();
        let ours = tasks.iter().filter(|task| {
            task.kind == "indexer"
                && task.database == self.name()
                && task.design_document.as_deref() == Some(&id)
        });
        Ok(ours
            .map(|task| (task.done, task.total))
            .reduce(|a, b| (a.0 + b.0, a.1 + b.1)))
    }
}
