//! What names of Kubernetes may look like (`k8s.io/apimachinery/pkg/util/validation`).

/// A DNS label (RFC 1123): at most 63 lower-case letters, digits and `-`, none at the ends.
pub fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A label's key or value without the prefix: at most 63 of letters, digits, `-`, `_`, `.`, with an
/// alphanumeric at both ends.
pub fn is_word(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.len() <= 63 && text.chars().all(inner) && edge(text.chars().next()) && edge(text.chars().next_back())
}

/// A key of a label, a taint or a resource: `name` or `prefix/name`.
pub fn is_key(text: &str) -> bool {
    match text.split_once('/') {
        None => is_word(text),
        Some((prefix, word)) => prefix.len() <= 253 && prefix.split('.').all(is_label) && is_word(word),
    }
}

/// The value of a label.
pub fn is_value(text: &str) -> bool {
    text.is_empty() || is_word(text)
}
