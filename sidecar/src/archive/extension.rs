//! Records that stand before an entry and tell what its header has no room for.

use sandbox_protocol::snapshot::ArchiveFault;

/// What the records before an entry tell of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Extensions {
    pub(super) path: Option<Vec<u8>>,
    pub(super) target: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) mtime: Option<i64>,
}

impl Extensions {
    /// Takes the text of a GNU record of a long path.
    pub(super) fn long_path(&mut self, text: Vec<u8>) -> Result<(), ArchiveFault> {
        once(&mut self.path, ended(text))
    }

    /// Takes the text of a GNU record of a long target.
    pub(super) fn long_target(&mut self, text: Vec<u8>) -> Result<(), ArchiveFault> {
        once(&mut self.target, ended(text))
    }

    /// Takes the records of a PAX header: `<length> <key>=<value>\n`, of which the length counts everything.
    pub(super) fn pax(&mut self, mut records: &[u8]) -> Result<(), ArchiveFault> {
        while !records.is_empty() {
            let (key, value, rest) = record(records).ok_or(ArchiveFault::Malformed)?;
            records = rest;
            match key {
                b"path" => once(&mut self.path, value.to_vec())?,
                b"linkpath" => once(&mut self.target, value.to_vec())?,
                b"size" => once(&mut self.size, number(value)?)?,
                b"mtime" => once(&mut self.mtime, number(seconds(value))?)?,
                // A sparse file that a reader who does not know would take for another file.
                key if key.starts_with(b"GNU.sparse.") => return Err(ArchiveFault::UnknownType),
                _ => {}
            }
        }
        Ok(())
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), ArchiveFault> {
    if place.replace(value).is_some() { Err(ArchiveFault::Malformed) } else { Ok(()) }
}

/// Without the NUL that ends it; those inside are refused with the name.
fn ended(mut text: Vec<u8>) -> Vec<u8> {
    if text.last() == Some(&0) {
        text.pop();
    }
    text
}

fn record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = records.iter().position(|&byte| byte == b' ')?;
    let length: usize = std::str::from_utf8(&records[..space]).ok()?.parse().ok()?;
    let (record, rest) = records.split_at_checked(length)?;
    let text = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = text.iter().position(|&byte| byte == b'=')?;
    Some((&text[..equals], &text[equals + 1..], rest))
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Result<T, ArchiveFault> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(ArchiveFault::Malformed)
}

fn seconds(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == b'.').next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pax(records: &[u8]) -> Result<Extensions, ArchiveFault> {
        let mut extensions = Extensions::default();
        extensions.pax(records).map(|()| extensions)
    }

    #[test]
    fn records_are_read_by_their_length() {
        let found = pax(b"12 path=a\nb\n20 mtime=-12.345678\n9 size=7\n13 comment=x\n").unwrap();
        assert_eq!(found.path.as_deref(), Some(&b"a\nb"[..]));
        assert_eq!((found.mtime, found.size, found.target), (Some(-12), Some(7), None));
    }

    #[test]
    fn records_that_do_not_add_up_are_refused() {
        for records in [
            &b"x"[..],
            b"9 path=a",
            b"10 path=a",
            b"10 path=ab\n",
            b"0 path=a\n",
            b"1 path=a\n",
            b"99999999999999999999 path=a\n",
            b"9 size=x\n",
            b"9 path=\xff\n9 path=b\n9 path=b\n",
            b"-9 path=a\n",
        ] {
            assert_eq!(pax(records), Err(ArchiveFault::Malformed), "{}", records.escape_ascii());
        }
        assert_eq!(pax(b"22 GNU.sparse.major=1\n"), Err(ArchiveFault::UnknownType));
    }
}
