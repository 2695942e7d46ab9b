//! An application of the framework whose certificate is ordered.

use std::num::NonZeroUsize;

use apus::{Acme, App, Server};

use super::{CertificateTest, PebbleOptions};
use crate::harness::wait_until;

impl CertificateTest {
    fn application(&self, certificate: Acme) -> Result<apus::Running, apus::StartError> {
        Server::new(App::new().get("/", async || "<h1>hello</h1>"))
            .workers(NonZeroUsize::MIN)
            .control_socket(self.home.path("application.sock"))
            .listen(("127.0.0.1", self.http))?
            .listen_acme(("127.0.0.1", self.https), certificate)?
            .start()
    }

    fn certificate(&self) -> Acme {
        Acme::for_names(["Shop.example.com"])
            .agree_to_terms()
            .resolver(([127, 0, 0, 1], self.pebble.dns_port()).into())
            .provider(self.pebble.directory())
            .provider_root(self.home.path("pebble/root.pem"))
            .folder(self.home.path("acme"))
    }
}

#[test]
fn an_application_orders_its_certificate_and_keeps_it_over_a_restart() {
    let test = CertificateTest::new(PebbleOptions::default());
    let running = test.application(test.certificate()).unwrap();
    test.wait_until_served("shop.example.com");
    let socket = test.home.path("application.sock");
    let list = ["cert", "list", "--socket", socket.to_str().unwrap()];
    let (list, _) = test.home.expect(&list, 0);
    assert!(
        list.contains("certificate shop.example.com: expires in "),
        "{list}"
    );
    let serial = test.serial("shop.example.com");
    running.stop();
    let running = test.application(test.certificate()).unwrap();
    assert_eq!(test.serial("shop.example.com"), serial);
    assert_eq!(test.pebble.orders(), 1);
    running.stop();
    // With another folder and by TLS alone.
    let other = test
        .certificate()
        .by_tls()
        .rsa()
        .folder(test.home.path("other"));
    let running = test.application(other).unwrap();
    test.wait_until_served("shop.example.com");
    wait_until("another certificate", || {
        test.serial("shop.example.com") != serial
    });
    running.stop();
}

#[test]
fn mistakes_in_a_certificate_are_found_before_an_application_listens() {
    let test = CertificateTest::new(PebbleOptions::default());
    let refused = |certificate: Acme| test.application(certificate).unwrap_err().to_string();
    let error = refused(Acme::for_names(["example.com"]));
    assert!(error.contains("agreed to the terms"), "{error}");
    let error = refused(Acme::for_names(["*.example.com"]).agree_to_terms());
    assert!(error.contains("needs Acme::dns_hook"), "{error}");
    let error = refused(
        Acme::for_names(["example.com"])
            .email("a@example.com")
            .provider("lets"),
    );
    assert!(error.contains("`lets` is none of letsencrypt"), "{error}");
    let error = refused(Acme::for_names::<String>([]).agree_to_terms());
    assert!(error.contains("needs a name"), "{error}");
}
