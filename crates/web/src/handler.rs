//! Handlers: functions of extractors that return what can be a response.

use std::marker::PhantomData;

use apus_http::{Answer, Request};

use crate::extract::{FromRequest, FromRequestHead, Matched};
use crate::respond::{IntoAnswer, IntoResponse};

/// A function that answers requests: `async` or not, of up to eight extractors, of which the last
/// may read the content.
///
/// One that is not `async` and takes nothing that reads the content answers at once, without a
/// future.
#[diagnostic::on_unimplemented(
    message = "this function is not a handler",
    label = "not a handler",
    note = "a handler is a function of up to eight extractors (`Path`, `Query`, `State`, ...; what \
            reads the content, as `Json` or `Request`, only as the last) that returns something \
            that is `IntoResponse`, or a future of it"
)]
pub trait Handler<Marker>: Send + Sync + 'static {
    /// Answers a request that the route of this handler matched.
    fn call(&self, request: Request, matched: &Matched<'_>) -> Answer;
}

/// Marks a last argument that reads the content.
#[derive(Debug)]
pub enum ReadsContent {}

macro_rules! handlers {
    ($(($($head:ident)*) $last:ident;)*) => {$(
        #[allow(non_snake_case, unused_variables, reason = "names of types stand for their values")]
        impl<Function, Returned, Marker, $($head,)*> Handler<(Marker, ($($head,)*))> for Function
        where
            Function: Fn($($head),*) -> Returned + Send + Sync + 'static,
            Returned: IntoAnswer<Marker>,
            $($head: FromRequestHead,)*
        {
            fn call(&self, request: Request, matched: &Matched<'_>) -> Answer {
                $(
                    let $head = match $head::from_head(&request, matched) {
                        Ok(value) => value,
                        Err(rejection) => return rejection.into_response().into(),
                    };
                )*
                self($($head),*).into_answer()
            }
        }

        #[allow(non_snake_case, reason = "names of types stand for their values")]
        impl<Function, Returned, Marker, $($head,)* $last>
            Handler<(Marker, ReadsContent, ($($head,)* $last,))> for Function
        where
            Function: Fn($($head,)* $last) -> Returned + Clone + Send + Sync + 'static,
            Returned: IntoAnswer<Marker>,
            $($head: FromRequestHead + 'static,)*
            $last: FromRequest + 'static,
        {
            fn call(&self, request: Request, matched: &Matched<'_>) -> Answer {
                $(
                    let $head = match $head::from_head(&request, matched) {
                        Ok(value) => value,
                        Err(rejection) => return rejection.into_response().into(),
                    };
                )*
                let function = self.clone();
                let last = $last::from_request(request, matched.body_limit);
                Answer::later(async move {
                    match last.await {
                        Ok(last) => function($($head,)* last).into_future().await,
                        Err(rejection) => rejection.into_response(),
                    }
                })
            }
        }
    )*};
}

handlers! {
    () A;
    (A) B;
    (A B) C;
    (A B C) D;
    (A B C D) E;
    (A B C D E) F;
    (A B C D E F) G;
    (A B C D E F G) H;
}

/// A handler whose type is forgotten.
pub(crate) trait AnyHandler: Send + Sync {
    fn call(&self, request: Request, matched: &Matched<'_>) -> Answer;
}

/// Gives a handler a type without its marker.
pub(crate) struct Unmarked<H, Marker>(H, PhantomData<fn() -> Marker>);

impl<H, Marker> Unmarked<H, Marker> {
    pub(crate) fn new(handler: H) -> Self {
        Self(handler, PhantomData)
    }
}

impl<H: Handler<Marker>, Marker> AnyHandler for Unmarked<H, Marker> {
    fn call(&self, request: Request, matched: &Matched<'_>) -> Answer {
        self.0.call(request, matched)
    }
}
