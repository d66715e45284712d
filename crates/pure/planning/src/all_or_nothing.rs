//! All or nothing: room is found or made for pods that are of use only together, or everything is as it was
//! before.

use super::class::Class;
use super::packer::Packer;
use super::predictions::keep_gang_to_bound;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// There is enough, and it is planned.
    Kept,
    /// There is not: nothing is planned.
    TakenBack,
    /// Not all nodes that are there could be asked: nothing is planned, and nothing is known.
    Cut,
}

impl<'a> Packer<'_, 'a> {
    /// Places these classes on what is there and, if that is allowed, on new machines, and keeps it if it is
    /// `enough`.
    pub(super) fn all_or_nothing(
        &mut self,
        own: &mut [Class<'a>],
        may_make: bool,
        enough: impl FnOnce(&Self, &[Class<'a>]) -> bool,
    ) -> Tried {
        // What is copied, so that it can be taken back.
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
