//! What a customer may write for a snapshot's place, read strictly and once.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use cid::Cid;
use percent_encoding::percent_decode_str;
use url::Url;

use super::manifest;
use crate::address::{Host, HostError};
use crate::limits::{LOCATION_BYTES_MAX, S3_KEY_BYTES_MAX, SNAPSHOT_NAME_BYTES_MAX};

const HASH: &str = "sha256=";

/// A place, with the hash that what is there is expected to have.
///
/// Shown and printed without the query of a web address, which may be a signature.
#[derive(Clone, PartialEq, Eq)]
pub struct Location {
    place: Place,
    sha256: Option<[u8; 32]>,
    without_query: String,
}

/// Where in the world.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// `s3://bucket/key`: the key as S3 has it, nothing decoded.
    S3 {
        /// Of the operator's account.
        bucket: String,
        /// Without leading slash, no segment empty or made of dots.
        key: String,
    },
    /// `ipfs://`: to be added.
    Ipfs,
    /// `ipfs://cid[/path]`: what has been added.
    IpfsContent {
        /// Of the file or the directory that holds it.
        cid: Cid,
        /// Within the directory.
        path: Option<String>,
    },
    /// `https://…`, and `http://…` for hosts that the operator excepts.
    Web(Url),
    /// `file:///…`: absolute, no segment empty or made of dots.
    File(PathBuf),
}

/// Why a text names no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// Longer than anybody needs.
    #[error("a location has at most {LOCATION_BYTES_MAX} bytes")]
    Length,
    /// Characters that programs read differently.
    #[error("a location has no spaces, control characters or backslashes")]
    Characters,
    /// Not one of ours.
    #[error("a location begins with s3://, ipfs://, https:// or file://")]
    Scheme,
    /// A name or password before the host.
    #[error("a location carries no credentials")]
    Credentials,
    /// Something after `#` that is no hash.
    #[error("after # stands sha256= with 64 hexadecimal digits, or nothing")]
    Fragment,
    /// A query where none has a meaning.
    #[error("only web addresses have a query")]
    Query,
    /// No name of a bucket.
    #[error("a bucket's name has 3 to 63 lower-case letters, digits, dots and hyphens")]
    Bucket,
    /// A path with empty segments, `.` or `..`, or none at all.
    #[error("a path has no empty segments, `.` or `..`")]
    Path,
    /// A name that manifests have.
    #[error("names that end in {} are for manifests", manifest::SUFFIX)]
    Manifest,
    /// A name that leaves no room for its manifest's.
    #[error("a file's name has at most {SNAPSHOT_NAME_BYTES_MAX} bytes")]
    Name,
    /// A key that leaves no room for its manifest's.
    #[error("a key of S3 has at most {S3_KEY_BYTES_MAX} bytes")]
    Key,
    /// No content id.
    #[error("not a content id of IPFS")]
    Cid,
    /// A file on another host.
    #[error("a file location begins with file:///")]
    FileHost,
    /// The host of a web address.
    #[error("{0}")]
    Host(#[from] HostError),
    /// No web address for another reason.
    #[error("not a web address")]
    Web,
}

impl Location {
    /// Reads a location.
    ///
    /// # Errors
    /// [`LocationError`], a sentence for the customer.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        if text.len() > LOCATION_BYTES_MAX {
            return Err(LocationError::Length);
        }
        if text.chars().any(|character| character.is_control() || character.is_whitespace() || character == '\\') {
            return Err(LocationError::Characters);
        }
        let (address, fragment) = text.split_once('#').map_or((text, None), |(before, after)| (before, Some(after)));
        let sha256 = fragment.map(hash).transpose()?;
        let place = Place::parse(address)?;
        let without_query = address.split_once('?').map_or(address, |(before, _)| before).to_owned();
        Ok(Self { place, sha256, without_query })
    }

    /// Where.
    #[must_use]
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// What is expected there.
    #[must_use]
    pub const fn sha256(&self) -> Option<[u8; 32]> {
        self.sha256
    }

    pub(super) fn without_query(&self) -> String {
        self.without_query.clone()
    }
}

impl Place {
    fn parse(address: &str) -> Result<Self, LocationError> {
        let (scheme, rest) = address.split_once("://").ok_or(LocationError::Scheme)?;
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(LocationError::Credentials);
        }
        let web = matches!(scheme, "https" | "http");
        if !web && rest.contains('?') {
            return Err(LocationError::Query);
        }
        match scheme {
            "https" | "http" => self::web(address, authority),
            "s3" => s3(rest),
            "ipfs" => ipfs(rest),
            "file" => file(rest),
            _ => Err(LocationError::Scheme),
        }
    }
}

fn hash(fragment: &str) -> Result<[u8; 32], LocationError> {
    let mut sha256 = [0; 32];
    let digits = fragment.strip_prefix(HASH).ok_or(LocationError::Fragment)?;
    hex::decode_to_slice(digits, &mut sha256).map_err(|_| LocationError::Fragment)?;
    Ok(sha256)
}

fn s3(rest: &str) -> Result<Place, LocationError> {
    let (bucket, key) = rest.split_once('/').ok_or(LocationError::Path)?;
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let bounded = |end: &u8| end.is_ascii_lowercase() || end.is_ascii_digit();
    let bytes = bucket.as_bytes();
    let named = (3..=63).contains(&bytes.len())
        && bytes.iter().copied().all(letter)
        && bytes.first().is_some_and(bounded)
        && bytes.last().is_some_and(bounded)
        && !bucket.contains("..");
    if !named {
        return Err(LocationError::Bucket);
    }
    check_path(key)?;
    check_name(key)?;
    if key.len() > S3_KEY_BYTES_MAX {
        return Err(LocationError::Key);
    }
    Ok(Place::S3 { bucket: bucket.to_owned(), key: key.to_owned() })
}

fn ipfs(rest: &str) -> Result<Place, LocationError> {
    if rest.is_empty() {
        return Ok(Place::Ipfs);
    }
    let (cid, path) = rest.split_once('/').map_or((rest, None), |(cid, path)| (cid, Some(path)));
    path.map(check_path).transpose()?;
    let cid = Cid::try_from(cid).map_err(|_| LocationError::Cid)?;
    Ok(Place::IpfsContent { cid, path: path.map(str::to_owned) })
}

/// The host is read from what was written, not from what the URL standard makes of it.
fn web(address: &str, authority: &str) -> Result<Place, LocationError> {
    let host = match authority.rfind(':') {
        Some(colon) if !authority.ends_with(']') => &authority[..colon],
        _ => authority,
    };
    let host = Host::parse(host)?;
    let url = Url::parse(address).map_err(|_| LocationError::Web)?;
    let same = url.host_str().is_some_and(|read| Host::parse(read).as_ref() == Ok(&host));
    // Port 0 is nobody's.
    if same && url.port() != Some(0) { Ok(Place::Web(url)) } else { Err(LocationError::Web) }
}

fn file(rest: &str) -> Result<Place, LocationError> {
    let path = rest.strip_prefix('/').ok_or(LocationError::FileHost)?;
    let segments = path.split('/').map(|segment| {
        let decoded = percent_decode_str(segment).decode_utf8().map_err(|_| LocationError::Path)?;
        let plain = !decoded.contains(['/', '\0', '\\']) && !matches!(&*decoded, "" | "." | "..");
        if plain { Ok(decoded.into_owned()) } else { Err(LocationError::Path) }
    });
    let segments = segments.collect::<Result<Vec<_>, _>>()?;
    let name = segments.last().map(String::as_str).unwrap_or_default();
    check_name(name)?;
    if segments.iter().any(|segment| segment.len() > SNAPSHOT_NAME_BYTES_MAX) {
        return Err(LocationError::Name);
    }
    Ok(Place::File(PathBuf::from(format!("/{}", segments.join("/")))))
}

fn check_path(path: &str) -> Result<(), LocationError> {
    let plain = path.split('/').all(|segment| !matches!(segment, "" | "." | ".."));
    if plain { Ok(()) } else { Err(LocationError::Path) }
}

fn check_name(path: &str) -> Result<(), LocationError> {
    if path.ends_with(manifest::SUFFIX) { Err(LocationError::Manifest) } else { Ok(()) }
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        Self::parse(text)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.without_query)?;
        match self.sha256 {
            Some(sha256) => write!(out, "#{HASH}{}", hex::encode(sha256)),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Location({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

    #[track_caller]
    fn check_refused(cases: &[(&str, LocationError)]) {
        for (text, error) in cases {
            assert_eq!(Location::parse(text).as_ref(), Err(error), "{text}");
        }
    }

    #[test]
    fn every_kind_of_place_is_read() {
        let hash = format!("#sha256={}", "0a".repeat(32));
        for text in [
            "s3://bucket/a/b c%20@:+é.tar.zst".replace(' ', ""),
            "s3://a-b.c/k".into(),
            "ipfs://".into(),
            format!("ipfs://{CID}"),
            format!("ipfs://{CID}/a/b.tar"),
            "ipfs://QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG".into(),
            "https://example.com".into(),
            "https://example.com/a/b".into(),
            "https://example.com:8443/a@b".into(),
            "https://[2001:db8::1]/a".into(),
            "http://example.com/a".into(),
            "file:///var/snapshots/a.tar.zst".into(),
        ] {
            let location = Location::parse(&text).unwrap();
            assert_eq!((location.to_string(), location.sha256()), (text.clone(), None));
            let location = Location::parse(&format!("{text}{hash}")).unwrap();
            assert_eq!((location.to_string(), location.sha256()), (format!("{text}{hash}"), Some([0x0a; 32])));
        }
    }

    #[test]
    fn a_signature_is_never_shown() {
        let location = Location::parse("https://example.com/a?X-Amz-Signature=secret").unwrap();
        assert_eq!(location.to_string(), "https://example.com/a");
        assert_eq!(format!("{location:?}"), "Location(https://example.com/a)");
        assert!(matches!(location.place(), Place::Web(url) if url.query() == Some("X-Amz-Signature=secret")));
    }

    #[test]
    fn what_programs_may_read_differently_is_refused() {
        check_refused(&[
            ("", LocationError::Scheme),
            ("/etc/passwd", LocationError::Scheme),
            ("S3://bucket/key", LocationError::Scheme),
            ("ftp://host/a", LocationError::Scheme),
            ("gopher://host/a", LocationError::Scheme),
            ("https:/host/a", LocationError::Scheme),
            ("https://host/a b", LocationError::Characters),
            ("https://host\\@evil/", LocationError::Characters),
            ("https://ho\tst/", LocationError::Characters),
            ("s3://bucket/a\n", LocationError::Characters),
            ("https:///a", LocationError::Host(HostError::Length)),
            ("https://:443/a", LocationError::Host(HostError::Length)),
            ("https://host:0/a", LocationError::Web),
            ("https://host:65536/a", LocationError::Web),
            ("https://host:a/a", LocationError::Web),
            ("https://2130706433/", LocationError::Host(HostError::Spelling)),
            ("https://0177.0.0.1/", LocationError::Host(HostError::Spelling)),
            ("https://0x7f.1/", LocationError::Host(HostError::Spelling)),
            ("https://127.1/", LocationError::Host(HostError::Spelling)),
            ("https://%31%32%37.0.0.1/", LocationError::Host(HostError::Name)),
            ("https://[::1/", LocationError::Host(HostError::Name)),
        ]);
        let long = |length| format!("https://h/{}", "a".repeat(length - "https://h/".len()));
        assert!(Location::parse(&long(LOCATION_BYTES_MAX)).is_ok());
        assert_eq!(Location::parse(&long(LOCATION_BYTES_MAX + 1)), Err(LocationError::Length));
    }

    #[test]
    fn credentials_are_refused_wherever_they_stand() {
        check_refused(&[
            ("https://user:pass@host/a", LocationError::Credentials),
            ("https://user@host/a", LocationError::Credentials),
            ("https://@host/a", LocationError::Credentials),
            ("http://a@b@host?x", LocationError::Credentials),
            ("s3://key:secret@bucket/a", LocationError::Credentials),
            ("file://user@/a", LocationError::Credentials),
        ]);
    }

    #[test]
    fn only_a_hash_stands_after_the_hash_sign() {
        let digits = "0".repeat(63);
        for fragment in ["", "top", "sha256=", "sha256=zz", "SHA256=00", &format!("sha256={digits}")] {
            let text = format!("s3://bucket/key#{fragment}");
            assert_eq!(Location::parse(&text), Err(LocationError::Fragment), "{text}");
        }
        assert!(Location::parse(&format!("s3://bucket/key#sha256={digits}0")).is_ok());
        assert_eq!(Location::parse(&format!("s3://b/key#sha256={digits}00")), Err(LocationError::Fragment));
    }

    #[test]
    fn buckets_keys_and_paths_are_plain() {
        let (name, long) = ("n".repeat(SNAPSHOT_NAME_BYTES_MAX), "n".repeat(SNAPSHOT_NAME_BYTES_MAX + 1));
        assert!(Location::parse(&format!("file:///d/{name}")).is_ok());
        let key = "k".repeat(S3_KEY_BYTES_MAX);
        assert!(Location::parse(&format!("s3://bucket/{key}")).is_ok());
        check_refused(&[
            ("s3://ab/key", LocationError::Bucket),
            ("s3://Bucket/key", LocationError::Bucket),
            ("s3://-bucket/key", LocationError::Bucket),
            ("s3://bu..cket/key", LocationError::Bucket),
            ("s3://host:9000/key", LocationError::Bucket),
            (&format!("s3://{}/key", "b".repeat(64)), LocationError::Bucket),
            ("s3://bucket", LocationError::Path),
            ("s3://bucket/", LocationError::Path),
            (&format!("s3://bucket/{key}k"), LocationError::Key),
            ("s3://bucket/a//b", LocationError::Path),
            ("s3://bucket/../b", LocationError::Path),
            ("s3://bucket/a?versionId=1", LocationError::Query),
            ("s3://bucket/a.manifest.json", LocationError::Manifest),
            ("ipfs://nonsense", LocationError::Cid),
            (&format!("ipfs://{CID}/../x"), LocationError::Path),
            (&format!("ipfs://{CID}/"), LocationError::Path),
            ("file://host/a", LocationError::FileHost),
            ("file://", LocationError::FileHost),
            ("file:///", LocationError::Path),
            ("file:///a/../b", LocationError::Path),
            ("file:///a/%2e%2E/b", LocationError::Path),
            ("file:///a%2f..%2fb", LocationError::Path),
            ("file:///a/./b", LocationError::Path),
            ("file:///a//b", LocationError::Path),
            ("file:///a/", LocationError::Path),
            ("file:///a%00", LocationError::Path),
            ("file:///a%ff", LocationError::Path),
            ("file:///a%5c", LocationError::Path),
            ("file:///a.manifest.json", LocationError::Manifest),
            (&format!("file:///d/{long}"), LocationError::Name),
        ]);
    }
}
