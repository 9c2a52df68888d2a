//! Numbers as Erlang has them: integers of any size, and doubles.

use std::cmp::Ordering;

use document::Collator;
use document::json::{self, read_number, write_float};
use num_bigint::BigInt;

/// A sum or a product is larger than all doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overflow;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Number {
    Integer(i128),
    /// A number that does not fit into the other variant.
    Large(Box<BigInt>),
    Float(f64),
}

impl Number {
    pub(super) const ZERO: Self = Self::Integer(0);

    /// Returns the number that is all of a text.
    #[inline]
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        if !matches!(text.first(), Some(b'-' | b'0'..=b'9')) {
            return None;
        }
        let (number, end) = read_number(text, 0).ok()?;
        (end == text.len()).then(|| Self::from_json(number))
    }

    #[inline]
    pub(super) fn from_json(number: json::Number<'_>) -> Self {
        match number {
            json::Number::Integer {
                negative,
                magnitude,
            } => {
                let magnitude = i128::from(magnitude);
                Self::Integer(if negative { -magnitude } else { magnitude })
            }
            json::Number::Float(number) => Self::Float(number),
            json::Number::BigInteger { negative, digits } => {
                let magnitude = BigInt::parse_bytes(digits, 10).unwrap_or_default();
                Self::from_large(if negative { -magnitude } else { magnitude })
            }
        }
    }

    #[cold]
    fn from_large(number: BigInt) -> Self {
        match i128::try_from(&number) {
            Ok(number) => Self::Integer(number),
            Err(_) => Self::Large(Box::new(number)),
        }
    }

    #[inline]
    pub(super) fn add(&mut self, other: &Self) -> Result<(), Overflow> {
        *self = match (&*self, other) {
            (Self::Integer(left), Self::Integer(right)) => match left.checked_add(*right) {
                Some(sum) => Self::Integer(sum),
                None => Self::Large(Box::new(BigInt::from(*left) + right)),
            },
            (Self::Float(left), Self::Float(right)) => finite(left + right)?,
            (left, right) => left.add_slowly(right)?,
        };
        Ok(())
    }

    fn add_slowly(&self, other: &Self) -> Result<Self, Overflow> {
        match (self, other) {
            (Self::Float(_), _) | (_, Self::Float(_)) => {
                finite(self.to_float()? + other.to_float()?)
            }
            _ => Ok(Self::from_large(self.to_large() + other.to_large())),
        }
    }

    #[inline]
    pub(super) fn square(&self) -> Result<Self, Overflow> {
        match self {
            Self::Float(number) => finite(number * number),
            Self::Integer(number) => Ok(number.checked_mul(*number).map_or_else(
                || Self::from_large(BigInt::from(*number) * number),
                Self::Integer,
            )),
            Self::Large(number) => Ok(Self::from_large(&**number * &**number)),
        }
    }

    /// Compares exactly.
    #[inline]
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Integer(left), Self::Integer(right)) => left.cmp(right),
            (Self::Float(left), Self::Float(right)) => {
                left.partial_cmp(right).unwrap_or(Ordering::Equal)
            }
            (left, right) => left.sort_key().cmp(&right.sort_key()),
        }
    }

    fn sort_key(&self) -> Vec<u8> {
        let (mut text, mut key) = (Vec::new(), Vec::new());
        self.write(&mut text);
        if Collator::root().write_sort_key(&text, &mut key).is_err() {
            // An integer with more digits than sort keys have: above or below all others.
            key.push(if text.starts_with(b"-") { 0 } else { u8::MAX });
        }
        key
    }

    fn to_float(&self) -> Result<f64, Overflow> {
        let number = match self {
            Self::Float(number) => *number,
            Self::Integer(number) => *number as f64,
            // Correctly rounded, and infinite when it is too large.
            Self::Large(number) => number.to_string().parse().unwrap_or(f64::INFINITY),
        };
        number.is_finite().then_some(number).ok_or(Overflow)
    }

    fn to_large(&self) -> BigInt {
        match self {
            Self::Integer(number) => BigInt::from(*number),
            Self::Large(number) => (**number).clone(),
            Self::Float(_) => BigInt::default(),
        }
    }

    /// Appends the number as CouchDB writes it.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Self::Large(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Self::Float(number) => write_float(*number, out),
        }
    }
}

#[inline]
fn finite(number: f64) -> Result<Number, Overflow> {
    if number.is_finite() {
        Ok(Number::Float(number))
    } else {
        Err(Overflow)
    }
}
