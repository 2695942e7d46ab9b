//! Versions of a file: their entity tags, and what workers know of them.

use super::*;

/// A file of this length with this byte, which was modified when others were.
fn write_version(site: &Site, path: &str, len: usize, byte: u8) {
    let new = format!("{path}.new");
    site.write(&new, vec![byte; len]);
    let file = fs::File::options()
        .append(true)
        .open(site.path(&new))
        .unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
        .unwrap();
    fs::rename(site.path(&new), site.path(path)).unwrap();
}

#[tokio::test]
async fn a_reproducible_build_that_is_replaced_by_other_bytes_changes_its_entity_tag() {
    const IN_MEMORY: usize = 512 << 10;
    for len in [1000, IN_MEMORY - 1, IN_MEMORY, IN_MEMORY + 1, 3 << 20] {
        let site = site(&[], |files| files);
        write_version(&site, "app.bin", len, b'1');
        let first = tagged(&site).await;
        write_version(&site, "app.bin", len, b'2');
        pass(REVALIDATION);
        let second = tagged(&site).await;
        assert_eq!(
            first.header("last-modified"),
            second.header("last-modified")
        );
        assert_ne!(first.etag(), second.etag(), "{len} bytes");
        for validator in [&first.etag(), first.header("last-modified").unwrap()] {
            let lines = [("range", "bytes=100-199"), ("if-range", validator)];
            let got = site.get_with("/app.bin", &lines).await;
            assert_eq!(
                (got.status, got.body.len()),
                (200, len),
                "{validator} would join two versions"
            );
        }
        let old = [("if-none-match", &*first.etag())];
        assert_eq!(site.get_with("/app.bin", &old).await.status, 200);
        let current = second.etag();
        let lines = [("range", "bytes=100-199"), ("if-range", &*current)];
        let got = site.get_with("/app.bin", &lines).await;
        assert_eq!((got.status, &*got.body), (206, &[b'2'; 100][..]));
        let lines = [("if-none-match", &*current)];
        assert_eq!(site.get_with("/app.bin", &lines).await.status, 304);
    }
}

/// The response with an entity tag, which a large file gets once a change would be visible.
async fn tagged(site: &Site) -> Got {
    loop {
        let got = site.get("/app.bin").await;
        if got.header("etag").is_some() {
            return got;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_date_is_a_strong_validator_only_if_nobody_set_it() {
    let site = site(&[], |files| files);
    fs::write(site.path("now.txt"), "0123456789").unwrap();
    site.write("set.txt", "0123456789");
    for (path, status) in [("/now.txt", 206), ("/set.txt", 200)] {
        let modified = site
            .get(path)
            .await
            .header("last-modified")
            .unwrap()
            .to_owned();
        let lines = [("range", "bytes=0-1"), ("if-range", &*modified)];
        assert_eq!(site.get_with(path, &lines).await.status, status, "{path}");
    }
}

/// The services of two workers for one tree.
struct Workers {
    site: Site,
    other: FilesService,
}

impl Workers {
    fn new(files: &[(&str, &str)]) -> Self {
        let mut factory = None;
        let site = site(files, |files| factory.insert(files).clone());
        Self {
            other: factory.unwrap().build(),
            site,
        }
    }

    async fn other(&self, target: &str) -> Got {
        Got::from(self.other.call(request(Method::GET, target, &[]))).await
    }
}

#[tokio::test]
async fn what_one_worker_finds_out_reaches_the_others() {
    let workers = Workers::new(&[("a.txt", "old"), ("deleted.txt", "there")]);
    let site = &workers.site;
    settle().await;
    assert_eq!(site.get("/a.txt").await.text(), "old");
    assert_eq!(site.get("/deleted.txt").await.text(), "there");
    pass(Duration::from_millis(600));
    assert_eq!(workers.other("/a.txt").await.text(), "old");
    assert_eq!(workers.other("/deleted.txt").await.text(), "there");
    site.write("a.txt", "new");
    fs::remove_file(site.path("deleted.txt")).unwrap();
    // Both have it in memory, and the first one compares it a second after it has read it.
    assert_eq!(workers.other("/a.txt").await.text(), "old");
    pass(Duration::from_millis(600));
    assert_eq!(site.get("/a.txt").await.text(), "new");
    assert_eq!(workers.other("/a.txt").await.text(), "new");
    assert_eq!(workers.other("/deleted.txt").await.status, 404);
    assert_eq!(site.get("/deleted.txt").await.status, 404);
}

#[tokio::test]
async fn a_worker_that_reads_a_new_version_first_tells_the_others() {
    let workers = Workers::new(&[("a.txt", "old")]);
    let site = &workers.site;
    settle().await;
    assert_eq!(workers.other("/a.txt").await.text(), "old");
    site.write("a.txt", "new");
    assert_eq!(
        site.get("/a.txt").await.text(),
        "new",
        "it had nothing in memory"
    );
    assert_eq!(workers.other("/a.txt").await.text(), "new");
}

#[tokio::test]
async fn a_root_that_is_a_link_is_switched_for_all_workers() {
    let folder = tempfile::tempdir().unwrap();
    for release in ["one", "two"] {
        fs::create_dir(folder.path().join(release)).unwrap();
        fs::write(folder.path().join(release).join("a.txt"), release).unwrap();
    }
    symlink("one", folder.path().join("current")).unwrap();
    let files = Files::new(folder.path().join("current")).clock(clock);
    let workers = [files.build(), files.build()];
    let get = async |worker: &FilesService| {
        Got::from(worker.call(request(Method::GET, "/a.txt", &[])))
            .await
            .text()
            .to_owned()
    };
    assert_eq!(get(&workers[0]).await, "one");
    pass(Duration::from_millis(600));
    assert_eq!(get(&workers[1]).await, "one");
    symlink("two", folder.path().join("next")).unwrap();
    fs::rename(folder.path().join("next"), folder.path().join("current")).unwrap();
    pass(Duration::from_millis(600));
    assert_eq!(get(&workers[0]).await, "two");
    assert_eq!(get(&workers[1]).await, "two");
}

/// Waits until changes of what was written are visible in its metadata.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(2100)).await;
}
