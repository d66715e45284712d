//! Ranges of numbers, as VMIDs and addresses are reserved: `A-B`, `A`, a list of these, and `!A-B` for what
//! is left out.

use std::ops::Range;

use toml::Spanned;

use crate::one_or_many::Listed;
use crate::values::Checker;

/// Numbers from one to another, both included, and where that is written.
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

    /// How many numbers these are, saturating.
    pub(super) fn count(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }
}

/// What one kind of range is called, and how one of its numbers is read and shown.
pub(super) struct Kind {
    /// The setting, with the pool's name.
    pub what: String,
    /// What is allowed.
    pub label: &'static str,
    /// One number.
    pub read: fn(&str) -> Option<u128>,
}

/// The pieces in their order, without those that are left out.
pub(super) fn read(written: &Spanned<Listed>, kind: &Kind, checker: &mut Checker) -> Vec<Piece> {
    let (mut taken, mut left_out): (Vec<Piece>, Vec<Piece>) = (Vec::new(), Vec::new());
    for (text, at) in Listed::items(written) {
        let (body, out) = text.trim().strip_prefix('!').map_or((text.trim(), false), |body| (body, true));
        let (first, last) = body.split_once('-').unwrap_or((body, body));
        let ends = (kind.read)(first.trim()).zip((kind.read)(last.trim()));
        let Some((first, last)) = ends.filter(|(first, last)| same_family(*first, *last)) else {
            let help =
                if text.contains('/') { "the length of the network's prefix goes into `prefix`" } else { "" };
            checker.wrong(format!("{}: `{text}` is not a range", kind.what), at, kind.label, help);
            continue;
        };
        if last < first {
            let title = format!("{}: `{text}` runs backwards", kind.what);
            checker.wrong(title, at, "the lower end comes first", "swap the two ends");
            continue;
        }
        let piece = Piece { first, last, at };
        let list = if out { &mut left_out } else { &mut taken };
        if let Some(twice) = list.iter().find(|other| other.meets(&piece)) {
            let title = format!("{}: `{text}` is written twice", kind.what);
            checker.clash(title, piece.at.clone(), "overlaps", twice.at.clone(), "remove one of the two");
        }
        list.push(piece);
    }
    for out in &left_out {
        if !taken.iter().any(|piece| piece.meets(out)) {
            let title = format!("{}: nothing is left out by this", kind.what);
            checker.wrong(title, out.at.clone(), "not part of any range", "remove it, or mend the ranges");
        }
    }
    left_out.iter().fold(taken, without)
}

/// IPv4 addresses stand in the IPv6 space as mapped ones: no range leads from the one to the other.
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
