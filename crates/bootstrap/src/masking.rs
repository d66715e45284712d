//! Masks secrets in the output of other programs. The output may contain a bootstrap token, or secrets from
//! the program's standard input.

use secrecy::{ExposeSecret, SecretString};

/// The lengths of a token's public and secret parts (`BootstrapTokenPattern`: `[a-z0-9]{6}\.[a-z0-9]{16}`).
const PARTS: (usize, usize) = (6, 16);

fn is_part(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Whether the text can be the public part of a bootstrap token.
pub(super) fn is_token_id(text: &str) -> bool {
    is_part(text, PARTS.0)
}

/// The public part of the text, if the text is a complete bootstrap token.
pub(super) fn token_id(text: &str) -> Option<&str> {
    text.split_once('.').filter(|(id, secret)| is_token_id(id) && is_part(secret, PARTS.1)).map(|(id, _)| id)
}

/// The last few lines, joined into one, without control characters and with secret parts of tokens masked.
pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let kept = lines[lines.len().saturating_sub(5)..].join("; ");
    // Control characters are removed first, because a token that contains one would not be recognized.
    let plain: String = kept.chars().filter(|c| !c.is_control()).collect();
    masked(&plain).chars().take(2000).collect()
}

/// Words of a secret are masked on their own if they have at least this many bytes. Shorter words are too
/// common.
const LEAST_WORD: usize = 12;
/// Lines of a secret are masked if they have at least this many bytes.
const LEAST_LINE: usize = 6;

/// Returns the text with the secret's lines and longer words masked.
pub(super) fn hidden(text: &str, secret: Option<&SecretString>) -> String {
    let Some(secret) = secret.map(ExposeSecret::expose_secret) else { return text.to_owned() };
    let lines = secret.lines().map(str::trim).filter(|line| line.len() >= LEAST_LINE);
    let end = |c: char| c.is_whitespace() || ":=,;\"'{}[]".contains(c);
    let words = secret.split(end).filter(|word| word.len() >= LEAST_WORD);
    let mut parts: Vec<&str> = lines.chain(words).collect();
    // Longer parts are replaced first, because they may contain shorter ones.
    parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
    parts.into_iter().fold(text.to_owned(), |text, part| text.replace(part, "***"))
}

/// Masks the secret part of tokens anywhere in the text: `abcdef.0123456789abcdef` becomes `abcdef.***`.
fn masked(text: &str) -> String {
    let mut pieces = text.split('.');
    let mut result = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit()).unwrap_or(piece.len());
        let before =
            result.bytes().rev().take_while(|b| b.is_ascii_lowercase() || b.is_ascii_digit()).count();
        result.push('.');
        if before >= PARTS.0 && end >= PARTS.1 {
            result.push_str("***");
            result.push_str(&piece[end..]);
        } else {
            result.push_str(piece);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_masked_wherever_it_stands() {
        let cases = [
            ("abcdef.0123456789abcdef", "abcdef.***"),
            ("error: token \"abcdef.0123456789abcdef\" is bad", "error: token \"abcdef.***\" is bad"),
            ("--token=abcdef.0123456789abcdef,x", "--token=abcdef.***,x"),
            ("token:abcdef.0123456789abcdef.", "token:abcdef.***."),
            ("kubeadm.k8s.io/v1beta4", "kubeadm.k8s.io/v1beta4"),
            ("abcdef.0123456789abcde", "abcdef.0123456789abcde"),
            ("no dot", "no dot"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(last_lines(text), expected);
        }
    }

    #[test]
    fn only_the_last_lines_are_kept_and_no_escape_sequences() {
        assert_eq!(last_lines("abc\tdef.0123456789\x07abcdef"), "abcdef.***");
        assert_eq!(last_lines("1\n2\n\n3\n4\n5\r\n6\n\x1b[31mred\n"), "3; 4; 5; 6; [31mred");
    }

    #[test]
    fn only_a_whole_token_has_an_id() {
        assert_eq!(token_id("abcdef.0123456789abcdef"), Some("abcdef"));
        for wrong in ["", "abcdef", "abcdef.", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdefg"] {
            assert_eq!(token_id(wrong), None, "{wrong}");
        }
    }
}
