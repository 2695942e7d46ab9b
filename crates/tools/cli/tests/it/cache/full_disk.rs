//! A full disk below the cache: responses that it cannot store are passed on whole, and it stores responses
//! again when there is space.

use super::{configured, is_hit, large, large_origin};
use crate::disk::{Disk, PreparedDisk};
use crate::harness::{Home, wait_until};
use crate::proxy::{Configuration, Front};

/// Starts the server with a cache on a small disk.
fn serve(configuration: Configuration) -> (Front, Disk) {
    let home = Home::new();
    let disk = PreparedDisk::new(&home, "16m", false);
    // In the user namespace the server is root, so it would use the default control socket of root.
    let configuration = configuration
        .global("cache = { dir = \"disk/cache\", size = 512 }")
        .global("control_socket = \"apus.sock\"");
    let front = configuration.serve_through(&disk.program(), home);
    let disk = disk.of(&front.home, front.apus.pid());
    (front, disk)
}

#[test]
fn responses_that_a_full_disk_cannot_store_are_passed_on_whole() {
    let body = large();
    let origin = large_origin(&body);
    let (front, disk) = serve(configured(&origin));
    disk.fill();
    for round in 0..3 {
        let mut wires: Vec<_> = (0..8).map(|_| front.connect()).collect();
        for (index, wire) in wires.iter_mut().enumerate() {
            // Two clients request each target.
            let target = format!("/{round}/{}", index / 2);
            wire.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        }
        for wire in &mut wires {
            let reply = wire.read();
            assert_eq!(reply.status, 200);
            assert!(reply.body == body);
        }
    }
    // Small responses are stored in memory.
    front.get("/small");
    assert!(is_hit(&front, "/small"));
    assert!(!is_hit(&front, "/0/0"));
    // A purge works nevertheless, and reports what it cannot write to disk.
    front.home.run(&["cache", "purge", "--all"]);
    assert!(!is_hit(&front, "/small"));
    let tag = "x".repeat(5000);
    let (_, errors) = front.home.expect(&["cache", "purge", "--tag", &tag], 1);
    assert!(errors.contains("purged, but "), "{errors}");
    front.assert_memory_is_bounded();
    let log = front.apus.wait_for_log("the cache cannot write to disk");
    let reports = log.matches("the cache cannot write to disk").count();
    assert_eq!(reports, 1, "{log}");
    disk.empty();
    wait_until("it is stored again", || is_hit(&front, "/0/0"));
    assert!(front.get("/0/0").body == body);
    assert!(is_hit(&front, "/small"));
}
