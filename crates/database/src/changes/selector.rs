//! Feeds of the documents that a selector matches.

use std::sync::Arc;

use super::{ChangeFilter, Filter};

struct SelectorFilter {
    selector: mango::Selector,
    fields: Option<mango::Fields>,
}

impl Filter {
    /// Documents that match; `fields` chooses what is shown of them.
    pub fn of_selector(selector: mango::Selector, fields: Option<mango::Fields>) -> Filter {
        Filter::Custom(Arc::new(SelectorFilter { selector, fields }))
    }
}

impl ChangeFilter for SelectorFilter {
    fn needs_doc(&self) -> bool {
        true
    }

    fn matches(&self, _id: &str, _deleted: bool, doc: Option<&[u8]>) -> bool {
        doc.is_some_and(|doc| self.selector.matches_doc(&mango::Doc::whole(doc)))
    }

    fn project(&self, doc: &[u8]) -> Option<Vec<u8>> {
        let fields = self.fields.as_ref().filter(|fields| !fields.is_all())?;
        let mut projection = vec![];
        fields.write(&mango::Doc::whole(doc), &mut projection);
        Some(projection)
    }
}
