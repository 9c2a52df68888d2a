//! The pages of the web interface, as they were built from `web/` and committed in `web/dist`.

#![forbid(unsafe_code)]

/// A file of the pages.
#[derive(Debug)]
pub struct File {
    /// Its name; all lie in one folder.
    pub name: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// A sum of its bytes, in hex.
    pub hash: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
    brotli: &'static [u8],
}

/// The encoding of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Unchanged.
    Identity,
    /// `gzip`
    Gzip,
    /// `br`
    Brotli,
}

impl Encoding {
    /// Returns the best encoding that an `Accept-Encoding` accepts. One with weight 0 is not
    /// accepted.
    pub fn of(accepted: &str) -> Encoding {
        let takes = |name: &str| {
            accepted.split(',').any(|each| {
                let (encoding, weight) = each.split_once(';').unwrap_or((each, ""));
                let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
                encoding.trim().eq_ignore_ascii_case(name) && weight.parse() != Ok(0.0)
            })
        };
        match () {
            () if takes("br") => Encoding::Brotli,
            () if takes("gzip") => Encoding::Gzip,
            () => Encoding::Identity,
        }
    }

    /// Returns its `Content-Encoding`; `None` for unchanged bytes.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Encoding::Identity => None,
            Encoding::Gzip => Some("gzip"),
            Encoding::Brotli => Some("br"),
        }
    }
}

impl File {
    /// Its bytes.
    pub fn bytes(&self, encoding: Encoding) -> &'static [u8] {
        match encoding {
            Encoding::Identity => self.plain,
            Encoding::Gzip => self.gzip,
            Encoding::Brotli => self.brotli,
        }
    }
}

const FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The first page.
pub const INDEX: &str = "index.html";

/// Returns a file by its name.
pub fn file(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_encoding_is_taken() {
        for (accepted, wanted) in [
            ("", Encoding::Identity),
            ("gzip, deflate", Encoding::Gzip),
            ("gzip;q=0.5, br;q=0.1", Encoding::Brotli),
            ("br;q=0, GZIP", Encoding::Gzip),
            ("gzip; q=0.0", Encoding::Identity),
            ("x-gzip", Encoding::Identity),
        ] {
            assert_eq!(Encoding::of(accepted), wanted, "{accepted}");
        }
    }

    /// Compressed bytes of all files of code, half of them the editor's, of those that the first
    /// page names, and of data to try things with.
    const ALL_BYTES_MAX: usize = 260_500;
    const FIRST_BYTES_MAX: usize = 90_000;
    const DATA_BYTES_MAX: usize = 6_000;

    #[test]
    fn the_pages_are_small() {
        let size = |file: &File| file.bytes(Encoding::Brotli).len();
        let (data, code): (Vec<&File>, Vec<&File>) = FILES
            .iter()
            .partition(|file| file.kind == "application/json");
        let all: usize = code.into_iter().map(size).sum();
        assert!(all <= ALL_BYTES_MAX, "{all}");
        let data: usize = data.into_iter().map(size).sum();
        assert!(data <= DATA_BYTES_MAX, "{data}");
        let page = file(INDEX).expect("it is there").plain;
        let page = String::from_utf8_lossy(page).into_owned();
        let is_first = |f: &&File| f.name == INDEX || page.contains(f.name);
        let first: usize = FILES.iter().filter(is_first).map(size).sum();
        assert!(first <= FIRST_BYTES_MAX, "{first}");
    }
}
