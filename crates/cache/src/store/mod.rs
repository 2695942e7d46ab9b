//! Where stored responses are kept: in memory and on disk, shared by all workers.
