//! Files over SSH, both ways, by the programs that people have: sftp, scp, rsync and git.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::harness::{PATIENCE, SANDBOX, Stage, run, run_within, text};

/// What hundreds of mebibytes may take on a busy machine, with programs that are not optimised.
const PATIENCE_WITH_MUCH: Duration = Duration::from_secs(300);
const MUCH_BYTES: u64 = 300 << 20;
/// Names that shells, patterns and terminals make something else of.
const ODD: [&str; 6] = ["two words", "quo'te \"d", "st*r [a]?", "naïve-ö-日本", "-dash", "back\\slash $HOME ;&"];

/// One of OpenSSH's programs for files, with the way to this sandbox.
fn program(stage: &Stage, name: &str) -> Command {
    let mut command = Command::new(name);
    command.args(stage.options(&stage.key)).arg("-P").arg(stage.address.port().to_string());
    command.kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A way to this sandbox that other programs start.
fn shell(stage: &Stage) -> String {
    format!("ssh {} -p {}", stage.options(&stage.key).join(" "), stage.address.port())
}

fn at(path: &str) -> String {
    format!("{SANDBOX}@127.0.0.1:{path}")
}

async fn succeeds(command: Command) -> Output {
    let shown = format!("{:?}", command.as_std());
    let output = run(command, b"").await;
    assert!(output.status.success(), "{shown}: {output:?}");
    output
}

async fn sftp(stage: &Stage, batch: &str, patience: Duration) -> Output {
    let mut command = program(stage, "sftp");
    command.args(["-b", "-", &format!("{SANDBOX}@127.0.0.1")]);
    run_within(command, batch.as_bytes(), patience).await
}

/// A directory with files of odd names, an empty directory, a link, modes and times.
async fn tree(stage: &Stage) -> PathBuf {
    let tree = stage.outside().join("tree");
    std::fs::create_dir_all(tree.join("deep/er")).unwrap();
    std::fs::create_dir(tree.join("empty")).unwrap();
    for (number, name) in ODD.into_iter().enumerate() {
        std::fs::write(tree.join(name), name.repeat(number * 1_000)).unwrap();
    }
    let program = tree.join("deep/er/run");
    std::fs::write(&program, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o750)).unwrap();
    let mut touch = Command::new("touch");
    touch.args(["-d", "2001-02-03 04:05:06 UTC"]).arg(&program);
    succeeds(touch).await;
    tree
}

/// Everything below a directory: what it holds, whether it may be run, and where it leads.
fn contents(top: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32)> {
    let (mut found, mut left) = (BTreeMap::new(), vec![top.to_owned()]);
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let bytes = match metadata.file_type() {
                kind if kind.is_dir() => {
                    left.push(path.clone());
                    Vec::new()
                }
                kind if kind.is_symlink() => std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes(),
                _ => std::fs::read(&path).unwrap(),
            };
            found.insert(path.strip_prefix(top).unwrap().to_owned(), (bytes, metadata.mode() & 0o100));
        }
    }
    found
}

fn same_trees(one: &Path, other: &Path) {
    let (one, other) = (contents(one), contents(other));
    let names = |tree: &BTreeMap<PathBuf, _>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&one), names(&other));
    assert!(one == other, "something differs");
}

fn modified_s(path: &Path) -> i64 {
    path.metadata().unwrap().mtime()
}

#[tokio::test]
async fn sftp_does_what_its_batch_says() {
    let stage = Stage::start().await;
    let outside = stage.outside();
    std::fs::write(outside.join("here"), "bytes").unwrap();
    let here = outside.join("here").display().to_string();
    let back = outside.join("back").display().to_string();
    let batch = format!(
        "mkdir \"a place\"\nput -p {here} \"a place/there\"\ncd \"a place\"\nchmod 640 there\n\
         rename there moved\nln -s moved link\nln moved hard\nls -la\nget -p link {back}\ndf\n\
         put {here} gone\nrm gone\nmkdir none\nrmdir none\npwd\n"
    );
    let output = sftp(&stage, &batch, PATIENCE).await;
    assert!(output.status.success(), "{output:?}");
    let place = stage.workspace().join("a place");
    let mut names: Vec<_> = contents(&place).into_keys().collect();
    names.sort();
    assert_eq!(names, ["hard", "link", "moved"].map(PathBuf::from));
    assert_eq!(std::fs::read_link(place.join("link")).unwrap(), Path::new("moved"));
    let moved = place.join("moved").metadata().unwrap();
    assert_eq!((moved.mode() & 0o777, moved.nlink()), (0o640, 2));
    assert_eq!(std::fs::read(back).unwrap(), b"bytes");
    assert!(text(&output.stdout).contains("Remote working directory: "), "{output:?}");
}

#[tokio::test]
async fn sftp_tells_what_went_wrong_and_stops() {
    let stage = Stage::start().await;
    for (batch, reason) in [
        ("get nothing\nmkdir after\n", "not found"),
        ("rmdir nothing\nmkdir after\n", "No such file"),
        ("put /etc/hostname /proc/nothing\nmkdir after\n", "/proc/nothing"),
    ] {
        let output = sftp(&stage, batch, PATIENCE).await;
        assert!(!output.status.success() && text(&output.stderr).contains(reason), "{batch}: {output:?}");
        assert!(!stage.workspace().join("after").exists());
    }
}

#[tokio::test]
async fn sftp_copies_trees_with_odd_names_both_ways() {
    let stage = Stage::start().await;
    let tree = tree(&stage).await;
    let batch = format!("put -pR {} there\nget -pR there {}\n", tree.display(), stage.outside().join("back").display());
    let output = sftp(&stage, &batch, PATIENCE).await;
    assert!(output.status.success(), "{output:?}");
    same_trees(&tree, &stage.workspace().join("there"));
    same_trees(&tree, &stage.outside().join("back"));
}

#[tokio::test]
async fn scp_copies_trees_both_ways_in_either_of_its_modes() {
    let stage = Stage::start().await;
    let tree = tree(&stage).await;
    for (number, mode) in ["-s", "-O"].into_iter().enumerate() {
        let [there, back] = [format!("there-{number}"), format!("back-{number}")];
        let back = stage.outside().join(back);
        let mut up = program(&stage, "scp");
        up.args([mode, "-rp"]).arg(&tree).arg(at(&there));
        succeeds(up).await;
        same_trees(&tree, &stage.workspace().join(&there));
        let mut down = program(&stage, "scp");
        down.args([mode, "-rp"]).arg(at(&there)).arg(&back);
        succeeds(down).await;
        same_trees(&tree, &back);
        for copy in [stage.workspace().join(&there), back] {
            assert_eq!(modified_s(&copy.join("deep/er/run")), modified_s(&tree.join("deep/er/run")), "{mode}");
        }
    }
}

#[tokio::test]
async fn scp_takes_paths_with_spaces_and_those_of_home() {
    let stage = Stage::start().await;
    let here = stage.outside().join("two words");
    std::fs::write(&here, "bytes").unwrap();
    let home = stage.workspace().with_file_name("home");
    // The first mode names files, the second one words of a shell. Without a user's name the first takes `~` for the
    // place that it begins in; with one it asks.
    for (mode, there, lands) in [
        ("-s", "a b", stage.workspace().join("a b")),
        ("-O", "c\\ d", stage.workspace().join("c d")),
        ("-s", "~/e", stage.workspace().join("e")),
        ("-O", "~/f", home.join("f")),
    ] {
        let mut up = program(&stage, "scp");
        up.arg(mode).arg(&here).arg(at(there));
        succeeds(up).await;
        assert_eq!(std::fs::read(&lands).unwrap(), b"bytes", "{mode} {there}");
        let back = stage.outside().join("back");
        let mut down = program(&stage, "scp");
        down.arg(mode).arg(at(there)).arg(&back);
        succeeds(down).await;
        assert_eq!(std::fs::read(&back).unwrap(), b"bytes", "{mode} {there}");
        std::fs::remove_file(back).unwrap();
    }
}

/// Lines of what rsync says it changed.
async fn rsync(stage: &Stage, options: &[&str], from: &str, to: &str) -> String {
    let mut command = Command::new("rsync");
    command.args(["-a", "-i", "--delete"]).args(options).args(["-e", &shell(stage), "--", from, to]);
    command.kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    text(&succeeds(command).await.stdout)
}

#[tokio::test]
async fn rsync_keeps_trees_alike_both_ways() {
    let stage = Stage::start().await;
    let tree = tree(&stage).await;
    symlink("deep/er/run", tree.join("link")).unwrap();
    let (from, there) = (format!("{}/", tree.display()), stage.workspace().join("there"));
    rsync(&stage, &[], &from, &at("there/")).await;
    same_trees(&tree, &there);
    assert_eq!(rsync(&stage, &[], &from, &at("there/")).await, "", "nothing is left to be done");
    std::fs::remove_file(tree.join("two words")).unwrap();
    std::fs::write(tree.join("deep/new"), "new").unwrap();
    let changed = rsync(&stage, &[], &from, &at("there/")).await;
    assert!(changed.contains("*deleting   two words") && changed.contains("deep/new"), "{changed}");
    assert!(!changed.contains("quo'te"), "{changed}");
    same_trees(&tree, &there);
    let back = stage.outside().join("back");
    std::fs::create_dir(&back).unwrap();
    std::fs::write(back.join("stale"), "").unwrap();
    rsync(&stage, &[], &at("there/"), &format!("{}/", back.display())).await;
    same_trees(&tree, &back);
}

#[tokio::test]
async fn rsync_sends_of_a_large_file_what_has_changed() {
    let stage = Stage::start().await;
    let large = stage.outside().join("large");
    let mut bytes: Vec<u8> = (0..8u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&large, &bytes).unwrap();
    let options = ["--stats", "--no-whole-file"];
    rsync(&stage, &options, &large.display().to_string(), &at("large")).await;
    bytes[5 << 20..][..100].fill(0);
    bytes.extend_from_slice(b"more");
    std::fs::write(&large, &bytes).unwrap();
    let said = rsync(&stage, &options, &large.display().to_string(), &at("large")).await;
    let literal = said.lines().find_map(|line| line.strip_prefix("Literal data: ")).unwrap();
    let literal: usize = literal.trim_end_matches(" bytes").replace(',', "").parse().unwrap();
    assert!((104..100_000).contains(&literal), "{said}");
    assert!(std::fs::read(stage.workspace().join("large")).unwrap() == bytes);
}

/// git outside, whose remotes are in this sandbox.
async fn git(stage: &Stage, directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]);
    command.args(arguments).current_dir(directory).env("GIT_SSH_COMMAND", shell(stage));
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null").env("GIT_TRACE_PACKET", "1");
    command.kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    text(&succeeds(command).await.stderr)
}

#[tokio::test]
async fn git_clones_and_pushes_to_a_repository_inside() {
    let stage = Stage::start().await;
    stage.sh("git -c init.defaultBranch=main init -q --bare 'my repo.git'").await;
    let (outside, url) = (stage.outside(), at("my repo.git"));
    git(&stage, &outside, &["clone", &url, "one"]).await;
    let one = outside.join("one");
    for round in 0..3 {
        std::fs::write(one.join(format!("file-{round}")), vec![round; 1 << 20]).unwrap();
        git(&stage, &one, &["add", "."]).await;
        git(&stage, &one, &["commit", "-qm", "more"]).await;
        git(&stage, &one, &["push", "origin", "HEAD:main"]).await;
    }
    let heard = git(&stage, &outside, &["-c", "protocol.version=2", "clone", &url, "two"]).await;
    // What the client asks for travels in a variable.
    assert!(heard.contains("version 2"), "{heard}");
    std::fs::remove_dir_all(one.join(".git")).unwrap();
    std::fs::remove_dir_all(outside.join("two/.git")).unwrap();
    same_trees(&one, &outside.join("two"));
}

/// Bytes that compress badly and are the same each time.
async fn write_much(path: &Path) {
    let mut file = tokio::fs::File::create(path).await.unwrap();
    let (mut block, mut state) = (vec![0; 1 << 20], 1_u64);
    for _ in 0..MUCH_BYTES >> 20 {
        for word in block.as_chunks_mut::<8>().0 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *word = state.to_le_bytes();
        }
        file.write_all(&block).await.unwrap();
    }
    file.flush().await.unwrap();
}

async fn hash(path: &Path) -> String {
    let mut command = Command::new("sha256sum");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).arg(path).kill_on_drop(true);
    let said = run_within(command, b"", PATIENCE_WITH_MUCH).await;
    text(&said.stdout)[..64].to_owned()
}

#[tokio::test]
async fn three_hundred_mebibytes_arrive_unchanged_each_way() {
    let stage = Stage::start().await;
    let (here, back) = (stage.outside().join("here"), stage.outside().join("back"));
    write_much(&here).await;
    let batch = format!("put {} there\nget there {}\n", here.display(), back.display());
    let output = sftp(&stage, &batch, PATIENCE_WITH_MUCH).await;
    assert!(output.status.success(), "{output:?}");
    let expected = hash(&here).await;
    for copy in [stage.workspace().join("there"), back] {
        assert_eq!(copy.metadata().unwrap().len(), MUCH_BYTES);
        assert_eq!(hash(&copy).await, expected, "{}", copy.display());
    }
}
