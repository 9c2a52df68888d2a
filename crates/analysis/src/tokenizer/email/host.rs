//! Names of hosts, and their numbers.

use super::Reader;
use crate::analyzer::Flavour;
use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::sync::LazyLock;

/// The longest top-level domain.
const LONGEST_DOMAIN: usize = 24;

static DOMAINS_4: LazyLock<HashSet<&str>> =
    LazyLock::new(|| domains(include_str!("../../tables/domains46.txt")));
static DOMAINS_9: LazyLock<HashSet<&str>> =
    LazyLock::new(|| domains(include_str!("../../tables/domains9.txt")));

fn domains(list: &'static str) -> HashSet<&'static str> {
    list.lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::split_whitespace)
        .collect()
}

/// The run of labels that was parsed last, so that it is parsed once however many words start in
/// it.
#[derive(Default)]
pub(super) struct Hosts {
    start: usize,
    end: usize,
    /// The last point of the run with a top-level domain after it.
    last_point: Option<usize>,
}

fn is_label(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

impl Reader<'_> {
    /// Returns the end of one label: letters and digits, and hyphens between them.
    fn label(&self, at: usize) -> Option<usize> {
        self.byte(at).filter(u8::is_ascii_alphanumeric)?;
        let mut end = self.run(at, is_label);
        while self.text.as_bytes()[end - 1] == b'-' {
            end -= 1;
        }
        Some(end)
    }

    /// Returns the end of labels with points between them, from the start of one.
    pub(super) fn labels(&self, at: usize) -> Option<usize> {
        let mut end = self.label(at)?;
        while self.byte(end) == Some(b'.')
            && let Some(next) = self.label(end + 1)
        {
            end = next;
        }
        Some(end)
    }

    /// Returns the ends of top-level domains after the point at `point`: each alone and with a
    /// point after it.
    fn domain_ends(&self, point: usize) -> Vec<usize> {
        let known = match self.flavour {
            Flavour::Clouseau => &*DOMAINS_4,
            Flavour::Nouveau => &*DOMAINS_9,
        };
        let longest = self
            .run(point + 1, is_label)
            .min(point + 1 + LONGEST_DOMAIN);
        let label = self.text[point + 1..longest].to_ascii_lowercase();
        let mut ends = Vec::new();
        for len in (2..=label.len()).filter(|len| known.contains(&label[..*len])) {
            let end = point + 1 + len;
            ends.push(end);
            if self.byte(end) == Some(b'.') {
                ends.push(end + 1);
            }
        }
        ends
    }

    /// Returns the ends of a name with a top-level domain at `at`: of the last domain in the run of
    /// labels.
    pub(super) fn domain(&mut self, at: usize) -> Vec<usize> {
        let is_known =
            self.hosts.start <= at && at < self.hosts.end && self.flavour == Flavour::Clouseau;
        if !is_known {
            let Some(end) = self.labels(at) else {
                return Vec::new();
            };
            let points = self.text[at..end]
                .rmatch_indices('.')
                .map(|(offset, _)| at + offset);
            let last_point = points
                .into_iter()
                .find(|point| !self.domain_ends(*point).is_empty());
            self.hosts = Hosts {
                start: at,
                end,
                last_point,
            };
        }
        match self.hosts.last_point {
            Some(point) if point > at && self.text.as_bytes()[at].is_ascii_alphanumeric() => {
                self.domain_ends(point)
            }
            _ => Vec::new(),
        }
    }

    /// Returns the end of four numbers up to 255.
    pub(super) fn ipv4(&self, at: usize) -> Option<usize> {
        let mut end = at;
        for part in 0..4 {
            if part > 0 {
                self.byte(end).filter(|byte| *byte == b'.')?;
                end += 1;
            }
            let digits = self.run(end, |byte| byte.is_ascii_digit()).min(end + 3);
            let longest = (end + 1..=digits).rev().find(|to| {
                self.text[end..*to]
                    .parse::<u16>()
                    .is_ok_and(|number| number < 256)
            })?;
            end = longest;
        }
        Some(end)
    }

    /// Returns the end of `[…]` around an IPv6 address.
    pub(super) fn ipv6(&self, at: usize) -> Option<usize> {
        self.byte(at).filter(|byte| *byte == b'[')?;
        let end = self.run(at + 1, |byte| {
            byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.')
        });
        self.byte(end).filter(|byte| *byte == b']')?;
        self.text[at + 1..end]
            .parse::<Ipv6Addr>()
            .ok()
            .map(|_| end + 1)
    }
}
