//! Files on storages: images that a host downloads itself.

use super::client::{Client, Lane, encode};
use super::error::Error;
use super::lifecycle::upid;
use super::upid::Upid;

/// An image that a host is to download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// From where.
    pub url: String,
    /// The file that it becomes, with an ending that says what it is: `.qcow2`, `.raw` or `.vmdk`.
    pub file: String,
    /// How it is proved to be the right one, as Proxmox VE names it: `sha256`, `sha512` …
    pub algorithm: String,
    /// Its digest in lower-case hexadecimal digits.
    pub digest: String,
}

impl Client {
    /// Lets a host download an image that disks are imported from. A file that is there already and is the right one is not
    /// downloaded again. Needs `Datastore.AllocateTemplate` on the storage, and `Sys.AccessNetwork` on the host.
    pub async fn download_image(
        &self,
        host: &str,
        storage: &str,
        download: &Download,
    ) -> Result<Upid, Error> {
        let path = format!("/nodes/{}/storage/{}/download-url", encode(host), encode(storage));
        let form = [
            ("content", "import".to_owned()),
            ("filename", download.file.clone()),
            ("url", download.url.clone()),
            ("checksum", download.digest.clone()),
            ("checksum-algorithm", download.algorithm.clone()),
        ];
        let data = self.post(Lane::Lifecycle(host), &path, &form).await?;
        upid("POST download-url", &data)
    }
}
