//! Writes small ISO 9660 images with Joliet names and a few files in the root, for guests that read a NoCloud
//! seed.
//!
//! An image depends only on its files: all dates are zero, so the same files give the same bytes. The plain
//! names conform to level 1 of the standard; the real names are in the Joliet tree, which Linux and the BSDs
//! read (ECMA-119, and Microsoft's Joliet specification).

const SECTOR: usize = 2048;
/// The sectors at which the two directories and the first file begin. Before them are 16 empty sectors, three
/// descriptors and four path tables.
const PLAIN_ROOT: u32 = 23;
const JOLIET_ROOT: u32 = 24;
const FIRST_FILE: u32 = 25;
/// A directory of one sector always has room for this number of files.
const MOST_FILES: usize = 8;

/// Creates an image with this volume label and these files. The files must be ordered by name, and their
/// names must be short and ASCII. Only the first eight files are written.
pub fn image(label: &str, files: &[(&str, &[u8])]) -> Vec<u8> {
    let files = &files[..files.len().min(MOST_FILES)];
    let mut next = FIRST_FILE;
    let mut places = Vec::new();
    for (_, content) in files {
        places.push(next);
        next += sectors(content.len()).max(1);
    }
    let mut image = vec![0; 16 * SECTOR];
    for joliet in [false, true] {
        image.extend(descriptor(label, next, joliet));
    }
    let mut end = vec![0; SECTOR];
    end[..7].copy_from_slice(b"\xffCD001\x01");
    image.extend(end);
    for root in [PLAIN_ROOT, JOLIET_ROOT] {
        image.extend(path_table(root.to_le_bytes(), 1_u16.to_le_bytes()));
        image.extend(path_table(root.to_be_bytes(), 1_u16.to_be_bytes()));
    }
    for (root, joliet) in [(PLAIN_ROOT, false), (JOLIET_ROOT, true)] {
        let mut directory = record(root, SECTOR, true, &[0]);
        directory.extend(record(root, SECTOR, true, &[1]));
        for (number, ((name, content), place)) in files.iter().zip(&places).enumerate() {
            let name = if joliet { wide(name) } else { format!("FILE{number}.;1").into_bytes() };
            directory.extend(record(*place, content.len(), false, &name));
        }
        directory.resize(SECTOR, 0);
        image.extend(directory);
    }
    for (_, content) in files {
        image.extend_from_slice(content);
        let whole = image.len().next_multiple_of(SECTOR);
        image.resize(whole.max(image.len()), 0);
        if content.is_empty() {
            image.resize(image.len() + SECTOR, 0);
        }
    }
    image
}

fn sectors(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(SECTOR)).unwrap_or(u32::MAX)
}

/// Encodes a text as UCS-2, with the high byte first.
fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

/// Encodes a number in both byte orders.
fn both(number: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn record(place: u32, size: usize, directory: bool, name: &[u8]) -> Vec<u8> {
    let mut record = vec![0, 0];
    record.extend(both(place));
    record.extend(both(u32::try_from(size).unwrap_or(u32::MAX)));
    record.extend([0; 7]);
    record.extend([if directory { 2 } else { 0 }, 0, 0, 1, 0, 0, 1]);
    record.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
    record.extend_from_slice(name);
    if record.len() % 2 == 1 {
        record.push(0);
    }
    record[0] = u8::try_from(record.len()).unwrap_or(u8::MAX);
    record
}

fn path_table(root: [u8; 4], parent: [u8; 2]) -> Vec<u8> {
    let mut table = vec![1, 0];
    table.extend(root);
    table.extend(parent);
    table.resize(SECTOR, 0);
    table
}

fn descriptor(label: &str, size: u32, joliet: bool) -> Vec<u8> {
    let mut sector = vec![0; SECTOR];
    let mut put = |at: usize, bytes: &[u8]| sector[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, if joliet { b"\x02CD001\x01" } else { b"\x01CD001\x01" });
    let blank = |bytes: usize| if joliet { wide(&" ".repeat(bytes / 2)) } else { vec![b' '; bytes] };
    put(8, &blank(32));
    put(40, &blank(32));
    let mut name = if joliet { wide(label) } else { label.as_bytes().to_vec() };
    name.truncate(32);
    put(40, &name);
    put(80, &both(size));
    if joliet {
        // The escape sequence for UCS-2, level 3.
        put(88, b"%/E");
    }
    put(120, &[1, 0, 0, 1]);
    put(124, &[1, 0, 0, 1]);
    put(128, &[0, 8, 8, 0]);
    put(132, &both(10));
    let (table, root) = if joliet { (21_u32, JOLIET_ROOT) } else { (19, PLAIN_ROOT) };
    put(140, &table.to_le_bytes());
    put(148, &(table + 1).to_be_bytes());
    put(156, &record(root, SECTOR, true, &[0]));
    // Publisher, preparer and application are left empty.
    put(190, &blank(128));
    for at in [318, 446, 574] {
        put(at, &blank(128));
    }
    for (at, bytes) in [(702, 36), (739, 36), (776, 36)] {
        put(at, &blank(bytes));
    }
    for at in [813, 830, 847, 864] {
        put(at, &[b'0'; 16]);
    }
    put(881, &[1]);
    sector
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const FILES: [(&str, &[u8]); 3] =
        [("meta-data", b"instance-id: 1\n"), ("network-config", &[b'n'; 5000]), ("user-data", b"")];

    #[test]
    fn the_same_files_make_the_same_image() {
        let image = image("cidata", &FILES);
        assert_eq!(image.len(), 30 * SECTOR);
        assert_eq!(image, super::image("cidata", &FILES));
        assert_eq!(&image[16 * SECTOR + 40..16 * SECTOR + 46], b"cidata");
        assert!(image.windows(18).any(|window| window == wide("meta-data")));
    }

    #[test]
    fn other_programs_read_the_image() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("seed.iso");
        std::fs::write(&path, image("cidata", &FILES)).unwrap();
        let said = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).arg(&path).output().ok()?;
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        match said("isoinfo", &["-J", "-f", "-i"]) {
            Some(names) => {
                assert_eq!(
                    names.lines().collect::<Vec<_>>(),
                    ["/meta-data", "/network-config", "/user-data"]
                );
                let content = said("isoinfo", &["-J", "-x", "/network-config", "-i"]).unwrap();
                assert_eq!(content, "n".repeat(5000));
            }
            None => eprintln!("skipped: isoinfo is not installed"),
        }
        match said("/usr/sbin/blkid", &["-p", "-s", "LABEL", "-s", "TYPE", "-o", "value"]) {
            Some(label) => assert_eq!(label.split_whitespace().collect::<Vec<_>>(), ["cidata", "iso9660"]),
            None => eprintln!("skipped: blkid is not installed"),
        }
    }
}
