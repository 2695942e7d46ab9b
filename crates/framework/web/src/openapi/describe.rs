//! `DescribeArgument` and `DescribeResponse`: the OpenAPI descriptions of arguments and return types.

use std::borrow::Cow;

use apus_http::{Headers, StatusCode};
use bytes::Bytes;
use http::HeaderMap;
use schemars::JsonSchema;
use serde_json::json;

use super::Operation;
use apus_handler::extract::{
    Cookies, Form, Multipart, MultipartForm, PageLinks, Paging, Path, Query,
};
use apus_handler::respond::{Created, Html, Json, Redirect};

/// An argument of a handler with a description.
pub trait DescribeArgument {
    /// Adds the description to the operation.
    fn describe(operation: &mut Operation<'_>);
}

/// A return type of a handler with a description.
pub trait DescribeResponse {
    /// Adds the description to the operation.
    fn describe(operation: &mut Operation<'_>);
}

impl<T: JsonSchema> DescribeArgument for Path<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.path_parameters::<T>();
    }
}

impl<T: JsonSchema> DescribeArgument for Query<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.query_parameters::<T>();
    }
}

impl<const DEFAULT: u32, const MAX: u32> DescribeArgument for Paging<DEFAULT, MAX> {
    fn describe(operation: &mut Operation<'_>) {
        let page = json!({ "type": "integer", "minimum": 1, "default": 1 });
        let per_page =
            json!({ "type": "integer", "minimum": 1, "maximum": MAX, "default": DEFAULT });
        operation
            .query_parameter("page", "the page, from 1", page)
            .query_parameter("per_page", "how many entries a page has", per_page)
            .query_parameter(
                "after",
                "the entry that the page continues after, in lists that have links with it",
                json!({ "type": "string" }),
            )
            .problem(400, "there is no such page");
    }
}

impl<T: JsonSchema> DescribeArgument for Json<T> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.schema::<T>();
        operation.request_body("application/json", schema);
    }
}

impl<T: JsonSchema> DescribeArgument for Form<T> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.schema::<T>();
        operation.request_body("application/x-www-form-urlencoded", schema);
    }
}

impl DescribeArgument for String {
    fn describe(operation: &mut Operation<'_>) {
        operation.request_body("text/plain", json!({ "type": "string" }));
    }
}

impl DescribeArgument for Bytes {
    fn describe(operation: &mut Operation<'_>) {
        operation.request_body("application/octet-stream", json!({}));
    }
}

impl DescribeArgument for Multipart {
    fn describe(operation: &mut Operation<'_>) {
        operation.request_body("multipart/form-data", json!({ "type": "object" }));
    }
}

impl<T: JsonSchema> DescribeArgument for MultipartForm<T> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.schema::<T>();
        operation.request_body("multipart/form-data", schema);
    }
}

/// The response to invalid fields is described, too.
#[cfg(feature = "validate")]
impl<E: DescribeArgument> DescribeArgument for crate::validate::Valid<E> {
    fn describe(operation: &mut Operation<'_>) {
        E::describe(operation);
        operation.invalid_fields();
    }
}

impl<T: DescribeArgument> DescribeArgument for Option<T> {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

impl<T: DescribeArgument, E> DescribeArgument for Result<T, E> {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

impl<T: JsonSchema> DescribeResponse for Json<T> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = operation.schema::<T>();
        operation.response("200", "OK", Some(("application/json", schema)));
    }
}

/// Responses with one media type.
macro_rules! describe_media_type {
    ($($type:ty: $media_type:literal;)*) => {$(
        impl DescribeResponse for $type {
            fn describe(operation: &mut Operation<'_>) {
                let schema = json!({ "type": "string" });
                operation.response("200", "OK", Some(($media_type, schema)));
            }
        }
    )*};
}

describe_media_type! {
    String: "text/plain";
    &'static str: "text/plain";
    Cow<'static, str>: "text/plain";
    Bytes: "application/octet-stream";
    Vec<u8>: "application/octet-stream";
}

impl<T> DescribeResponse for Html<T> {
    fn describe(operation: &mut Operation<'_>) {
        let schema = json!({ "type": "string" });
        operation.response("200", "OK", Some(("text/html", schema)));
    }
}

#[cfg(feature = "templates")]
describe_media_type! {
    crate::template::Page: "text/html";
}

impl DescribeResponse for () {
    fn describe(operation: &mut Operation<'_>) {
        operation.response("204", "No Content", None);
    }
}

impl DescribeResponse for Redirect {
    fn describe(operation: &mut Operation<'_>) {
        operation.response("3XX", "a redirect", None);
    }
}

/// The status is only known at run time.
impl<T: DescribeResponse> DescribeResponse for (StatusCode, T) {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
        operation.status_at_run_time();
    }
}

impl<T: DescribeResponse, N, V, const COUNT: usize> DescribeResponse for ([(N, V); COUNT], T) {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

/// The status is only known at run time.
impl<T: DescribeResponse, N, V, const COUNT: usize> DescribeResponse
    for (StatusCode, [(N, V); COUNT], T)
{
    fn describe(operation: &mut Operation<'_>) {
        <(StatusCode, T)>::describe(operation);
    }
}

/// Responses with header fields, and with a status that is only known at run time.
macro_rules! describe_fields {
    ($($fields:ty)*) => {$(
        impl<T: DescribeResponse> DescribeResponse for ($fields, T) {
            fn describe(operation: &mut Operation<'_>) {
                T::describe(operation);
            }
        }

        impl<T: DescribeResponse> DescribeResponse for (StatusCode, $fields, T) {
            fn describe(operation: &mut Operation<'_>) {
                <(StatusCode, T)>::describe(operation);
            }
        }
    )*};
}

describe_fields! { HeaderMap Headers }

impl<T: DescribeResponse> DescribeResponse for Created<T> {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
        operation.status(201);
    }
}

impl<T: DescribeResponse> DescribeResponse for (PageLinks, T) {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
        operation.response_field("Link", "the URLs of the other pages (RFC 8288)");
    }
}

impl<T: DescribeResponse> DescribeResponse for (Cookies, T) {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

impl<T: DescribeResponse> DescribeResponse for Option<T> {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
        operation.response("404", "Not Found", None);
    }
}

impl<T: DescribeResponse, E> DescribeResponse for Result<T, E> {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
        operation.response("default", "an error", None);
    }
}

/// The placeholder for a return type that the function does not name.
#[derive(Debug)]
pub enum UnnamedResponse {}
