//! Ranges of numbers, for VMIDs and addresses: `A-B`, `A`, a list of these, and `!A-B` for numbers to
//! exclude.

use std::ops::Range;

use toml::Spanned;

use crate::one_or_many::Listed;
use crate::values::Checker;

/// A range of numbers, both ends included, and its place in the file.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub first: u128,
    pub last: u128,
    pub at: Range<usize>,
}

impl Piece {
    pub(super) fn meets(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    pub(super) fn holds(&self, number: u128) -> bool {
        (self.first..=self.last).contains(&number)
    }

    /// Returns how many numbers the range contains, saturating.
    pub(super) fn count(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }
}

/// A kind of range: its name in messages, what is allowed, and how its numbers are parsed.
pub(super) struct Kind {
    /// The name of the setting and its pool, for messages.
    pub what: String,
    /// What is allowed, for messages.
    pub label: &'static str,
    /// Parses one number.
    pub read: fn(&str) -> Option<u128>,
}

/// Returns the ranges in order, without the excluded numbers.
pub(super) fn read(written: &Spanned<Listed>, kind: &Kind, checker: &mut Checker) -> Vec<Piece> {
    let (mut taken, mut left_out): (Vec<Piece>, Vec<Piece>) = (Vec::new(), Vec::new());
    for (text, at) in Listed::items(written) {
        let (body, out) = text.trim().strip_prefix('!').map_or((text.trim(), false), |body| (body, true));
        let (first, last) = body.split_once('-').unwrap_or((body, body));
        let ends = (kind.read)(first.trim()).zip((kind.read)(last.trim()));
        let Some((first, last)) = ends.filter(|(first, last)| same_family(*first, *last)) else {
            let help = if text.contains('/') { "set the network's prefix length with `prefix`" } else { "" };
            checker.wrong(format!("{}: `{text}` is not a range", kind.what), at, kind.label, help);
            continue;
        };
        if last < first {
            let title = format!("{}: `{text}` runs backwards", kind.what);
            checker.wrong(title, at, "the lower end must come first", "swap the two ends");
            continue;
        }
        let piece = Piece { first, last, at };
        let list = if out { &mut left_out } else { &mut taken };
        if let Some(twice) = list.iter().find(|other| other.meets(&piece)) {
            let title = format!("{}: `{text}` overlaps another entry", kind.what);
            checker.clash(title, piece.at.clone(), "overlaps", twice.at.clone(), "remove one of the two");
        }
        list.push(piece);
    }
    for out in &left_out {
        if !taken.iter().any(|piece| piece.meets(out)) {
            let title = format!("{}: this exclusion has no effect", kind.what);
            checker.wrong(title, out.at.clone(), "not part of any range", "remove it, or fix the ranges");
        }
    }
    left_out.iter().fold(taken, without)
}

/// Whether a range stays within one address family. IPv4 addresses are mapped into the IPv6 space.
fn same_family(first: u128, last: u128) -> bool {
    let mapped = |number: u128| number >> 32 == 0xffff;
    mapped(first) == mapped(last)
}

fn without(pieces: Vec<Piece>, out: &Piece) -> Vec<Piece> {
    let mut rest = Vec::new();
    for piece in pieces {
        if !piece.meets(out) {
            rest.push(piece);
            continue;
        }
        if piece.first < out.first {
            rest.push(Piece { first: piece.first, last: out.first - 1, at: piece.at.clone() });
        }
        if out.last < piece.last {
            rest.push(Piece { first: out.last + 1, last: piece.last, at: piece.at });
        }
    }
    rest
}
