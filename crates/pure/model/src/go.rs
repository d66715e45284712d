//! Parses annotation values in the same way as the Go programs that define these annotations.

use jiff::SignedDuration;

/// The units that `time.ParseDuration` accepts, in nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// The largest absolute value of a duration, in nanoseconds. Only a negative duration can reach it.
const MOST: u64 = 1 << 63;

/// Parses a duration as `time.ParseDuration` does: `1h30m`, `-1.5h` and `0` are valid, `1d` is not.
pub fn duration(text: &str) -> Option<SignedDuration> {
    let (minus, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut sum: u64 = 0;
    loop {
        let (part, after) = first(rest)?;
        sum = sum.checked_add(part).filter(|sum| *sum <= MOST)?;
        rest = after;
        if rest.is_empty() {
            return signed(sum, minus);
        }
    }
}

fn signed(nanos: u64, minus: bool) -> Option<SignedDuration> {
    let nanos = if minus { 0_i64.checked_sub_unsigned(nanos)? } else { i64::try_from(nanos).ok()? };
    Some(SignedDuration::from_nanos(nanos))
}

/// Splits off the first number and its unit. Returns their value in nanoseconds, and the rest of the text.
fn first(text: &str) -> Option<(u64, &str)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = text.split_at(digits(text));
    let (part, rest) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(digits(rest)),
        None => ("", rest),
    };
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let (_, nanos) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let sum = whole.checked_mul(nanos).filter(|sum| *sum <= MOST)?;
    sum.checked_add(fraction(part, nanos)).filter(|sum| *sum <= MOST).map(|sum| (sum, rest))
}

/// Returns a fraction of a unit in nanoseconds, rounded down. `digits` are the digits after the decimal
/// point, and `nanos` is the length of the whole unit in nanoseconds.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Go computes this in floating point, and truncates"
)]
fn fraction(digits: &str, nanos: u64) -> u64 {
    let (mut value, mut scale): (u64, f64) = (0, 1.0);
    for digit in digits.bytes().map(|digit| u64::from(digit - b'0')) {
        let Some(next) = value.checked_mul(10).and_then(|value| value.checked_add(digit)) else { break };
        if next > MOST {
            break;
        }
        (value, scale) = (next, scale * 10.0);
    }
    (value as f64 * (nanos as f64 / scale)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for (text, nanos) in [
            ("0", 0),
            ("+0", 0),
            ("0s", 0),
            ("5s", 5_000_000_000),
            ("30m", 1_800_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("-1.5h", -5_400_000_000_000),
            (".5m", 30_000_000_000),
            ("5.m", 300_000_000_000),
            ("1h1h", 7_200_000_000_000),
            ("10.5s4m", 250_500_000_000),
            ("1ns", 1),
            ("11us", 11_000),
            ("12\u{b5}s", 12_000),
            ("12\u{3bc}s", 12_000),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("0.100000000000000000000h", 360_000_000_000),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_eq!(duration(text), Some(SignedDuration::from_nanos(nanos)), "{text}");
        }
        for text in [
            "",
            "-",
            "+",
            "3",
            "s",
            ".",
            ".s",
            "+.s",
            "1d",
            "1D",
            "1 h",
            "1h ",
            "1H",
            "true",
            "forever",
            "1h5",
            "--1h",
            "9223372036854775808ns",
            "3000000h",
            "1_000s",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
