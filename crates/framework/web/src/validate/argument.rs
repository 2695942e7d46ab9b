//! `Valid`: an argument whose fields keep their rules.

use std::marker::PhantomData;

use apus_handler::extract::{form_body, form_values, json_body};
use apus_handler::requirement::{ArgumentParts, Requirement};
use apus_handler::{Form, FromRequest, FromRequestHead, Json, Matched, Query, RouteCheck};
use apus_http::Request;
use garde::Validate;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::InvalidFields;
use super::field_names::fields_of;
use super::messages::MessagesOfRequest;

/// An extractor: `Json<T>`, `Form<T>` or `Query<T>` whose fields keep the rules of `T`; see [the module](super).
#[derive(Clone, Copy, Debug)]
pub struct Valid<E>(pub E);

impl<T> FromRequest for Valid<Json<T>>
where
    T: DeserializeOwned + Validate<Context: Default> + 'static,
{
    type Rejection = InvalidFields;

    async fn from_request(request: Request, body_limit: u64) -> Result<Self, InvalidFields> {
        let messages = MessagesOfRequest::of(&request);
        let text = json_body(request, body_limit).await;
        let text = text.map_err(InvalidFields::from)?;
        let refuse = |rejection| InvalidFields::unreadable(rejection, &messages);
        let Json(value) = Json::<T>::from_bytes(&text).map_err(|why| refuse(why).of_json())?;
        match InvalidFields::check(&value, &messages) {
            Ok(()) => Ok(Self(Json(value))),
            Err(invalid) => {
                let sent = serde_json::from_slice(&text).unwrap_or_default();
                Err(invalid.with_names(fields_of::<T>(), &sent).of_json())
            }
        }
    }
}

impl<T> FromRequest for Valid<Form<T>>
where
    T: DeserializeOwned + Validate<Context: Default> + 'static,
{
    type Rejection = InvalidFields;

    async fn from_request(request: Request, body_limit: u64) -> Result<Self, InvalidFields> {
        let messages = MessagesOfRequest::of(&request);
        let encoded = form_body(request, body_limit).await;
        let encoded = encoded.map_err(InvalidFields::from)?;
        let refuse = |rejection| InvalidFields::unreadable(rejection, &messages);
        let value = Form::<T>::from_bytes(&encoded).map_err(refuse);
        let checked =
            value.and_then(|value| InvalidFields::check(&value.0, &messages).map(|()| value));
        checked
            .map(Self)
            .map_err(|invalid| of_form::<T>(invalid, &encoded))
    }
}

impl<T> FromRequestHead for Valid<Query<T>>
where
    T: DeserializeOwned + Validate<Context: Default>,
{
    type Rejection = InvalidFields;

    fn from_head(request: &Request, matched: &Matched<'_>) -> Result<Self, InvalidFields> {
        let messages = MessagesOfRequest::of(request);
        let refuse = |rejection| InvalidFields::unreadable(rejection, &messages);
        let value = Query::<T>::from_head(request, matched).map_err(refuse);
        let checked =
            value.and_then(|value| InvalidFields::check(&value.0, &messages).map(|()| value));
        let encoded = request.query().unwrap_or("").as_bytes();
        checked
            .map(Self)
            .map_err(|invalid| of_form::<T>(invalid, encoded))
    }

    fn check(route: &mut RouteCheck<'_>) {
        Query::<T>::check(route);
    }
}

/// The type in it has rules, besides what its extractor requires of it.
#[derive(Debug)]
pub struct Validated<T>(PhantomData<T>);

impl<T: Validate<Context: Default>> Requirement for Validated<T> {
    fn hold(self) {}
}

macro_rules! argument_parts {
    ($($of:ident)*) => {$(
        impl<T> ArgumentParts for Valid<$of<T>> {
            type Inner = (<$of<T> as ArgumentParts>::Inner, Validated<T>);

            fn inner() -> Self::Inner {
                (<$of<T>>::inner(), Validated(PhantomData))
            }
        }
    )*};
}

argument_parts! { Json Form Query }

/// The messages with what the client sent, and the names that it uses.
fn of_form<T: DeserializeOwned>(invalid: InvalidFields, encoded: &[u8]) -> InvalidFields {
    let invalid = invalid.with_names(fields_of::<T>(), &Value::Null);
    invalid.with_sent(form_values(encoded))
}
