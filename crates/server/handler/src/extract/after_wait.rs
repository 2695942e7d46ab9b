//! `AsyncExtractor`: extractors that wait, once for each request.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use apus_http::{Request, Response, StatusCode};
use tokio::sync::OnceCell;

use super::FromRequestHead;
use crate::matched::Matched;
use crate::respond::IntoResponse;
use crate::route_check::RouteCheck;

/// An extractor that waits, as for a database: a value that is made of other extractors. Handlers take it as any other
/// argument.
///
/// A request has one value of each type. The first argument, or layer ([`super::Require`]), that needs it makes it, and
/// the others get a clone. What failed is tried again.
///
/// ```
/// # use apus_handler::extract::AsyncExtractor;
/// # use apus_handler::{Error, State};
/// # use apus_http::{Headers, StatusCode};
/// #[derive(Clone)]
/// struct Users; // a database
///
/// impl Users {
///     async fn of_key(&self, key: &str) -> Option<CurrentUser> {
///         # let _ = key;
///         Some(CurrentUser { id: 1, is_admin: true })
///     }
/// }
///
/// #[derive(Clone)]
/// struct CurrentUser {
///     id: u32,
///     is_admin: bool,
/// }
///
/// impl AsyncExtractor for CurrentUser {
///     type Arguments = (Headers, State<Users>);
///     type Rejection = Error;
///
///     async fn extract((headers, State(users)): Self::Arguments) -> Result<Self, Error> {
///         let unknown = || Error::of(StatusCode::UNAUTHORIZED);
///         let key = headers.get_str("x-api-key").ok_or_else(unknown)?;
///         users.of_key(key).await.ok_or_else(unknown)
///     }
/// }
///
/// /// A user with a role.
/// #[derive(Clone)]
/// struct Admin(CurrentUser);
///
/// impl AsyncExtractor for Admin {
///     type Arguments = CurrentUser;
///     type Rejection = Error;
///
///     async fn extract(user: CurrentUser) -> Result<Self, Error> {
///         if user.is_admin {
///             Ok(Self(user))
///         } else {
///             Err(Error::forbidden("this is for administrators"))
///         }
///     }
/// }
///
/// async fn page(user: Option<CurrentUser>) -> String {
///     user.map_or("a visitor".to_owned(), |user| format!("user {}", user.id))
/// }
///
/// async fn settings(Admin(user): Admin) -> String {
///     format!("admin {}", user.id)
/// }
/// # fn handler<M>(_: impl apus_handler::Handler<M>) {}
/// # handler(page);
/// # handler(settings);
/// ```
pub trait AsyncExtractor: Clone + Send + Sync + 'static {
    /// The extractors that it is made of: `()`, one, or a tuple of up to eight. They may wait, too.
    type Arguments: FromRequestHead + 'static;

    /// The response on failure.
    type Rejection: IntoResponse;

    /// Makes the value.
    fn extract(
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Self, Self::Rejection>> + 'static;
}

/// The value of an extractor, now or later.
#[doc(hidden)]
pub enum Extraction<T, R> {
    /// It is there, or has failed.
    Ready(Result<T, R>),
    /// It waits.
    Later(Pin<Box<dyn Future<Output = Result<T, R>>>>),
}

impl<T: 'static, R: 'static> Extraction<T, R> {
    /// Waits for the value.
    pub async fn wait(self) -> Result<T, R> {
        match self {
            Self::Ready(value) => value,
            Self::Later(value) => value.await,
        }
    }

    /// What `change` makes of the value.
    pub(super) fn map<U, S>(
        self,
        change: impl FnOnce(Result<T, R>) -> Result<U, S> + 'static,
    ) -> Extraction<U, S> {
        match self {
            Self::Ready(value) => Extraction::Ready(change(value)),
            Self::Later(value) => Extraction::Later(Box::pin(async move { change(value.await) })),
        }
    }
}

impl<T, R> std::fmt::Debug for Extraction<T, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "Ready",
            Self::Later(_) => "Later",
        })
    }
}

/// The value of a request, an extension of it.
struct ValueOfRequest<T>(Arc<OnceCell<T>>);

impl<T> Clone for ValueOfRequest<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[diagnostic::do_not_recommend]
impl<T: AsyncExtractor> FromRequestHead for T {
    type Rejection = Response;

    const WAITS: bool = true;

    /// The value if it was made already; an extractor of this kind is an argument, and not called.
    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Response> {
        let known = request.extensions().get::<ValueOfRequest<T>>();
        known
            .and_then(|known| known.0.get().cloned())
            .ok_or_else(|| {
                let name = std::any::type_name::<T>();
                tracing::error!(
                    "{name} waits: it has to be an argument, not called by `from_head`"
                );
                Response::new(StatusCode::INTERNAL_SERVER_ERROR)
            })
    }

    fn extraction(request: &mut Request, matched: &Matched<'_>) -> Extraction<Self, Response> {
        let known = request.extensions().get::<ValueOfRequest<T>>().cloned();
        let ValueOfRequest(cell) = known.unwrap_or_else(|| {
            let new = ValueOfRequest(Arc::default());
            request.extensions_mut().insert(new.clone());
            new
        });
        if let Some(value) = cell.get() {
            return Extraction::Ready(Ok(value.clone()));
        }
        let arguments = T::Arguments::extraction(request, matched);
        Extraction::Later(Box::pin(async move {
            let make = async || {
                let arguments = arguments
                    .wait()
                    .await
                    .map_err(IntoResponse::into_response)?;
                let made = T::extract(arguments).await;
                made.map_err(IntoResponse::into_response)
            };
            cell.get_or_try_init(make).await.cloned()
        }))
    }

    fn check(route: &mut RouteCheck<'_>) {
        T::Arguments::check(route);
    }
}
