//! Checks whether machines that boot from the network can be created.

use std::collections::BTreeSet;

use super::findings::{Answer, Line};
use super::proxmox_view::Pve;
use super::template::{self, binary};
use crate::cli::exit::FINDINGS;
use proxmox::StorageConfig;
use settings::{Boot, Pool};

/// Checks the storages of a pool whose machines boot from the network, and the token's rights.
pub(super) async fn check(pve: &Pve, pool: &Pool, answer: &mut Answer) {
    if pool.boot != Boot::Network {
        return;
    }
    let extra = pool.extra_disks.iter().map(|disk| disk.storage.as_str());
    let storages: BTreeSet<&str> = pool.storages.iter().map(String::as_str).chain(extra).collect();
    let mut wrong: Vec<Line> = template::seeds(pve, pool, None).into_iter().collect();
    let mut paths: Vec<template::Need> = Vec::new();
    for storage in storages {
        wrong.extend(unfit(pve, pool, storage));
        paths.push((format!("/storage/{storage}"), vec!["Datastore.AllocateSpace", "Datastore.Audit"]));
    }
    paths.extend(template::of_machines(pve, pool));
    wrong.extend(template::lacking(pve, paths).await);
    let what = "network boot";
    let disk = match &pool.disk {
        Some(disk) => {
            format!("empty disk {} of {} on {}", disk.device, binary(disk.bytes), pool.storages.join(" or "))
        }
        None => "no disk".to_owned(),
    };
    let wrong = wrong.into_iter().map(|line| Line { what: what.to_owned(), ..line }.of(&pool.name)).collect();
    answer.say_all(wrong, Line::good(what, disk).of(&pool.name), FINDINGS);
}

/// Why a machine's disk cannot be created on a storage.
fn unfit(pve: &Pve, pool: &Pool, storage: &str) -> Option<Line> {
    let Some(known) = pve.storages.get(storage).filter(|one| StorageConfig::holds_disks(one)) else {
        let message = format!("the token cannot see a storage `{storage}` that can hold disks");
        let help = "name a different storage, or grant the token Datastore.AllocateSpace and \
            Datastore.Audit on this storage";
        return Some(Line::wrong("", message).key("storage").help(help));
    };
    let host = pve.allowed(pool).find(|host| !known.is_on(host))?;
    let line = Line::wrong("", format!("storage `{storage}` is not on {host}, which the pool may use"));
    Some(line.key("storage").help("leave the host out of `hosts`, or name another storage"))
}
