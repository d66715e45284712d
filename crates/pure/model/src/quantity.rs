//! Kubernetes quantities (`100m`, `1.5Gi`, `12e6`), by the rules of `k8s.io/apimachinery/pkg/api/resource`.
//!
//! A quantity is read exactly, as a rational number with a power of ten or of two as its factor, and rounded
//! up where an integer is asked for, as `Quantity.Value()` and `Quantity.MilliValue()` do.

use thiserror::Error;

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{text}` is not a quantity: expected a number with an optional suffix such as `m`, `k`, `Mi`, `Gi` or `e3`"
)]
pub struct QuantityError {
    /// The text as it was written.
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

/// A part of an amount in bytes, e.g. what an overcommit allows of a host's memory.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "bytes of a host, and to the page"
)]
pub fn share(bytes: i64, part: f64) -> i64 {
    if (part - 1.0).abs() < f64::EPSILON { bytes } else { (bytes as f64 * part) as i64 }
}

/// Bytes as the shortest exact binary quantity, e.g. `8Gi`.
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

/// Thousandths as the shortest exact decimal quantity, e.g. `3900m` or `4`.
pub fn from_milli(milli: i64) -> String {
    if milli % 1000 == 0 { format!("{}", milli / 1000) } else { format!("{milli}m") }
}

/// The value of a quantity in thousand-millionths, rounded up. Nothing smaller is known.
pub(super) fn nano(text: &str) -> Result<i128, QuantityError> {
    magnitude(text, 9)
}

/// `text` × 10^`shift`, rounded up (away from zero), saturating at the limits of `i64` as Kubernetes does.
fn scaled(text: &str, shift: i32) -> Result<i64, QuantityError> {
    let value = magnitude(text, shift)?;
    Ok(i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX }))
}

/// The same without these limits.
fn magnitude(text: &str, shift: i32) -> Result<i128, QuantityError> {
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
    let (decimal, doublings) = factor(suffix).ok_or_else(wrong)?;
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Ok(0);
    }
    if digits.len() > 30 {
        return Err(wrong());
    }
    let mantissa: u128 = digits.parse().map_err(|_| wrong())?;
    let places = i32::try_from(fraction.len()).map_err(|_| wrong())?;
    let magnitude = round_up(mantissa, doublings, decimal + shift - places);
    // The least value has no positive counterpart: it is a value all the same, and what is written of it is
    // read again.
    let value = i128::try_from(magnitude).unwrap_or(i128::MAX);
    Ok(if negative { -value } else { value })
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

/// The suffix as (power of ten, power of two).
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
            ("1E", 1_000_000_000_000_000_000, i64::MAX),
            ("1Ki", 1024, 1_024_000),
            ("1.5Gi", 1_610_612_736, 1_610_612_736_000),
            ("0.1Ki", 103, 102_400),
            ("1n", 1, 1),
            ("100u", 1, 1),
            ("9Ei", i64::MAX, i64::MAX),
            ("-9Ei", i64::MIN, i64::MIN),
            ("-9223372036854775808", i64::MIN, i64::MIN),
            ("-9223372036854775807", -i64::MAX, i64::MIN),
        ];
        for (text, in_units, in_milli) in cases {
            assert_eq!(units(text), Ok(in_units), "{text}");
            assert_eq!(milli(text), Ok(in_milli), "{text}");
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
