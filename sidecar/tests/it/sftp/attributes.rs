//! Attributes of files, told and changed; what is told of file systems and users.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;

use super::client::{AGENT, Answer, Body, Client, FSETSTAT, Fields, LSTAT, OPENDIR, SETSTAT, STAT};

const SIZE: u32 = 1;
const OWNER: u32 = 2;
const MODE: u32 = 4;
const TIMES: u32 = 8;

#[test]
fn size_mode_and_times_are_set_by_path_and_by_handle() {
    let mut client = Client::greeted();
    let file = client.workspace().join("file");
    fs::write(&file, "0123456789").unwrap();
    let body = Body::of("file").number(SIZE | MODE | TIMES).long(4).number(0o107711).number(1_000).number(u32::MAX);
    client.ask(SETSTAT, &body).done();
    let stat = client.ask(STAT, &Body::of("file")).stat();
    assert_eq!((stat.size, stat.mode, stat.times), (4, 0o107711, (1_000, u32::MAX)));
    assert_eq!(fs::metadata(&file).unwrap().mtime(), i64::from(u32::MAX));
    let handle = client.open("file", 2).handle();
    let body = Body::of(&handle).number(SIZE | MODE | TIMES).long(8).number(0o600).number(1).number(2);
    client.ask(FSETSTAT, &body).done();
    let found = fs::metadata(&file).unwrap();
    assert_eq!((found.len(), found.mode(), found.atime(), found.mtime()), (8, 0o100600, 1, 2));
    assert_eq!(client.ask(SETSTAT, &Body::of("absent").number(MODE).number(0)).status().0, 2);
    assert_eq!(client.ask(SETSTAT, &Body::of("file").number(SIZE).long(u64::MAX)).status().0, 4);
    client.ask(SETSTAT, &Body::of("file").number(0)).done();
}

#[test]
fn what_can_be_changed_is_though_another_change_fails() {
    let mut client = Client::greeted();
    let file = client.workspace().join("file");
    fs::write(&file, "0123456789").unwrap();
    let body = Body::of("file").number(SIZE | MODE).long(u64::MAX).number(0o640);
    assert_eq!(client.ask(SETSTAT, &body).status().0, 4);
    let found = fs::metadata(&file).unwrap();
    assert_eq!((found.len(), found.mode()), (10, 0o100640));
}

#[test]
fn a_link_itself_is_changed_by_the_extension_only() {
    let mut client = Client::greeted();
    let (file, link) = (client.workspace().join("file"), client.workspace().join("link"));
    fs::write(&file, "x").unwrap();
    symlink("file", &link).unwrap();
    client.ask(SETSTAT, &Body::of("link").number(TIMES).number(10).number(20)).done();
    client.extended("lsetstat@openssh.com", &Body::of("link").number(TIMES).number(30).number(40)).done();
    assert_eq!((fs::metadata(&file).unwrap().mtime(), fs::symlink_metadata(&link).unwrap().mtime()), (20, 40));
    assert_eq!(client.ask(LSTAT, &Body::of("link")).stat().times.1, 40);
    let mut lsetstat = |path: &str, rest: Body| {
        let mut body = Body::of(path);
        body.0.extend(rest.0);
        client.extended("lsetstat@openssh.com", &body)
    };
    assert_eq!(lsetstat("link", Body::default().number(SIZE).long(0)).status().0, 4);
    assert_ne!(lsetstat("link", Body::default().number(MODE).number(0o600)).status().0, 0);
    lsetstat("file", Body::default().number(MODE).number(0o600)).done();
    assert_eq!((fs::read(&file).unwrap(), fs::metadata(&file).unwrap().mode()), (b"x".to_vec(), 0o100600));
}

#[test]
fn owners_are_changed_where_the_kernel_lets_one_and_keep_the_mode_that_comes_along() {
    let mut client = Client::greeted();
    fs::write(client.workspace().join("file"), "x").unwrap();
    symlink("file", client.workspace().join("link")).unwrap();
    let own = client.ask(STAT, &Body::of("file")).stat().owner;
    let (user, group) = if geteuid().is_root() { (AGENT, AGENT) } else { own };
    let body = Body::of("file").number(OWNER | MODE).number(user).number(group).number(0o4755);
    client.ask(SETSTAT, &body).done();
    let stat = client.ask(STAT, &Body::of("file")).stat();
    assert_eq!((stat.owner, stat.mode), ((user, group), 0o104755));
    let body = Body::of("link").number(OWNER).number(own.0).number(own.1);
    client.extended("lsetstat@openssh.com", &body).done();
    assert_eq!(client.ask(STAT, &Body::of("file")).stat().owner, (user, group));
    if let Some(mut client) = Client::of_agent() {
        client.open("file", 8 | 2).handle();
        assert_eq!(client.ask(SETSTAT, &Body::of("file").number(OWNER).number(0).number(0)).status().0, 3);
    } else {
        eprintln!("that the agent gives nothing away: left out, needs root");
    }
}

fn numbers(answer: &Answer) -> Vec<u64> {
    assert_eq!(answer.0, 201, "{answer:?}");
    let mut fields = Fields(&answer.1);
    std::iter::from_fn(|| (!fields.0.is_empty()).then(|| fields.long())).collect()
}

#[test]
fn a_file_systems_size_is_told_by_path_and_by_handle() {
    let mut client = Client::greeted();
    let expected = statvfs(&client.workspace()).unwrap();
    let handle = client.ask(OPENDIR, &Body::of(".")).handle();
    let by_path = client.extended("statvfs@openssh.com", &Body::of("."));
    let by_handle = client.extended("fstatvfs@openssh.com", &Body::of(&handle));
    for answer in [by_path, by_handle] {
        let told = numbers(&answer);
        assert_eq!(told.len(), 11);
        assert_eq!(told[..3], [expected.block_size(), expected.fragment_size(), expected.blocks()]);
        assert_eq!((told[5], told[10]), (expected.files(), expected.name_max()));
        assert!(told[4] <= told[3] && told[3] <= told[2], "{told:?}");
    }
    assert_eq!(client.extended("statvfs@openssh.com", &Body::of("absent")).status().0, 2);
}

#[test]
fn users_and_groups_are_named_by_their_ids_and_unknown_ones_by_nothing() {
    let mut client = Client::greeted();
    let ids = |ids: &[u32]| ids.iter().fold(Body::default(), |body, id| body.number(*id)).0;
    let body = Body::of(ids(&[0, AGENT])).string(ids(&[AGENT, 0, 0]));
    let answer = client.extended("users-groups-by-id@openssh.com", &body);
    let names = |bytes: &[u8]| {
        let mut fields = Fields(bytes);
        std::iter::from_fn(|| (!fields.0.is_empty()).then(|| fields.text())).collect::<Vec<_>>()
    };
    let mut fields = Fields(&answer.1);
    assert_eq!(answer.0, 201);
    assert_eq!(names(fields.string()), ["root", ""]);
    assert_eq!(names(fields.string()), ["", "root", "root"]);
    // More names than an answer holds.
    let many = Body::of(ids(&[0; 32_000])).string("");
    assert_eq!(client.extended("users-groups-by-id@openssh.com", &many).0, 201);
    let more = Body::of(ids(&[0; 33_000])).string("");
    assert_eq!(client.extended("users-groups-by-id@openssh.com", &more).status().0, 4);
}
