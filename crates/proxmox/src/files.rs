//! Files on storages: images that a host downloads, and small ISO images that are uploaded.

use bytes::Bytes;
use http::Method;
use runtime::boxed;

use super::answer::text_of;
use super::client::{Client, Lane, Payload, encode};
use super::error::Error;
use super::lifecycle::upid;
use super::upid::Upid;

/// An image that a host is to download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// Its URL.
    pub url: String,
    /// The name under which the image is stored, with an extension for its format: `.qcow2`, `.raw` or
    /// `.vmdk`.
    pub file: String,
    /// The checksum algorithm, as Proxmox VE names it: `sha256`, `sha512` …
    pub algorithm: String,
    /// The image's digest in lower-case hexadecimal digits.
    pub digest: String,
}

impl Client {
    /// Makes a host download a disk image to import. A file that already exists with the right checksum is
    /// not downloaded again. Needs `Datastore.AllocateTemplate` on the storage, and `Sys.AccessNetwork` on
    /// the host.
    #[boxed]
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

    /// Uploads an ISO image. An image of the same name is overwritten. Needs `Datastore.AllocateTemplate` on
    /// the storage.
    #[boxed]
    pub async fn upload_iso(
        &self,
        host: &str,
        storage: &str,
        name: &str,
        image: &[u8],
    ) -> Result<Upid, Error> {
        /// A boundary that does not occur in any uploaded image.
        const BOUNDARY: &str = "pve-autoscaler-71c5a2f0d3";
        let part = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=");
        // The file must be the last part of the form.
        let head = format!(
            "{part}\"content\"\r\n\r\niso\r\n{part}\"filename\"; filename=\"{name}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        let body = [head.as_bytes(), image, format!("\r\n--{BOUNDARY}--\r\n").as_bytes()].concat();
        let kind = format!("multipart/form-data; boundary={BOUNDARY}");
        let path = format!("/nodes/{}/storage/{}/upload", encode(host), encode(storage));
        let payload = Payload::Body(kind, Bytes::from(body));
        let data = self.send(Method::POST, Lane::Lifecycle(host), &path, &payload).await?;
        upid("POST upload", &data)
    }

    /// The volume ids of the ISO images on a storage, as seen from a host.
    #[boxed]
    pub async fn isos(&self, host: &str, storage: &str) -> Result<Vec<String>, Error> {
        let path = format!("/nodes/{}/storage/{}/content", encode(host), encode(storage));
        let data = self.get(Lane::Lifecycle(host), &path, &[("content", "iso".to_owned())]).await?;
        let rows = data.as_array().ok_or_else(|| Error::malformed("GET content", "no list"))?;
        Ok(rows.iter().filter_map(|row| text_of(row, "volid")).collect())
    }

    /// Removes an ISO image. It is not an error if the image does not exist. Needs `Datastore.Allocate` on
    /// the storage, no matter which user created the image.
    #[boxed]
    pub async fn delete_iso(&self, host: &str, storage: &str, volume: &str) -> Result<(), Error> {
        let path = format!("/nodes/{}/storage/{}/content/{}", encode(host), encode(storage), encode(volume));
        // Makes Proxmox VE wait for the removal. Otherwise, the answer does not show whether the removal
        // succeeded.
        let wait = [("delay", "20".to_owned())];
        self.call(Method::DELETE, Lane::Lifecycle(host), &path, &wait).await.map(|_| ())
    }
}
