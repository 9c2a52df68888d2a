//! Text indexes as design documents define them: `indexes` of Clouseau, `nouveau` of Nouveau.

use analysis::{FieldAnalyzers, Flavour};
use functions::Indexes;
use mango::{Limits, TextDefinition, TextKind};
use search::Similarity;
use serde_json::Value;
use sha2::{Digest, Sha256};
use storage::Signature;

use crate::Error;

/// The field of a Mango index that `$text` searches.
const MANGO_WORDS: &str = "$default";

/// One of a design document's text indexes.
#[derive(Debug)]
pub struct TextSpec {
    /// Its interface.
    pub flavour: Flavour,
    /// Its name.
    pub name: String,
    /// The language of its function.
    pub language: String,
    /// The function.
    pub source: String,
    /// Clouseau's `analyzer`, Nouveau's `default_analyzer`.
    analyzer: Option<Value>,
    field_analyzers: Option<Value>,
    /// It is an index of Mango: its function is a definition, and its fields are Clouseau's.
    pub is_mango: bool,
    /// Whether ids begin with a partition, which can be queried.
    pub partitioned: bool,
    /// The differences of engines that its source depends on: [`functions::dialect`].
    dialect: Option<String>,
    /// Digest of everything that the index depends on.
    digest: [u8; 32],
}

impl TextSpec {
    /// Reads the text indexes of a design document; invalid ones are `None`.
    pub(crate) fn of_design(
        flavour: Flavour,
        doc: &Value,
        partitioned: bool,
        time_zone: &str,
    ) -> Vec<(String, Option<TextSpec>)> {
        let language =
            functions::language_name(doc["language"].as_str().unwrap_or(functions::JAVASCRIPT));
        let all = doc[member(flavour)].as_object().into_iter().flatten();
        all.map(|(name, index)| {
            (
                name.clone(),
                TextSpec::read(flavour, name, &language, index, partitioned)
                    .map(|spec| spec.in_zone(time_zone)),
            )
        })
        .collect()
    }

    fn read(
        flavour: Flavour,
        name: &str,
        language: &str,
        index: &Value,
        partitioned: bool,
    ) -> Option<TextSpec> {
        let part = |member: &str| index.get(member).filter(|v| !v.is_null()).cloned();
        let is_mango = language == mango::index::LANGUAGE;
        let (analyzer, field_analyzers) = match flavour {
            _ if is_mango => (part("analyzer"), None),
            Flavour::Clouseau => (part("analyzer"), None),
            Flavour::Nouveau => (part("default_analyzer"), part("field_analyzers")),
        };
        let mut spec = TextSpec {
            flavour,
            name: name.to_owned(),
            language: language.to_owned(),
            source: match index.get("index")? {
                Value::String(source) if !is_mango => source.clone(),
                definition if is_mango => {
                    let kind = match flavour {
                        Flavour::Clouseau => TextKind::Text,
                        Flavour::Nouveau => TextKind::Nouveau,
                    };
                    let text = definition.to_string();
                    let normal = document::normalise(text.as_bytes()).ok()?;
                    TextDefinition::read(kind, &normal, &Limits::OF_INDEXES).ok()?;
                    text
                }
                _ => return None,
            },
            is_mango,
            analyzer,
            field_analyzers,
            partitioned,
            dialect: None,
            digest: [0; 32],
        };
        spec.digest = spec.hash();
        Some(spec)
    }

    /// The index with dates of this time zone, and with everything else that its function depends
    /// on.
    fn in_zone(mut self, time_zone: &str) -> TextSpec {
        if self.language == functions::JAVASCRIPT {
            self.dialect = functions::dialect([self.source.as_str()], time_zone);
            self.digest = self.hash();
        }
        self
    }

    /// **What is hashed may never change**, for the reason that it may not for views: it is the SHA-256 of these parts, each
    /// preceded by its length in 8 bytes: `nouveau 1` or `clouseau 1`, the version of analyzers, the language, the function, both
    /// definitions of analyzers as JSON text, whether there are partitions, the dialect, if there is one, and a correction of an
    /// analyzer that only indexes with this analyzer depend on.
    fn hash(&self) -> [u8; 32] {
        let text = |value: &Option<Value>| value.as_ref().map(Value::to_string).unwrap_or_default();
        let (default, fields) = (text(&self.analyzer), text(&self.field_analyzers));
        let mut sha = Sha256::new();
        let parts: [&[u8]; 7] = [
            match self.flavour {
                Flavour::Clouseau => b"clouseau 1",
                Flavour::Nouveau => b"nouveau 1",
            },
            &analysis::VERSION.to_be_bytes(),
            self.language.as_bytes(),
            self.source.as_bytes(),
            default.as_bytes(),
            fields.as_bytes(),
            &[u8::from(self.partitioned)],
        ];
        let dialect = self.dialect.as_deref().map(str::as_bytes);
        // Lucene 10 has other words of Romanian than Lucene 9.
        let is_romanian = [&default, &fields].map(|names| names.contains("\"romanian\""));
        let correction = (self.flavour == Flavour::Nouveau && is_romanian.contains(&true))
            .then_some(b"romanian of lucene 10".as_slice());
        for part in parts.into_iter().chain(dialect).chain(correction) {
            sha.update((part.len() as u64).to_be_bytes());
            sha.update(part);
        }
        sha.finalize().into()
    }

    /// Identifies the index, in hexadecimal.
    pub fn hex_signature(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.digest)
    }

    /// Identifies the index in the store, in a shorter form.
    pub(crate) fn signature(&self) -> Signature {
        let mut signature = Signature::default();
        let len = signature.len();
        signature.copy_from_slice(&self.digest[..len]);
        signature
    }

    /// Whether its fields are of Clouseau's kind.
    pub(crate) fn is_classic(&self) -> bool {
        self.is_mango || self.flavour == Flavour::Clouseau
    }

    /// The functions that its function may call.
    pub(crate) fn interface(&self) -> Indexes {
        match self.is_classic() {
            true => Indexes::Clouseau,
            false => Indexes::Nouveau,
        }
    }

    /// The formula of its scores.
    pub(crate) fn similarity(&self) -> Similarity {
        match self.is_classic() {
            true => Similarity::TfIdf,
            false => Similarity::Bm25,
        }
    }

    /// Whether it is of design documents too, as in CouchDB.
    pub(crate) fn includes_design(&self) -> bool {
        self.is_classic() && !self.is_mango && !self.partitioned
    }

    /// The analyzers of its fields.
    pub(crate) fn analyzers(&self) -> Result<FieldAnalyzers, Error> {
        let (default, fields) = (self.analyzer.as_ref(), self.field_analyzers.as_ref());
        if self.is_mango {
            // Values are matched unchanged, whatever the definition is; only `$text` searches for
            // words.
            let refused = |e: analysis::Error| Error::BadRequest(e.to_string());
            let given = FieldAnalyzers::parse(self.flavour, default).map_err(refused)?;
            let plain = FieldAnalyzers::parse(self.flavour, Some(&"keyword".into()));
            let plain = plain.map_err(refused)?;
            return Ok(plain.with(MANGO_WORDS, given.of(MANGO_WORDS).clone()));
        }
        if self.is_classic() {
            return FieldAnalyzers::parse(self.flavour, default)
                .map_err(|e| Error::BadRequest(e.to_string()));
        }
        let all = FieldAnalyzers::with_fields(Flavour::Nouveau, default, fields)
            .map_err(|e| Error::BadRequest(e.to_string()))?;
        // Nouveau has no exceptions: an id in a query is analyzed as any other field.
        let others = FieldAnalyzers::parse(Flavour::Nouveau, default)
            .map_err(|e| Error::BadRequest(e.to_string()))?;
        let others = others.of("").clone();
        Ok(all
            .with(search::ID, others.clone())
            .with(search::PARTITION, others))
    }
}

/// The member of design documents that has them.
pub(crate) fn member(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::Clouseau => "indexes",
        Flavour::Nouveau => "nouveau",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn specs(doc: Value) -> Vec<(String, Option<TextSpec>)> {
        TextSpec::of_design(Flavour::Nouveau, &doc, false, "UTC")
    }

    #[test]
    fn equal_definitions_are_one_index_whatever_their_names() {
        let found = specs(json!({"nouveau": {
            "a": {"index": "F"},
            "b": {"index": "F", "lucene_version": 10},
            "c": {"index": "F", "default_analyzer": "english"},
            "d": {"index": "G"}}}));
        let signatures: Vec<_> = found
            .iter()
            .map(|(_, spec)| spec.as_ref().unwrap().signature())
            .collect();
        assert_eq!(signatures[0], signatures[1]);
        assert_ne!(signatures[0], signatures[2]);
        assert_ne!(signatures[0], signatures[3]);
    }

    #[test]
    fn signatures_are_those_of_indexes_that_are_stored() {
        let found = specs(json!({"nouveau": {"a": {"index": "function(doc) {}"}}}));
        let spec = found[0].1.as_ref().unwrap();
        let expected = {
            let mut bytes = vec![];
            let parts: [&[u8]; 7] = [
                b"nouveau 1",
                &analysis::VERSION.to_be_bytes(),
                b"javascript",
                b"function(doc) {}",
                b"",
                b"",
                &[0],
            ];
            for part in parts {
                bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
                bytes.extend_from_slice(part);
            }
            data_encoding::HEXLOWER.encode(&Sha256::digest(&bytes))
        };
        assert_eq!(spec.hex_signature(), expected);
    }

    #[test]
    fn indexes_of_clouseau_are_apart() {
        let doc = json!({
            "indexes": {"a": {"index": "F", "analyzer": {"name": "perfield", "fields": {"x": "english"}}}},
            "nouveau": {"a": {"index": "F"}}});
        let of = |flavour| {
            TextSpec::of_design(flavour, &doc, false, "UTC")
                .remove(0)
                .1
                .unwrap()
        };
        let (clouseau, nouveau) = (of(Flavour::Clouseau), of(Flavour::Nouveau));
        assert_ne!(clouseau.signature(), nouveau.signature());
        assert!(clouseau.analyzers().is_ok());
        assert!(clouseau.includes_design() && !nouveau.includes_design());
        // The list of Mango's index definitions, which some put there, is no index.
        let list = json!({"indexes": [{"name": "foo", "type": "text"}]});
        assert!(TextSpec::of_design(Flavour::Clouseau, &list, false, "UTC").is_empty());
    }

    #[test]
    fn what_is_no_definition_is_none() {
        let found = specs(json!({"nouveau": {"a": "function(doc) {}", "b": {"index": 5}}}));
        assert!(found.iter().all(|(_, spec)| spec.is_none()));
        // The type `text` is one of `nouveau` alone.
        let index = json!({"index": {"fields": [{"name": "a", "type": "text"}]}});
        let doc = json!({"language": "query", "indexes": {"i": index}, "nouveau": {"i": index}});
        let of = |flavour| TextSpec::of_design(flavour, &doc, false, "UTC").remove(0).1;
        assert!(of(Flavour::Clouseau).is_none() && of(Flavour::Nouveau).is_some());
        assert!(specs(json!({"nouveau": 5})).is_empty());
    }

    #[test]
    fn an_analyzer_that_is_not_known_is_named() {
        let found = specs(json!({"nouveau": {"a": {"index": "F", "default_analyzer": "klingon"}}}));
        let refused = found[0].1.as_ref().unwrap().analyzers().unwrap_err();
        assert_eq!(refused.to_string(), "klingon is not a valid analyzer name");
    }
}
