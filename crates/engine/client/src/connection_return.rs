//! The owner of idle connections that carry one request at a time, such as a pool.

/// Takes connections back that can carry another request.
pub trait ConnectionReturn<C> {
    /// Takes a connection back whose last response was read whole.
    fn return_connection(&self, connection: C);
}
