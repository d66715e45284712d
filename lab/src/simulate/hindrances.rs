//! Temporary interference from outside: a silent `pvestatd`, storages that are slow or report wrong numbers,
//! tags and networks that may no longer be used, and volumes that another host does not see yet.

use std::ops::Range;

use fastrand::Rng;
use world::proxmox::TaskFault;
use world::proxmox::rights::TagAccess;
use world::proxmox::spec::GIB;

use super::checker::Checker;
use super::checker::memory::Right;
use super::drawn::networks;
use super::world::World;

/// The speed of a slow storage, in bytes per second. At this speed, copying a disk takes minutes.
const CRAWLS: u64 = 24 << 20;

/// One kind of interference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// This host's `pvestatd` is silent. If `at_once` is set, it has already been silent for a long time.
    Silent {
        /// The host.
        host: String,
        /// Whether the host's data is unknown from the start.
        at_once: bool,
    },
    /// Copies to this storage take a long time.
    Slow(&'static str),
    /// This storage is full, but reports that it is almost empty.
    Lies(&'static str),
    /// The token may no longer use the machines' tag.
    Tags,
    /// The token may no longer use the network with this path.
    Network(String),
}

impl Hindrance {
    /// Draws a kind of interference, and the range of its duration in seconds.
    pub fn draw(random: &mut Rng, world: &World) -> Option<(Self, Range<u64>)> {
        let storage = if random.bool() { "shared" } else { "local-lvm" };
        Some(match random.u8(..6) {
            0 | 1 => {
                let host = world.hosts.get(random.usize(..world.hosts.len()))?.clone();
                (Self::Silent { host, at_once: random.bool() }, 60..1200)
            }
            2 => (Self::Slow(storage), 60..1200),
            3 => (Self::Lies(storage), 60..900),
            4 => (Self::Tags, 60..900),
            _ => {
                let pool = world.pools.get(random.usize(..world.pools.len()))?;
                (Self::Network(pool.network.path()), 60..900)
            }
        })
    }

    /// Whether this interference and `other` are too similar to be active at the same time.
    pub fn is_like(&self, other: &Self) -> bool {
        let of_rights = |one: &Self| matches!(one, Self::Tags | Self::Network(_));
        self == other
            || (of_rights(self) && of_rights(other))
            || matches!((self, other), (Self::Silent { host, .. }, Self::Silent { host: one, .. }) if host == one)
    }

    /// A description for the log.
    pub fn words(&self) -> String {
        match self {
            Self::Silent { host, at_once: true } => {
                format!("pvestatd on {host} is silent, and its earlier reports have expired")
            }
            Self::Silent { host, .. } => format!("pvestatd on {host} stops reporting"),
            Self::Slow(storage) => format!("{storage} is slow"),
            Self::Lies(storage) => format!("{storage} is full, but reports that it is empty"),
            Self::Tags => "the token lacks the right to use the machines' tag".to_owned(),
            Self::Network(path) => format!("the token lacks the right to use {path}"),
        }
    }

    /// Begins the interference.
    pub fn begin(&self, world: &World, checker: &Checker) {
        let pve = &world.pve;
        match self {
            Self::Silent { host, at_once: true } => pve.forget_what_pvestatd_said(host),
            Self::Silent { host, .. } => pve.set_pvestatd_silent(host, true),
            Self::Slow(storage) => pve.set_storage_rate(storage, Some(CRAWLS)),
            Self::Lies(storage) => {
                checker.storage_lies(storage, true);
                pve.set_storage_full(storage, true);
                pve.set_storage_claim(storage, Some(GIB));
            }
            Self::Tags => {
                checker.right_is_missing(Right::Tag);
                pve.restrict_tags(TagAccess { user_allow: "none".to_owned(), ..TagAccess::default() });
            }
            Self::Network(path) => {
                checker.right_is_missing(Right::Network(path.clone()));
                networks::rights(pve, path, false);
            }
        }
    }

    /// Ends the interference.
    pub fn end(&self, world: &World, checker: &Checker) {
        let pve = &world.pve;
        match self {
            Self::Silent { host, .. } => pve.set_pvestatd_silent(host, false),
            Self::Slow(storage) => pve.set_storage_rate(storage, None),
            Self::Lies(storage) => {
                checker.storage_lies(storage, false);
                pve.set_storage_full(storage, false);
                pve.set_storage_claim(storage, None);
            }
            Self::Tags => {
                checker.right_is_back();
                pve.restrict_tags(world.rules.tags.clone());
            }
            Self::Network(path) => {
                checker.right_is_back();
                networks::rights(pve, path, true);
            }
        }
    }
}

/// Makes the next task of a random kind fail as if its host did not see a volume that another host has just
/// created. Returns a description for the log.
pub fn volume_not_seen(random: &mut Rng, world: &World) -> String {
    let kind = if random.bool() { "resize" } else { "qmstart" };
    let text = "volume 'shared:9100/vm-9100-disk-0.qcow2' does not exist";
    world.pve.inject_task(kind, TaskFault::Fails(text.to_owned()));
    format!("the next {kind} task does not find its volume")
}
