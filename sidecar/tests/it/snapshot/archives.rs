//! Archives built by hand, good and bad.

use tar::Header;

/// A tar archive, record by record.
#[derive(Default, Clone)]
pub(super) struct Tar(pub(super) Vec<u8>);

impl Tar {
    /// One with both folders and a good file in each, so that a fault that follows has something to spoil.
    pub(super) fn good() -> Self {
        Self::default().entry(b'5', "workspace/", "", b"").entry(b'0', "workspace/good", "", b"good").entry(
            b'0',
            "state/good",
            "",
            b"good",
        )
    }

    pub(super) fn entry(self, kind: u8, path: &str, target: &str, data: &[u8]) -> Self {
        self.with((kind, path), target, data, |_| {})
    }

    /// An entry whose header `change` has changed before its sum was made.
    pub(super) fn with(
        mut self,
        (kind, path): (u8, &str),
        target: &str,
        data: &[u8],
        change: impl FnOnce(&mut Header),
    ) -> Self {
        let mut header = Header::new_gnu();
        let old = header.as_old_mut();
        old.name[..path.len()].copy_from_slice(path.as_bytes());
        old.linkname[..target.len()].copy_from_slice(target.as_bytes());
        old.linkflag = [kind];
        header.set_mode(0o644);
        header.set_mtime(1_000_000);
        header.set_size(data.len() as u64);
        change(&mut header);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.data(data)
    }

    /// Data up to a whole block.
    pub(super) fn data(mut self, data: &[u8]) -> Self {
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// The archive, ended and compressed.
    pub(super) fn finish(self) -> Vec<u8> {
        self.data(&[0; 1024]).unfinished()
    }

    /// The archive without its end, compressed.
    pub(super) fn unfinished(self) -> Vec<u8> {
        zstd::encode_all(&self.0[..], 1).unwrap()
    }
}

/// A PAX record with its length.
pub(super) fn record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len();
    while format!("{length}{rest}").len() != length {
        length += 1;
    }
    format!("{length}{rest}")
}
