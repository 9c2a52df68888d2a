//! Feeds of the documents that a selector matches.

use std::sync::Arc;

use super::{ChangeFilter, Filter};

struct SelectorFilter {
    selector: mango::Selector,
    fields: Option<mango::Fields>,
}

impl Filter {
    /// A filter of matching documents; `fields` selects the members that are shown.
    pub fn of_selector(selector: mango::Selector, fields: Option<mango::Fields>) -> Filter {
        Filter::Custom(Arc::new(SelectorFilter { selector, fields }))
    }
}

impl ChangeFilter for SelectorFilter {
    fn needs_doc(&self) -> bool {
        true
    }

    fn is_heavy(&self) -> bool {
        !self.selector.is_light()
    }

    fn is_heavy_for(&self, doc_bytes: usize) -> bool {
        !self.selector.is_light_for(doc_bytes)
    }

    /// A document that takes too long is left out: one document must not end a feed for all others.
    fn matches(&self, id: &str, _deleted: bool, doc: Option<&[u8]>) -> bool {
        let Some(doc) = doc else {
            return false;
        };
        let matches = self.selector.matches_doc(&mango::Doc::whole(doc));
        matches.unwrap_or_else(|error| {
            tracing::warn!(id, %error, "a feed leaves a document out");
            false
        })
    }

    fn project(&self, doc: &[u8]) -> Option<Vec<u8>> {
        let fields = self.fields.as_ref().filter(|fields| !fields.is_all())?;
        let mut projection = vec![];
        fields.write(&mango::Doc::whole(doc), &mut projection);
        Some(projection)
    }
}
