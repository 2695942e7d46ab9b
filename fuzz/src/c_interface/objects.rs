//! Objects that are made, combined, passed on and freed: applications, services, configurations, servers.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{NonNull, null, null_mut};

use apus_capi::*;

use super::input::{below, is_at_end, number, text, text_of};
use super::{made, noted};

/// The objects that exist, some of each kind.
#[derive(Default)]
struct Objects {
    apps: [Option<Box<ApusApp>>; 2],
    services: [Option<Box<ApusService>>; 2],
    upstreams: [Option<Box<ApusUpstream>>; 2],
    configs: [Option<Box<ApusConfig>>; 2],
    certificates: [Option<Box<ApusCertificate>>; 2],
    tls: [Option<Box<ApusTls>>; 2],
    servers: [Option<Box<ApusServer>>; 2],
    rooms: [Option<Box<ApusRooms>>; 2],
    /// Starts take a thread each.
    starts: u8,
}

/// Of another server than this one, so that it is looked after by nobody.
const CONFIGURATION: &str = "[[sites]]\nlisten = [\"127.0.0.1:0\"]\n[[sites.locations]]\npath = \"/\"\n\
                             return = { status = 200, text = \"configured\" }\n";
const PATHS: [&str; 8] = [
    "/",
    "/{id}",
    "/{*rest}",
    "/a",
    "/{",
    "users",
    "/a/{id}/b",
    "/{id}/{id}",
];
/// Without names, for which DNS would be asked.
const ADDRESSES: [&CStr; 6] = [
    c"127.0.0.1:0",
    c"[::1]:0",
    c"0.0.0.0:99999",
    c"127.0.0.1",
    c"",
    c":",
];

pub(super) fn call() {
    let mut objects = Objects::default();
    while !is_at_end() {
        match below::<u8>(3) {
            0 => objects.call_app(),
            1 => objects.call_service(),
            _ => objects.call_server(),
        }
    }
    objects.free();
}

impl Objects {
    fn call_app(&mut self) {
        let (a, b): (usize, usize) = (below(2), below(2));
        let app = self.apps[a].as_deref_mut();
        let (path, method) = (
            text_of(&PATHS),
            text_of(&["GET", "*", "POST", "get", "", "a.example", "*.example"]),
        );
        let handler: ApusHandler = (below::<u8>(8) != 0).then_some(ignore);
        match below::<u8>(14) {
            0 => apus_app_free(std::mem::replace(&mut self.apps[a], made(apus_app_new()))),
            1 => _ = noted(apus_app_get(app, path.pointer(), handler, null_mut())),
            2 => {
                let (path, method) = (path.pointer(), method.pointer());
                noted(apus_app_route(app, method, path, handler, null_mut()));
            }
            3 => _ = noted(apus_app_before(app, handler, null_mut())),
            4 => _ = noted(apus_app_after(app, Some(ignore_response), null_mut())),
            5 => _ = noted(apus_app_fallback(app, handler, null_mut())),
            6 => _ = noted(apus_app_on_error(app, Some(ignore_error), null_mut())),
            7 => {
                let service = self.services[b].take();
                noted(apus_app_mount(app, path.pointer(), service));
            }
            8 => _ = noted(apus_app_check(self.apps[a].as_deref())),
            9 => {
                let group = apus_app_group(app, path.pointer());
                noted(apus_app_post(group, path.pointer(), handler, null_mut()));
            }
            10 => {
                let group = apus_app_host(app, method.pointer());
                noted(apus_app_put(group, path.pointer(), handler, null_mut()));
            }
            11 => _ = noted(apus_app_own(app, null_mut(), Some(destroy))),
            12 => {
                let events = super::sockets::events(below::<u8>(4) != 0);
                noted(apus_app_websocket(
                    app,
                    path.pointer(),
                    Some(&events),
                    null_mut(),
                ));
            }
            _ => _ = noted(apus_app_delete(app, path.pointer(), handler, null_mut())),
        }
    }

    fn call_service(&mut self) {
        let (a, b): (usize, usize) = (below(2), below(2));
        let upstream = self.upstreams[a].as_deref_mut();
        let service = match below::<u8>(13) {
            0 => {
                let folder = text_of(&["/tmp", "/nowhere", "."]);
                let options = ApusFilesOptions {
                    size: size_of::<ApusFilesOptions>() + usize::from(below::<u8>(9) == 0),
                    index: null(),
                    listing: below::<u8>(2) == 0,
                    hidden_files: false,
                    spa: null(),
                    cache_control: null(),
                    cache_bytes: number(),
                };
                apus_files_new(folder.pointer(), (below::<u8>(2) == 0).then_some(&options))
            }
            1 => {
                let place = text_of(&["/", "https://example.com/", "a b", "\r\n"]);
                apus_redirect_new(300 + below::<c_int>(10), place.pointer())
            }
            2 => apus_proxy_new(self.upstreams[b].take()),
            3 => apus_cache_new(self.services[b].take(), number()),
            4 => apus_app_service(self.apps[b].take()),
            5 => {
                let address = text_of(&["127.0.0.1:9000", "unix:/nowhere", "nowhere", ""]);
                apus_php_new(address.pointer(), text_of(&["/tmp", "/nowhere"]).pointer())
            }
            6 => apus_config_service(self.configs[b].as_deref()),
            7 => {
                let new = made(apus_upstream_new());
                return apus_upstream_free(std::mem::replace(&mut self.upstreams[a], new));
            }
            8 => {
                let node = text_of(&[
                    "127.0.0.1:1",
                    "[::1]:1",
                    "unix:/nowhere",
                    "localhost:1",
                    ":",
                ]);
                noted(apus_upstream_node(
                    upstream,
                    node.pointer(),
                    number() as u32,
                ));
                return;
            }
            9 => {
                let strategy = text_of(&["p2c", "ip_hash", "least_conn", "round_robin", "best"]);
                noted(apus_upstream_strategy(upstream, strategy.pointer()));
                return;
            }
            10 => {
                // Only checked, as it may name any file.
                let parts = [text(), text_of(&["[[sites]]\n", "[global]\n"]), text()];
                for part in parts {
                    let parsed = apus_config_parse(part.pointer(), part.len(), null());
                    apus_config_free(made(parsed));
                }
                return;
            }
            11 => {
                let text = CONFIGURATION;
                let config = made(apus_config_parse(text.as_ptr().cast(), text.len(), null()));
                return apus_config_free(std::mem::replace(&mut self.configs[a], config));
            }
            _ => {
                let rooms = std::mem::replace(&mut self.rooms[a], made(apus_rooms_new()));
                apus_rooms_free(rooms);
                let (room, rooms) = (text(), self.rooms[b].as_deref());
                let (data, len) = (room.pointer().cast::<c_void>(), room.len());
                let kind = below(4);
                noted(apus_rooms_publish(
                    rooms,
                    room.pointer(),
                    kind,
                    data,
                    len,
                    None,
                ));
                return;
            }
        };
        // One that goes into itself was taken before it is replaced.
        apus_service_free(std::mem::replace(&mut self.services[a], made(service)));
    }

    fn call_server(&mut self) {
        let (a, b): (usize, usize) = (below(2), below(2));
        let tls = self.tls[a].as_deref_mut();
        let server = self.servers[a].as_deref_mut();
        match below::<u8>(20) {
            0 => {
                let server = made(apus_server_new(self.apps[b].take()));
                apus_server_free(std::mem::replace(&mut self.servers[a], server));
            }
            1 => {
                let address = ADDRESSES[below::<usize>(ADDRESSES.len() as u8)];
                noted(apus_server_listen(server, address.as_ptr()));
            }
            2 => {
                let tls = self.tls[b].take();
                noted(apus_server_listen_tls(server, c"127.0.0.1:0".as_ptr(), tls));
            }
            3 => _ = noted(apus_server_workers(server, 1 + below::<usize>(2))),
            4 => _ = noted(apus_server_limit(server, below::<c_int>(22) - 1, number())),
            5 => {
                let format = text_of(&["combined", "json", "$status", "$nothing", "none"]);
                noted(apus_server_access_log_file(
                    server,
                    c"/dev/null".as_ptr(),
                    format.pointer(),
                ));
            }
            6 => {
                _ = noted(apus_server_access_log(
                    server,
                    Some(ignore_entry),
                    null_mut(),
                ))
            }
            7 => {
                _ = noted(apus_server_on_worker_start(
                    server,
                    Some(ignore_task),
                    null_mut(),
                ))
            }
            8 => _ = noted(apus_server_config(server, self.configs[b].as_deref())),
            9 if self.starts < 2 => {
                self.starts += 1;
                noted(apus_server_start(server.map(NonNull::from)));
            }
            10 => _ = noted(apus_server_stop(self.servers[a].as_deref())),
            11 => {
                let server = self.servers[a].as_deref();
                if noted(apus_server_stop(server)) == ApusStatus::Ok {
                    noted(apus_server_wait(server));
                }
            }
            12 => {
                let server = self.servers[a].as_deref();
                apus_string_free(apus_server_status(server));
                apus_server_address(server, apus_server_address_count(server));
                apus_server_port(server, below(3));
            }
            13 if self.starts < 2 => {
                self.starts += 1;
                run_worker(made(apus_worker_new(self.servers[b].take())));
            }
            14 => apus_tls_free(std::mem::replace(&mut self.tls[a], made(apus_tls_new()))),
            15 => {
                let policy = text_of(&["modern", "intermediate", "legacy", "old"]);
                noted(apus_tls_policy(tls, policy.pointer()));
            }
            16 => _ = noted(apus_tls_min_version(tls, 11 + below::<c_int>(4))),
            17 => _ = noted(apus_tls_on_server_name(tls, Some(find_none), null_mut())),
            18 => {
                let names = text_of(&["localhost", "a.example, *.example", "", "*"]);
                let certificate = self.certificates[b].take();
                let mut tls = tls;
                noted(apus_tls_certificate(
                    tls.as_deref_mut(),
                    names.pointer(),
                    certificate,
                ));
                let pem = text_of(&["-----BEGIN CERTIFICATE-----\n", ""]);
                let mode = below::<c_int>(4) - 1;
                noted(apus_tls_client_auth(tls, mode, pem.pointer(), pem.len()));
            }
            _ => {
                let (chain, key) = certificate();
                let (cut, len) = (below::<u8>(3) == 0, chain.len());
                let found = apus_certificate_pem(
                    chain.as_ptr().cast(),
                    if cut { len / 2 } else { len },
                    key.as_ptr().cast(),
                    key.len(),
                );
                apus_certificate_free(std::mem::replace(&mut self.certificates[a], made(found)));
            }
        }
    }

    fn free(self) {
        free_all(self.servers, apus_server_free);
        free_all(self.apps, apus_app_free);
        free_all(self.services, apus_service_free);
        free_all(self.upstreams, apus_upstream_free);
        free_all(self.configs, apus_config_free);
        free_all(self.certificates, apus_certificate_free);
        free_all(self.tls, apus_tls_free);
        free_all(self.rooms, apus_rooms_free);
    }
}

fn free_all<T>(objects: [Option<Box<T>>; 2], free: extern "C" fn(Option<Box<T>>)) {
    for object in objects {
        free(object);
    }
}

fn run_worker(mut worker: Option<Box<ApusWorker>>) {
    if worker.is_none() {
        return;
    }
    for _ in 0..below::<u8>(4) {
        noted(apus_worker_step(worker.as_deref_mut()));
    }
    apus_worker_fd(worker.as_deref());
    apus_worker_timeout(worker.as_deref());
    if below::<u8>(2) == 0 {
        noted(apus_worker_stop(worker.as_deref_mut()));
        noted(apus_worker_step(worker.as_deref_mut()));
    }
    apus_worker_free(worker);
}

/// A certificate and its key, made once.
fn certificate() -> &'static (String, String) {
    use std::sync::OnceLock;

    static CERTIFICATE: OnceLock<(String, String)> = OnceLock::new();
    CERTIFICATE.get_or_init(|| {
        let issued = apus_testkit::CertificateAuthority::generate().ecdsa(&["localhost"]);
        (issued.pem, issued.key)
    })
}

extern "C" fn ignore(_: *mut ApusRequest, _: *mut ApusResponse, _: *mut c_void) -> c_int {
    0
}
extern "C" fn ignore_response(_: *mut ApusResponse, _: *mut c_void) {}
extern "C" fn ignore_error(_: *const ApusError, _: *mut ApusResponse, _: *mut c_void) -> c_int {
    0
}
extern "C" fn ignore_entry(_: *const ApusAccessEntry, _: *mut c_void) {}
extern "C" fn ignore_task(_: *mut c_void) {}
extern "C" fn destroy(_: *mut c_void) {}
extern "C" fn find_none(_: ApusStr, _: *mut c_void) -> Option<Box<ApusCertificate>> {
    None
}
