//! What a machine is created from.

use super::vmid::Vmid;

/// What a machine is created from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineKind {
    /// A clone of the template with this VMID.
    Clone(Vmid),
    /// A VM that is created without a template and boots from the network.
    Blank,
    /// A bare-metal machine, which is switched on and off.
    BareMetal,
}

/// Serializes the template of a record. If the machine has no template, 0 is written, because earlier
/// releases expect a number.
pub(super) mod template {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Vmid;

    #[expect(
        clippy::ref_option,
        clippy::trivially_copy_pass_by_ref,
        reason = "serde requires this signature"
    )]
    pub fn serialize<S: Serializer>(template: &Option<Vmid>, serializer: S) -> Result<S::Ok, S::Error> {
        template.unwrap_or_default().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vmid>, D::Error> {
        Ok(Option::<Vmid>::deserialize(deserializer)?.filter(|vmid| vmid.0 != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;

    #[test]
    fn it_follows_from_the_record_whoever_wrote_it() {
        let record = serde_json::to_value(Record::example()).unwrap();
        let kind = |template: Option<u32>, machine: Option<&str>| {
            let mut record = record.clone();
            record.as_object_mut().unwrap().remove("template");
            record["slot"]["machine"] = machine.into();
            if let Some(template) = template {
                record["template"] = template.into();
            }
            let read: Record = serde_json::from_value(record).unwrap();
            let again = serde_json::from_value::<Record>(serde_json::to_value(&read).unwrap()).unwrap();
            assert_eq!(read.kind(), again.kind());
            // Earlier releases accept only a number.
            assert!(serde_json::to_value(&read).unwrap()["template"].is_number());
            read.kind()
        };
        assert_eq!(kind(Some(9000), None), MachineKind::Clone(Vmid(9000)));
        assert_eq!((kind(Some(0), None), kind(None, None)), (MachineKind::Blank, MachineKind::Blank));
        assert_eq!(kind(None, Some("rack-1")), MachineKind::BareMetal);
    }
}
