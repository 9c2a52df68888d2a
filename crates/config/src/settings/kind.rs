//! Kinds of values: the allowed texts of a setting, and the parsed value for a program.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The form of a value in an editor of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `true` or `false`.
    Bool,
    /// A whole number, or a word for "unlimited".
    Integer,
    /// A number that may have a fraction.
    Number,
    /// A whole number of the unit that the setting names.
    Duration,
    /// Words separated by commas.
    List,
    /// Any other text.
    Text,
}

impl Shape {
    /// Its name, as APIs have it.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Bool => "bool",
            Shape::Integer => "integer",
            Shape::Number => "number",
            Shape::Duration => "duration",
            Shape::List => "list",
            Shape::Text => "text",
        }
    }
}

/// A kind of value. The types that implement it have no values of their own: they only name a kind.
pub trait Kind {
    /// The type of the parsed value.
    type Value;

    /// The value that a text stands for; `None` for a text that is not of this kind.
    fn parse(text: &str) -> Option<Self::Value>;

    /// The values that are allowed, for the message about an invalid text.
    fn expected() -> String;

    /// The form that editors of settings show.
    const SHAPE: Shape;

    /// The words that it is one of, if it is one of a few.
    fn choices() -> &'static [&'static str] {
        &[]
    }

    /// The value when nothing is set and there is no default; `None` when there must be one.
    fn unset() -> Option<Self::Value> {
        None
    }
}

/// A setting that need not have a value.
impl<K: Kind> Kind for Option<K> {
    type Value = Option<K::Value>;

    const SHAPE: Shape = K::SHAPE;

    fn choices() -> &'static [&'static str] {
        K::choices()
    }

    fn parse(text: &str) -> Option<Self::Value> {
        K::parse(text).map(Some)
    }

    fn expected() -> String {
        K::expected()
    }

    fn unset() -> Option<Self::Value> {
        Some(None)
    }
}

/// Declares a kind: its description, its name, the type of its values, its shape, the expected
/// texts, and the parser.
macro_rules! kind {
    ($(#[doc = $doc:literal])+ $kind:ident: $value:ty, $shape:ident, $expected:literal, $parse:expr) => {
        $(#[doc = $doc])+
        pub enum $kind {}

        impl Kind for $kind {
            type Value = $value;

            const SHAPE: Shape = Shape::$shape;

            fn parse(text: &str) -> Option<$value> {
                $parse(text)
            }

            fn expected() -> String {
                $expected.to_owned()
            }
        }
    };
}

kind! {
    /// Any text.
    Text: String, Text, "text", |text: &str| Some(text.to_owned())
}
kind! {
    /// Words separated by commas, without the white space around them and without empty ones.
    Words: Vec<String>, List, "words separated by commas", |text: &str| Some(words(text))
}
kind! {
    /// `true` or `false`.
    Bool: bool, Bool, "true or false", |text: &str| text.parse().ok()
}
kind! {
    /// A whole number from 0.
    Int: u64, Integer, "a whole number", number
}
kind! {
    /// A whole number from 0, of things or bytes in memory. More than there can be is as many as there can be.
    Count: usize, Integer, "a whole number",
    |text: &str| number(text).map(|n| usize::try_from(n).unwrap_or(usize::MAX))
}
kind! {
    /// A whole number from 0, or `infinity`, which is [`u64::MAX`].
    Limit: u64, Integer, "a whole number or infinity",
    |text: &str| if text == "infinity" { Some(u64::MAX) } else { number(text) }
}
kind! {
    /// A whole number of milliseconds.
    Milliseconds: Duration, Duration, "a whole number", |text: &str| number(text).map(Duration::from_millis)
}
kind! {
    /// A whole number of seconds.
    Seconds: Duration, Duration, "a whole number", |text: &str| number(text).map(Duration::from_secs)
}
kind! {
    /// A period such as `30_min` or `2_weeks`, or `infinity`, which is [`u64::MAX`]: in seconds.
    Period: u64, Text, "a number, _ and a unit (30_min, 8_hours, 2_days), or infinity", period_s
}
kind! {
    /// A [`Period`], as written in the configuration.
    PeriodText: String, Text, "a number, _ and a unit (30_min, 8_hours, 2_days), or infinity",
    |text: &str| period_s(text).map(|_| text.to_owned())
}
kind! {
    /// A number, which may have a fraction.
    Ratio: f64, Number, "a number", |text: &str| text.parse().ok().filter(|n: &f64| n.is_finite())
}
kind! {
    /// A part of a whole.
    Share: f64, Number, "a number from 0 to 1", |text: &str| text.parse().ok().filter(|n| (0.0..=1.0).contains(n))
}
kind! {
    /// A TCP port.
    Port: u16, Integer, "a whole number up to 65535", |text: &str| text.parse().ok()
}
kind! {
    /// An IP address; also `localhost`, and `any` for all.
    Address: IpAddr, Text, "an IP address", address
}

kind! {
    /// The name of a node, which stands in paths and in the JSON of answers.
    NodeName: String, Text, "name@host", |text: &str| {
        let is_plain = |part: &str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:[]".contains(&b);
            !part.is_empty() && part.bytes().all(plain)
        };
        let (local, host) = text.split_once('@')?;
        (is_plain(local) && is_plain(host)).then(|| text.to_owned())
    }
}

/// A whole number from `MIN` to `MAX`.
pub enum BoundedInteger<const MIN: u32, const MAX: u32> {}

impl<const MIN: u32, const MAX: u32> Kind for BoundedInteger<MIN, MAX> {
    type Value = u32;

    const SHAPE: Shape = Shape::Integer;

    fn parse(text: &str) -> Option<u32> {
        text.parse().ok().filter(|n| (MIN..=MAX).contains(n))
    }

    fn expected() -> String {
        format!("a whole number from {MIN} to {MAX}")
    }
}

/// A number of shards.
pub type Shards = BoundedInteger<1, 256>;

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// Reads a period as CouchDB's plugins do, in seconds. `infinity` is [`u64::MAX`], and so is CouchDB's
/// `restart`, which means only at the start.
fn period_s(text: &str) -> Option<u64> {
    match text {
        "infinity" | "restart" => Some(u64::MAX),
        period => document::period_s(period),
    }
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(',').map(str::trim);
    words
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn address(text: &str) -> Option<IpAddr> {
    match text {
        "any" => Some(Ipv4Addr::UNSPECIFIED.into()),
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        text => text.parse().ok(),
    }
}

/// Declares an enum whose values a setting names, each by one word or more, and the kind of that setting.
macro_rules! choice {
    (
        $(#[doc = $about:literal])+
        pub enum $Choice:ident $(in any $case:ident)? {
            $( $(#[doc = $doc:literal])+ $Value:ident = $word:literal $(| $synonym:literal)*, )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $Choice {
            $( $(#[doc = $doc])+ $Value, )+
        }

        impl $crate::settings::kind::Kind for $Choice {
            type Value = $Choice;

            const SHAPE: $crate::settings::kind::Shape = $crate::settings::kind::Shape::Text;

            fn choices() -> &'static [&'static str] {
                &[$( $word, $($synonym,)* )+]
            }

            fn parse(text: &str) -> Option<$Choice> {
                match choice!(@text text $($case)?) {
                    $( $word $(| $synonym)* => Some($Choice::$Value), )+
                    _ => None,
                }
            }

            fn expected() -> String {
                format!("one of {}", Self::choices().join(", "))
            }
        }
    };
    (@text $text:ident) => { $text };
    (@text $text:ident case) => { $text.to_ascii_lowercase().as_str() };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    choice! {
        /// For these tests.
        pub enum Colour {
            /// Like the sky.
            Blue = "blue" | "azure",
            /// Like snow.
            White = "white",
        }
    }

    choice! {
        /// For these tests.
        pub enum Taste in any case {
            /// Like sugar.
            Sweet = "sweet",
        }
    }

    #[test]
    fn texts_of_another_kind_have_no_value() {
        assert_eq!(Bool::parse("yes"), None);
        assert_eq!(Int::parse("-1"), None);
        assert_eq!(Int::parse("infinity"), None);
        assert_eq!(Milliseconds::parse("1s"), None);
        assert_eq!(Port::parse("65536"), None);
        assert_eq!(Address::parse("127.0.0.300"), None);
        assert_eq!(Colour::parse("red"), None);
        for text in ["inf", "nan", "x"] {
            assert_eq!(Ratio::parse(text), None, "{text}");
        }
        for text in ["0", "257", "-1", "4294967297"] {
            assert_eq!(Shards::parse(text), None, "{text}");
        }
    }

    #[test]
    fn texts_have_the_value_that_they_stand_for() {
        assert_eq!(Limit::parse("infinity"), Some(u64::MAX));
        assert_eq!(Seconds::parse("2"), Some(Duration::from_secs(2)));
        assert_eq!(Milliseconds::parse("2"), Some(Duration::from_millis(2)));
        assert_eq!(Address::parse("any"), Some(Ipv4Addr::UNSPECIFIED.into()));
        assert_eq!(Shards::parse("256"), Some(256));
        assert_eq!(Words::parse(" a, b,,"), Some(vec!["a".into(), "b".into()]));
        assert_eq!(Colour::parse("azure"), Some(Colour::Blue));
        assert_eq!(Colour::parse("white"), Some(Colour::White));
        assert_eq!(Colour::parse("White"), None);
        assert_eq!(Taste::parse("Sweet"), Some(Taste::Sweet));
        assert_eq!(Taste::parse("sour"), None);
        assert_eq!(Colour::expected(), "one of blue, azure, white");
        assert_eq!(<Option<Colour>>::choices(), ["blue", "azure", "white"]);
        assert_eq!(<Option<Seconds>>::SHAPE, Shape::Duration);
        assert_eq!(<Option<Int>>::unset(), Some(None));
        assert_eq!(Int::unset(), None);
    }

    proptest! {
        #[test]
        fn numbers_are_read_as_they_are_written(n: u64) {
            let text = n.to_string();
            prop_assert_eq!(Int::parse(&text), Some(n));
            prop_assert_eq!(Limit::parse(&text), Some(n));
            prop_assert_eq!(Port::parse(&text), u16::try_from(n).ok());
        }
    }
}
