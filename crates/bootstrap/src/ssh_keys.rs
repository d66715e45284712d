//! SSH keys: which ones can be used, and how they are described.

use russh::keys::ssh_key::Error;
use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PrivateKey, PublicKey};
use secrecy::{ExposeSecret, SecretString};

use super::ssh_error::{KeyFault, SshError};

/// The supported kinds of keys, best first. RSA is not supported, because its library has an open advisory
/// (RUSTSEC-2023-0071).
pub(super) const KINDS: [Algorithm; 4] = [
    Algorithm::Ed25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
];
/// The first line of a private key in OpenSSH's own format.
const ARMOUR: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";

/// The kind and fingerprint of a key, as `ssh-keygen -l` prints them.
pub(super) fn described(key: &PublicKey) -> String {
    format!("{} {}", key.algorithm(), key.fingerprint(HashAlg::Sha256))
}

/// Parses the key that the host must present.
pub(super) fn host_key(text: &str) -> Result<PublicKey, SshError> {
    let key = PublicKey::from_openssh(text)
        .map_err(|_| SshError::HostKeySetting("is not a complete public key".to_owned()))?;
    let kind = key.algorithm();
    if KINDS.contains(&kind) {
        Ok(key)
    } else {
        Err(SshError::HostKeySetting(format!("is of type {kind}, which is not supported")))
    }
}

/// Parses the daemon's own key. Returns an error if the key cannot be used.
pub(super) fn private_key(text: &SecretString) -> Result<PrivateKey, KeyFault> {
    let text = text.expose_secret();
    let first = text.lines().next().unwrap_or_default();
    if first.starts_with("ssh-") || first.starts_with("ecdsa-") {
        return Err(KeyFault::Public);
    }
    if first.starts_with("-----BEGIN RSA") {
        return Err(KeyFault::Kind("ssh-rsa".to_owned()));
    }
    if text.lines().take(3).any(|line| line.contains("ENCRYPTED")) {
        return Err(KeyFault::Encrypted);
    }
    if first.starts_with("-----BEGIN") && first != ARMOUR {
        return Err(KeyFault::Format);
    }
    let key = PrivateKey::from_openssh(text).map_err(|error| match error {
        Error::AlgorithmUnknown | Error::AlgorithmUnsupported { .. } => KeyFault::Kind("unknown".to_owned()),
        _ => KeyFault::Unreadable,
    })?;
    if key.is_encrypted() {
        Err(KeyFault::Encrypted)
    } else if KINDS.contains(&key.algorithm()) {
        Ok(key)
    } else {
        Err(KeyFault::Kind(key.algorithm().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that was created for this test only.
    const ECDSA: &str = "\
        b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAaAAAABNlY2RzYS1zaGEyLW5pc3RwMjU2AAAACG5pc3Rw\
        MjU2AAAAQQRmlyYf6K5gUwBb2fdgtruz8QNbWKqafvF94DsnGpc7mXC90vzygaoVl/3vvg/QY7FtndCtMDKsKK0WhMuiaKM5AAAA\
        oAgHuJMIB7iTAAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBGaXJh/ormBTAFvZ92C2u7PxA1tYqpp+8X3g\
        OycalzuZcL3S/PKBqhWX/e++D9BjsW2d0K0wMqworRaEy6JoozkAAAAhAP4A5orpNbS7LmZUxiQUTjgK+zk13tQcjhExN+1Z30+x\
        AAAABHRlc3QBAgM=";
    /// Ed25519, with a passphrase.
    const WITH_PASSPHRASE: &str = "\
        b3BlbnNzaC1rZXktdjEAAAAACmFlczI1Ni1jdHIAAAAGYmNyeXB0AAAAGAAAABAyZdPmCHOComJzUwE01HLLAAAAEAAAAAEAAAAz\
        AAAAC3NzaC1lZDI1NTE5AAAAIJTkvHShcEZxZ/4s94kemQL0OrtvLdhiNwMlPLR9JYi4AAAAkPCWw6AS+HsanmrKz+f6kEqANwoP\
        xMoCryVxIU/6pfPqeP6797K6VgPY0d/Hqka3ySypkSwqfNSeUvjTestV/1aBRslThECCsG3MSPTRn6cFzHYTOdV2DgLGgGQkydpL\
        NyGELZirJ3jyBvTuIhHTmWiXUI4p2YO5blmUYld3Z/CJJ/S+vJzpbjZbLvypD5x7jw==";
    /// RSA, 1024 bits.
    const RSA: &str = "\
        b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAlwAAAAdzc2gtcnNhAAAAAwEAAQAAAIEA3uSRYY1iV7D4\
        1iEdTVAjfCKXtxU9koEmRENk+OdIQrSwsZyrX4tPMFoiLTuC+D5czNUGXGE1Jenc2D/9nR6CdQraak6lmS8fD0VcjVfq8Pw/dLJf\
        9WUdtwJ4brSKHHI1fdj/CNl6L0JjKbF+7d1+ymKTSdnaF5me/J9N8ggT3fkAAAH4yipQE8oqUBMAAAAHc3NoLXJzYQAAAIEA3uSR\
        YY1iV7D41iEdTVAjfCKXtxU9koEmRENk+OdIQrSwsZyrX4tPMFoiLTuC+D5czNUGXGE1Jenc2D/9nR6CdQraak6lmS8fD0VcjVfq\
        8Pw/dLJf9WUdtwJ4brSKHHI1fdj/CNl6L0JjKbF+7d1+ymKTSdnaF5me/J9N8ggT3fkAAAADAQABAAAAgG2SHSnAkBydoeXZx4bP\
        I3KNqtlUtr0DgiVCoCt/vtUT8FyPsOs6F4akeHKV889HEOWcvxDAtJjbuzYPVwRbEDPAMU6ZReVtneShU7Rt89AeJGs0VvbNi+D/\
        LoG86kSvP3IebMwkNjEF+ZPWsTeusQL56wdnzuWVMWCFsLC4vqQBAAAAQH4xu19z/NRNeG1YSyWDRF2XQsDHoVM5ioM5vmK7BiNl\
        DpQRGagntL2RkinI65M8t9t7V0TRevPZemb5pHXjY+oAAABBAPpe2dECqVlO9oNcZ0XhlvQ2uVvHIT/W8+pKJwkFtG+yg99zvBhA\
        jqnYnAGF3/ztGt66y6Szfxq5zaOxC9+JinkAAABBAOPnjcTCGpjdFi54aDuHetVTX/W5fHC2H2FSHhm60xBQIFj8UBukLMeoK4z8\
        VT30SqXIkwkihCcliI8TQM/oD4EAAAABdAEC";

    /// A key file's content, without a line break at its end, as the daemon reads it.
    fn file(kind: &str, body: &str) -> SecretString {
        let lines: Vec<&str> =
            body.as_bytes().chunks(70).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----", lines.join("\n")).into()
    }

    #[test]
    fn only_keys_that_can_be_used_are_taken_and_the_others_get_a_way_out() {
        let open = "OPENSSH PRIVATE KEY";
        let cases = [
            (file(open, WITH_PASSPHRASE), KeyFault::Encrypted),
            (file("ENCRYPTED PRIVATE KEY", "MIHs"), KeyFault::Encrypted),
            (file("EC PRIVATE KEY", "Proc-Type: 4,ENCRYPTED"), KeyFault::Encrypted),
            (file(open, RSA), KeyFault::Kind("ssh-rsa".to_owned())),
            (file("RSA PRIVATE KEY", "MIIE"), KeyFault::Kind("ssh-rsa".to_owned())),
            (file("EC PRIVATE KEY", "MHcC"), KeyFault::Format),
            (file("PRIVATE KEY", "MHcC"), KeyFault::Format),
            (file(open, &ECDSA[..200]), KeyFault::Unreadable),
            ("hello".to_owned().into(), KeyFault::Unreadable),
            ("ssh-ed25519 AAAAC3Nz me".to_owned().into(), KeyFault::Public),
        ];
        for (text, fault) in cases {
            let answer = private_key(&text).err();
            assert_eq!(answer, Some(fault), "{}", text.expose_secret());
        }
        let good = private_key(&file(open, ECDSA)).unwrap();
        assert_eq!(good.algorithm(), KINDS[1]);
    }

    #[test]
    fn a_host_is_known_by_a_key_that_can_be_checked() {
        let good = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBGaXJh/ormBTAFvZ92C2u7PxA1tYqpp+8X3gOycalzuZcL3S/PKBqhWX/e++D9BjsW2d0K0wMqworRaEy6Joozk=";
        assert!(described(&host_key(good).unwrap()).starts_with("ecdsa-sha2-nistp256 SHA256:"));
        let rsa = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDe5JFhjWJXsPjWIR1NUCN8Ipe3FT2SgSZEQ2T450hCtLCxnKtfi08wWiItO4L4PlzM1QZcYTUl6dzYP/2dHoJ1CtpqTqWZLx8PRVyNV+rw/D90sl/1ZR23AnhutIoccjV92P8I2XovQmMpsX7t3X7KYpNJ2doXmZ78n03yCBPd+Q==";
        for (text, expected) in [(rsa, "type ssh-rsa"), (&good[..60], "not a complete public key")] {
            let error = host_key(text).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("ssh-keyscan"), "{error}");
        }
    }
}
