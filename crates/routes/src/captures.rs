//! The parameters of a path.

/// The segments that the parameters of a row stand for.
pub(crate) struct Captures<'a> {
    path: &'static str,
    segments: &'a [Vec<u8>],
}

impl<'a> Captures<'a> {
    /// `path` is that of a row, `segments` are those of a request that it matches.
    pub fn new(path: &'static str, segments: &'a [Vec<u8>]) -> Captures<'a> {
        Captures { path, segments }
    }

    /// Returns the position of a segment that stands for a text and is not UTF-8.
    pub fn invalid(&self) -> Option<usize> {
        let is_text = |part: &str| part.starts_with('{') && !part.ends_with("...}");
        let mut parts = self.path.split('/').skip(1).zip(self.segments);
        parts.position(|(part, segment)| is_text(part) && std::str::from_utf8(segment).is_err())
    }

    fn position(&self, name: &str) -> usize {
        let of_name = |part: &str| {
            let inner = part
                .strip_prefix('{')
                .and_then(|part| part.strip_suffix('}'));
            inner.is_some_and(|inner| inner.strip_suffix("...").unwrap_or(inner) == name)
        };
        let position = self.path.split('/').skip(1).position(of_name);
        position.expect("the row's path has the parameter")
    }

    /// Returns a segment.
    pub fn text(&self, name: &str) -> String {
        let segment = &self.segments[self.position(name)];
        String::from_utf8_lossy(segment).into_owned()
    }

    /// Returns the segments from a parameter to the end.
    pub fn rest(&self, name: &str) -> Vec<String> {
        let segments = self.segments[self.position(name)..].iter();
        let text = |segment: &Vec<u8>| String::from_utf8_lossy(segment).into_owned();
        segments.map(text).collect()
    }

    /// Returns the segments from a parameter to the end, with the slashes between them.
    pub fn joined(&self, name: &str) -> Vec<u8> {
        self.segments[self.position(name)..].join(&b'/')
    }
}
