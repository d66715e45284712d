//! Kubernetes quantities (`100m`, `1.5Gi`, `12e6`), parsed by the rules of
//! `k8s.io/apimachinery/pkg/api/resource`.
//!
//! A quantity is parsed exactly, as a decimal number times a power of ten or of two. If an integer is needed,
//! the quantity is rounded up (away from zero), as `Quantity.Value()` and `Quantity.MilliValue()` do.
//! Kubernetes does not refuse numbers that are too large for an `i64`: its arithmetic overflows, and its
//! scheduler uses the result, which may be zero or negative. This module computes the same result, with one
//! exception: a negative number that does not fit becomes `i64::MIN`. Such negative numbers do not matter to
//! the autoscaler.

use thiserror::Error;

/// The error for a text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{text}` is not a quantity: expected a number with an optional suffix such as `m`, `k`, `Mi`, `Gi` or `e3`"
)]
pub struct QuantityError {
    /// The text.
    pub text: String,
}

/// The value of a quantity in thousandths, rounded up. CPU is compared in this unit.
pub fn milli(text: &str) -> Result<i64, QuantityError> {
    scaled(text, 3)
}

/// The value of a quantity in units, rounded up. Memory, storage and counts are compared in this unit.
pub fn units(text: &str) -> Result<i64, QuantityError> {
    scaled(text, 0)
}

/// Like [`units`], but a value that is too large for an `i64` becomes `i64::MAX`. Used for settings, and for
/// quantities that Kubernetes compares exactly (`Cmp`).
pub fn limited(text: &str) -> Result<i64, QuantityError> {
    Written::read(text).map(|written| saturated(written.magnitude(0)))
}

/// Like [`milli`], but a value that is too large for an `i64` becomes `i64::MAX`.
pub fn limited_milli(text: &str) -> Result<i64, QuantityError> {
    Written::read(text).map(|written| saturated(written.magnitude(3)))
}

fn saturated(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// Returns the fraction `part` of this many bytes, for example of a host's memory.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "exact enough for a host's memory"
)]
pub fn share(bytes: i64, part: f64) -> i64 {
    if (part - 1.0).abs() < f64::EPSILON { bytes } else { (bytes as f64 * part) as i64 }
}

/// Formats bytes as the shortest exact binary quantity, e.g. `8Gi`.
pub fn binary(bytes: i64) -> String {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut amount = bytes;
    let mut step = 0;
    while amount != 0 && amount % 1024 == 0 && step + 1 < SUFFIXES.len() {
        amount /= 1024;
        step += 1;
    }
    format!("{amount}{}", SUFFIXES[step])
}

/// Formats thousandths as the shortest exact decimal quantity, e.g. `3900m` or `4`.
pub fn from_milli(milli: i64) -> String {
    if milli % 1000 == 0 { format!("{}", milli / 1000) } else { format!("{milli}m") }
}

/// The value of a quantity in billionths, rounded up. Kubernetes supports no smaller unit.
pub(super) fn nano(text: &str) -> Result<i128, QuantityError> {
    magnitude(text, 9)
}

/// `text` × 10^`shift`, rounded up (away from zero).
fn scaled(text: &str, shift: i32) -> Result<i64, QuantityError> {
    let written = Written::read(text)?;
    let exact = written.magnitude(shift);
    Ok(i64::try_from(exact).unwrap_or_else(|_| written.overflown(shift)))
}

/// `text` × 10^`shift`, rounded up (away from zero), without the limits of an `i64`.
fn magnitude(text: &str, shift: i32) -> Result<i128, QuantityError> {
    Ok(Written::read(text)?.magnitude(shift))
}

/// A parsed quantity, with the number and the suffix as they were written.
struct Written {
    negative: bool,
    /// All digits, including those after the point.
    mantissa: u128,
    digits: usize,
    /// The number of digits after the point.
    places: i32,
    /// The power of ten that the suffix stands for.
    tens: i32,
    doublings: u32,
}

impl Written {
    fn read(text: &str) -> Result<Self, QuantityError> {
        let wrong = || QuantityError { text: text.to_owned() };
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(wrong());
        }
        let (tens, doublings) = factor(suffix).ok_or_else(wrong)?;
        let digits = format!("{}{fraction}", whole.trim_start_matches('0'));
        let significant = digits.trim_start_matches('0');
        if significant.len() > 30 {
            return Err(wrong());
        }
        let mantissa = if significant.is_empty() { 0 } else { significant.parse().map_err(|_| wrong())? };
        let places = i32::try_from(fraction.len()).map_err(|_| wrong())?;
        Ok(Self { negative, mantissa, digits: digits.len(), places, tens, doublings })
    }

    fn magnitude(&self, shift: i32) -> i128 {
        let magnitude = round_up(self.mantissa, self.doublings, self.tens + shift - self.places);
        // The sign is applied to an `i128`, because `i64::MIN` is a valid quantity but has no positive
        // counterpart in an `i64`.
        let value = i128::try_from(magnitude).unwrap_or(i128::MAX);
        if self.negative { -value } else { value }
    }

    /// The value that Kubernetes computes for a positive quantity that does not fit an `i64`. Kubernetes has
    /// two representations of quantities, and checks for overflow in neither.
    fn overflown(&self, shift: i32) -> i64 {
        if self.negative {
            return i64::MIN;
        }
        if self.doublings > 0 {
            // Kubernetes caps only quantities with a binary suffix, and does so before it scales them.
            let whole = round_up(self.mantissa, self.doublings, self.tens - self.places);
            low(whole.min(u128::from(i64::MAX.unsigned_abs())), shift)
        } else if self.digits <= 18 && self.tens - self.places >= -9 {
            // Kubernetes stores this quantity as a 64-bit number and a power of ten. For the powers of ten
            // listed below, it scales the number in one multiplication, and a result that does not fit wraps
            // around. For other powers, it multiplies step by step, and a result that does not fit becomes
            // zero.
            match self.tens - self.places + shift {
                tens @ (1 | 2 | 3 | 6 | 9) => low(self.mantissa, tens),
                _ => 0,
            }
        } else {
            low(self.mantissa, self.tens - self.places + shift)
        }
    }
}

/// The lowest 64 bits of `mantissa` × 10^`tens`, rounded up.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "only the lowest 64 bits are needed"
)]
fn low(mantissa: u128, tens: i32) -> i64 {
    match u32::try_from(tens) {
        Ok(tens) => (mantissa as u64).wrapping_mul(10_u64.wrapping_pow(tens)) as i64,
        Err(_) => round_up(mantissa, 0, tens) as i64,
    }
}

/// `mantissa × 2^doublings × 10^tens`, rounded up and saturating.
fn round_up(mantissa: u128, doublings: u32, tens: i32) -> u128 {
    let Some(mut value) = mantissa.checked_mul(1_u128 << doublings) else { return u128::MAX };
    if tens >= 0 {
        for _ in 0..tens {
            value = match value.checked_mul(10) {
                Some(value) => value,
                None => return u128::MAX,
            };
        }
        return value;
    }
    let mut rest = false;
    for _ in tens..0 {
        rest |= value % 10 != 0;
        value /= 10;
    }
    value + u128::from(rest)
}

/// The factor that a suffix stands for, as (power of ten, power of two).
fn factor(suffix: &str) -> Option<(i32, u32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let tens: i32 = exponent.parse().ok()?;
            (tens.clamp(-40, 40), 0)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        let cases = [
            ("0", 0, 0),
            ("1", 1, 1000),
            ("100m", 1, 100),
            ("1.5", 2, 1500),
            (".5", 1, 500),
            ("5.", 5, 5000),
            ("-1", -1, -1000),
            ("+2", 2, 2000),
            ("1k", 1000, 1_000_000),
            ("12e6", 12_000_000, 12_000_000_000),
            ("12E6", 12_000_000, 12_000_000_000),
            ("1e-3", 1, 1),
            ("1E", 1_000_000_000_000_000_000, 0),
            ("1Ki", 1024, 1_024_000),
            ("1.5Gi", 1_610_612_736, 1_610_612_736_000),
            ("0.1Ki", 103, 102_400),
            ("1n", 1, 1),
            ("100u", 1, 1),
        ];
        for (text, in_units, in_milli) in cases {
            assert_eq!(units(text), Ok(in_units), "{text}");
            assert_eq!(milli(text), Ok(in_milli), "{text}");
        }
    }

    /// The expected values come from `Value()` and `MilliValue()` in apimachinery 0.37.2.
    #[test]
    fn what_no_i64_holds_counts_as_it_counts_in_kubernetes() {
        let cases = [
            ("9223372036854775807", i64::MAX, -1000),
            ("9223372036854775808", i64::MIN, 0),
            ("9223372036854775809", -9_223_372_036_854_775_807, 1000),
            ("18446744073709551616", 0, 0),
            ("9E", 9_000_000_000_000_000_000, 0),
            ("9.2E", 9_200_000_000_000_000_000, 0),
            ("9.3E", 0, 0),
            ("10E", 0, 0),
            ("100E", 0, 0),
            ("1e18", 1_000_000_000_000_000_000, 0),
            ("1e19", 0, 0),
            ("9e18", 9_000_000_000_000_000_000, 0),
            ("10e18", 0, 0),
            ("92e17", 9_200_000_000_000_000_000, 0),
            ("93e17", 0, 0),
            ("1e20", 0, 0),
            ("1e30", 0, 0),
            ("10000P", 0, 0),
            ("9223P", 9_223_000_000_000_000_000, 0),
            ("9224P", 0, 0),
            ("9223372036854775807m", 9_223_372_036_854_776, i64::MAX),
            ("9223372036854775808m", 9_223_372_036_854_776, i64::MIN),
            ("9223372036854775807k", -1000, -1_000_000),
            ("1000000000000000000000", 3_875_820_019_684_212_736, 2_003_764_205_206_896_640),
            ("7Ei", 8_070_450_532_247_928_832, i64::MIN),
            ("8Ei", i64::MAX, -1000),
            ("9Ei", i64::MAX, -1000),
            ("16Ei", i64::MAX, -1000),
            ("15.9Ei", i64::MAX, -1000),
            ("8191Pi", 9_222_246_136_947_933_184, -1_125_899_906_842_624_000),
            ("8192Pi", i64::MAX, -1000),
            ("1E", 1_000_000_000_000_000_000, 0),
            ("10P", 10_000_000_000_000_000, 0),
            ("0.5E", 500_000_000_000_000_000, 0),
            ("9223372036854776", 9_223_372_036_854_776, -9_223_372_036_854_775_616),
            ("9223372036854775", 9_223_372_036_854_775, 9_223_372_036_854_775_000),
            ("9007199254740993", 9_007_199_254_740_993, 9_007_199_254_740_993_000),
            ("92233720368547758", 92_233_720_368_547_758, -80),
            ("1e16", 10_000_000_000_000_000, 0),
            ("9.3e15", 9_300_000_000_000_000, 0),
            ("10000000000000000", 10_000_000_000_000_000, -8_446_744_073_709_551_616),
            ("100000000000000000000m", 100_000_000_000_000_000, 7_766_279_631_452_241_920),
            ("12345678901234567890", -6_101_065_172_474_983_726, 4_807_115_922_877_858_896),
            ("0.00000000000000000000001E", 1, 1),
            ("1.0000000001", 2, 1001),
            ("12.345678901234567890123", 13, 12346),
            ("4611686018427387904000m", 4_611_686_018_427_387_904, 0),
            ("9999999999999999999", -8_446_744_073_709_551_617, 1_864_712_049_423_023_128),
            ("99999999999999999999", 7_766_279_631_452_241_919, 200_376_420_520_688_664),
        ];
        for (text, in_units, in_milli) in cases {
            assert_eq!(units(text), Ok(in_units), "{text}");
            assert_eq!(milli(text), Ok(in_milli), "{text}");
        }
    }

    #[test]
    fn what_is_compared_exactly_ends_at_the_limit() {
        for (text, in_units, in_milli) in [
            ("10E", i64::MAX, i64::MAX),
            ("9223372036854775808", i64::MAX, i64::MAX),
            ("-10E", i64::MIN, i64::MIN),
            ("1500m", 2, 1500),
        ] {
            assert_eq!(limited(text), Ok(in_units), "{text}");
            assert_eq!(limited_milli(text), Ok(in_milli), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "-", ".", "1.2.3", "1 Gi", "Gi", "1gi", "1KiB", "1e", "0x10", "1_000", "ten", "1mm"]
        {
            assert!(units(text).is_err(), "{text}");
        }
    }

    #[test]
    fn amounts_are_written_in_their_shortest_exact_form() {
        let cases =
            [(0, "0"), (1, "1"), (1024, "1Ki"), (8 << 30, "8Gi"), (1500 << 20, "1500Mi"), (1000, "1000")];
        for (bytes, text) in cases {
            assert_eq!(binary(bytes), text);
            assert_eq!(units(text), Ok(bytes));
        }
        assert_eq!(from_milli(3900), "3900m");
        assert_eq!(from_milli(4000), "4");
        assert_eq!(milli(&from_milli(i64::MIN)), Ok(i64::MIN));
    }
}
