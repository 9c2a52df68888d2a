//! Room for the texts of one request's refusals. Functions and clients choose them, and all are
//! kept until the response is sent.

use std::borrow::Cow;

use functions::Error as FunctionError;

/// Error and reason.
type Refusal = (Cow<'static, str>, Cow<'static, str>);

/// The refusals of one request have texts of this length in total, in bytes.
const REFUSALS_BYTES_MAX: usize = 4 << 20;
/// The reason of a refusal whose own text has no room.
const NO_ROOM: &str = "the reasons of this request's refusals are longer than 4 MiB together";
/// Its error, if a function chose the name.
const NO_NAME: &str = "unknown_error";

/// The room that is left.
pub(crate) struct RefusalRoom {
    free_bytes: usize,
}

impl RefusalRoom {
    /// Returns the room of a request.
    pub fn new() -> RefusalRoom {
        RefusalRoom {
            free_bytes: REFUSALS_BYTES_MAX,
        }
    }

    /// Returns the refusal of an edit by a function.
    pub fn refused(&mut self, e: &FunctionError) -> Refusal {
        let error = match e.fixed_name() {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(e.name().to_owned()),
        };
        self.keep(error, e.reason().into())
    }

    /// Returns a refusal with these texts, or with others if there is no room for them.
    pub fn keep(&mut self, error: Cow<'static, str>, reason: Cow<'static, str>) -> Refusal {
        let bytes = owned_bytes([&error, &reason]);
        if let Some(free_bytes) = self.free_bytes.checked_sub(bytes) {
            self.free_bytes = free_bytes;
            return (error, reason);
        }
        let error = match error {
            Cow::Borrowed(error) => error,
            Cow::Owned(_) => NO_NAME,
        };
        (error.into(), NO_ROOM.into())
    }
}

/// Returns the memory of these texts, in bytes.
fn owned_bytes(texts: [&Cow<'static, str>; 2]) -> usize {
    let bytes = texts.map(|text| match text {
        Cow::Borrowed(_) => 0,
        Cow::Owned(text) => text.len(),
    });
    bytes.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusals_of_a_request_share_a_bound_however_many_there_are() {
        let long = || "x".repeat(64 << 10);
        let mut room = RefusalRoom::new();
        let (mut bytes, mut whole) = (0, 0);
        for n in 0..10_000 {
            let e = match n % 3 {
                0 => FunctionError::Forbidden(long()),
                1 => FunctionError::Forbidden("no such order".to_owned()),
                _ => FunctionError::Thrown {
                    name: "taken".to_owned(),
                    reason: "elsewhere".to_owned(),
                },
            };
            let (error, reason) = room.refused(&e);
            assert!(["forbidden", "taken", NO_NAME].contains(&error.as_ref()));
            bytes += owned_bytes([&error, &reason]);
            whole += usize::from(reason != NO_ROOM);
        }
        assert!(bytes <= REFUSALS_BYTES_MAX, "{bytes}");
        assert!(whole >= 3 * 60, "{whole} are whole");
        // A rule may repeat a text of the client.
        let (_, reason) = room.keep("forbidden".into(), long().into());
        assert_eq!(reason, NO_ROOM);
    }

    #[test]
    fn short_refusals_are_whole() {
        let mut room = RefusalRoom::new();
        for n in 0..100_000 {
            let expected = format!("order {n}");
            let (_, reason) = room.refused(&FunctionError::Forbidden(expected.clone()));
            assert_eq!(reason, expected);
        }
    }
}
