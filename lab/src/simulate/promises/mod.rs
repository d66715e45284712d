//! The daemon's promises, each in its own file, in the order in which they are checked.

mod brakes;
mod disks;
mod doubt;
mod growth;
mod guests;
mod leadership;
mod missed;
mod networks;
mod nodes;
mod places;
mod power;
mod room;
mod secrets;
mod seeds;
mod settled;
mod standing;
mod touched;
mod volumes;
mod warm;

use super::checker::Promise;

/// All of them.
pub const ALL: &[&dyn Promise] = &[
    &leadership::Leadership,
    &doubt::Doubt,
    &brakes::Disruption,
    &room::Room,
    &places::Placement,
    &disks::Disks,
    &seeds::Seeds,
    &power::Power,
    &growth::Growth,
    &volumes::Volumes,
    &touched::Touched,
    &guests::Guests,
    &nodes::Nodes,
    &secrets::Secrets,
];
