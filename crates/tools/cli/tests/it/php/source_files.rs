//! The source of programs is not sent: neither copies that editors leave beside them nor files that
//! programs include, whichever location or site serves their folder.

use super::stack::Stack;
use crate::harness::{Apus, Home};
use crate::wire::{Received, Wire};

const SECRET: &str = "<?php $password = 'hunter2';";

/// Copies of programs and files that they include, which are not run.
const SOURCES: &[&str] = &[
    "config.inc",
    "config.inc.php~",
    "config.INC",
    "config.inc~",
    "config.php.inc",
    "config.php~",
    "config.php~1~",
    "#config.php#",
    "config.php.bak",
    "config.php.BAK",
    "config.PHP.txt",
    "config.php.swp",
    "config.php.old",
    "config.php.save",
    "config.php.1",
    "config.php.gz",
    "config.php-dist",
    "config.php_old",
    "config.php%202",
    "config.bak",
    "config.old",
    "config.orig",
    "config.phps",
    "config.phtml",
    "config.php5",
    "config.php3",
    "config.pht",
    "config.phar",
    "lib/config.inc",
];

/// Other files: a picture may be named after a program, and a word may begin like an extension.
const OTHERS: &[&str] = &[
    "config.php.png",
    "config.increment.txt",
    "bak.txt",
    "old.html",
    "inc",
    "phpinfo.txt",
    "jquery.inc.js",
];

fn serve(name: &str, sites: &str) -> (Home, Apus) {
    let stack = Stack::scripts();
    for file in SOURCES.iter().chain(OTHERS) {
        stack.write(&format!("{name}/{}", file.replace("%20", " ")), SECRET);
    }
    stack.write(&format!("{name}/index.php"), "<?php echo 'ran';");
    stack.write(&format!("{name}/here.php"), "<?php echo 'ran';");
    let home = Home::new();
    let root = stack.path(name);
    let socket = stack.socket();
    home.write(
        "apus.toml",
        sites
            .replace("ROOT", root.to_str().unwrap())
            .replace("SOCKET", socket.to_str().unwrap()),
    );
    let apus = home.serve(&[]);
    (home, apus)
}

fn get(apus: &Apus, host: &str, path: &str) -> Received {
    let mut wire = Wire::connect(apus.address());
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    wire.read()
}

#[test]
fn copies_of_programs_and_included_files_get_a_404_without_a_preset() {
    let (_home, apus) = serve(
        "copies",
        "[[sites]]\nserver_name = \"a.test\"\nlisten = \"127.0.0.1:0\"\nroot = \"ROOT\"\n\
         php_fastcgi = \"SOCKET\"\nlisting = true\nindex = \"none.html\"\n\
         fastcgi.protected = \"/kept.txt\"\n",
    );
    Stack::scripts().write("copies/kept.txt", SECRET);
    for file in SOURCES {
        let file = file.replace('#', "%23");
        let reply = get(&apus, "a.test", &format!("/{file}"));
        assert_eq!(reply.status, 404, "{file}");
        assert!(!reply.text().contains("hunter2"), "{file}");
    }
    for file in OTHERS {
        let reply = get(&apus, "a.test", &format!("/{file}"));
        assert_eq!((reply.status, &*reply.text()), (200, SECRET), "{file}");
    }
    assert_eq!(get(&apus, "a.test", "/here.php").text(), "ran");
    // A listing does not name them either.
    let listing = get(&apus, "a.test", "/").text().to_lowercase();
    assert!(listing.contains("phpinfo.txt"), "{listing}");
    for hidden in [
        "config.inc\"",
        "config.bak",
        "kept.txt",
        "config.php.bak",
        "here.php",
        "config.old",
    ] {
        assert!(!listing.contains(hidden), "{hidden} {listing}");
    }
}

#[test]
fn a_static_location_or_site_does_not_send_source_files_from_a_folder_of_programs() {
    // A location of programs by extension, as in nginx; a location with a folder within the root; and a
    // site of files with the same root.
    let (_home, apus) = serve(
        "beside",
        "[[sites]]\nserver_name = \"a.test\"\nlisten = \"127.0.0.1:0\"\nroot = \"ROOT\"\n\
         [[sites.locations]]\npath = \"/\"\nhandler = \"static\"\n\
         [[sites.locations]]\npath = '~ \\.php$'\nphp_fastcgi = \"SOCKET\"\n\
         [[sites.locations]]\npath = \"/alias/\"\nalias = \"ROOT/lib\"\n\
         [[sites]]\nserver_name = \"files.test\"\nlisten = \"127.0.0.1:0\"\nroot = \"ROOT\"\n",
    );
    assert_eq!(get(&apus, "a.test", "/here.php").text(), "ran");
    for path in [
        "/config.inc",
        "/config.php.bak",
        "/config.php~",
        "/alias/config.inc",
    ] {
        assert_eq!(get(&apus, "a.test", path).status, 404, "{path}");
        assert_eq!(get(&apus, "files.test", path).status, 404, "{path}");
    }
    assert_eq!(get(&apus, "a.test", "/bak.txt").text(), SECRET);
}

#[test]
fn a_site_without_programs_serves_files_of_any_name_but_those_of_programs() {
    let (_home, apus) = serve(
        "plain",
        "[[sites]]\nserver_name = \"a.test\"\nlisten = \"127.0.0.1:0\"\nroot = \"ROOT\"\n",
    );
    for path in ["/config.inc", "/config.bak", "/config.php.old"] {
        assert_eq!(get(&apus, "a.test", path).text(), SECRET, "{path}");
    }
    for path in ["/here.php", "/config.phps", "/config.php~", "/config.php3"] {
        assert_eq!(get(&apus, "a.test", path).status, 404, "{path}");
    }
}
