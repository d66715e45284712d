//! The text of a first configuration.

use std::fmt::Write;

use super::Arguments;
use super::files::Places;
use super::prompts::Choice;
use crate::SCHEMA_LINE;
use crate::cli::cluster::ClusterName;
use crate::cli::neighbours::Reserved;

/// The first metrics port for an additional cluster: the port after the default.
const FIRST_PORT: u16 = 9737;

/// Returns a configuration with the settings that have no usable default; all others keep their defaults.
pub(super) fn configuration(
    arguments: &Arguments,
    choice: &Choice,
    places: &Places,
    reserved: &Reserved,
) -> String {
    let source = |key: &str, name: &str, path: &std::path::Path| {
        if places.are_the_units() {
            format!("{key}_credential = {}", quoted(name))
        } else {
            format!("{key}_file = {}", quoted(&path.display().to_string()))
        }
    };
    let token_id = format!("{}!{}", arguments.user, arguments.token);
    let (first, last) = choice.addresses;
    let name = ClusterName::of_folder(&arguments.folder);
    let id = name.as_ref().map(|name| format!("cluster = {}\n\n", quoted(&name.to_string())));
    let port = (FIRST_PORT..=u16::MAX).find(|port| !reserved.listen.contains(port)).unwrap_or(FIRST_PORT);
    let listen = name.map(|_| format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\n\n"));
    let (id, listen) = (id.unwrap_or_default(), listen.unwrap_or_default());
    let mut out = format!(
        "{SCHEMA_LINE}\n# Created by `pve-autoscaler setup`. All other settings use their defaults; \
            pve-autoscaler.toml(5) lists them.\n\n{id}[proxmox]\nendpoints = [{}]\ntoken_id = \
            {}\n{}\n{}\nresource_pool = {}\n\n[kubernetes]\n{}\n\n{listen}[bootstrap]\n\n[[pool]]\nname \
            = \"workers\"\nmin = 0\nmax = {}\ncores = {}\nmemory = \"{}MiB\"\ntemplate = {}\nvmids = \
            {}\naddresses = {}\nprefix = {}\n",
        quoted(arguments.proxmox.trim_end_matches('/')),
        quoted(&token_id),
        source("token", "pve-token", &places.token),
        source("ca", "pve-root-ca", &places.ca),
        quoted(&arguments.resource_pool),
        source("kubeconfig", "kubeconfig", &places.kubeconfig),
        choice.max,
        choice.template.cores.max(1),
        choice.template.memory >> 20,
        choice.template.in_configuration(),
        quoted(&choice.vmids),
        quoted(&format!("{first}-{last}")),
        choice.prefix,
    );
    if let Some(gateway) = choice.gateway {
        let _ = writeln!(out, "gateway = \"{gateway}\"");
    }
    if let Some(dns) = choice.dns {
        let _ = writeln!(out, "dns = [\"{dns}\"]");
    }
    let _ = writeln!(out, "bridge = {}", quoted(&choice.bridge));
    out
}

/// A TOML string.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
