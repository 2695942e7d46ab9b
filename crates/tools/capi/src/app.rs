//! Applications: routes, groups, hooks and mounted services.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use apus::{App, Error, ErrorFormat, Handler, Matched, Method, Request, Response, ResponseFuture};

use crate::callback::{APUS_RESPOND, ApusAfterFn, ApusBeforeFn, ApusHandler, Callback};
use crate::callback_name::CallbackName;
use crate::error::{ApusStatus, CallError, FirstFailure, SetUp, remembered};
use crate::ffi::{attempt, object, protect, setup, status};
use crate::handles::{ApusResponse, Handles, call_before, call_with_response};
use crate::service::{ApusService, SharedService};
use crate::text::{ApusStr, name};
use crate::user::{ApusDestroyFn, OwnedData, UserData, UserPointer};

/// An application: routes, groups, hooks and mounted services. A group of it is an apus_app, too.
#[derive(Default)]
pub struct ApusApp {
    app: App,
    groups: Vec<GroupOfApp>,
    owned: Vec<UserData>,
    /// The paths of the groups around it, for the names of handlers.
    prefix: String,
    failure: FirstFailure,
}

impl SetUp for ApusApp {
    const NAME: &'static str = "app";

    fn first_failure(&mut self) -> Option<&mut FirstFailure> {
        Some(&mut self.failure)
    }
}

/// What an application consists of.
pub(crate) struct AppParts {
    pub(crate) app: App,
    pub(crate) owned: OwnedData,
    /// The first call on it, or on one of its groups, that failed.
    pub(crate) failure: FirstFailure,
}

struct GroupOfApp {
    kind: GroupKind,
    /// Boxed, as C has a pointer to it.
    app: Box<ApusApp>,
}

enum GroupKind {
    Prefix(String),
    Host(String),
}

/// The format of an error response that the client accepts.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApusErrorFormat {
    /// Plain text.
    Text = 0,
    /// A page in HTML.
    Html = 1,
    /// Problem details in JSON (RFC 9457).
    Json = 2,
}

/// An error, for the error handler of an application. Valid during the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ApusError {
    /// The status of the response, 400 to 599.
    pub status: i32,
    /// What the client may know, if there is anything.
    pub detail: ApusStr,
    /// The format that the client accepts.
    pub format: ApusErrorFormat,
}

/// Makes the response to an error. It returns APUS_RESPOND if it did, or 0 to leave it to the library.
pub type ApusErrorFn = Option<
    extern "C" fn(error: *const ApusError, response: *mut ApusResponse, user: *mut c_void) -> c_int,
>;

impl ApusApp {
    /// Changes the application.
    pub(crate) fn change(&mut self, change: impl FnOnce(App) -> App) {
        self.app = change(std::mem::take(&mut self.app));
    }

    /// The application with its groups.
    fn assembled(&self) -> App {
        self.groups.iter().fold(self.app.clone(), |app, group| {
            let inner = group.app.assembled();
            match &group.kind {
                GroupKind::Prefix(prefix) => app.nest(prefix, inner),
                GroupKind::Host(name) => app.host(name, |_| inner),
            }
        })
    }

    fn take_owned(&mut self, into: &mut Vec<UserData>) {
        into.append(&mut self.owned);
        for group in &mut self.groups {
            group.app.take_owned(into);
        }
    }

    fn take_failures(&mut self, into: &mut FirstFailure) {
        into.take_over(std::mem::take(&mut self.failure));
        for group in &mut self.groups {
            group.app.take_failures(into);
        }
    }

    /// The application with its groups, and what belongs to it.
    pub(crate) fn into_parts(mut self) -> AppParts {
        let app = self.assembled();
        let mut owned = Vec::new();
        self.take_owned(&mut owned);
        let mut failure = FirstFailure::default();
        self.take_failures(&mut failure);
        AppParts {
            app,
            owned: Arc::new(owned),
            failure,
        }
    }

    fn group(&mut self, kind: GroupKind) -> Option<&mut Self> {
        let prefix = match &kind {
            GroupKind::Prefix(prefix) => format!("{}{prefix}", self.prefix),
            GroupKind::Host(name) => format!("{name}{}", self.prefix),
        };
        let app = Box::new(Self {
            prefix,
            ..Self::default()
        });
        self.groups.push(GroupOfApp { kind, app });
        self.groups.last_mut().map(|group| &mut *group.app)
    }

    /// The name of a route for people.
    pub(crate) fn role(&self, method: &str, path: &str) -> String {
        format!("{method} {}{path}", self.prefix)
    }

    fn route(
        &mut self,
        method: Option<Method>,
        path: &str,
        handler: ApusHandler,
        user: *mut c_void,
    ) -> Result<(), CallError> {
        let method_name = method.as_ref().map_or("*", Method::as_str);
        let callback = Callback::new(handler, user, self.role(method_name, path))?;
        self.change(|app| match method {
            Some(method) => app.route(method, path, callback),
            None => app.any(path, callback),
        });
        Ok(())
    }
}

/// Marks handlers in C.
#[derive(Debug)]
pub(crate) enum CallbackMarker {}

impl Handler<CallbackMarker> for Callback {
    fn call(&self, request: Request, matched: &Matched<'_>) -> ResponseFuture {
        Handles::of_route(request, matched, &self.name).call(self.function, self.user, &self.name)
    }
}

pub(crate) fn path_of<'a>(path: *const c_char) -> Result<&'a str, CallError> {
    let path = name(path, "path")?;
    if path.starts_with('/') {
        Ok(path)
    } else {
        Err(CallError::invalid(
            "a path that begins with a slash",
            format!("{path:?}"),
            "write it as /users/{id}",
        ))
    }
}

/// The text of the mistakes of an application, without places in the sources of this library.
pub(crate) fn mistakes(text: &str) -> String {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("at "));
    let lines = lines.map(|line| line.split(", which was added at ").next().unwrap_or(line));
    lines.collect::<Vec<_>>().join("; ")
}

/// An application without routes. Free it by apus_app_free(), unless a server or a service takes it over.
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_new() -> Option<Box<ApusApp>> {
    object("apus_app_new", || Ok(ApusApp::default()))
}

/// Frees an application that was not taken over, with its groups. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_free(app: Option<Box<ApusApp>>) {
    protect("apus_app_free", || drop(app));
}

/// Adds a route. `method` is a method in upper case, or "*" for all that have no route of their own; GET is also HEAD.
/// `path` has parameters as `/users/{id}` and `/files/{*rest}`. `user` has to live as long as the server (see
/// apus_app_own()). Errors: APUS_INVALID. Conflicts between routes are found by apus_app_check().
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_route(
    app: Option<&mut ApusApp>,
    method: *const c_char,
    path: *const c_char,
    handler: ApusHandler,
    user: *mut c_void,
) -> ApusStatus {
    setup("apus_app_route", app, |app| {
        let method = match name(method, "method")? {
            "*" => None,
            text => Some(Method::from_bytes(text.as_bytes()).map_err(|_| {
                CallError::invalid(
                    "a method such as GET",
                    format!("{text:?}"),
                    "see RFC 9110 section 9",
                )
            })?),
        };
        app.route(method, path_of(path)?, handler, user)
    })
}

/// As apus_app_route() with "GET".
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_get(
    app: Option<&mut ApusApp>,
    path: *const c_char,
    handler: ApusHandler,
    user: *mut c_void,
) -> ApusStatus {
    setup("apus_app_get", app, |app| {
        app.route(Some(Method::GET), path_of(path)?, handler, user)
    })
}

/// As apus_app_route() with "POST".
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_post(
    app: Option<&mut ApusApp>,
    path: *const c_char,
    handler: ApusHandler,
    user: *mut c_void,
) -> ApusStatus {
    setup("apus_app_post", app, |app| {
        app.route(Some(Method::POST), path_of(path)?, handler, user)
    })
}

/// As apus_app_route() with "PUT".
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_put(
    app: Option<&mut ApusApp>,
    path: *const c_char,
    handler: ApusHandler,
    user: *mut c_void,
) -> ApusStatus {
    setup("apus_app_put", app, |app| {
        app.route(Some(Method::PUT), path_of(path)?, handler, user)
    })
}

/// As apus_app_route() with "DELETE".
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_delete(
    app: Option<&mut ApusApp>,
    path: *const c_char,
    handler: ApusHandler,
    user: *mut c_void,
) -> ApusStatus {
    setup("apus_app_delete", app, |app| {
        app.route(Some(Method::DELETE), path_of(path)?, handler, user)
    })
}

/// A group of routes whose paths begin with `prefix`. It belongs to `app`: do not free it, and do not use it after `app` was
/// taken over or freed. NULL is an error (APUS_INVALID).
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_group(
    app: Option<&mut ApusApp>,
    prefix: *const c_char,
) -> Option<&mut ApusApp> {
    attempt("apus_app_group", || {
        let prefix = |_: &mut ApusApp| Ok(path_of(prefix)?.to_owned());
        let mut app = app;
        let prefix = remembered("apus_app_group", app.as_deref_mut(), prefix)?;
        Ok(app.and_then(|app| app.group(GroupKind::Prefix(prefix))))
    })
}

/// A group of routes for a host: `example.com`, `*.example.com`, `www.example.*`, `~regex`. As apus_app_group().
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_host(
    app: Option<&mut ApusApp>,
    host: *const c_char,
) -> Option<&mut ApusApp> {
    attempt("apus_app_host", || {
        let host = |_: &mut ApusApp| Ok(name(host, "host")?.to_owned());
        let mut app = app;
        let host = remembered("apus_app_host", app.as_deref_mut(), host)?;
        Ok(app.and_then(|app| app.group(GroupKind::Host(host))))
    })
}

/// Adds a hook before all handlers of the application or group. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_before(
    app: Option<&mut ApusApp>,
    hook: ApusBeforeFn,
    user: *mut c_void,
) -> ApusStatus {
    setup("apus_app_before", app, |app| {
        let callback = Callback::new(hook, user, app.role("the hook before", ""))?;
        app.change(|app| {
            app.before(move |request| {
                call_before(callback.function, callback.user, &callback.name, request)
            })
        });
        Ok(())
    })
}

/// Adds a hook after all handlers of the application or group. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_after(
    app: Option<&mut ApusApp>,
    hook: ApusAfterFn,
    user: *mut c_void,
) -> ApusStatus {
    setup("apus_app_after", app, |app| {
        let hook = hook.ok_or_else(|| CallError::null("hook"))?;
        let owner = CallbackName::of(hook as usize, app.role("the hook after", ""));
        let user = UserPointer(user);
        app.change(|app| {
            app.after(move |response| {
                // The whole pointer moves into the closure, as it alone may go to other threads.
                let user = user;
                call_with_response(response, &owner, |response| hook(response, user.0));
            })
        });
        Ok(())
    })
}

/// Sets the handler of paths without a route. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_fallback(
    app: Option<&mut ApusApp>,
    handler: ApusHandler,
    user: *mut c_void,
) -> ApusStatus {
    setup("apus_app_fallback", app, |app| {
        let callback = Callback::new(handler, user, app.role("the fallback", ""))?;
        app.change(|app| app.fallback(callback));
        Ok(())
    })
}

/// Sets the function that makes the responses to errors. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_on_error(
    app: Option<&mut ApusApp>,
    hook: ApusErrorFn,
    user: *mut c_void,
) -> ApusStatus {
    setup("apus_app_on_error", app, |app| {
        let hook = hook.ok_or_else(|| CallError::null("hook"))?;
        let owner = CallbackName::of(hook as usize, app.role("the error handler", ""));
        let user = UserPointer(user);
        let respond = move |error: &Error, format: ErrorFormat| -> Option<Response> {
            let user = user;
            let status = error.status_code();
            let view = ApusError {
                status: status.as_u16().into(),
                detail: ApusStr::of_option(error.detail().map(str::as_bytes)),
                format: match format {
                    ErrorFormat::Html => ApusErrorFormat::Html,
                    ErrorFormat::Json => ApusErrorFormat::Json,
                    ErrorFormat::Text => ApusErrorFormat::Text,
                },
            };
            let mut response = Response::new(status);
            let mut result = 0;
            call_with_response(&mut response, &owner, |response| {
                result = hook(&raw const view, response, user.0);
            });
            (result == APUS_RESPOND).then_some(response)
        };
        app.change(|app| app.on_error(respond));
        Ok(())
    })
}

/// Mounts a service under a path, without which it sees the paths of requests. Takes over `service`.
/// Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_mount(
    app: Option<&mut ApusApp>,
    path: *const c_char,
    service: Option<Box<ApusService>>,
) -> ApusStatus {
    setup("apus_app_mount", app, |app| {
        let service = service.ok_or_else(|| CallError::null("service"))?;
        let path = path_of(path)?;
        let (service, failure) = SharedService::of(*service);
        app.failure.take_over(failure);
        app.change(|app| app.mount(path, service));
        Ok(())
    })
}

/// Allows `%2F` in the rest of a path: behind the path of a mounted service, such as a proxy or PHP, which gets it as it was
/// sent, and in a parameter `{*name}`. Without this, such paths get 400. Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_allow_encoded_slashes(app: Option<&mut ApusApp>) -> ApusStatus {
    setup("apus_app_allow_encoded_slashes", app, |app| {
        app.change(App::allow_encoded_slashes);
        Ok(())
    })
}

/// Frees `data` by `destroy` when the application ends, that is when its server has ended: for the `user` of its handlers.
/// Errors: APUS_INVALID.
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_own(
    app: Option<&mut ApusApp>,
    data: *mut c_void,
    destroy: ApusDestroyFn,
) -> ApusStatus {
    setup("apus_app_own", app, |app| {
        if destroy.is_none() {
            return Err(CallError::null("destroy"));
        }
        app.owned.push(UserData::new(data, destroy));
        Ok(())
    })
}

/// Checks the application: paths, conflicts of routes. A server does it before it listens. Errors: APUS_INVALID, with all
/// mistakes in the text.
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_check(app: Option<&ApusApp>) -> ApusStatus {
    status("apus_app_check", || {
        let app = app.ok_or_else(|| CallError::null("app"))?;
        app.assembled().check().map_err(|errors| {
            CallError::invalid(
                "an application without mistakes",
                mistakes(&errors.to_string()),
                "correct the routes and mounts",
            )
        })
    })
}

/// An application as a service. Takes it over. NULL is an error (APUS_INVALID).
#[unsafe(no_mangle)]
pub extern "C" fn apus_app_service(app: Option<Box<ApusApp>>) -> Option<Box<ApusService>> {
    object("apus_app_service", || {
        let app = app.ok_or_else(|| CallError::null("app"))?;
        let AppParts {
            app,
            owned,
            failure,
        } = app.into_parts();
        Ok(ApusService::owning(app, owned, failure))
    })
}
