//! Bridges and taps in a network namespace that holds nothing else.
//!
//! The caller enters the namespace. This module makes sure that the namespace contains no other interface, so
//! that no frame of a guest can leave it, whatever the guest's configuration says.

use std::collections::BTreeMap;

use super::{HardwareError, tool};

/// A bridge of the host.
#[derive(Clone, Debug)]
pub struct Bridge {
    /// Its name, such as `vmbr0`.
    pub name: String,
    /// The host's own address on the bridge, with its prefix, such as `10.77.0.1/24`.
    pub address: String,
}

/// Makes the bridges.
pub async fn open(bridges: &[Bridge]) -> Result<(), HardwareError> {
    for line in tool::run("ip", &["-o", "link", "show"]).await?.lines() {
        let name = line.split(": ").nth(1).unwrap_or_default();
        let name = name.split('@').next().unwrap_or_default();
        let own =
            |bridge: &Bridge| bridge.name == name || line.contains(&format!(" master {} ", bridge.name));
        if name != "lo" && !bridges.iter().any(own) {
            return Err(HardwareError::NotAlone(name.to_owned()));
        }
    }
    tool::run("ip", &["link", "set", "lo", "up"]).await?;
    for Bridge { name, address } in bridges {
        if tool::run("ip", &["link", "show", name]).await.is_err() {
            tool::run("ip", &["link", "add", name, "type", "bridge"]).await?;
        }
        tool::run("ip", &["address", "replace", address, "dev", name]).await?;
        tool::run("ip", &["link", "set", name, "up"]).await?;
    }
    Ok(())
}

/// Returns a VM's network interfaces, each with its key (such as `net0`), model, hardware address and bridge.
pub fn interfaces(config: &BTreeMap<String, String>) -> Vec<(String, String, String, Option<String>)> {
    let nets = config
        .iter()
        .filter(|(key, _)| key.strip_prefix("net").is_some_and(|number| number.parse::<u8>().is_ok()));
    nets.filter_map(|(key, text)| {
        let (model, mac) = text.split(',').next()?.split_once('=')?;
        let bridge = text.split(',').find_map(|part| part.strip_prefix("bridge="));
        Some((key.clone(), model.to_owned(), mac.to_owned(), bridge.map(String::from)))
    })
    .collect()
}

/// Returns the name of the tap for a VM's interface. Proxmox VE uses the same name.
pub fn tap(vmid: u32, key: &str) -> String {
    format!("tap{vmid}i{}", key.trim_start_matches("net"))
}

/// Creates a VM's taps and plugs them into their bridges. Returns the taps' names.
pub async fn plug(vmid: u32, config: &BTreeMap<String, String>) -> Result<Vec<String>, HardwareError> {
    let mut taps = Vec::new();
    for (key, _, _, bridge) in interfaces(config) {
        let name = tap(vmid, &key);
        unplug(&name).await;
        tool::run("ip", &["tuntap", "add", "dev", &name, "mode", "tap"]).await?;
        if let Some(bridge) = bridge {
            tool::run("ip", &["link", "set", &name, "master", &bridge]).await?;
        }
        tool::run("ip", &["link", "set", &name, "up"]).await?;
        taps.push(name);
    }
    Ok(taps)
}

/// Removes a tap.
pub async fn unplug(name: &str) {
    // The tap may not exist.
    let _ = tool::run("ip", &["link", "delete", name]).await;
}
