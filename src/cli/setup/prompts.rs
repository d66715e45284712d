//! Settings that only the administrator knows. If a flag is not given, setup prompts for the value on the
//! terminal, and proposes a value if it can.

use std::collections::BTreeSet;
use std::io::{BufRead, IsTerminal};
use std::net::IpAddr;

use clap::Args;
use model::Vmid;

use super::discovered::{Discovered, Template};
use crate::cli::exit::Failure;
use crate::cli::table::plain;
use proxmox::Client;
use settings::Config;

/// The administrator's answers as flags; `setup` prompts for the missing ones.
#[derive(Debug, Args)]
pub(super) struct Answers {
    /// The workers' template, by VMID or name
    #[arg(long, value_name = "TEMPLATE")]
    template: Option<String>,
    /// The workers' addresses, FIRST-LAST, free and not assigned by DHCP
    #[arg(long, value_name = "RANGE")]
    addresses: Option<String>,
    /// The prefix length of the workers' network (default: 24, or 64 with IPv6)
    #[arg(long, value_name = "BITS")]
    prefix: Option<u8>,
    /// The workers' gateway
    #[arg(long, value_name = "ADDRESS")]
    gateway: Option<IpAddr>,
    /// The workers' name server (default: the gateway)
    #[arg(long, value_name = "ADDRESS")]
    dns: Option<IpAddr>,
    /// The workers' VMIDs, FIRST-LAST (default: a free range)
    #[arg(long, value_name = "RANGE")]
    vmids: Option<String>,
    /// The workers' bridge (default: the template's)
    #[arg(long, value_name = "NAME")]
    bridge: Option<String>,
    /// The maximum number of workers
    #[arg(long, value_name = "NUMBER")]
    max: Option<u32>,
}

/// The settings of the first pool.
#[derive(Debug)]
pub(super) struct Choice {
    pub template: Template,
    /// The VMIDs of all versions of the template.
    pub versions: BTreeSet<Vmid>,
    pub bridge: String,
    pub storage: String,
    pub addresses: (IpAddr, IpAddr),
    pub prefix: u8,
    pub gateway: Option<IpAddr>,
    pub dns: Option<IpAddr>,
    pub vmids: String,
    pub max: u32,
    /// The privilege for guest agent calls, which has a different name before Proxmox VE 9.
    pub agent_privilege: &'static str,
}

/// Returns the settings of the first pool. `configured` is the existing configuration, if it is valid.
pub(super) async fn choose(
    given: &Answers,
    found: &Discovered,
    configured: Option<&Config>,
    proxmox: &Client,
) -> Result<Choice, Failure> {
    let template = template(given, found)?;
    let bridge = if let Some(bridge) = given.bridge.clone().or_else(|| template.bridge.clone()) {
        bridge
    } else {
        let there = proxmox.bridges(&template.host).await.unwrap_or_default();
        let names: Vec<_> = there.iter().map(|one| one.name.clone()).collect();
        ask("--bridge", &format!("the workers' bridge ({})", names.join(", ")), names.first().cloned())?
    };
    let storage = template.storage.clone().ok_or_else(|| {
        Failure::NotFound(format!("the template {} has no disk on a storage", template.vmid))
    })?;
    let proposal = found.free_addresses().map(|(first, last)| format!("{first}-{last}"));
    let text = match &given.addresses {
        Some(text) => text.clone(),
        None => ask(
            "--addresses",
            "the workers' addresses, not used by other machines and not assigned by DHCP",
            proposal,
        )?,
    };
    let addresses = range(&text).ok_or_else(|| {
        Failure::NotFound(format!("`{}` is not a range such as 10.0.0.50-10.0.0.99", plain(&text)))
    })?;
    let gateway = match given.gateway {
        Some(gateway) => Some(gateway),
        None if std::io::stdin().is_terminal() => {
            let proposal = found.network().map(|[a, b, c]| format!("{a}.{b}.{c}.1"));
            Some(parsed(&ask("--gateway", "the workers' gateway", proposal)?)?)
        }
        None => None,
    };
    let count = length(addresses).ok_or_else(|| {
        Failure::NotFound(format!("`{}` is not a range of at most 1000 addresses", plain(&text)))
    })?;
    let vmids = given.vmids.clone().unwrap_or_else(|| {
        let (first, last) = found.free_vmids(count);
        format!("{first}-{last}")
    });
    Ok(Choice {
        versions: found.versions(&template, configured),
        template,
        bridge,
        storage,
        addresses,
        prefix: given.prefix.unwrap_or(if addresses.0.is_ipv4() { 24 } else { 64 }),
        gateway,
        dns: given.dns.or(gateway),
        vmids,
        max: given.max.unwrap_or(count.min(10)),
        agent_privilege: proxmox::agent_privilege(&found.version),
    })
}

fn template(given: &Answers, found: &Discovered) -> Result<Template, Failure> {
    let choices = found.choices();
    let list = || {
        let lines = choices.iter().map(|(vmid, about)| format!("{vmid} ({})", plain(about)));
        lines.collect::<Vec<_>>().join(", ")
    };
    let offered = found.offered();
    if offered.is_empty() {
        return Err(Failure::NotFound(
            "there is no VM template yet: docs/guides/template.md explains how to create one".to_owned(),
        ));
    }
    let wanted = match (&given.template, offered.as_slice()) {
        (Some(wanted), _) => wanted.clone(),
        (None, [only]) => only.vmid.to_string(),
        (None, all) => {
            let first = all.first().map(|one| one.vmid.to_string());
            ask("--template", &format!("the workers' template: {}", list()), first)?
        }
    };
    let is_it = |one: &&Template| one.vmid.to_string() == wanted || one.name == wanted;
    found.templates.iter().find(is_it).cloned().ok_or_else(|| {
        Failure::NotFound(format!("there is no template `{}`; the templates are {}", plain(&wanted), list()))
    })
}

/// Prompts for a value on the terminal; without a terminal, the flag is required.
fn ask(flag: &str, what: &str, proposal: Option<String>) -> Result<String, Failure> {
    if !std::io::stdin().is_terminal() {
        let hint = proposal.map(|text| format!(", e.g. `{flag} {text}`")).unwrap_or_default();
        return Err(Failure::NotFound(format!(
            "cannot prompt without a terminal: pass `{flag}` ({what}){hint}"
        )));
    }
    let shown = proposal.as_ref().map(|text| format!(" [{text}]")).unwrap_or_default();
    anstream::eprint!("{what}{shown}: ");
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| Failure::System("read the answer", error))?;
    match (line.trim(), proposal) {
        ("", Some(proposal)) => Ok(proposal),
        ("", None) => Err(Failure::NotFound(format!("no answer was given for `{flag}`"))),
        (answer, _) => Ok(answer.to_owned()),
    }
}

fn parsed(text: &str) -> Result<IpAddr, Failure> {
    text.parse().map_err(|_| Failure::NotFound(format!("`{}` is not an address", plain(text))))
}

fn range(text: &str) -> Option<(IpAddr, IpAddr)> {
    let (first, last) = text.split_once('-')?;
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

/// Returns the number of addresses in a range.
fn length((first, last): (IpAddr, IpAddr)) -> Option<u32> {
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let span = number(last).checked_sub(number(first)).filter(|_| first.is_ipv4() == last.is_ipv4())?;
    u32::try_from(span).ok().filter(|span| *span < 1000).map(|span| span + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_addresses_is_counted_and_a_wrong_one_is_none() {
        let counted = |text: &str| range(text).and_then(length);
        assert_eq!(counted("10.0.0.50-10.0.0.99"), Some(50));
        assert_eq!(counted("fd00::1-fd00::a"), Some(10));
        for wrong in ["10.0.0.9-10.0.0.1", "10.0.0.1", "10.0.0.1-fd00::1", "10.0.0.0-10.9.0.0"] {
            assert_eq!(counted(wrong), None, "{wrong}");
        }
    }
}
