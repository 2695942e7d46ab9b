//! Files in memory stay current.

use super::*;

#[tokio::test]
async fn caches_for_a_second_and_notices_every_kind_of_change() {
    let site = site(
        &[("a.txt", "one"), ("old/b.txt", "old"), ("new/b.txt", "new")],
        |files| files,
    );
    symlink("old", site.path("current")).unwrap();
    assert_eq!(site.get("/a.txt").await.text(), "one");
    assert_eq!(site.get("/current/b.txt").await.text(), "old");

    // An edit in place of the same length, with the modification time set back.
    fs::write(site.path("a.txt"), "two").unwrap();
    site.set_modified(&site.path("a.txt"), hour_ago());
    assert_eq!(site.get("/a.txt").await.text(), "one", "within the second");
    pass(REVALIDATION);
    assert_eq!(site.get("/a.txt").await.text(), "two");

    // An atomic rename.
    site.write("a.tmp", "three");
    fs::rename(site.path("a.tmp"), site.path("a.txt")).unwrap();
    pass(REVALIDATION);
    assert_eq!(site.get("/a.txt").await.text(), "three");

    // A folder swapped by its symbolic link.
    symlink("new", site.path("next")).unwrap();
    fs::rename(site.path("next"), site.path("current")).unwrap();
    pass(REVALIDATION);
    assert_eq!(site.get("/current/b.txt").await.text(), "new");

    // Deletion.
    fs::remove_file(site.path("a.txt")).unwrap();
    pass(REVALIDATION);
    assert_eq!(site.get("/a.txt").await.status, 404);
}

#[tokio::test]
async fn does_not_trust_metadata_of_a_recently_changed_file() {
    let site = site(&[("a.txt", "one")], |files| files);
    let path = site.path("a.txt");
    // Edits that follow each other faster than the clock of the file system ticks leave no trace:
    // whatever the metadata say, what was written just now is read again.
    for round in 0..20 {
        fs::write(&path, format!("{round:03}")).unwrap();
        pass(REVALIDATION);
        assert_eq!(site.get("/a.txt").await.text(), format!("{round:03}"));
    }
}

#[tokio::test]
async fn follows_a_root_that_is_swapped() {
    let folder = tempfile::tempdir().unwrap();
    for release in ["one", "two"] {
        fs::create_dir(folder.path().join(release)).unwrap();
        fs::write(folder.path().join(release).join("index.html"), release).unwrap();
    }
    let root = folder.path().join("current");
    symlink("one", &root).unwrap();
    let site = Site {
        service: Files::new(&root).clock(clock).build(),
        folder,
    };
    assert_eq!(site.get("/").await.text(), "one");
    symlink("two", site.folder.path().join("next")).unwrap();
    fs::rename(site.folder.path().join("next"), &root).unwrap();
    pass(REVALIDATION);
    assert_eq!(site.get("/").await.text(), "two");
}

#[tokio::test]
async fn different_bytes_of_one_length_have_different_entity_tags() {
    let site = site(&[("a.txt", "one")], |files| files);
    let one = site.get("/a.txt").await.etag();
    site.write("a.txt", "two");
    pass(REVALIDATION);
    let got = site.get_with("/a.txt", &[("if-none-match", &one)]).await;
    assert_eq!((got.status, got.text()), (200, "two"));
}

#[tokio::test]
async fn stays_within_its_memory_limit() {
    let site = site(&[], |files| files.cache(100_000));
    for at in 0..50 {
        site.write(&format!("{at}.bin"), vec![at; 10_000]);
    }
    for _ in 0..2 {
        for at in 0..50_u8 {
            let got = site.get(&format!("/{at}.bin")).await;
            assert_eq!(got.body, vec![at; 10_000]);
        }
    }
}

#[tokio::test]
async fn works_without_a_memory_cache() {
    let site = site(&[("a.txt", &text())], |files| files.cache(0));
    for _ in 0..20 {
        let lines = [("accept-encoding", "br, gzip")];
        let got = site.get_with("/a.txt", &lines).await;
        assert_eq!((got.status, got.text()), (200, &*text()));
        assert_eq!(
            got.header("content-encoding"),
            None,
            "there is no room to keep it"
        );
    }
}
