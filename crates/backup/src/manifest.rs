//! The manifest of a backup: a list of files, each with the hash of its content.
//!
//! It is stored as `{"blake3": hash, "backup": {…}}`, where the hash is of the text of `backup`: a
//! flipped bit is noticed.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The directory of a store's text indexes, each of which has a folder with its number for a name.
pub(crate) const TEXTS: &str = "text";

/// The latest version of this format, with files of text indexes.
pub const FORMAT: u32 = 2;
/// The version before, without them.
const FORMAT_WITHOUT_TEXTS: u32 = 1;

/// One backup: all databases of a server at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`], or the one before where that is enough.
    pub format: u32,
    /// Its name at its target.
    pub name: String,
    /// The owner: the server's uuid, in a cluster with the node's name.
    pub server: String,
    /// The version of Settee that made it.
    pub version: String,
    /// Contains every write acknowledged before this time.
    pub begun: DateTime<Utc>,
    /// Contains no write sent after this time: its state is that of `time` or earlier.
    pub time: DateTime<Utc>,
    /// Files that were not at the target yet.
    pub copied_files: u64,
    /// Bytes of these.
    pub copied_bytes: u64,
    /// All files.
    pub files: Vec<File>,
}

/// A file of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its name in the store's directory.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// BLAKE3 of its content, in hexadecimal digits.
    pub blake3: String,
}

#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    blake3: String,
    #[serde(borrow)]
    backup: &'a RawValue,
}

impl Manifest {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let backup = serde_json::value::to_raw_value(self).expect("numbers and texts");
        let blake3 = blake3::hash(backup.get().as_bytes()).to_hex().to_string();
        let backup = &*backup;
        serde_json::to_vec(&Sealed { blake3, backup }).expect("numbers and texts")
    }

    /// Parses the output of [`Manifest::encode`]; the error describes the problem.
    pub(crate) fn decode(text: &[u8]) -> Result<Manifest, String> {
        let sealed: Sealed<'_> = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        let backup = sealed.backup.get();
        if blake3::hash(backup.as_bytes()).to_hex().as_str() != sealed.blake3 {
            return Err("it is damaged: its hash is another".to_owned());
        }
        let manifest: Manifest = serde_json::from_str(backup).map_err(|e| e.to_string())?;
        if manifest.format > FORMAT {
            return Err("it was made by a later version of Settee".to_owned());
        }
        let wrong = |file: &&File| !is_name_in_store(&file.name) || !is_hash(&file.blake3);
        match manifest.files.iter().find(wrong) {
            Some(file) => Err(format!("`{}` is not a file of a store", file.name)),
            None => Ok(manifest),
        }
    }
}

/// Returns the version that a backup of these files needs: earlier versions of Settee read it if
/// they can.
pub(crate) fn format_of(files: &[File]) -> u32 {
    let has_texts = files.iter().any(|file| file.name.contains('/'));
    if has_texts {
        FORMAT
    } else {
        FORMAT_WITHOUT_TEXTS
    }
}

/// Returns whether a text is the name of a file in a store's directory, or in a folder of one of
/// its text indexes: `text/7/meta.json`.
fn is_name_in_store(name: &str) -> bool {
    let Some((folder, name)) = name.rsplit_once('/') else {
        return is_file_name(name);
    };
    let number = folder.strip_prefix(TEXTS).and_then(|f| f.strip_prefix('/'));
    let is_number = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    number.is_some_and(is_number) && is_file_name(name)
}

/// Returns whether a text is a name in one directory, of the kind that stores have.
fn is_file_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(plain)
}

pub(crate) fn is_hash(text: &str) -> bool {
    text.len() == 2 * blake3::OUT_LEN && text.bytes().all(|b| b"0123456789abcdef".contains(&b))
}

/// Returns the name of a backup of this time.
pub(crate) fn name_of(time: DateTime<Utc>) -> String {
    time.format("%Y-%m-%dT%H-%M-%SZ").to_string()
}

/// Returns whether a text can be the name of a backup.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Returns a time in its text form: `2026-11-24T03:49:32.125Z`.
pub fn time_text(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Returns the moment that a text names, with its zone: `2026-11-24T03:49:32Z`, `2026-11-24
/// 03:49+01:00`; `None` if it names none.
pub fn parse_time(text: &str) -> Option<DateTime<Utc>> {
    let full = DateTime::parse_from_rfc3339(text).ok();
    let short = |form| DateTime::parse_from_str(text, form).ok();
    let time = full
        .or_else(|| short("%Y-%m-%d %H:%M:%S%.f%#z"))
        .or_else(|| short("%Y-%m-%dT%H:%M%#z"))
        .or_else(|| short("%Y-%m-%d %H:%M%#z"));
    time.map(|time| time.to_utc())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn manifest() -> Manifest {
        let time = parse_time("2026-11-24T03:49:32.125Z").unwrap();
        Manifest {
            format: FORMAT,
            name: name_of(time),
            server: "a".repeat(32),
            version: "0.1.0".to_owned(),
            begun: time,
            time,
            copied_files: 1,
            copied_bytes: 7,
            files: vec![File {
                name: "000012.sst".to_owned(),
                bytes: 7,
                blake3: blake3::hash(b"content").to_hex().to_string(),
            }],
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let manifest = manifest();
        assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
    }

    #[test]
    fn a_manifest_of_a_later_format_or_with_names_that_lead_elsewhere_is_refused() {
        let mut later = manifest();
        later.format += 1;
        assert!(Manifest::decode(&later.encode()).is_err());
        for name in [
            "../x",
            "a/b",
            ".",
            "..",
            "",
            "text/x",
            "text/7/..",
            "text/../x",
            "text//x",
            "text/7/8/x",
            "/text/7/x",
            "text/7/",
        ] {
            let mut outside = manifest();
            outside.files[0].name = name.to_owned();
            assert!(Manifest::decode(&outside.encode()).is_err(), "{name}");
        }
    }

    #[test]
    fn files_of_text_indexes_are_files_of_a_store() {
        let mut more = manifest();
        more.files[0].name = "text/7/meta.json".to_owned();
        assert!(Manifest::decode(&more.encode()).is_ok());
        assert_eq!(format_of(&more.files), 2);
        assert_eq!(format_of(&manifest().files), 1);
    }

    #[test]
    fn times_have_a_zone() {
        let wanted = parse_time("2026-11-24T03:49:00Z");
        assert!(wanted.is_some());
        for text in [
            "2026-11-24T04:49:00+01:00",
            "2026-11-24 03:49:00Z",
            "2026-11-24T03:49Z",
            "2026-11-24 04:49+01:00",
        ] {
            assert_eq!(parse_time(text), wanted, "{text}");
        }
        for text in ["2026-11-24T03:49:00", "2026-11-24", "yesterday", ""] {
            assert_eq!(parse_time(text), None, "{text}");
        }
        assert_eq!(time_text(wanted.unwrap()), "2026-11-24T03:49:00.000Z");
        assert!(is_name(&name_of(wanted.unwrap())));
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_noticed(at: prop::sample::Index, bit in 0..8u8) {
            let mut text = manifest().encode();
            let at = at.index(text.len());
            text[at] ^= 1 << bit;
            prop_assert!(Manifest::decode(&text).is_err());
        }
    }
}
