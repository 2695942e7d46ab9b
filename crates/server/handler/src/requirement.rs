//! What handlers take and return, checked from the inside: the type in an extractor or a response first, so that the compiler
//! names the trait that is missing there, with its derive, in place of the extractor that cannot be used.
//!
//! Of several methods with one name, the compiler takes the one that needs fewer references. Code of attributes calls
//! `(&ArgumentProbe::<T>::new()).inner()` and `(&&ArgumentProbe::<T>::new()).outer()`, and the same of [`ResponseProbe`].

use std::marker::PhantomData;

use apus_http::{Request, Response, ResponseFuture, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::arguments::HandlerArgument;
use crate::extract::{
    Extension, Form, FromRequest, FromRequestHead, MultipartForm, PageLinks, Path, Query, State,
};
use crate::function::Handler;
use crate::into_response_future::IntoResponseFuture;
use crate::matched::Matched;
use crate::respond::{Created, IntoResponse, Json};

/// What a type in an extractor or a response has to be.
pub trait Requirement {
    /// Does nothing. A call does not compile if it is not.
    fn hold(self);
}

/// Requirements of a type.
macro_rules! requirements {
    ($($(#[$doc:meta])* $name:ident: $($bound:path),+;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<T>(PhantomData<T>);

        impl<T> Requirement for $name<T>
        where
            $(T: $bound,)+
        {
            fn hold(self) {}
        }
    )*};
}

requirements! {
    /// It is read from a request.
    Deserialized: DeserializeOwned;
    /// It is written to a response.
    Serialized: Serialize;
    /// Each handler gets a clone.
    Cloned: Clone;
    /// Each handler gets a clone, on any thread.
    Shared: Clone, Send, Sync;
}

impl Requirement for () {
    fn hold(self) {}
}

impl<A: Requirement, B: Requirement> Requirement for (A, B) {
    fn hold(self) {}
}

/// An extractor of the framework with a type in it.
pub trait ArgumentParts {
    /// What that type has to be.
    type Inner;

    /// The requirement.
    fn inner() -> Self::Inner;
}

/// A response of the framework with a type in it.
pub trait ResponseParts {
    /// What that type has to be.
    type Inner;

    /// The requirement.
    fn inner() -> Self::Inner;
}

macro_rules! parts {
    ($trait:ident: $($of:ty => $requirement:ident;)*) => {$(
        impl<T> $trait for $of {
            type Inner = $requirement<T>;

            fn inner() -> Self::Inner {
                $requirement(PhantomData)
            }
        }
    )*};
}

parts! {
    ArgumentParts:
    Path<T> => Deserialized;
    Query<T> => Deserialized;
    Json<T> => Deserialized;
    Form<T> => Deserialized;
    MultipartForm<T> => Deserialized;
    State<T> => Cloned;
    Extension<T> => Shared;
}

parts! {
    ResponseParts:
    Json<T> => Serialized;
}

/// The same of a type around another one.
macro_rules! around {
    ($trait:ident: $([$($other:ident)?] $of:ty;)*) => {$(
        impl<T: $trait $(, $other)?> $trait for $of {
            type Inner = T::Inner;

            fn inner() -> Self::Inner {
                T::inner()
            }
        }
    )*};
}

around! {
    ArgumentParts:
    [] Option<T>;
    [R] Result<T, R>;
}

around! {
    ResponseParts:
    [] Option<T>;
    [E] Result<T, E>;
    [] Created<T>;
    [] (StatusCode, T);
    [] (PageLinks, T);
}

/// An argument or a response as a whole.
#[derive(Debug)]
pub struct Whole<T>(PhantomData<T>);

/// It is not checked as a whole, since what is in it is wrong.
#[derive(Debug)]
pub struct Unchecked;

/// The probes, each with its traits: for a type whose requirement is known, and holds for the second; for a known one; for others.
macro_rules! probe {
    ($(#[$doc:meta])* $probe:ident, $parts:ident, $known:ident $other:ident, $held:ident $unheld:ident $any:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $probe<T>(PhantomData<T>);

        impl<T> $probe<T> {
            /// A probe for a type.
            #[expect(
                clippy::new_without_default,
                reason = "only the code of attributes calls it"
            )]
            pub fn new() -> Self {
                Self(PhantomData)
            }
        }

        /// Types whose requirement is known.
        pub trait $known {
            /// The requirement.
            type Inner;

            /// The requirement.
            fn inner(&self) -> Self::Inner;
        }

        impl<T: $parts> $known for $probe<T> {
            type Inner = T::Inner;

            fn inner(&self) -> T::Inner {
                T::inner()
            }
        }

        /// Other types.
        pub trait $other {
            /// No requirement.
            fn inner(&self) {}
        }

        impl<T> $other for &$probe<T> {}

        /// Types whose requirement holds.
        pub trait $held {
            /// The type.
            type Type;

            /// It is checked as a whole.
            fn outer(&self) -> Whole<Self::Type> {
                Whole(PhantomData)
            }
        }

        impl<T: $parts<Inner: Requirement>> $held for &$probe<T> {
            type Type = T;
        }

        /// Types whose requirement does not hold.
        pub trait $unheld {
            /// It is not checked as a whole.
            fn outer(&self) -> Unchecked {
                Unchecked
            }
        }

        impl<T: $parts> $unheld for &&$probe<T> {}

        /// Types without a requirement.
        pub trait $any {
            /// The type.
            type Type;

            /// It is checked as a whole.
            fn outer(&self) -> Whole<Self::Type> {
                Whole(PhantomData)
            }
        }

        impl<T> $any for $probe<T> {
            type Type = T;
        }
    };
}

probe! {
    /// The type of an argument.
    ArgumentProbe, ArgumentParts, KnownArgument OtherArgument, HeldArgument UnheldArgument AnyArgument
}

probe! {
    /// The type that a handler returns.
    ResponseProbe, ResponseParts, KnownResponse OtherResponse, HeldResponse UnheldResponse AnyResponse
}

macro_rules! checks {
    ($($(#[$doc:meta])* $name:ident $(<$marker:ident>)?: $bound:path;)*) => {$(
        $(#[$doc])*
        pub trait $name $(<$marker>)? {
            /// Does nothing. A call does not compile if the check fails.
            fn check(self);
        }

        impl<T: $bound $(, $marker)?> $name $(<$marker>)? for Whole<T> {
            fn check(self) {}
        }
    )*};
}

checks! {
    /// An argument that is not the last one.
    HeadCheck: FromRequestHead;
    /// An argument that reads the body.
    BodyCheck: FromRequest;
    /// The last argument, of either kind.
    LastCheck<Marker>: HandlerArgument<Marker>;
    /// The return type of an `async` handler.
    ResponseCheck: IntoResponse;
    /// The return type of a handler that is not `async`.
    ReturnedCheck<Marker>: IntoResponseFuture<Marker>;
}

macro_rules! unchecked {
    ($($name:ident $(<$marker:ty>)?;)*) => {$(
        impl $name $(<$marker>)? for Unchecked {
            fn check(self) {}
        }
    )*};
}

unchecked! {
    HeadCheck;
    BodyCheck;
    LastCheck<()>;
    ResponseCheck;
    ReturnedCheck<()>;
}

/// A function that is a handler, if its arguments and what it returns are right.
#[derive(Debug)]
pub struct HandlerProbe<F>(pub F);

/// Functions that are handlers.
pub trait RightHandler<Marker> {
    /// The function.
    type Handler;

    /// The function.
    fn handler(self) -> Self::Handler;
}

impl<F: Handler<Marker>, Marker> RightHandler<Marker> for HandlerProbe<F> {
    type Handler = F;

    fn handler(self) -> F {
        self.0
    }
}

/// Other functions: the checks of their arguments have failed, and the compiler would report them once more.
pub trait WrongHandler {
    /// What stands for the handler. It cannot be compiled.
    fn handler(&self) -> NoHandler;
}

impl<F> WrongHandler for HandlerProbe<F> {
    fn handler(&self) -> NoHandler {
        const { panic!("this function is not a handler") }
    }
}

/// In place of a function that is no handler.
#[derive(Debug)]
pub struct NoHandler;

impl Handler<NoHandler> for NoHandler {
    fn call(&self, _: Request, _: &Matched<'_>) -> ResponseFuture {
        Response::new(StatusCode::INTERNAL_SERVER_ERROR).into()
    }
}
