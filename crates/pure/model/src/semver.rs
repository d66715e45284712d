//! Semantic versions, parsed and compared as Kubernetes does (`github.com/blang/semver/v4`).

use std::cmp::Ordering;

/// A semantic version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The major, minor and patch version numbers.
    pub numbers: [u64; 3],
    before: Vec<Part>,
}

/// One of the dot-separated parts after `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Word(String),
}

impl Version {
    /// Parses a version in its full form: `1.2.3-rc.1+build`.
    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (major, minor, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, before) =
            rest.split_once('-').map_or((rest, None), |(patch, before)| (patch, Some(before)));
        let word = |part: &str| {
            !part.is_empty() && part.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'-')
        };
        if build.is_some_and(|build| !build.split('.').all(word)) {
            return None;
        }
        let part = |part: &str| {
            if !word(part) {
                None
            } else if part.bytes().all(|letter| letter.is_ascii_digit()) {
                number(part).map(Part::Number)
            } else {
                Some(Part::Word(part.to_owned()))
            }
        };
        let before = before.map(|all| all.split('.').map(part).collect::<Option<Vec<_>>>());
        Some(Self {
            numbers: [number(major)?, number(minor)?, number(patch)?],
            before: match before {
                Some(parts) => parts?,
                None => Vec::new(),
            },
        })
    }

    /// Like [`Self::read`], but also accepts shorter forms such as `v1`, and leading zeros such as `1.02`.
    pub fn read_loosely(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return None;
        }
        parts.resize(3.max(parts.len()), "0".to_owned());
        Self::read(&parts.join("."))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let before = |one: &Self| one.before.is_empty();
        // Of two versions that differ only in the part after `-`, the one without that part is later.
        let parts = before(self).cmp(&before(other)).then_with(|| self.before.cmp(&other.before));
        self.numbers.cmp(&other.numbers).then(parts)
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_digit());
    (digits && (text.len() == 1 || !text.starts_with('0'))).then(|| text.parse().ok()).flatten()
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|letter: char| letter.is_ascii_digit()) {
        rest.to_owned()
    } else {
        format!("0{rest}")
    }
}
