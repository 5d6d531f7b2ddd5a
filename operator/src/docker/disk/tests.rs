//! Disks on this host: they need to be root's, as a node does.

use super::*;

async fn disks(dir: &Path, quota: DiskQuota) -> (Disks, Template) {
    let disks = Disks::open(dir, quota, Failpoint::default()).await.unwrap();
    outline(&disks.skeleton("image")).unwrap();
    std::fs::write(disks.skeleton("image").join("home/.profile"), "hello").unwrap();
    let template = disks.template("image", 1).await.unwrap();
    (disks, template)
}

async fn ready(disks: &Disks, template: &Template, vessel: &str) {
    disks.make(vessel, template).await.unwrap();
    disks.mount(vessel).await.unwrap();
    disks.check(vessel, 1).unwrap();
}

fn attached(dir: &Path) -> usize {
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let backing = devices.filter_map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")).ok());
    backing.filter(|path| path.starts_with(dir.to_str().unwrap())).count()
}

#[tokio::test]
async fn a_disk_begins_with_what_the_image_has_and_belongs_to_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    for quota in [DiskQuota::Loop, DiskQuota::None] {
        let (disks, template) = disks(dir.path(), quota).await;
        disks.make("a", &template).await.unwrap();
        disks.mount("a").await.unwrap();
        let home = disks.outside("a", "home");
        assert_eq!(std::fs::read_to_string(home.join(".profile")).unwrap(), "hello");
        let owner = std::fs::metadata(disks.outside("a", "workspace")).unwrap();
        assert_eq!((owner.uid(), owner.gid()), (1_000, 1_000));
        let own = std::fs::metadata(disks.outside("a", "storage")).unwrap();
        assert_eq!((own.uid(), own.gid(), own.mode() & 0o7777), (0, 0, 0o700), "the sidecar's own is for root alone");
        disks.remove("a").await.unwrap();
        assert_eq!(disks.vessels().unwrap(), Vec::<String>::new());
    }
    assert_eq!(attached(dir.path()), 0);
}

#[tokio::test]
async fn what_is_written_beyond_the_size_is_refused_and_what_is_deleted_goes_back_to_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let (disks, template) = disks(dir.path(), DiskQuota::Loop).await;
    ready(&disks, &template, "a").await;
    let taken = || std::fs::metadata(disks.image("a")).unwrap().blocks() * 512;
    let new = taken();
    assert!(new < 8 * 1024 * 1024, "a new disk takes {new} bytes of the host");
    let file = disks.outside("a", "workspace").join("big");
    let full = std::fs::File::create(&file).and_then(|file| {
        let mut file = file;
        io::copy(&mut io::Read::take(io::repeat(1), 2 * GIB), &mut file)
    });
    assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
    std::fs::remove_file(file).unwrap();
    // What was deleted is given back behind the commit that deleted it.
    std::fs::File::open(disks.outside("a", "workspace")).and_then(|dir| dir.sync_all()).unwrap();
    let asked = std::time::Instant::now();
    while taken() > GIB / 4 && asked.elapsed() < std::time::Duration::from_secs(10) {
        tokio::task::yield_now().await;
    }
    assert!(taken() < GIB / 4, "{} bytes are still taken", taken());
    disks.remove("a").await.unwrap();
    assert_eq!(attached(dir.path()), 0);
}

#[tokio::test]
async fn every_operation_may_be_repeated_and_what_is_written_outlives_a_reboot() {
    let dir = tempfile::tempdir().unwrap();
    let (disks, template) = disks(dir.path(), DiskQuota::Loop).await;
    ready(&disks, &template, "a").await;
    std::fs::write(disks.outside("a", "home").join("note"), "kept").unwrap();
    ready(&disks, &template, "a").await;
    disks.unmount("a").await.unwrap();
    disks.unmount("a").await.unwrap();
    assert!(disks.check("a", 1).is_err(), "a disk that is not mounted is not what was promised");
    ready(&disks, &template, "a").await;
    assert_eq!(std::fs::read_to_string(disks.outside("a", "home").join("note")).unwrap(), "kept");
    assert!(disks.check("a", 2).is_err(), "nor is one of another size");
    disks.remove("a").await.unwrap();
    disks.remove("a").await.unwrap();
    assert_eq!(attached(dir.path()), 0);
}

#[tokio::test]
async fn what_a_crash_leaves_between_any_two_steps_is_removed_or_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let (disks, template) = disks(dir.path(), DiskQuota::Loop).await;
    // Copied, not renamed; then renamed, not mounted; then the directory made, not mounted.
    let unready = disks.dir.join("a.new");
    template.copy(&unready).await.unwrap();
    assert_eq!(disks.vessels().unwrap(), ["a"]);
    ready(&disks, &template, "a").await;
    disks.remove("a").await.unwrap();
    disks.make("b", &template).await.unwrap();
    std::fs::create_dir(disks.mount_point("b")).unwrap();
    assert_eq!(disks.vessels().unwrap(), ["b"]);
    disks.remove("b").await.unwrap();
    // Unmounted, not removed; then the image removed, the directory not.
    ready(&disks, &template, "c").await;
    disks.unmount("c").await.unwrap();
    std::fs::remove_file(disks.image("c")).unwrap();
    disks.remove("c").await.unwrap();
    assert_eq!(disks.vessels().unwrap(), Vec::<String>::new());
    assert_eq!(attached(dir.path()), 0);
}

#[tokio::test]
async fn a_disk_that_something_still_uses_is_let_go_of_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (disks, template) = disks(dir.path(), DiskQuota::Loop).await;
    ready(&disks, &template, "a").await;
    let used = std::fs::File::create(disks.outside("a", "home").join("used")).unwrap();
    disks.remove("a").await.unwrap();
    assert_eq!(disks.vessels().unwrap(), Vec::<String>::new());
    drop(used);
    let mut passes = 0;
    while attached(dir.path()) > 0 && passes < 10_000 {
        tokio::task::yield_now().await;
        passes += 1;
    }
    assert_eq!(attached(dir.path()), 0);
}
