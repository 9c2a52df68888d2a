//! URLs (RFC 3986): with `http`, `https`, `ftp` or `file`, and names of hosts alone.

use super::Reader;
use crate::analyzer::Flavour;

/// A reading as a URL.
pub(super) struct Url {
    /// How far it was read: one character past its end when that decided.
    pub(super) read: usize,
    /// Its end; `None` when a word directly follows a host, which makes it invalid.
    pub(super) end: Option<usize>,
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

fn is_delimiter(byte: u8) -> bool {
    b"!$&'()*+,;=".contains(&byte)
}

impl Reader<'_> {
    /// Returns the longest reading as a URL at `at`.
    pub(super) fn url(&mut self, at: usize) -> Option<Url> {
        match self.with_scheme(at) {
            Some(end) => Some(Url {
                read: end,
                end: Some(end),
            }),
            None => self.without_scheme(at),
        }
    }

    /// Returns a run of characters of which `%` has to be followed by two hexadecimal digits.
    fn encoded(&self, from: usize, belongs: impl Fn(u8) -> bool) -> usize {
        let mut end = from;
        loop {
            end = self.run(end, |byte| is_unreserved(byte) || belongs(byte));
            let is_digit = |at: usize| self.byte(at).is_some_and(|byte| byte.is_ascii_hexdigit());
            if self.byte(end) != Some(b'%') || !is_digit(end + 1) || !is_digit(end + 2) {
                return end;
            }
            end += 3;
        }
    }

    fn with_scheme(&self, at: usize) -> Option<usize> {
        let scheme = ["http://", "https://", "ftp://", "file://"]
            .into_iter()
            .find(|scheme| self.goes_on(at, scheme))?;
        let from = at + scheme.len();
        match scheme {
            "file://" => {
                let after_host = self.host(from);
                let path = after_host
                    .and_then(|end| self.file_path(end))
                    .or_else(|| self.file_path(from))?;
                Some(self.fragment(path))
            }
            "ftp://" => {
                let path = self
                    .authorities(from)
                    .into_iter()
                    .flatten()
                    .filter_map(|end| self.file_path(end))
                    .max()?;
                let typed = self.goes_on(path, ";type=")
                    && self
                        .byte(path + 6)
                        .is_some_and(|byte| b"aAiIdD".contains(&byte));
                Some(self.fragment(if typed { path + 7 } else { path }))
            }
            _ => self
                .authorities(from)
                .into_iter()
                .flatten()
                .map(|end| self.fragment(self.query(self.path(end))))
                .max(),
        }
    }

    fn host(&self, at: usize) -> Option<usize> {
        self.ipv6(at).or_else(|| self.labels(at))
    }

    /// Returns the ends of a host with a port, with and without a name and a password before it.
    fn authorities(&self, at: usize) -> [Option<usize>; 2] {
        let alone = self.host(at).map(|end| self.port(end));
        let mut login = self.encoded(at, is_delimiter);
        if self.byte(login) == Some(b':') {
            login = self.encoded(login + 1, is_delimiter);
        }
        let is_login = self.byte(login) == Some(b'@');
        [
            alone,
            is_login
                .then(|| self.host(login + 1).map(|end| self.port(end)))
                .flatten(),
        ]
    }

    fn port(&self, at: usize) -> usize {
        if self.byte(at) != Some(b':') {
            return at;
        }
        let end = self.run(at + 1, |byte| byte.is_ascii_digit()).min(at + 6);
        if end > at + 1 { end } else { at }
    }

    fn path(&self, at: usize) -> usize {
        let mut end = at;
        while self.byte(end) == Some(b'/') {
            end = self.encoded(end + 1, |byte| b";:@&=".contains(&byte));
        }
        end
    }

    fn file_path(&self, at: usize) -> Option<usize> {
        let mut end = at;
        while self.byte(end) == Some(b'/') {
            end = self.encoded(end + 1, |byte| b"?:@&=".contains(&byte));
        }
        (end > at).then_some(end)
    }

    fn query(&self, at: usize) -> usize {
        if self.byte(at) == Some(b'?') {
            self.encoded(at + 1, |byte| is_delimiter(byte) || b":@/?".contains(&byte))
        } else {
            at
        }
    }

    fn fragment(&self, at: usize) -> usize {
        if self.byte(at) == Some(b'#') {
            self.encoded(at + 1, |byte| is_delimiter(byte) || b":@/?".contains(&byte))
        } else {
            at
        }
    }

    /// Returns a host that needs no scheme, since its domain is known.
    fn without_scheme(&mut self, at: usize) -> Option<Url> {
        let mut hosts = self.domain(at);
        hosts.extend(self.ipv4(at));
        hosts.extend(self.ipv6(at));
        let mut best: Option<Url> = None;
        for host in hosts {
            let end = self.fragment(self.query(self.path(self.port(host))));
            let url = if self.flavour == Flavour::Clouseau || end > host || host == self.text.len()
            {
                Url {
                    read: end,
                    end: Some(end),
                }
            } else {
                // Lucene 9 reads one character more: a directly following word makes the host
                // invalid.
                let next = self.text[host..].chars().next().map_or(0, char::len_utf8);
                let goes_on = self.text[host..]
                    .starts_with(|next: char| next == '-' || next == '_' || next.is_alphanumeric());
                Url {
                    read: host + next,
                    end: (!goes_on).then_some(host),
                }
            };
            if best.as_ref().is_none_or(|best| url.read > best.read) {
                best = Some(url);
            }
        }
        best
    }
}
