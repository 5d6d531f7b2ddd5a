//! The programs people use in a sandbox, through the proxy: allowed they work, denied they say why.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;

use crate::harness::origin::{origin, serve_file};
use crate::harness::programs::{Authority, port, printed, run};
use crate::harness::{KEY, Names, Node, Setup, node};

type Files = Arc<HashMap<String, Vec<u8>>>;

/// A server by TLS called `files.test`, and a sandbox that may reach it and nothing else.
struct Scene {
    node: Node,
    proxy: SocketAddr,
    url: String,
    authority: String,
    dir: TempDir,
}

async fn scene(files: &[(&str, Vec<u8>)]) -> Scene {
    let files: Files = Arc::new(files.iter().map(|(path, body)| ((*path).to_owned(), body.clone())).collect());
    let (authority, dir) = (Authority::new(), tempfile::tempdir().unwrap());
    let address = authority.serve("files.test", files).await;
    let names = Names::default().lead("files.test", &[&["127.0.0.1"]]).lead("denied.test", &[&["127.0.0.1"]]);
    let node = node(Setup { names, rules: "files.test:*", ..Setup::default() });
    let proxy = port(&node).await;
    let url = format!("https://files.test:{}", address.port());
    let authority = authority.file(dir.path()).display().to_string();
    Scene { node, proxy, url, authority, dir }
}

#[tokio::test]
async fn curl_fetches_over_tls_and_plainly() {
    let scene = scene(&[("/hello", b"hello".to_vec())]).await;
    let url = format!("{}/hello", scene.url);
    let fetched = run(scene.proxy, "curl", &["-sS", "--fail", "--cacert", &scene.authority, &url]).await;
    assert_eq!(printed(&fetched), "hello");
    let files: Files = Arc::new(HashMap::from([("/plain".to_owned(), b"plain".to_vec())]));
    let plain = origin(move |stream| serve_file(stream, Arc::clone(&files))).await;
    let fetched =
        run(scene.proxy, "curl", &["-sS", "--fail", &format!("http://files.test:{}/plain", plain.port())]).await;
    assert_eq!(printed(&fetched), "plain");
    assert_eq!(scene.node.egress.usage(KEY).unwrap().refusals, 0);
}

#[tokio::test]
async fn curl_is_told_why_it_may_not() {
    let scene = scene(&[]).await;
    let shown = run(scene.proxy, "curl", &["-sS", "http://denied.test/"]).await;
    assert!(printed(&shown).starts_with("{\"code\":\"egress_denied\""));
    let tunnel = run(scene.proxy, "curl", &["-sSv", "https://denied.test/"]).await;
    let errors = String::from_utf8_lossy(&tunnel.stderr).into_owned();
    assert!(errors.contains("< HTTP/1.1 403 denied.test port 443 is not allowed by the sandbox's rules"), "{errors}");
    assert!(errors.contains("response 403"), "{errors}");
}

#[tokio::test]
async fn pip_downloads_a_package() {
    let wheel = wheel().await;
    let index = b"<a href=\"/files/tiny-1.0-py3-none-any.whl\">tiny-1.0-py3-none-any.whl</a>".to_vec();
    let scene = scene(&[("/simple/tiny/", index), ("/files/tiny-1.0-py3-none-any.whl", wheel)]).await;
    let (index, proxy) = (format!("{}/simple", scene.url), format!("http://{}", scene.proxy));
    let to = scene.dir.path().display().to_string();
    let options = ["--isolated", "--disable-pip-version-check", "--no-cache-dir", "--retries", "1", "--proxy", &proxy];
    let download = ["download", "--no-deps", "--dest", &to, "--cert", &scene.authority, "--index-url"];
    let arguments = [&["-m", "pip"], &options[..], &download[..], &[&index, "tiny"]].concat();
    printed(&run(scene.proxy, "python3", &arguments).await);
    assert!(scene.dir.path().join("tiny-1.0-py3-none-any.whl").is_file());

    let denied = [&["-m", "pip"], &options[..], &download[..], &["https://denied.test/simple", "tiny"]].concat();
    let output = run(scene.proxy, "python3", &denied).await;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && errors.contains("denied.test port 443 is not allowed"), "{errors}");
}

/// The least that pip takes for a package.
async fn wheel() -> Vec<u8> {
    const SCRIPT: &str = "import sys, zipfile\n\
        with zipfile.ZipFile(sys.argv[1], 'w') as wheel:\n    \
        info = 'tiny-1.0.dist-info/'\n    \
        wheel.writestr('tiny.py', '')\n    \
        wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')\n    \
        wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n    \
        wheel.writestr(info + 'RECORD', '')\n";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wheel.whl");
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    printed(&run(nowhere, "python3", &["-c", SCRIPT, &path.display().to_string()]).await);
    std::fs::read(path).unwrap()
}

#[tokio::test]
async fn npm_views_a_package() {
    let package = br#"{"name":"tiny","dist-tags":{"latest":"1.2.3"},"versions":{"1.2.3":{"name":"tiny","version":"1.2.3","dist":{"tarball":"https://files.test/t.tgz"}}}}"#;
    let scene = scene(&[("/tiny", package.to_vec())]).await;
    let (proxy, cache) = (format!("http://{}", scene.proxy), scene.dir.path().join("npm").display().to_string());
    let config = scene.dir.path().join("npmrc").display().to_string();
    let options =
        ["--https-proxy", &proxy, "--proxy", &proxy, "--noproxy", "", "--cache", &cache, "--userconfig", &config];
    let view = ["view", "tiny", "version", "--fetch-retries", "0", "--cafile", &scene.authority, "--registry"];
    let output = run(scene.proxy, "npm", &[&view[..], &[&scene.url], &options[..]].concat()).await;
    assert_eq!(printed(&output).trim(), "1.2.3");
    let denied = run(scene.proxy, "npm", &[&view[..], &["https://denied.test"], &options[..]].concat()).await;
    assert!(!denied.status.success());
    assert_eq!(scene.node.egress.usage(KEY).unwrap().refusals, 1);
}

#[tokio::test]
async fn git_lists_and_clones_a_repository() {
    let repository = tempfile::tempdir().unwrap();
    let git = async |arguments: &[&str]| {
        let place = repository.path().display().to_string();
        let who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-C", &place];
        printed(&run(SocketAddr::from(([127, 0, 0, 1], 9)), "git", &[&who[..], arguments].concat()).await)
    };
    git(&["init", "-q", "-b", "main"]).await;
    std::fs::write(repository.path().join("file"), "content").unwrap();
    git(&["add", "file"]).await;
    git(&["commit", "-qm", "first"]).await;
    git(&["update-server-info"]).await;
    let commit = git(&["rev-parse", "HEAD"]).await;
    let files = files_under(&repository.path().join(".git"), "/repo.git");
    let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(path, body)| (path.as_str(), body.clone())).collect();

    let scene = scene(&files).await;
    let url = format!("{}/repo.git", scene.url);
    let trust = format!("http.sslCAInfo={}", scene.authority);
    let listed = printed(&run(scene.proxy, "git", &["-c", &trust, "ls-remote", &url]).await);
    assert!(listed.contains(&format!("{}\trefs/heads/main", commit.trim())), "{listed}");
    let to = scene.dir.path().join("clone");
    printed(&run(scene.proxy, "git", &["-c", &trust, "clone", "-q", &url, &to.display().to_string()]).await);
    assert_eq!(std::fs::read_to_string(to.join("file")).unwrap(), "content");
    let denied = run(scene.proxy, "git", &["-c", &trust, "ls-remote", "https://denied.test/repo.git"]).await;
    assert!(String::from_utf8_lossy(&denied.stderr).contains("403"));
}

/// Every file below `dir`, named from `root`.
fn files_under(dir: &Path, root: &str) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{root}/{}", entry.file_name().display());
        if entry.file_type().unwrap().is_dir() {
            files.extend(files_under(&entry.path(), &name));
        } else {
            files.push((name, std::fs::read(entry.path()).unwrap()));
        }
    }
    files
}
