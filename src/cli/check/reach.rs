//! Advice for each reason why a cluster cannot be reached.

use std::path::Path;

use proxmox::{Error, Kind};
use settings::{Proxmox, ProxmoxTrust};

/// The reason why a connection failed, if the error text reveals it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Obstacle {
    /// No server listens at the address.
    Refused,
    /// The name does not resolve to an address.
    UnknownName,
    /// There is no route to the address.
    NoRoute,
    /// No answer came back.
    Silence,
    /// No trusted authority has signed the certificate.
    UnknownIssuer,
    /// The certificate belongs to another host.
    OtherName,
    /// The certificate has expired, or is not valid yet.
    Expired,
    /// The certificate is not the pinned one.
    OtherFingerprint,
    /// The server does not speak TLS.
    NoTls,
}

/// Error texts from the operating system, rustls and this program's fingerprint check.
const TEXTS: [(&str, Obstacle); 14] = [
    ("fingerprint", Obstacle::OtherFingerprint),
    ("unknownissuer", Obstacle::UnknownIssuer),
    ("caused by unknown issuer", Obstacle::UnknownIssuer),
    ("not valid for name", Obstacle::OtherName),
    ("notvalidforname", Obstacle::OtherName),
    ("expired", Obstacle::Expired),
    ("not valid yet", Obstacle::Expired),
    ("invalidcontenttype", Obstacle::NoTls),
    ("connection refused", Obstacle::Refused),
    ("lookup address", Obstacle::UnknownName),
    ("no route to host", Obstacle::NoRoute),
    ("network is unreachable", Obstacle::NoRoute),
    ("timed out", Obstacle::Silence),
    ("no answer within", Obstacle::Silence),
];

fn obstacle(text: &str) -> Option<Obstacle> {
    let text = text.to_lowercase();
    TEXTS.iter().find(|(part, _)| text.contains(part)).map(|(_, obstacle)| *obstacle)
}

/// What to do if Proxmox VE does not answer or rejects the token.
pub(super) fn proxmox(error: &Error, settings: &Proxmox) -> Option<String> {
    let (user, name) = settings.token_id.split_once('!').unwrap_or((&settings.token_id, ""));
    match error.kind {
        Kind::Unauthorized => Some(format!(
            "check that `pveum user token list {user}` lists `{name}` as not expired, and that the \
                secret belongs to this token"
        )),
        Kind::HostUnreachable | Kind::OutcomeUnknown => {
            Some(hindered(obstacle(&error.text), &settings.trust))
        }
        _ => None,
    }
}

fn hindered(obstacle: Option<Obstacle>, trust: &ProxmoxTrust) -> String {
    const SHOW: &str = "openssl x509 -noout -fingerprint -sha256 -in /etc/pve/local/pve-ssl.pem";
    match obstacle {
        Some(Obstacle::Refused) => {
            "no server listens at this address: `endpoints` must name hosts of the cluster, with port \
                8006; check `systemctl status pveproxy` on the host"
                .to_owned()
        }
        Some(Obstacle::UnknownName) => {
            "this host cannot resolve the name of the Proxmox VE host: fix `endpoints`, DNS or /etc/hosts (`getent hosts NAME` uses the same lookup)".to_owned()
        }
        Some(Obstacle::NoRoute) => "this host has no route to the Proxmox VE host: check the routes and the address in `endpoints`".to_owned(),
        Some(Obstacle::Silence) => {
            "no answer: check the address in `endpoints`, whether the host is up, and whether firewalls in between allow port 8006".to_owned()
        }
        Some(Obstacle::UnknownIssuer) => authority(trust),
        Some(Obstacle::OtherName) => {
            "in `endpoints`, use the name from the host's certificate; `openssl x509 -noout -ext \
                subjectAltName -in /etc/pve/local/pve-ssl.pem` on the host shows this name"
                .to_owned()
        }
        Some(Obstacle::Expired) => {
            "`pvecm updatecerts --force` on the host creates a new certificate; also check the clock of this host".to_owned()
        }
        Some(Obstacle::OtherFingerprint) => format!(
            "if the host has a new certificate, set `fingerprint` to the new certificate's fingerprint; \
                `{SHOW}` on the host shows it (for a custom certificate, use pveproxy-ssl.pem in the \
                same folder)"
        ),
        Some(Obstacle::NoTls) => "the server at this address does not speak TLS: `endpoints` must name \
            port 8006 of a Proxmox VE host".to_owned(),
        None => {
            "`endpoints` must name hosts of the cluster, with port 8006, and the trusted CA or \
                certificate must belong to the cluster".to_owned()
        }
    }
}

/// Explains how to trust the host's certificate. Proxmox VE's own CA has issued it, unless an administrator
/// has installed a different certificate.
fn authority(trust: &ProxmoxTrust) -> String {
    const OWN: &str = "/etc/pve/pve-root-ca.pem";
    const UNIT: &str = "`ca_credential = \"pve-root-ca\"` (the unit loads it from /etc/pve-autoscaler/credentials/pve-root-ca)";
    match trust {
        ProxmoxTrust::System => format!(
            "the system does not trust Proxmox VE's own CA: copy {OWN} from a host, and replace `ca` \
                with `ca_file` and the path of the copy, or with {UNIT}"
        ),
        ProxmoxTrust::CaFile(path) if path == Path::new(OWN) => {
            "the host's certificate was issued by a different CA: if that CA is public, set `ca = \
                \"system\"`; otherwise, set `ca_file` to the CA's certificate"
                .to_owned()
        }
        ProxmoxTrust::CaFile(_) | ProxmoxTrust::CaCredential(_) => format!(
            "the configured CA did not issue the host's certificate: if a public CA issued it, set `ca \
                = \"system\"`; the cluster's own CA is {OWN} on any of its hosts"
        ),
        ProxmoxTrust::Fingerprint(_) => hindered(Some(Obstacle::OtherFingerprint), trust),
    }
}

/// What to do if the API server does not answer.
pub(super) fn kubernetes(text: &str) -> String {
    let same = "also try `kubectl --kubeconfig FILE version` with the same kubeconfig";
    let what = match obstacle(text) {
        Some(Obstacle::Refused) => {
            "no server listens at this address: check `server` in the kubeconfig, and whether the API \
                server is up"
        }
        Some(Obstacle::UnknownName) => {
            "this host cannot resolve the API server's name: fix `server` in the kubeconfig, DNS or /etc/hosts"
        }
        Some(Obstacle::NoRoute) => {
            "this host has no route to the API server: check the routes and `server` in the kubeconfig"
        }
        Some(Obstacle::Silence) => {
            "no answer: check `server` in the kubeconfig, whether the API server is up, and whether firewalls in between allow its port"
        }
        Some(Obstacle::UnknownIssuer) => {
            "`certificate-authority-data` in the kubeconfig is not the API server's CA: with kubeadm, that CA is /etc/kubernetes/pki/ca.crt on a control plane node"
        }
        Some(Obstacle::OtherName) => {
            "in the kubeconfig, use the name from the API server's certificate in `server`, or set \
                `tls-server-name` to that name"
        }
        Some(Obstacle::Expired) => {
            "`kubeadm certs check-expiration` on a control plane node shows which certificate has expired; also check the clock of this host"
        }
        Some(Obstacle::NoTls) => {
            "the server at this address does not speak TLS: check `server` in the \
            kubeconfig"
        }
        Some(Obstacle::OtherFingerprint) | None => return same.to_owned(),
    };
    format!("{what}; {same}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_obstacle_has_a_way_out_of_its_own() {
        let own = || ProxmoxTrust::CaFile("/etc/pve/pve-root-ca.pem".into());
        for (text, trust, expected) in [
            ("Connection refused (os error 111)", own(), "systemctl status pveproxy"),
            ("failed to lookup address information: Name or service not known", own(), "getent hosts"),
            ("No route to host (os error 113)", own(), "routes"),
            ("operation timed out", own(), "firewalls"),
            ("invalid peer certificate: UnknownIssuer", ProxmoxTrust::System, "/etc/pve/pve-root-ca.pem"),
            ("invalid peer certificate: UnknownIssuer", own(), "ca = \"system\""),
            (
                "invalid peer certificate: certificate not valid for name \"pve9\"; certificate is only valid for DnsName(\"pve1\")",
                own(),
                "subjectAltName",
            ),
            (
                "invalid peer certificate: certificate expired: verification time 1 (UNIX)",
                own(),
                "pvecm updatecerts",
            ),
            (
                "the server's certificate has the fingerprint AA, not the pinned one",
                own(),
                "openssl x509 -noout -fingerprint",
            ),
            ("received corrupt message of type InvalidContentType", own(), "speak TLS"),
            ("something else", own(), "port 8006"),
        ] {
            let help = hindered(obstacle(text), &trust);
            assert!(help.contains(expected), "{text}: {help}");
            assert!(kubernetes(text).contains("kubectl"), "{text}");
        }
        let refused = kubernetes("cannot ask the API server for its version: Connection refused");
        assert!(refused.starts_with("no server listens at this address"), "{refused}");
    }
}
