//! Checks whether Kubernetes accepts a name (`k8s.io/apimachinery/pkg/util/validation`).

/// Whether the text is a DNS label (RFC 1123): at most 63 lower-case letters, digits and `-`, and no `-` at
/// either end.
pub fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Whether the text is a non-empty label value, or a label key without its prefix. It may have at most 63
/// letters, digits, `-`, `_` and `.`, and must begin and end with a letter or digit.
pub fn is_word(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.len() <= 63 && text.chars().all(inner) && edge(text.chars().next()) && edge(text.chars().next_back())
}

/// Whether the text is a valid label key, taint key or resource name, in the form `name` or `prefix/name`.
pub fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        None => is_word(text),
        Some((prefix, word)) => prefix.len() <= 253 && prefix.split('.').all(is_label) && is_word(word),
    }
}

/// Whether the text is a valid label value.
pub fn is_value(text: &str) -> bool {
    text.is_empty() || is_word(text)
}

/// The characters that the suffix of a machine's name may contain. Characters that are easily confused are
/// left out.
pub const SUFFIX_LETTERS: &[u8; 31] = b"bcdfghjklmnpqrstvwxz23456789aeu";
/// The length of the suffix of a machine's name.
pub const SUFFIX_LENGTH: usize = 5;

/// Whether a machine of this pool can have this name.
pub fn is_machine_of(pool: &str, name: &str) -> bool {
    let suffix = name.strip_prefix(pool).and_then(|rest| rest.strip_prefix('-'));
    suffix.is_some_and(|suffix| {
        suffix.len() == SUFFIX_LENGTH && suffix.bytes().all(|letter| SUFFIX_LETTERS.contains(&letter))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machines_name_is_its_pools_and_five_letters() {
        for (name, expected) in [
            ("workers-b2x9k", true),
            ("workers-b2x9", false),
            ("workers-b2x9kk", false),
            ("workers-b2x9i", false),
            ("workersb2x9k", false),
            ("gpu-b2x9k", false),
            ("workers-", false),
            ("workers-B2X9K", false),
        ] {
            assert_eq!(is_machine_of("workers", name), expected, "{name}");
        }
    }
}
