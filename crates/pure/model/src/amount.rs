//! Exact amounts: quantities that can be compared without rounding.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::quantity::{self, QuantityError};

/// Billionths in one.
const NANO: i128 = 1_000_000_000;

/// An exact amount, in billionths. Kubernetes does not support smaller fractions, and rounds them away from
/// zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i128);

impl Amount {
    /// Parses a quantity such as `1.5Gi`. An amount outside the range from `-i64::MAX` to `i64::MAX` units is
    /// clamped to this range.
    ///
    /// # Errors
    /// Returns an error if the text is not a quantity.
    pub fn read(text: &str) -> Result<Self, QuantityError> {
        let most = i128::from(i64::MAX) * NANO;
        Ok(Self(quantity::nano(text)?.clamp(-most, most)))
    }

    /// An amount of this many units.
    pub fn units(units: i64) -> Self {
        Self(i128::from(units) * NANO)
    }

    /// An amount of this many thousandths.
    pub fn milli(milli: i64) -> Self {
        Self(i128::from(milli) * 1_000_000)
    }

    /// The amount in units, rounded away from zero (`Quantity.Value()`).
    pub fn rounded_up(self) -> i64 {
        i64::try_from(up(self.0, NANO)).unwrap_or(if self.0 < 0 { i64::MIN } else { i64::MAX })
    }

    /// The amount in units. `None` if it is not a whole number of units, or does not fit an `i64`.
    pub fn whole(self) -> Option<i64> {
        (self.0 % NANO == 0).then(|| i64::try_from(self.0 / NANO).ok()).flatten()
    }

    /// The amount in thousandths. `None` if it is not a whole number of thousandths, or does not fit an
    /// `i64`.
    pub fn whole_milli(self) -> Option<i64> {
        let milli = NANO / 1000;
        (self.0 % milli == 0).then(|| i64::try_from(self.0 / milli).ok()).flatten()
    }

    /// The sign of the amount: -1, 0 or 1.
    pub fn sign(self) -> i64 {
        i64::from(self.0.signum() == 1) - i64::from(self.0.signum() == -1)
    }

    /// The approximate amount.
    #[expect(clippy::cast_precision_loss, reason = "an approximate value is requested")]
    pub fn approximate(self) -> f64 {
        self.0 as f64 / NANO as f64
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

fn up(amount: i128, unit: i128) -> i128 {
    let rest = i128::from(amount % unit != 0);
    amount / unit + rest * amount.signum()
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.whole() {
            Some(whole) if whole > 0 => f.write_str(&quantity::binary(whole)),
            Some(whole) => write!(f, "{whole}"),
            None => match self.whole_milli() {
                Some(milli) => write!(f, "{milli}m"),
                None => write!(f, "{}n", self.0),
            },
        }
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::read(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in
            ["0", "1", "80Gi", "1500m", "1n", "-3", "1Ki", "7", "8191Pi", "-1500m", "9223372036854775807"]
        {
            let amount = Amount::read(text).unwrap();
            assert_eq!(Amount::read(&amount.to_string()), Ok(amount), "{text} is written as {amount}");
        }
    }

    #[test]
    fn amounts_are_exact_and_capped() {
        let read = |text: &str| Amount::read(text).unwrap();
        assert_eq!(read("0.1"), read("100m"));
        assert!(read("100n") < read("101n"));
        assert_eq!(read("0.1n"), read("1n"), "rounded up to the smallest amount");
        assert_eq!(read("16Ei"), Amount::units(i64::MAX));
        assert_eq!((read("1500m").rounded_up(), read("-1500m").rounded_up()), (2, -2));
        assert_eq!((read("1500m").whole(), read("1500m").whole_milli()), (None, Some(1500)));
        assert_eq!((read("1u").whole_milli(), read("2k").whole()), (None, Some(2000)));
        assert_eq!((read("-1").sign(), read("0").sign(), read("1n").sign()), (-1, 0, 1));
        assert!(Amount::read("much").is_err());
    }
}
