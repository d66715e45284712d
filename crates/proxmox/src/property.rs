//! Property strings (`virtio=BC:24:11:00:00:01,bridge=vmbr0`), parsed in the same way as by
//! `parse_property_string` in pve-common. One value may appear without its key, anywhere in the text. Some
//! keys have aliases. Yes and no have four spellings each.

/// The format of one kind of property string.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The key of the value that may appear without a key, if any.
    default: Option<&'static str>,
    /// Aliases of keys, each with the key for which it stands.
    aliases: &'static [(&'static str, &'static str)],
    /// Values of the default key that may be used in place of a key, and the key to which the text after the
    /// `=` then belongs. For example, `virtio=MAC` means `model=virtio` and `macaddr=MAC`.
    values_as_keys: Option<(&'static [&'static str], &'static str)>,
}

const fn with_default(key: &'static str) -> Format {
    Format { default: Some(key), aliases: &[], values_as_keys: None }
}

/// The models of network devices.
const MODELS: &[&str] = &[
    "e1000",
    "e1000-82540em",
    "e1000-82544gc",
    "e1000-82545em",
    "e1000e",
    "i82551",
    "i82557b",
    "i82559er",
    "ne2k_isa",
    "ne2k_pci",
    "pcnet",
    "rtl8139",
    "virtio",
    "vmxnet3",
];

/// A property string in which every value has its key: `ipconfigN`, `smbios1`, `cicustom`.
const PLAIN: Format = Format { default: None, aliases: &[], values_as_keys: None };
const DRIVE: Format = Format { default: Some("file"), aliases: &[("volume", "file")], values_as_keys: None };
const NET: Format =
    Format { default: Some("model"), aliases: &[], values_as_keys: Some((MODELS, "macaddr")) };

/// The formats, by option name without the number.
const FORMATS: &[(&str, Format)] = &[
    ("agent", with_default("enabled")),
    ("boot", with_default("legacy")),
    ("cpu", with_default("cputype")),
    ("efidisk", DRIVE),
    ("hostpci", with_default("host")),
    ("ide", DRIVE),
    ("machine", with_default("type")),
    ("memory", with_default("current")),
    ("net", NET),
    ("rng", with_default("source")),
    ("sata", DRIVE),
    ("scsi", DRIVE),
    ("tpmstate", DRIVE),
    ("unused", DRIVE),
    ("usb", with_default("host")),
    ("vga", with_default("type")),
    ("virtio", DRIVE),
    ("virtiofs", with_default("dirid")),
    ("watchdog", with_default("model")),
];

/// Returns an option's name without its number, e.g. `net` for `net0`.
pub fn stem(option: &str) -> &str {
    option.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// The parts of a property string, by their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Properties<'t>(Vec<(&'t str, &'t str)>);

impl<'t> Properties<'t> {
    /// Reads the value of an option. Parts that the option's format does not allow are kept under their
    /// literal key.
    pub fn of(option: &str, text: &'t str) -> Self {
        let format =
            FORMATS.iter().find(|(name, _)| *name == stem(option)).map_or(PLAIN, |(_, format)| *format);
        let mut parts = Vec::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            match (part.split_once('='), format.default) {
                (Some((key, value)), _) => format.named(key, value, &mut parts),
                (None, Some(key)) => parts.push((key, part)),
                (None, None) => {}
            }
        }
        Self(parts)
    }

    /// Returns the value of a key. If the key occurs several times, which Proxmox VE would refuse, returns
    /// its first value.
    pub fn get(&self, key: &str) -> Option<&'t str> {
        self.0.iter().find(|(one, _)| *one == key).map(|(_, value)| *value)
    }

    /// Returns the value of a key as a boolean. `None` if the key is missing, or its value is neither yes nor
    /// no.
    pub fn flag(&self, key: &str) -> Option<bool> {
        truth(self.get(key)?)
    }

    /// All keys with their values, in their original order.
    pub fn all(&self) -> impl Iterator<Item = (&'t str, &'t str)> {
        self.0.iter().copied()
    }
}

impl Format {
    fn named<'t>(&self, key: &'t str, value: &'t str, parts: &mut Vec<(&'t str, &'t str)>) {
        if let (Some((values, other)), Some(default)) = (self.values_as_keys, self.default)
            && values.contains(&key)
        {
            parts.extend([(default, key), (other, value)]);
            return;
        }
        let meant = self.aliases.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, meant)| *meant);
        parts.push((meant, value));
    }
}

/// Parses yes or no in any of Proxmox VE's spellings.
pub fn truth(text: &str) -> Option<bool> {
    let is = |words: [&str; 4]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(["1", "on", "yes", "true"]) {
        Some(true)
    } else if is(["0", "off", "no", "false"]) {
        Some(false)
    } else {
        None
    }
}

/// Parses a size such as `32G`, `1.5G`, `528K` or `4MiB`, and returns it in bytes. A size without a unit is
/// in bytes.
pub fn size(text: &str) -> Option<i64> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let shift = match unit.strip_suffix("iB").unwrap_or(unit) {
        "" if unit.is_empty() => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.parse::<i64>().ok().filter(|_| digits(whole))?.checked_mul(1 << shift)?;
    if fraction.is_empty() {
        return number.bytes().all(|byte| byte != b'.').then_some(whole);
    }
    // Nine decimal places of a GiB are precise to about one byte. A nine-digit number times 2^40 (the bytes
    // of a TiB) fits in an `i128`.
    let fraction = fraction.get(..9).unwrap_or(fraction);
    let part = i128::from(fraction.parse::<i64>().ok().filter(|_| digits(fraction))?) << shift;
    let part = part / 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    whole.checked_add(i64::try_from(part).ok()?)
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_whatever_the_order_and_the_name_of_their_key() {
        for (option, text, key, expected) in [
            ("agent", "1", "enabled", Some("1")),
            ("agent", "fstrim_cloned_disks=1,1", "enabled", Some("1")),
            ("agent", "type=isa,enabled=on", "enabled", Some("on")),
            ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0", "model", Some("virtio")),
            ("net0", "bridge=vmbr0,virtio=BC:24:11:00:00:01", "macaddr", Some("BC:24:11:00:00:01")),
            (
                "net12",
                "bridge=vmbr0,model=e1000,macaddr=BC:24:11:00:00:01",
                "macaddr",
                Some("BC:24:11:00:00:01"),
            ),
            ("net0", "bridge=vmbr0,e1000", "model", Some("e1000")),
            ("net0", "e1000-82540em=BC:24:11:00:00:01", "model", Some("e1000-82540em")),
            ("scsi0", "discard=on,local-lvm:vm-1-disk-0,size=8G", "file", Some("local-lvm:vm-1-disk-0")),
            ("virtio0", "size=8G,volume=local:1/a.qcow2", "file", Some("local:1/a.qcow2")),
            ("efidisk0", "file=local:1/a.qcow2,efitype=4m", "file", Some("local:1/a.qcow2")),
            ("cpu", "flags=+aes,custom-big", "cputype", Some("custom-big")),
            ("hostpci0", "pcie=1,0000:01:00", "host", Some("0000:01:00")),
            ("usb0", "spice,usb3=1", "host", Some("spice")),
            ("rng0", "/dev/hwrng", "source", Some("/dev/hwrng")),
            ("virtiofs0", "cache=auto,share", "dirid", Some("share")),
            ("memory", "2048", "current", Some("2048")),
            ("memory", "current=2048", "current", Some("2048")),
            ("ipconfig0", "gw=10.0.0.1,ip=10.0.0.2/24", "ip", Some("10.0.0.2/24")),
            ("ipconfig0", "dhcp", "ip", None),
        ] {
            assert_eq!(Properties::of(option, text).get(key), expected, "{option}: {text}");
        }
    }

    #[test]
    fn yes_and_no_have_four_spellings_each() {
        for (text, expected) in [
            ("1", Some(true)),
            ("ON", Some(true)),
            ("Yes", Some(true)),
            ("true", Some(true)),
            ("0", Some(false)),
            ("off", Some(false)),
            ("no", Some(false)),
            ("False", Some(false)),
            ("2", None),
            ("", None),
        ] {
            assert_eq!(truth(text), expected, "{text}");
        }
    }

    #[test]
    fn sizes_have_units_with_and_without_a_fraction() {
        for (text, expected) in [
            ("8G", Some(8 << 30)),
            ("528K", Some(528 << 10)),
            ("4MiB", Some(4 << 20)),
            ("1.5G", Some(3 << 29)),
            ("2252.25M", Some(2_361_655_296)),
            ("1T", Some(1 << 40)),
            ("4194304", Some(4 << 20)),
            ("9999999999T", None),
            ("8GB", None),
            ("iB", None),
            ("8iB", None),
            ("8.", None),
            ("G", None),
            ("-1G", None),
            ("", None),
        ] {
            assert_eq!(size(text), expected, "{text}");
        }
    }
}
