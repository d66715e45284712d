//! What two pools must not share: a name, a VMID, an address.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;

use super::ranges::Piece;
use super::slots::{Reserved, back};
use super::{TemplateRef, Written};
use crate::values::Checker;

/// A pool, the VMIDs and addresses that it reserves, its template, and the prefix of its region's host keys.
pub(super) type Claim<'p> = (&'p Spanned<Written>, Reserved, Option<TemplateRef>, String);

pub(super) fn names(pools: &[Spanned<Written>], checker: &mut Checker) {
    let mut seen: BTreeMap<&str, Range<usize>> = BTreeMap::new();
    for pool in pools {
        let name = &pool.get_ref().name;
        if let Some(first) = seen.insert(name.get_ref(), name.span()) {
            checker.clash(
                format!("two pools are called `{}`", name.get_ref()),
                name.span(),
                "must be unique",
                first,
                "give one of them a different name",
            );
        }
    }
}

/// Reports VMIDs and addresses that two pools reserve, and templates whose VMID is reserved by a pool in the
/// same cluster.
pub(super) fn slots(pools: &[Claim], checker: &mut Checker) {
    for (at, (pool, reserved, _, prefix)) in pools.iter().enumerate() {
        let name = pool.get_ref().name.get_ref();
        for (earlier, theirs, _, other_prefix) in &pools[..at] {
            let other = earlier.get_ref().name.get_ref();
            // Each cluster has its own VMIDs, but an address must be unique across all clusters.
            let together = prefix == other_prefix;
            if let Some((mine, first, number)) = shared(&reserved.vmids, &theirs.vmids).filter(|_| together) {
                let title = format!("pools `{other}` and `{name}` both reserve VMID {number}");
                let help = "two pools must not share a VMID: narrow one of the ranges";
                checker.clash(title, mine, "overlaps", first, help);
            }
            if let Some((mine, first, number)) = shared(&reserved.addresses, &theirs.addresses) {
                let title = format!("pools `{other}` and `{name}` both reserve {}", back(number));
                let help = "two pools must not share an address: narrow one of the ranges";
                checker.clash(title, mine, "overlaps", first, help);
            }
        }
    }
    for (pool, _, template, prefix) in pools {
        let (Some(TemplateRef::Vmid(vmid)), Some(written)) = (template, &pool.get_ref().template) else {
            continue;
        };
        let here = pools.iter().filter(|(.., other)| other == prefix);
        let pieces = here.flat_map(|(_, reserved, ..)| &reserved.vmids);
        if let Some(piece) = pieces.into_iter().find(|piece| piece.holds(u128::from(vmid.0))) {
            let title = format!("the template's VMID {vmid} is reserved for machines");
            let help = format!("exclude it: [\"…\", \"!{vmid}\"]");
            checker.clash(title, piece.at.clone(), "among these", written.span(), &help);
        }
    }
}

/// Returns the first number that is in both lists, and its place in each list.
fn shared(mine: &[Piece], theirs: &[Piece]) -> Option<(Range<usize>, Range<usize>, u128)> {
    mine.iter().find_map(|piece| {
        let other = theirs.iter().find(|other| other.meets(piece))?;
        Some((piece.at.clone(), other.at.clone(), piece.first.max(other.first)))
    })
}
