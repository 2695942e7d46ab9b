//! The header: it is current, and compiles everywhere.

use std::fs;
use std::process::Command;

use crate::program::crate_folder;

/// The types whose names in C differ from Rust.
const TYPES: [(&str, &str); 40] = [
    ("ApusAccessEntry", "apus_access_entry"),
    ("ApusAccessFn", "apus_access_fn"),
    ("ApusAfterFn", "apus_after_fn"),
    ("ApusAllocator", "apus_allocator"),
    ("ApusApp", "apus_app"),
    ("ApusBeforeFn", "apus_before_fn"),
    ("ApusBodyFn", "apus_body_fn"),
    ("ApusCertificate", "apus_certificate"),
    ("ApusCertificateFn", "apus_certificate_fn"),
    ("ApusClientAuth", "apus_client_auth"),
    ("ApusConfig", "apus_config"),
    ("ApusDeferred", "apus_deferred"),
    ("ApusDestroyFn", "apus_destroy_fn"),
    ("ApusDoneFn", "apus_done_fn"),
    ("ApusError", "apus_error"),
    ("ApusErrorFn", "apus_error_fn"),
    ("ApusErrorFormat", "apus_error_format"),
    ("ApusExecutor", "apus_executor"),
    ("ApusField", "apus_field"),
    ("ApusFieldFn", "apus_field_fn"),
    ("ApusFilesOptions", "apus_files_options"),
    ("ApusHandler", "apus_handler"),
    ("ApusHttpVersion", "apus_http_version"),
    ("ApusLimit", "apus_limit"),
    ("ApusLogFn", "apus_log_fn"),
    ("ApusMessageKind", "apus_message_kind"),
    ("ApusOutcome", "apus_outcome"),
    ("ApusReadyFn", "apus_ready_fn"),
    ("ApusRequest", "apus_request"),
    ("ApusResponse", "apus_response"),
    ("ApusRooms", "apus_rooms"),
    ("ApusServer", "apus_server"),
    ("ApusService", "apus_service"),
    ("ApusSse", "apus_sse"),
    ("ApusStatus", "apus_status"),
    ("ApusStr", "apus_str"),
    ("ApusTaskFn", "apus_task_fn"),
    ("ApusTimer", "apus_timer"),
    ("ApusTls", "apus_tls"),
    ("ApusUpstream", "apus_upstream"),
];

/// The rest of them.
const MORE_TYPES: [(&str, &str); 4] = [
    ("ApusWebSocket", "apus_websocket"),
    ("ApusWebSocketEvents", "apus_websocket_events"),
    ("ApusWorker", "apus_worker"),
    ("ApusWriter", "apus_writer"),
];

/// The prefixes of enumerators, which are shorter in C.
const PREFIXES: [(&str, &str); 4] = [
    ("APUS_STATUS_", "APUS_"),
    ("APUS_ERROR_FORMAT_", "APUS_ERROR_"),
    ("APUS_MESSAGE_KIND_", "APUS_MESSAGE_"),
    ("APUS_HTTP_VERSION_V", "APUS_HTTP_"),
];

const OPENING: &str = "\
/* apus.h: the C interface of Apus, a web server and framework.
 *
 * This file is generated from crates/tools/capi/src by its test `header`. Do not edit it.
 *
 * Rules for all functions:
 *
 * - Functions that can fail return an `apus_status`. After another status than APUS_OK, apus_last_error() has a text
 *   that says what was expected, what came, and what to do. Functions that make an object return NULL then.
 * - Strings that the library returns are an `apus_str`: a pointer and a length, without a NUL at the end. They point into
 *   memory of the object that they were asked of, and are valid as long as it says; strings of a request until its response:
 *   until the handler returns, or until apus_complete(). An absent string has `data` NULL.
 * - Names and settings that are passed in are strings that end with NUL. Values and bodies are a pointer and a length; for
 *   a text that ends with NUL the length may be APUS_NTS. They are copied unless it says otherwise.
 * - An object is owned by the code that made it, until a function takes it over, which is then said (\"takes over\").
 *   Functions that take an object over do so even when they fail. NULL as an object is an error, never a crash.
 * - Functions may be called by any thread unless it says \"on the worker\": then only by the thread that runs the handler or
 *   callback. One object is used by one thread at a time, except where it says \"from any thread\".
 * - Handles that a program gives back (apus_deferred by apus_complete(), apus_writer by apus_writer_finish() or
 *   apus_writer_abort(), apus_sse by apus_sse_close()) are given back once, by any thread, also while the worker calls back
 *   because the client is gone. They are counted: the handle that a callback was called with stays valid until the callback
 *   returns, and fails with APUS_CLOSED or APUS_STATE when another thread has given it back. A thread that is not in its
 *   callback does not use a handle after it was given back: one of the threads gives it back, when the others use it no more.
 * - A callback may still run when the function that gave its handle back returns. What its `user` points to is freed by a
 *   `destroy`, which runs after it: the one of apus_writer_set_data(), or apus_request_set_data() of the deferred request.
 *   Functions with a `destroy` of their own, and callbacks that are called once, say so.
 * - Handles of a worker are not given back to other threads: an apus_websocket is used by its worker only, until its close
 *   event returns, an apus_timer by the worker that started it. Other threads reach them by apus_executor_post(), and sockets by
 *   apus_rooms_publish(). An apus_executor, apus_rooms or apus_server is freed when no other thread uses it.
 * - Callbacks may be called on every worker at once; `user` is shared by all of them. They must not block: a worker serves
 *   many clients. They must not unwind (no C++ exceptions, no longjmp) out of themselves.
 */";

const AFTER_INCLUDES: &str = "
/**
 * The length of a text that ends with NUL.
 */
#define APUS_NTS SIZE_MAX";

/// The header of the sources.
fn generated() -> String {
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        header: Some(OPENING.to_owned()),
        include_guard: Some("APUS_H".to_owned()),
        after_includes: Some(AFTER_INCLUDES.to_owned()),
        cpp_compat: true,
        style: cbindgen::Style::Both,
        usize_is_size_t: true,
        documentation_style: cbindgen::DocumentationStyle::Doxy,
        line_length: 120,
        tab_width: 2,
        ..cbindgen::Config::default()
    };
    config.enumeration.rename_variants = cbindgen::RenameRule::QualifiedScreamingSnakeCase;
    for (rust, c) in TYPES.into_iter().chain(MORE_TYPES) {
        config.export.rename.insert(rust.to_owned(), c.to_owned());
    }
    // The arguments of functions are `int`, so that a wrong one is an error.
    config.export.include = ["ApusClientAuth", "ApusLimit"].map(str::to_owned).into();
    let mut builder = cbindgen::Builder::new().with_config(config);
    let mut sources: Vec<_> = fs::read_dir(crate_folder().join("src"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        // It leads to all others, which would be read twice.
        .filter(|path| !path.ends_with("lib.rs"))
        .collect();
    sources.sort();
    for source in sources {
        builder = builder.with_src(source);
    }
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    let header = String::from_utf8(header).unwrap();
    PREFIXES
        .iter()
        .fold(header, |header, (from, to)| header.replace(from, to))
}

#[test]
fn the_header_is_current() {
    let path = crate_folder().join("include/apus.h");
    let generated = generated();
    if std::env::var_os("APUS_WRITE_HEADER").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let checked_in = fs::read_to_string(&path).unwrap();
    assert!(
        checked_in == generated,
        "include/apus.h differs from the sources: run `APUS_WRITE_HEADER=1 cargo test -p apus-capi --test it -- header`"
    );
}

#[test]
fn each_function_is_declared_once() {
    let header = generated();
    let mut names = Vec::new();
    for line in header.lines() {
        let Some((start, _)) = line.split_once('(') else {
            continue;
        };
        let name = start.rsplit([' ', '*']).next().unwrap_or_default();
        if name.starts_with("apus_") && !line.starts_with([' ', '/', '#', 't']) {
            names.push(name);
        }
    }
    assert!(names.len() > 100, "{names:?}");
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "declared more than once");
}

/// Each compiler, as C or C++.
const COMPILERS: [&[&str]; 5] = [
    &["gcc", "-x", "c", "-std=c11"],
    &["gcc", "-x", "c", "-std=c17"],
    &["clang", "-x", "c", "-std=c11"],
    &["g++", "-x", "c++", "-std=c++17"],
    &["clang++", "-x", "c++", "-std=c++20"],
];

#[test]
fn the_header_compiles_without_a_warning() {
    for compiler in COMPILERS {
        let (program, arguments) = compiler.split_first().unwrap();
        let output = Command::new(program)
            .args(arguments)
            .args([
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-fsyntax-only",
                "-include",
            ])
            .arg(crate_folder().join("include/apus.h"))
            .arg("/dev/null")
            .output()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler:?}: {text}");
    }
}
