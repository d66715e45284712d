//! Decides whether a kubelet may have a serving certificate. The certificate may only contain the name and
//! the addresses of the kubelet's own machine.
//!
//! This module checks the same conditions as the signer itself (`ValidateKubeletServingCSR` in Kubernetes'
//! `pkg/apis/certificates`), except for the signature. In addition, the request must come from a machine with
//! a record, and may only contain names and addresses that the record assigns to the machine.

use std::collections::BTreeSet;
use std::net::IpAddr;

use thiserror::Error;
use x509_parser::asn1_rs::FromDer;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::pem::parse_x509_pem;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use kubernetes::ServingRequest;
use model::Record;

/// The prefix of a kubelet's user name. The name of its Node follows.
pub const NODE_USER: &str = "system:node:";
/// The group of all kubelets, and the organization in their certificates.
const NODES: &str = "system:nodes";
/// The required usages of a serving certificate. `key encipherment` is also allowed, because requests for RSA
/// keys contain it.
const USAGES: [&str; 2] = ["digital signature", "server auth"];
const FURTHER_USAGE: &str = "key encipherment";

/// Why a request is not approved.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotApproved {
    /// The requester is not the machine's kubelet.
    #[error("the requester `{user}` is not this machine's kubelet")]
    Asker {
        /// The requester.
        user: String,
    },
    /// The requester is not a kubelet.
    #[error("the requester is not in the group system:nodes")]
    Group,
    /// The requested usages are not those of a serving certificate.
    #[error("its usages are {usages}, not those of a kubelet's serving certificate")]
    Usages {
        /// The requested usages, separated by commas.
        usages: String,
    },
    /// The request cannot be read.
    #[error("it is not a readable PKCS#10 request")]
    Unreadable,
    /// The subject of the request is not the kubelet's.
    #[error("its subject is `{subject}`, not the kubelet's")]
    Subject {
        /// The subject.
        subject: String,
    },
    /// The request contains attributes or extensions other than alternative names.
    #[error("it requests attributes or extensions other than alternative names")]
    Extensions,
    /// The request contains a DNS name that is not this machine's name.
    #[error("it names `{name}`, which is not this machine")]
    Name {
        /// The name.
        name: String,
    },
    /// The request contains an address that was not assigned to this machine.
    #[error("it names {address}, which is not an address of this machine")]
    Address {
        /// The address.
        address: IpAddr,
    },
    /// The request has an alternative name of another kind, such as a URI.
    #[error("it has an alternative name that is neither a DNS name nor an IP address")]
    OtherName,
    /// The request has no alternative names.
    #[error("it has no alternative names")]
    Nameless,
}

/// Checks that the request comes from this machine's kubelet, and contains only the machine's own name and
/// addresses.
///
/// # Errors
/// Returns the first reason to refuse the request.
pub fn judge(request: &ServingRequest, record: &Record) -> Result<(), NotApproved> {
    if request.user.strip_prefix(NODE_USER) != Some(record.name.as_str()) {
        return Err(NotApproved::Asker { user: request.user.clone() });
    }
    if !request.groups.iter().any(|group| group == NODES) {
        return Err(NotApproved::Group);
    }
    let mut usages: BTreeSet<&str> = request.usages.iter().map(String::as_str).collect();
    usages.remove(FURTHER_USAGE);
    if usages != BTreeSet::from(USAGES) {
        return Err(NotApproved::Usages { usages: request.usages.join(", ") });
    }
    let (rest, pem) = parse_x509_pem(&request.pem).map_err(|_| NotApproved::Unreadable)?;
    if pem.label != "CERTIFICATE REQUEST" || !rest.trim_ascii().is_empty() {
        return Err(NotApproved::Unreadable);
    }
    let (rest, asked) =
        X509CertificationRequest::from_der(&pem.contents).map_err(|_| NotApproved::Unreadable)?;
    if !rest.is_empty() {
        return Err(NotApproved::Unreadable);
    }
    let info = &asked.certification_request_info;
    if !is_kubelets(&info.subject, &request.user) {
        return Err(NotApproved::Subject { subject: info.subject.to_string() });
    }
    let mut named = 0;
    for attribute in info.iter_attributes() {
        let ParsedCriAttribute::ExtensionRequest(wanted) = attribute.parsed_attribute() else {
            return Err(NotApproved::Extensions);
        };
        for extension in &wanted.extensions {
            let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
                return Err(NotApproved::Extensions);
            };
            for name in &names.general_names {
                is_own(name, record)?;
                named += 1;
            }
        }
    }
    if named == 0 { Err(NotApproved::Nameless) } else { Ok(()) }
}

/// Whether the subject is a kubelet's: it contains the user name and the organization, each once, and nothing
/// else.
fn is_kubelets(subject: &X509Name<'_>, user: &str) -> bool {
    let parts: Vec<&AttributeTypeAndValue<'_>> = subject.iter_attributes().collect();
    let wanted = [(OID_X509_COMMON_NAME, user), (OID_X509_ORGANIZATION_NAME, NODES)];
    let has = |(kind, text): &(_, &str)| {
        parts.iter().any(|part| part.attr_type() == kind && part.as_str().is_ok_and(|found| found == *text))
    };
    parts.len() == wanted.len() && wanted.iter().all(has)
}

/// Returns an error unless the alternative name is the machine's own name or one of its addresses.
fn is_own(name: &GeneralName<'_>, record: &Record) -> Result<(), NotApproved> {
    match name {
        GeneralName::DNSName(name) if *name == record.name => Ok(()),
        GeneralName::DNSName(name) => Err(NotApproved::Name { name: (*name).to_owned() }),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            let address = address.map_err(|_| NotApproved::Unreadable)?;
            let given = record.slot.addresses().any(|own| own == address);
            if given { Ok(()) } else { Err(NotApproved::Address { address }) }
        }
        _ => Err(NotApproved::OtherName),
    }
}

#[cfg(test)]
mod tests {
    use model::Vmid;

    use rcgen::{
        CertificateParams, CustomExtension, DistinguishedName, DnType, KeyPair, KeyUsagePurpose, SanType,
    };

    use super::*;
    use model::machine::Slot;

    const USER: &str = "system:node:workers-a1";

    fn record() -> Record {
        let slot = Slot {
            machine: None,
            vmid: Vmid(9101),
            address: Some("10.10.10.11".parse().unwrap()),
            further: [("net0/ip6".to_owned(), "fd00::11".parse().unwrap())].into(),
        };
        Record { slot, ..Record::example() }
    }

    fn name(text: &str) -> SanType {
        SanType::DnsName(text.try_into().unwrap())
    }

    fn address(text: &str) -> SanType {
        SanType::IpAddress(text.parse().unwrap())
    }

    fn own_names() -> Vec<SanType> {
        vec![name("workers-a1"), address("10.10.10.11")]
    }

    fn own_subject() -> Vec<(DnType, &'static str)> {
        vec![(DnType::OrganizationName, NODES), (DnType::CommonName, USER)]
    }

    fn pem(
        subject: &[(DnType, &str)],
        names: Vec<SanType>,
        more: impl FnOnce(&mut CertificateParams),
    ) -> Vec<u8> {
        let mut asked = CertificateParams::default();
        asked.distinguished_name = DistinguishedName::new();
        for (kind, text) in subject {
            asked.distinguished_name.push(kind.clone(), *text);
        }
        asked.subject_alt_names = names;
        more(&mut asked);
        let key = KeyPair::generate().unwrap();
        asked.serialize_request(&key).unwrap().pem().unwrap().into_bytes()
    }

    fn with(pem: Vec<u8>) -> ServingRequest {
        let words = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
        ServingRequest {
            name: "csr-abcde".to_owned(),
            user: USER.to_owned(),
            groups: words(&[NODES, "system:authenticated"]),
            usages: words(&USAGES),
            pem,
            ..ServingRequest::default()
        }
    }

    fn good() -> ServingRequest {
        with(pem(&own_subject(), own_names(), |_| {}))
    }

    fn named(names: Vec<SanType>) -> ServingRequest {
        with(pem(&own_subject(), names, |_| {}))
    }

    fn of(subject: &[(DnType, &str)]) -> ServingRequest {
        with(pem(subject, own_names(), |_| {}))
    }

    fn used_for(usages: &[&str]) -> ServingRequest {
        ServingRequest { usages: usages.iter().map(|one| (*one).to_owned()).collect(), ..good() }
    }

    #[test]
    fn a_kubelet_gets_a_certificate_for_its_own_name_and_addresses() {
        let fine = [
            good(),
            named(vec![name("workers-a1")]),
            named(vec![address("10.10.10.11"), address("fd00::11")]),
            used_for(&["server auth", "key encipherment", "digital signature"]),
        ];
        for (number, request) in fine.iter().enumerate() {
            assert_eq!(judge(request, &record()), Ok(()), "{number}");
        }
    }

    #[test]
    fn whatever_deviates_is_not_approved() {
        let reason = |request: &ServingRequest| judge(request, &record()).unwrap_err().to_string();
        let user = |user: &str| ServingRequest { user: user.to_owned(), ..good() };
        let bytes = |change: fn(&mut Vec<u8>)| {
            let mut request = good();
            change(&mut request.pem);
            request
        };
        let extension = |oid: &[u64]| {
            let extension = CustomExtension::from_oid_content(oid, vec![5, 0]);
            with(pem(&own_subject(), own_names(), |asked| asked.custom_extensions.push(extension)))
        };
        let authority = |asked: &mut CertificateParams| {
            asked.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        };
        let (common, organization) = (DnType::CommonName, DnType::OrganizationName);
        let cases = [
            ("another node asks", user("system:node:workers-b2"), "not this machine's kubelet"),
            ("a node with a longer name asks", user("system:node:workers-a1x"), "not this machine's kubelet"),
            ("a user with the bare name asks", user("workers-a1"), "not this machine's kubelet"),
            ("a service account asks", user("system:serviceaccount:a:b"), "not this machine's kubelet"),
            (
                "a user outside the kubelets' group asks",
                ServingRequest { groups: vec!["system:authenticated".to_owned()], ..good() },
                "group system:nodes",
            ),
            (
                "a usage for clients, none for servers",
                used_for(&["digital signature", "client auth"]),
                "digital signature, client auth",
            ),
            (
                "an additional usage for clients",
                used_for(&["digital signature", "server auth", "client auth"]),
                "client auth",
            ),
            ("the usage `any`", used_for(&["any"]), "its usages are any"),
            ("no usage for signatures", used_for(&["server auth"]), "its usages are server auth"),
            ("no usages", used_for(&[]), "its usages are "),
            (
                "another common name",
                of(&[(organization.clone(), NODES), (common.clone(), "system:node:workers-b2")]),
                "its subject is",
            ),
            (
                "another organization",
                of(&[(organization.clone(), "system:masters"), (common.clone(), USER)]),
                "its subject is",
            ),
            ("no organization", of(&[(common.clone(), USER)]), "its subject is"),
            ("no common name", of(&[(organization.clone(), NODES)]), "its subject is"),
            (
                "another attribute in the subject",
                of(&[(organization, NODES), (common, USER), (DnType::CountryName, "AT")]),
                "its subject is",
            ),
            ("another host", named(vec![name("workers-b2"), address("10.10.10.11")]), "names `workers-b2`"),
            (
                "one more host",
                named(vec![name("workers-a1"), name("kubernetes.default.svc")]),
                "names `kubernetes.default.svc`",
            ),
            ("any host", named(vec![name("*.workers-a1")]), "names `*.workers-a1`"),
            ("another address", named(vec![name("workers-a1"), address("10.10.10.12")]), "names 10.10.10.12"),
            ("one more address", named(vec![address("10.10.10.11"), address("fd00::12")]), "names fd00::12"),
            (
                "its address as IPv4-mapped IPv6",
                named(vec![address("::ffff:10.10.10.11")]),
                "names ::ffff:10.10.10.11",
            ),
            (
                "an email address",
                named(vec![name("workers-a1"), SanType::Rfc822Name("a@b".try_into().unwrap())]),
                "neither a DNS name nor",
            ),
            (
                "a URI",
                named(vec![name("workers-a1"), SanType::URI("https://workers-a1".try_into().unwrap())]),
                "neither a DNS name nor",
            ),
            ("no names", named(Vec::new()), "no alternative names"),
            ("another extension", extension(&[2, 5, 29, 19]), "other than alternative names"),
            ("an unknown extension", extension(&[1, 3, 6, 1, 4, 1, 99]), "other than alternative names"),
            (
                "a key usage for signing certificates",
                with(pem(&own_subject(), own_names(), authority)),
                "other than alternative names",
            ),
            ("an empty request", bytes(Vec::clear), "not a readable PKCS#10"),
            ("a truncated request", bytes(|pem| pem.truncate(200)), "not a readable PKCS#10"),
            ("not PEM", bytes(|pem| pem.splice(..5, *b"hello").for_each(drop)), "not a readable PKCS#10"),
            ("two requests in one", bytes(|pem| pem.extend_from_within(..)), "not a readable PKCS#10"),
            ("a certificate", with(certificate()), "not a readable PKCS#10"),
        ];
        for (about, request, expected) in cases {
            let reason = reason(&request);
            assert!(reason.contains(expected), "{about}: {reason}");
        }
    }

    fn certificate() -> Vec<u8> {
        let asked = CertificateParams::new(vec!["workers-a1".to_owned()]).unwrap();
        asked.self_signed(&KeyPair::generate().unwrap()).unwrap().pem().into_bytes()
    }
}
