//! The arguments of handlers: what each one may be, and the call of a function with them.
//!
//! Each trait here has one implementation that the compiler can choose for a function, by the number of its arguments.
//! So an error is about the argument that is wrong, and not about the function.

use std::any::type_name;

use apus_http::{Request, ResponseFuture};

use crate::blocking::HandlerPlace;
use crate::body_limit::BodyLimit;
use crate::extract::{FromRequest, FromRequestHead};
use crate::into_response_future::IntoResponseFuture;
use crate::matched::Matched;
use crate::respond::IntoResponse;
use crate::route_check::RouteCheck;

/// A function of up to eight arguments, which are a tuple here.
pub trait HandlerFunction<Arguments>: Clone + Send + Sync + 'static {
    /// What it returns.
    type Returned;

    /// Calls it.
    fn invoke(&self, arguments: Arguments) -> Self::Returned;
}

/// The arguments of a handler: extractors, of which the last may read the body.
pub trait HandlerArguments<Marker>: Sized + 'static {
    /// Extracts the arguments and calls the function.
    fn call<F, Returned>(function: &F, request: Request, matched: &Matched<'_>) -> ResponseFuture
    where
        F: HandlerFunction<Self>,
        F::Returned: IntoResponseFuture<Returned>,
        <F::Returned as IntoResponseFuture<Returned>>::Value: IntoResponse;

    /// Checks that a route has what they need.
    fn check(route: &mut RouteCheck<'_>);
}

/// A type that a handler can take as its last argument.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a handler",
    label = "a handler cannot take this",
    note = "a handler takes `Path`, `Query`, `State`, `Method`, `HeaderMap`, `Peer` and the like in \
            any order, and last, if at all, what reads the body: `Json`, `Form`, `String`, \
            `Bytes` or `Request`; a type of your own can implement `FromRequestHead`, `AsyncExtractor` or `FromRequest`",
    note = "the `T` of `Path<T>`, `Query<T>`, `Json<T>` and `Form<T>` has `#[derive(serde::Deserialize)]`, the `T` of `State<T>` \
            `#[derive(Clone)]`, and the one in `Valid<..>` `#[derive(garde::Validate)]`, too"
)]
pub trait HandlerArgument<Marker>: Sized + 'static {
    /// Extracts the arguments before this one, and this one, and calls the function with what `join` makes of them.
    fn call<F, Arguments, Before, Returned>(
        function: &F,
        request: Request,
        matched: &Matched<'_>,
        join: impl Fn(Before, Self) -> Arguments + 'static,
    ) -> ResponseFuture
    where
        F: HandlerFunction<Arguments>,
        F::Returned: IntoResponseFuture<Returned>,
        <F::Returned as IntoResponseFuture<Returned>>::Value: IntoResponse,
        Before: FromRequestHead + 'static;

    /// Checks that a route has what it needs.
    fn check(_route: &mut RouteCheck<'_>) {}
}

/// The function and its route, for the log. (A layer has no place.)
fn place_of<F>(matched: &Matched<'_>) -> Option<HandlerPlace> {
    Some(HandlerPlace {
        name: type_name::<F>(),
        at: matched.at,
    })
}

/// Marks a last argument that is read from the head of a request.
#[derive(Debug)]
pub enum HeadMarker {}

/// Marks a last argument that reads the body.
#[derive(Debug)]
pub enum BodyMarker {}

impl<T: FromRequestHead + 'static> HandlerArgument<HeadMarker> for T {
    fn call<F, Arguments, Before, Returned>(
        function: &F,
        mut request: Request,
        matched: &Matched<'_>,
        join: impl Fn(Before, Self) -> Arguments + 'static,
    ) -> ResponseFuture
    where
        F: HandlerFunction<Arguments>,
        F::Returned: IntoResponseFuture<Returned>,
        <F::Returned as IntoResponseFuture<Returned>>::Value: IntoResponse,
        Before: FromRequestHead + 'static,
    {
        let place = place_of::<F>(matched);
        if const { Before::WAITS || T::WAITS } {
            let rendering = matched.rendering(&request);
            let before = Before::extraction(&mut request, matched);
            let last = T::extraction(&mut request, matched);
            let function = function.clone();
            return ResponseFuture::later(async move {
                rendering.apply(match before.wait().await {
                    Err(rejection) => rejection.into_response(),
                    Ok(before) => match last.wait().await {
                        Err(rejection) => rejection.into_response(),
                        Ok(last) => {
                            F::Returned::wait(|| function.invoke(join(before, last)), place).await
                        }
                    },
                })
            });
        }
        let rendering = || matched.rendering(&request);
        let before = match Before::from_head(&request, matched) {
            Ok(before) => before,
            Err(rejection) => return rendering().apply(rejection.into_response()).into(),
        };
        match T::from_head(&request, matched) {
            Ok(last) => {
                let call = || function.invoke(join(before, last));
                F::Returned::respond(call, rendering, place)
            }
            Err(rejection) => rendering().apply(rejection.into_response()).into(),
        }
    }

    fn check(route: &mut RouteCheck<'_>) {
        <T as FromRequestHead>::check(route);
    }
}

impl<T: FromRequest + 'static> HandlerArgument<BodyMarker> for T {
    fn call<F, Arguments, Before, Returned>(
        function: &F,
        mut request: Request,
        matched: &Matched<'_>,
        join: impl Fn(Before, Self) -> Arguments + 'static,
    ) -> ResponseFuture
    where
        F: HandlerFunction<Arguments>,
        F::Returned: IntoResponseFuture<Returned>,
        <F::Returned as IntoResponseFuture<Returned>>::Value: IntoResponse,
        Before: FromRequestHead + 'static,
    {
        let place = place_of::<F>(matched);
        let rendering = matched.rendering(&request);
        let limit = BodyLimit::of(&request).unwrap_or(matched.body_limit());
        if const { Before::WAITS } {
            let before = Before::extraction(&mut request, matched);
            let function = function.clone();
            return ResponseFuture::later(async move {
                rendering.apply(match before.wait().await {
                    Err(rejection) => rejection.into_response(),
                    Ok(before) => match T::from_request(request, limit).await {
                        Err(rejection) => rejection.into_response(),
                        Ok(last) => {
                            F::Returned::wait(|| function.invoke(join(before, last)), place).await
                        }
                    },
                })
            });
        }
        let before = match Before::from_head(&request, matched) {
            Ok(before) => before,
            Err(rejection) => return rendering.apply(rejection.into_response()).into(),
        };
        let function = function.clone();
        let last = T::from_request(request, limit);
        ResponseFuture::later(async move {
            rendering.apply(match last.await {
                Ok(last) => F::Returned::wait(|| function.invoke(join(before, last)), place).await,
                Err(rejection) => rejection.into_response(),
            })
        })
    }
}

impl<F, Returned> HandlerFunction<()> for F
where
    F: Fn() -> Returned + Clone + Send + Sync + 'static,
{
    type Returned = Returned;

    fn invoke(&self, (): ()) -> Returned {
        self()
    }
}

impl HandlerArguments<HeadMarker> for () {
    fn call<F, Returned>(function: &F, request: Request, matched: &Matched<'_>) -> ResponseFuture
    where
        F: HandlerFunction<Self>,
        F::Returned: IntoResponseFuture<Returned>,
        <F::Returned as IntoResponseFuture<Returned>>::Value: IntoResponse,
    {
        let rendering = || matched.rendering(&request);
        F::Returned::respond(|| function.invoke(()), rendering, place_of::<F>(matched))
    }

    fn check(_: &mut RouteCheck<'_>) {}
}

macro_rules! arguments {
    ($(($($before:ident)*) $last:ident;)*) => {$(
        #[allow(non_snake_case, reason = "names of types stand for their values")]
        impl<F, Returned, $($before,)* $last> HandlerFunction<($($before,)* $last,)> for F
        where
            F: Fn($($before,)* $last) -> Returned + Clone + Send + Sync + 'static,
        {
            type Returned = Returned;

            fn invoke(&self, ($($before,)* $last,): ($($before,)* $last,)) -> Returned {
                self($($before,)* $last)
            }
        }

        #[allow(non_snake_case, reason = "names of types stand for their values")]
        impl<Marker, $($before,)* $last> HandlerArguments<Marker> for ($($before,)* $last,)
        where
            $($before: FromRequestHead + 'static,)*
            $last: HandlerArgument<Marker>,
        {
            fn call<Function, Returned>(
                function: &Function,
                request: Request,
                matched: &Matched<'_>,
            ) -> ResponseFuture
            where
                Function: HandlerFunction<Self>,
                Function::Returned: IntoResponseFuture<Returned>,
                <Function::Returned as IntoResponseFuture<Returned>>::Value: IntoResponse,
            {
                let join = |($($before,)*): ($($before,)*), $last| ($($before,)* $last,);
                $last::call(function, request, matched, join)
            }

            fn check(route: &mut RouteCheck<'_>) {
                $(<$before as FromRequestHead>::check(route);)*
                $last::check(route);
            }
        }
    )*};
}

arguments! {
    () A;
    (A) B;
    (A B) C;
    (A B C) D;
    (A B C D) E;
    (A B C D E) G;
    (A B C D E G) H;
    (A B C D E G H) I;
}
