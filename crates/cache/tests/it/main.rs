//! Tests of the cache through its public doors.
