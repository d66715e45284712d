//! The rules of Kubernetes and Proxmox VE for valid names.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub(super) use model::names::{is_key, is_label, is_word};

/// Whether the text is a DNS name (RFC 1123 subdomain), in lower or upper case.
pub(super) fn is_domain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|part| is_label(&part.to_ascii_lowercase()))
}

/// Whether the text is a valid VM tag (`pve-tag`).
pub(super) fn is_tag(text: &str) -> bool {
    let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(first) && text.chars().all(|c| first(c) || "-+.".contains(c))
}

/// Whether the text is a valid storage id (`pve-storage-id`).
pub(super) fn is_storage(text: &str) -> bool {
    text.len() >= 2
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Whether the text is a valid resource pool id (`pve-poolid`), which has at most three levels.
pub(super) fn is_resource_pool(text: &str) -> bool {
    let level = |level: &str| {
        !level.is_empty() && level.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    text.split('/').count() <= 3 && text.split('/').all(level)
}

/// Whether the text can be the name of a bridge or virtual network, which is a Linux network interface.
pub(super) fn is_bridge(text: &str) -> bool {
    text.len() <= 15
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Whether the text is a valid user name in a Linux guest (`useradd`).
pub(super) fn is_user(text: &str) -> bool {
    text.len() <= 32
        && text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c))
}

/// Whether the text is a public SSH key on one line, as in `authorized_keys` without options.
pub(super) fn is_ssh_key(text: &str) -> bool {
    const KINDS: [&str; 7] = [
        "ssh-ed25519",
        "ssh-rsa",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "ecdsa-sha2-nistp521",
        "sk-ssh-ed25519@openssh.com",
        "sk-ecdsa-sha2-nistp256@openssh.com",
    ];
    let mut words = text.split_ascii_whitespace();
    let kind = words.next().filter(|kind| KINDS.contains(kind));
    let body = words.next().and_then(|body| STANDARD.decode(body).ok());
    let whole = kind.zip(body).is_some_and(|(kind, body)| is_whole(kind, &body));
    whole && !text.contains(['\n', '\r'])
}

/// Whether a key's body is complete and of the given type. The body consists of fields, each preceded by its
/// length; the first field is the type (RFC 4253, 6.6).
fn is_whole(kind: &str, body: &[u8]) -> bool {
    let (mut rest, mut fields) = (body, 0);
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let Some((field, after)) = usize::try_from(u32::from_be_bytes(*length))
            .ok()
            .and_then(|length| after.split_at_checked(length))
        else {
            return false;
        };
        if fields == 0 && field != kind.as_bytes() {
            return false;
        }
        (rest, fields) = (after, fields + 1);
    }
    fields >= 2 && rest.is_empty()
}

/// Whether the text is `host:port` without a scheme. An IPv6 address must be in brackets.
pub(super) fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let port = port.chars().all(|c| c.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    let six = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    port && six.map_or_else(|| is_domain(host), |six| six.parse::<std::net::Ipv6Addr>().is_ok())
}

/// Whether the text is a host's name or address, without a port.
pub(super) fn is_host(text: &str) -> bool {
    is_domain(text) || text.parse::<std::net::IpAddr>().is_ok()
}
