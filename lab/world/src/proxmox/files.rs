//! Files on storages: images that are downloaded for import, uploaded ISO images, and the removal of files.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, header};
use serde_json::{Value, json};

use super::{
    ApiCall, Pve,
    answer::{Answer, Refusal},
    params::Params,
    spec::StorageSpec,
    state::State,
    task::Worker,
};

/// The rate at which a host downloads, in bytes per second.
const DOWNLOAD_RATE: u64 = 100 << 20;
/// How long copying an uploaded file takes.
const COPY: Duration = Duration::from_millis(60);

/// A file on a storage.
#[derive(Clone, Debug)]
pub struct StoredFile {
    /// `iso`, `import` or `vztmpl`.
    pub content: String,
    /// The size of the file in bytes.
    pub size: u64,
    /// The size of the disk in an image, in bytes.
    pub disk: u64,
    /// The digest of the downloaded file, in hexadecimal digits.
    pub digest: String,
    /// The uploaded bytes.
    pub bytes: Bytes,
    /// When the file was created, in Unix time.
    pub ctime: i64,
}

/// An image that hosts can download.
#[derive(Clone, Debug)]
pub struct WebImage {
    /// Its size in bytes.
    pub size: u64,
    /// The size of the disk in the image, in bytes.
    pub disk: u64,
    /// The image's digest, in hexadecimal digits. It is the same for every hash algorithm.
    pub digest: String,
}

/// Parses a multipart body. Returns its fields, including the file's name, and the file's content. The fields
/// must precede the file.
pub fn multipart(headers: &HeaderMap, body: &Bytes) -> Option<(Params, Bytes)> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let boundary = kind.strip_prefix("multipart/form-data")?.split_once("boundary=")?.1.trim_matches('"');
    let mark = format!("--{boundary}");
    let mut params = Params::default();
    let mut at = find(body, mark.as_bytes(), 0)? + mark.len();
    loop {
        let head_end = find(body, b"\r\n\r\n", at)?;
        let head = String::from_utf8_lossy(&body[at..head_end]).into_owned();
        let next = find(body, format!("\r\n{mark}").as_bytes(), head_end)?;
        let content = body.slice(head_end + 4..next);
        let member = |name: &str| {
            let text =
                head.split(';').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix("=\""))?;
            Some(text.split('"').next().unwrap_or_default().to_owned())
        };
        if let Some(file) = member("filename") {
            params.0.insert("filename".into(), file.into());
            return Some((params, content));
        }
        params.0.insert(member("name")?, String::from_utf8_lossy(&content).into_owned().into());
        at = next + 2 + mark.len();
    }
}

fn find(body: &[u8], what: &[u8], from: usize) -> Option<usize> {
    body.get(from..)?.windows(what.len()).position(|window| window == what).map(|at| at + from)
}

impl Pve {
    /// Stores an uploaded file until its call is answered. Returns the file's temporary name.
    pub(super) fn spool(&self, file: Bytes) -> String {
        let mut state = self.state();
        let name = format!("/var/tmp/pveupload-{:032x}", state.random.u128(..));
        state.spool.insert(name.clone(), file);
        name
    }

    pub(super) async fn upload(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let id = call.path.get("storage").cloned().unwrap_or_default();
        let file = call.params.text("tmpfilename").and_then(|name| self.state().spool.remove(&name));
        let allowed =
            call.who.need(&self.state(), &format!("/storage/{id}"), &["Datastore.AllocateTemplate"]);
        if let Err(Refusal::Forbidden(text)) = allowed {
            tokio::time::sleep(Duration::from_secs(3)).await;
            return Err(Refusal::Bare(403, text));
        }
        let file = file.ok_or_else(|| Refusal::failed("missing temporary file name"))?;
        let content = call.params.text("content").unwrap_or_default();
        let name = normalized(&call.params.text("filename").unwrap_or_default());
        let (storage, volid) = self.place_of_file(&id, call.node(), &content, &name)?;
        let (pve, node) = (self.clone(), call.node().to_owned());
        let upid = self.spawn_worker(&node.clone(), "imgcopy", "", &call.who, |worker| async move {
            worker.log(format!("target node: {node}"));
            worker.log(format!("file size is: {}", file.len()));
            worker.work(COPY).await?;
            let size = file.len() as u64;
            let stored = StoredFile {
                content,
                size,
                disk: size,
                digest: String::new(),
                bytes: file,
                ctime: pve.now().as_second(),
            };
            pve.keep(&storage, &node, volid, stored);
            worker.log("finished file import successfully");
            Ok(())
        });
        Ok(Value::from(upid).into())
    }

    pub(super) fn download(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let id = call.path.get("storage").cloned().unwrap_or_default();
        let node = call.node().to_owned();
        {
            let state = self.state();
            call.who.need(&state, &format!("/storage/{id}"), &["Datastore.AllocateTemplate"])?;
            let old_way = ["Sys.Audit", "Sys.Modify"].iter().all(|one| call.who.has(&state, "/", one));
            if !old_way {
                call.who.need(&state, &format!("/nodes/{node}"), &["Sys.AccessNetwork"])?;
            }
        }
        for (one, other) in [("checksum", "checksum-algorithm"), ("checksum-algorithm", "checksum")] {
            if call.params.text(one).is_some() && call.params.text(other).is_none() {
                let text = format!("missing property required by '{one}'");
                return Err(Refusal::parameter(other, text));
            }
        }
        let content = call.params.text("content").unwrap_or_default();
        let name = normalized(&call.params.text("filename").unwrap_or_default());
        let (storage, volid) = self.place_of_file(&id, &node, &content, &name)?;
        let (url, checksum) = (call.params.text("url").unwrap_or_default(), call.params.text("checksum"));
        let pve = self.clone();
        let upid = self.spawn_worker(&node.clone(), "download", &name, &call.who, |worker| async move {
            pve.run_download(&worker, (&storage, &node), volid, (content, &url, checksum)).await
        });
        Ok(Value::from(upid).into())
    }

    async fn run_download(
        &self,
        worker: &Worker,
        (storage, node): (&StorageSpec, &str),
        volid: String,
        (content, url, checksum): (String, &str, Option<String>),
    ) -> Result<(), Refusal> {
        let place = self.state().place(&storage.id, node);
        let there = self.state().files.get(&(volid.clone(), place)).map(|file| file.digest.clone());
        if checksum.is_some() && there == checksum {
            worker.log("OK, got correct file already, no need to download");
            return Ok(());
        }
        worker.log(format!("downloading {url}"));
        let image = self.state().web.get(url).cloned();
        let image = image.ok_or_else(|| {
            Refusal::failed(format!("download failed: command '/usr/bin/wget {url}' failed: exit code 8"))
        })?;
        worker.work(Duration::from_millis(image.size.saturating_mul(1000) / DOWNLOAD_RATE)).await?;
        if let Some(wanted) = checksum.filter(|wanted| *wanted != image.digest) {
            return Err(Refusal::failed(format!(
                "checksum mismatch: got '{}' != expect '{wanted}'",
                image.digest
            )));
        }
        let stored = StoredFile {
            content,
            size: image.size,
            disk: image.disk,
            digest: image.digest,
            bytes: Bytes::new(),
            ctime: self.now().as_second(),
        };
        self.keep(storage, node, volid, stored);
        Ok(())
    }

    /// Puts an ISO image on a host's storage by hand.
    pub fn put_iso_by_hand(&self, storage: &str, node: &str, name: &str) {
        let Some(spec) = self.state().storages.get(storage).cloned() else { return };
        let stored = StoredFile {
            content: "iso".to_owned(),
            size: 1 << 20,
            disk: 0,
            digest: String::new(),
            bytes: Bytes::new(),
            ctime: self.now().as_second(),
        };
        self.keep(&spec, node, format!("{storage}:iso/{name}"), stored);
    }

    fn keep(&self, storage: &StorageSpec, node: &str, volid: String, file: StoredFile) {
        let mut state = self.state();
        let place = state.place(&storage.id, node);
        state.files.insert((volid, place), file);
    }

    /// Returns the storage and the volume id for a new file.
    fn place_of_file(
        &self,
        id: &str,
        node: &str,
        content: &str,
        name: &str,
    ) -> Result<(StorageSpec, String), Refusal> {
        let state = self.state();
        let storage = state.storages.get(id).filter(|storage| storage.is_on(node)).cloned();
        let storage = storage.ok_or_else(|| Refusal::failed(format!("storage '{id}' does not exist")))?;
        if !storage.kind.is_file_based() {
            let plugin = storage.kind.plugin();
            return Err(Refusal::failed(format!(
                "can't upload to storage type '{plugin}', not a file based storage!"
            )));
        }
        if !storage.content.split(',').any(|kind| kind == content) {
            let text = format!("storage '{id}' is not configured for content-type '{content}'");
            return Err(Refusal::failed(text));
        }
        let endings: &[&str] = match content {
            "iso" => &[".iso", ".img"],
            "import" => &[".ova", ".qcow2", ".raw", ".vmdk"],
            _ => &[".tar.gz", ".tar.xz", ".tar.zst"],
        };
        if !endings.iter().any(|ending| name.ends_with(ending)) {
            let text = if content == "import" {
                "invalid filename or wrong extension"
            } else {
                "wrong file extension"
            };
            return Err(Refusal::parameter("filename", text));
        }
        let volid = format!("{id}:{content}/{name}");
        Ok((storage, volid))
    }

    /// Removes a file. A missing file is not an error.
    pub(super) fn delete_volume(&self, call: &ApiCall) -> Result<Answer, Refusal> {
        let id = call.path.get("storage").cloned().unwrap_or_default();
        let mut state = self.state();
        call.who.need(&state, &format!("/storage/{id}"), &["Datastore.Allocate"])?;
        let given = call.path.get("volume").cloned().unwrap_or_default();
        let volid = if given.contains(':') { given } else { format!("{id}:{given}") };
        let place = state.place(&id, call.node());
        if state.busy_storages.contains(&id) {
            return Err(Refusal::failed(format!(
                "can't lock file '/var/lock/pve-manager/pve-storage-{id}' - got timeout"
            )));
        }
        if let Some(hardware) = &self.0.hardware {
            hardware.free_disk(&volid);
        }
        state.files.remove(&(volid, place));
        Ok(Value::Null.into())
    }
}

impl State {
    /// Returns a file of a storage as a host sees it.
    pub fn file(&self, volid: &str, node: &str) -> Option<&StoredFile> {
        let place = self.place(volid.split(':').next().unwrap_or_default(), node);
        self.files.get(&(volid.to_owned(), place))
    }

    /// Returns a storage's files as rows of the `content` call's answer.
    pub fn file_rows(&self, storage: &str, node: &str, kind: Option<&str>) -> Vec<Value> {
        let place = self.place(storage, node);
        let here = self.files.iter().filter(|((volid, at), file)| {
            *at == place
                && volid.split(':').next() == Some(storage)
                && kind.is_none_or(|kind| kind == file.content)
        });
        here.map(|((volid, _), file)| {
            let format = if file.content == "iso" { "iso" } else { volid.rsplit('.').next().unwrap_or("raw") };
            json!({ "volid": volid, "content": file.content, "format": format, "size": file.size, "ctime": file.ctime })
        })
        .collect()
    }
}

/// Replaces the characters that storages do not allow in a file name.
fn normalized(name: &str) -> String {
    let fine = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.chars().map(|c| if fine(c) { c } else { '_' }).collect()
}
