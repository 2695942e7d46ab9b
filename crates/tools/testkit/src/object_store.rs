//! `ObjectStore`: a store of objects that is compatible with S3 (s3rver, which `make tools` installs).

use std::process::Command;
use std::sync::OnceLock;

use crate::ports::free_port;
use crate::process::{ReadyProcess, process_folder};

/// An object store with the empty buckets `files` and `contract`. Its key and its secret are `S3RVER`.
pub struct ObjectStore {
    /// Its address, as `http://127.0.0.1:4568`.
    pub endpoint: String,
    _process: ReadyProcess,
}

/// It ends with the tests, since it reads their end of a pipe.
const PROGRAM: &str = "
    process.stdin.on('end', () => { require('fs').rmSync(process.argv[3], {recursive: true}); process.exit() });
    process.stdin.resume();
    const S3rver = require('s3rver');
    new S3rver({port: +process.argv[2], address: '127.0.0.1', silent: true, directory: process.argv[3],
        configureBuckets: [{name: 'files'}, {name: 'contract'}]}).run().then(() => console.log('ready'))";

impl ObjectStore {
    /// The store that the tests of a process share.
    pub fn shared() -> &'static Self {
        static STORE: OnceLock<ObjectStore> = OnceLock::new();
        STORE.get_or_init(Self::start)
    }

    fn start() -> Self {
        let port = free_port();
        let mut command = Command::new("node");
        command.args(["-e", PROGRAM, "--", "-", &port.to_string()]);
        command.arg(process_folder());
        command.current_dir(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../.tools/s3rver"
        ));
        Self {
            endpoint: format!("http://127.0.0.1:{port}"),
            _process: ReadyProcess::start(&mut command),
        }
    }
}
