//! Where connections that carry one request at a time are between two of them.

use super::Http1Client;

/// Where a connection goes when it can carry another request.
pub trait ConnectionReturn<C = Http1Client> {
    /// Takes the connection. Its last response was read whole.
    fn return_connection(&self, connection: C);
}
