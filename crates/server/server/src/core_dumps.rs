//! Core dumps of a server, which would have private keys and requests of clients in them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Has the kernel write no core dumps of this process and its children. `prlimit --core` allows them for a running server.
pub(crate) fn turn_off() {
    let off = Rlimit {
        current: Some(0),
        maximum: getrlimit(Resource::Core).maximum,
    };
    // A limit can always be lowered.
    let _ = setrlimit(Resource::Core, off);
}
