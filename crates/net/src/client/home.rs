//! Where connections that carry one request at a time are between two of them.

use super::Http1;

/// Where a connection goes when it can carry another request.
pub trait Home<C = Http1> {
    /// Takes the connection. Its last response was read whole.
    fn take_back(&self, connection: C);
}
