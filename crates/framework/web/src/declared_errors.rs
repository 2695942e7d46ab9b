//! The error types that `?` recognises: the framework's types, and the types that `#[http_error]` declares.

use std::any::TypeId;

#[cfg(feature = "macros")]
use apus_handler::HttpError;
use apus_handler::HttpErrorType;

#[cfg(feature = "auth")]
use crate::session::SessionError;

/// An error type that `#[http_error]` declares.
#[cfg(feature = "macros")]
#[derive(Clone, Copy, Debug)]
pub struct DeclaredHttpError(HttpErrorType);

#[cfg(feature = "macros")]
inventory::collect!(DeclaredHttpError);

#[cfg(feature = "macros")]
impl DeclaredHttpError {
    /// The declaration of a type.
    pub const fn of<E: HttpError>() -> Self {
        Self(HttpErrorType::of::<E>())
    }
}

/// The types of the framework and its crates.
const KNOWN: &[HttpErrorType] = &[
    #[cfg(feature = "auth")]
    HttpErrorType::of::<SessionError>(),
    #[cfg(feature = "jobs")]
    HttpErrorType::of::<apus_jobs::JobError>(),
    #[cfg(feature = "storage")]
    HttpErrorType::of::<apus_storage::InvalidKey>(),
    #[cfg(feature = "storage")]
    HttpErrorType::of::<apus_storage::StorageError>(),
    #[cfg(feature = "sql")]
    HttpErrorType::of_other::<sqlx::Error>(apus_database::into_error),
];

/// Makes `?` recognise the types.
pub(crate) fn recognise() {
    HttpErrorType::find_by(|id: TypeId| {
        let known = KNOWN.iter().copied();
        #[cfg(feature = "macros")]
        let known = known.chain(
            inventory::iter::<DeclaredHttpError>
                .into_iter()
                .map(|one| one.0),
        );
        known.into_iter().find(|known| known.id() == id)
    });
}
