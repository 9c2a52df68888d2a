//! The security object of a database: its text, and its parsed forms.

use std::any::Any;
use std::sync::Arc;

use parking_lot::RwLock;

/// A database's security object, which is parsed at its first use.
pub struct SecurityObject {
    json: Arc<str>,
    /// One for each type that it was parsed as.
    parsed: RwLock<Vec<Arc<dyn Any + Send + Sync>>>,
}

impl SecurityObject {
    /// Keeps the JSON text of an object.
    pub fn new(json: &str) -> Arc<SecurityObject> {
        Arc::new(SecurityObject {
            json: json.into(),
            parsed: RwLock::default(),
        })
    }

    /// Its JSON text.
    pub fn json(&self) -> &Arc<str> {
        &self.json
    }

    /// Returns what `parse` reads from its text. It is parsed once for each type.
    ///
    /// # Errors
    /// Errors of `parse`.
    pub fn parsed<T: Send + Sync + 'static, E>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let parsed = Arc::new(parse(&self.json)?);
        let mut all = self.parsed.write();
        // Another request may have parsed it meanwhile: both are the same.
        if !all.iter().any(|known| known.is::<T>()) {
            all.push(parsed.clone());
        }
        Ok(parsed)
    }

    fn known<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let all = self.parsed.read();
        let known = all.iter().find(|known| known.is::<T>())?.clone();
        Arc::downcast(known).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_parsed_once_as_each_type() {
        let object = SecurityObject::new("12");
        let number = || object.parsed(str::parse::<u32>).unwrap();
        let length = || object.parsed(|text| Ok::<_, ()>(text.len())).unwrap();
        assert_eq!((*number(), *length()), (12, 2));
        assert!(Arc::ptr_eq(&number(), &number()));
        assert!(Arc::ptr_eq(&length(), &length()));
        assert!(object.parsed(|_| Err::<String, _>(())).is_err());
    }
}
