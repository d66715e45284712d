//! The daemon's promises, one per file. They are checked in this order.

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

/// All promises.
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
