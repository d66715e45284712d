//! Resource quantities such as `100m`, `1.5Gi` or `2e3`.

/// A quantity in thousandths of its unit, rounded up. `None` if it cannot be read.
pub(super) fn milli(text: &str) -> Option<i128> {
    let text = text.trim();
    let split = text
        .char_indices()
        .find(|(at, c)| !(c.is_ascii_digit() || *c == '.' || (*at == 0 && matches!(c, '+' | '-'))))
        .map_or(text.len(), |(at, _)| at);
    let (digits, suffix) = text.split_at(split);
    let (numerator, denominator) = scale(suffix)?;
    let (negative, digits) = match digits.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, digits.strip_prefix('+').unwrap_or(digits)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.len() > 18 || whole.len() > 18 {
        return None;
    }
    let places = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    let joined: i128 = format!("{whole}{fraction}").parse().ok()?;
    let top = joined.checked_mul(numerator)?.checked_mul(1000)?;
    let bottom = places.checked_mul(denominator)?;
    let value = (top + bottom - 1) / bottom;
    Some(if negative { -value } else { value })
}

/// The factor of a unit suffix, as a fraction.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let binary = |power: u32| Some((1024_i128.pow(power), 1));
    let decimal = |power: u32| Some((1000_i128.pow(power), 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "k" => decimal(1),
        "M" => decimal(2),
        "G" => decimal(3),
        "T" => decimal(4),
        "P" => decimal(5),
        "E" => decimal(6),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10_i128.pow(exponent.unsigned_abs().min(18));
            Some(if exponent < 0 { (1, power) } else { (power, 1) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::milli;

    #[test]
    fn quantities_are_read_in_all_their_notations() {
        let table = [
            ("1", Some(1000)),
            ("100m", Some(100)),
            ("1.5", Some(1500)),
            ("2e3", Some(2_000_000)),
            ("1Ki", Some(1_024_000)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("1M", Some(1_000_000_000)),
            ("1n", Some(1)),
            ("x", None),
            ("", None),
            ("1Q", None),
        ];
        for (text, expected) in table {
            assert_eq!(milli(text), expected, "{text}");
        }
    }
}
