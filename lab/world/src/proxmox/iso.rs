//! Reads small ISO 9660 images as a guest does: the files in the root directory, by their Joliet names.

use std::collections::BTreeMap;

const SECTOR: usize = 2048;

/// Returns the label and the files of an image, or `None` if it is not an ISO 9660 image.
pub fn read(image: &[u8]) -> Option<(String, BTreeMap<String, Vec<u8>>)> {
    let descriptors = (16..64).map_while(|at| image.get(at * SECTOR..(at + 1) * SECTOR));
    let mut descriptors = descriptors.take_while(|sector| &sector[1..6] == b"CD001" && sector[0] != 255);
    let joliet = descriptors.find(|sector| sector[0] == 2 && &sector[88..90] == b"%/")?;
    let label = narrow(&joliet[40..72]).trim_end().to_owned();
    let (start, size) = extent(&joliet[156..190])?;
    let mut directory = image.get(start..start + size)?;
    let mut files = BTreeMap::new();
    while let [length, ..] = directory
        && *length >= 34
    {
        let record = directory.get(..usize::from(*length))?;
        let name = record.get(33..33 + usize::from(record[32]))?;
        if record[25] & 2 == 0 {
            let (start, size) = extent(record)?;
            let name = narrow(name).split(';').next().unwrap_or_default().to_owned();
            files.insert(name, image.get(start..start + size)?.to_vec());
        }
        directory = &directory[usize::from(*length)..];
    }
    Some((label, files))
}

/// Returns the offset and size, in bytes, of the data that a directory record describes.
fn extent(record: &[u8]) -> Option<(usize, usize)> {
    let number = |at: usize| Some(u32::from_le_bytes(record.get(at..at + 4)?.try_into().ok()?));
    let (place, size) = (number(2)?, number(10)?);
    Some((usize::try_from(place).ok()? * SECTOR, usize::try_from(size).ok()?))
}

fn narrow(name: &[u8]) -> String {
    let units: Vec<u16> = name.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    String::from_utf16_lossy(&units)
}
