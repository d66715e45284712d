//! Finds or creates room for pods that are only useful together. If that fails, nothing changes.

use super::class::Class;
use super::packer::Packer;
use super::predictions::keep_gang_to_bound;

/// The result of [`Packer::all_or_nothing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// There is enough room, and it is planned.
    Kept,
    /// There is not enough room: nothing is planned.
    TakenBack,
    /// Not all existing nodes could be checked, so it is unknown whether there is enough room. Nothing is
    /// planned.
    Cut,
}

impl<'a> Packer<'_, 'a> {
    /// Places these classes on existing nodes and, if `may_make` is true, on new machines. Keeps the result
    /// only if `enough` returns true.
    pub(super) fn all_or_nothing(
        &mut self,
        own: &mut [Class<'a>],
        may_make: bool,
        enough: impl FnOnce(&Self, &[Class<'a>]) -> bool,
    ) -> Tried {
        // The copies below, which allow all changes to be undone, are charged to the allowance.
        self.view.allowance.spend(10 * (self.view.world.nodes().len() + self.view.pods.len()));
        let before = (self.view.world.clone(), self.rooms.clone(), self.spots.clone());
        let machines = self.planned.len();
        self.fill_known(own);
        let cut = own.iter().any(|class| class.cut);
        if may_make && !cut {
            keep_gang_to_bound(own);
            self.pack(own);
        }
        if !cut && enough(self, own) {
            return Tried::Kept;
        }
        (self.view.world, self.rooms, self.spots) = before;
        self.planned.truncate(machines);
        if cut { Tried::Cut } else { Tried::TakenBack }
    }
}
