//! The certificates to trust: those of certificate authorities, such as the cluster's own, or one pinned
//! certificate.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Which certificates to trust.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Only certificates of these authorities (PEM), e.g. the cluster's `pve-root-ca.pem`.
    Authorities(String),
    /// Only the certificate with this SHA-256 fingerprint, in Proxmox's notation: hexadecimal pairs with
    /// colons.
    Fingerprint(String),
}

/// Why a trust setting cannot be used.
#[derive(Debug, Error)]
pub enum TrustError {
    /// There is no certificate in the text.
    #[error("no usable certificate in the PEM text")]
    NoCertificate,
    /// The fingerprint is malformed.
    #[error("not a SHA-256 fingerprint: expected 32 pairs of hexadecimal digits, separated by colons")]
    Fingerprint,
    /// The TLS library returned an error.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
}

pub(super) fn config(trust: &Trust) -> Result<ClientConfig, TrustError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(TrustError::Tls)?;
    Ok(match trust {
        Trust::Authorities(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|_| TrustError::NoCertificate)?;
                roots.add(certificate).map_err(TrustError::Tls)?;
            }
            if roots.is_empty() {
                return Err(TrustError::NoCertificate);
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        Trust::Fingerprint(text) => {
            let pinned = Pinned { digest: fingerprint(text).ok_or(TrustError::Fingerprint)?, provider };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(pinned)).with_no_client_auth()
        }
    })
}

/// The 32 bytes of a fingerprint.
fn fingerprint(text: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    let pairs: Vec<_> = text.trim().split(':').collect();
    if pairs.len() != digest.len() {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(pairs) {
        *byte = u8::from_str_radix(pair, 16).ok().filter(|_| pair.len() == 2)?;
    }
    Some(digest)
}

/// Accepts one certificate, regardless of its names and dates. Signatures are still verified.
#[derive(Debug)]
struct Pinned {
    digest: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let seen = Sha256::digest(end_entity.as_ref());
        if seen.as_slice() == self.digest {
            return Ok(ServerCertVerified::assertion());
        }
        let pairs: Vec<String> = seen.iter().map(|byte| format!("{byte:02X}")).collect();
        Err(rustls::Error::General(format!(
            "the server's certificate has the fingerprint {}, not the pinned one",
            pairs.join(":")
        )))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_fingerprint_is_one() {
        let good = vec!["aB"; 32].join(":");
        assert_eq!(fingerprint(&good), Some([0xab; 32]));
        for wrong in [
            "",
            "ab",
            &good[3..],
            &good.replace(':', ""),
            &good.replacen("aB", "a", 1),
            &good.replace('a', "x"),
        ] {
            assert_eq!(fingerprint(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_text_without_a_certificate_is_refused() {
        assert!(matches!(config(&Trust::Authorities(String::new())), Err(TrustError::NoCertificate)));
        assert!(config(&Trust::Fingerprint(vec!["00"; 32].join(":"))).is_ok());
    }
}
