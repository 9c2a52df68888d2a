//! A place in a trace, as headers say it: <https://www.w3.org/TR/trace-context/>.

use std::num::{NonZeroU64, NonZeroU128};

/// A trace, and a span of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The trace.
    pub trace: NonZeroU128,
    /// The span.
    pub span: NonZeroU64,
    /// Whether the spans of this trace are exported.
    pub is_sampled: bool,
}

/// Length of the header in version 00, in bytes.
const LENGTH: usize = 55;
/// The flag of sampled traces.
const SAMPLED: u8 = 1;

impl Context {
    /// Creates the root of a trace.
    pub fn root(is_sampled: bool) -> Context {
        Context {
            trace: random(|| NonZeroU128::new(fastrand::u128(..))),
            span: new_span(),
            is_sampled,
        }
    }

    /// Another span of the same trace.
    #[must_use]
    pub fn child(self) -> Context {
        Context {
            span: new_span(),
            ..self
        }
    }

    /// Parses a `traceparent` header; `None` for one that must be ignored.
    pub fn parse(header: &[u8]) -> Option<Context> {
        let (version, rest) = (number(header.get(..2)?)?, header.get(LENGTH..)?);
        // Later versions may have more after a dash; this one may not. The last one is forbidden.
        let is_known = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|next| *next == b'-'),
        };
        let dashes = [2, 35, 52].iter().all(|at| header[*at] == b'-');
        if !is_known || !dashes {
            return None;
        }
        let span = u64::try_from(number(&header[36..52])?).ok()?;
        let flags = u8::try_from(number(&header[53..LENGTH])?).ok()?;
        Some(Context {
            trace: NonZeroU128::new(number(&header[3..35])?)?,
            span: NonZeroU64::new(span)?,
            is_sampled: flags & SAMPLED != 0,
        })
    }

    /// Returns the header's text.
    pub fn header(self) -> String {
        let flags = u8::from(self.is_sampled) * SAMPLED;
        format!("00-{:032x}-{:016x}-{flags:02x}", self.trace, self.span)
    }
}

fn new_span() -> NonZeroU64 {
    random(|| NonZeroU64::new(fastrand::u64(..)))
}

fn random<T>(one: impl FnMut() -> Option<T>) -> T {
    match std::iter::repeat_with(one).find_map(|drawn| drawn) {
        Some(drawn) => drawn,
        None => unreachable!("the iterator does not end"),
    }
}

/// Parses lower-case hexadecimal digits. Upper-case ones are invalid in this header.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |sum, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(sum << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn headers_are_read_and_written() {
        let read = Context::parse(HEADER.as_bytes()).unwrap();
        assert_eq!(read.trace.get(), 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(read.span.get(), 0xb7ad_6b71_6920_3331);
        assert!(read.is_sampled);
        assert_eq!(read.header(), HEADER);
        for _ in 0..1000 {
            let made = Context::root(fastrand::bool());
            assert_eq!(Context::parse(made.header().as_bytes()), Some(made));
            let child = made.child();
            assert!(child.trace == made.trace && child.span != made.span);
            assert_eq!(child.is_sampled, made.is_sampled);
        }
    }

    #[test]
    fn what_is_no_header_is_none() {
        let none = [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01more",
            "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
        ];
        for header in none {
            assert_eq!(Context::parse(header.as_bytes()), None, "{header}");
        }
        let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03-more";
        assert!(Context::parse(later.as_bytes()).is_some_and(|c| c.is_sampled));
        let unsampled = HEADER.replace("-01", "-02");
        assert!(Context::parse(unsampled.as_bytes()).is_some_and(|c| !c.is_sampled));
    }

    #[test]
    fn no_bytes_panic() {
        for _ in 0..20_000 {
            let mut bytes = HEADER.as_bytes().to_vec();
            for _ in 0..fastrand::usize(1..4) {
                let at = fastrand::usize(..bytes.len());
                bytes[at] = fastrand::u8(..);
            }
            bytes.truncate(fastrand::usize(..=bytes.len()));
            let _ = Context::parse(&bytes);
        }
    }
}
