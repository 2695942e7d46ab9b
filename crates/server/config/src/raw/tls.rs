//! The keys of TLS and of HTTP/3.

use super::acme::{AcmeKeyType, Challenge};
use super::not_given;
use crate::keys::{choices, keys};
use crate::size::Kilobytes;
use crate::source::Setting;
use crate::string_type::SiteHost;
use crate::string_type::acme::{EmailText, ProviderText, WebUrl};
use crate::value::{FilePath, Int, List, OneOrMore, Seconds, Text};

choices! {
    /// Where the secrets of session tickets are.
    pub(crate) TicketStorage: "a place of the secrets of session tickets" {
        /// In the memory of the process.
        Memory = "memory",
        /// In `acme_folder`, which only the user of the server can read. They change every twelve hours.
        Stored = "stored",
    }
}

choices! {
    /// The names of a certificate.
    pub(crate) CertificateScope: "the names of a certificate" {
        /// All names of a site.
        Site = "site",
        /// One name.
        Name = "name",
    }
}

choices! {
    /// Which clients of TLS a site accepts.
    pub(crate) TlsPolicyName: "a policy of TLS" {
        /// TLS 1.3 alone: browsers since about 2019.
        Modern = "modern",
        /// TLS 1.3, and TLS 1.2 with forward secrecy and AEAD ciphers: browsers since about 2014.
        Intermediate = "intermediate",
        /// As `"intermediate"`, with cipher suites in the order of the server. Certificates that are ordered by ACME have one with an
        /// RSA key beside them, unless `acme_key_type` is given.
        Legacy = "legacy",
    }
}

keys! {
    /// TLS of a site.
    pub(crate) struct Tls {
        /// The certificate with its chain, PEM. Short for one entry of `certificates`.
        cert: FilePath,
        /// The private key of `cert`, PEM.
        key: FilePath,
        /// Certificates, if there are several, as ECDSA beside RSA; a client gets the first that it
        /// supports.
        certificates: List<CertificatePair> = List::default(),
        /// The protocols of the site. Over TCP, those but `h3` are offered by ALPN, most preferred first;
        /// `h3` serves HTTP/3 over UDP at the same addresses, and tells clients by `Alt-Svc`.
        protocols: OneOrMore<Protocol> = OneOrMore(default_protocols()),
        /// HTTP/3. Sites on one address need the same, except for `early_data`.
        http3: Http3,
        /// The lowest version of TLS.
        min_version: TlsVersion = TlsVersion::Tls12,
        /// Versions, cipher suites and groups, after Mozilla's guidelines for servers.
        policy: TlsPolicyName = TlsPolicyName::Intermediate,
        /// Whether the server requests client certificates. Where several sites share an address and one
        /// of them does, a request for another host than in the handshake gets 421.
        client_auth: ClientAuth = ClientAuth::None,
        /// Certificates of the authorities for client certificates, PEM. A client whose own certificate is in the file, such as a self-signed one, is accepted, too, while it is valid.
        client_ca: FilePath,
        /// Lists of the certificates that these authorities have revoked (CRLs), PEM, in one file. A list is used until the file
        /// has another one, even if it has expired.
        client_crl: FilePath,
        /// Whether the certificate is ordered and renewed by ACME. By default it is, if the site names no certificate, all
        /// its names are on the public Internet, and you agree to the terms by `acme_email` or `acme_agree`.
        acme: bool,
        /// As `acme_email` of `[global]`, for this site.
        acme_email: EmailText,
        /// As `acme_agree` of `[global]`, for this site.
        acme_agree: bool = false,
        /// As `acme_provider` of `[global]`, for this site.
        acme_provider: OneOrMore<ProviderText> = OneOrMore::default(),
        /// As `acme_challenge` of `[global]`, for this site.
        acme_challenge: OneOrMore<Challenge> = OneOrMore::default(),
        /// As `acme_check_dns` of `[global]`, for this site.
        acme_check_dns: bool = true,
        /// As `acme_profile` of `[global]`, for this site.
        acme_profile: Text,
        /// As `acme_preferred_chain` of `[global]`, for this site.
        acme_preferred_chain: Text,
        /// As `acme_key_type` of `[global]`, for this site.
        acme_key_type: OneOrMore<AcmeKeyType> = OneOrMore::default(),
        /// As `acme_reuse_key` of `[global]`, for this site.
        acme_reuse_key: bool = false,
        /// As `acme_certificate_per` of `[global]`, for this site.
        acme_certificate_per: CertificateScope = CertificateScope::Site,
        /// Certificates for names that are first seen in a handshake, one for each name. The site has wildcards such as
        /// `*.example.com` as `server_name`, or is the site of all other names.
        acme_on_demand: OnDemand,
    }
}

keys! {
    /// Which names may get a certificate on demand.
    pub(crate) struct OnDemand {
        /// Names that may: `shop.example.com`, or `*.example.com` for all names one level below.
        names: OneOrMore<SiteHost> = OneOrMore::default(),
        /// A URL that is requested about other names, with `?domain=NAME`. Status 200 permits a certificate, and 400 to 499
        /// refuses it for five minutes.
        ask: WebUrl,
        /// The most orders in an hour.
        orders_per_hour: Int<1, 1_000_000> = Int(60),
    }
}

keys! {
    /// HTTP/3 of a site.
    pub(crate) struct Http3 {
        /// The most body data of one client that may wait to be read, in KB.
        receive_window: Kilobytes<64, 2_097_151> = Kilobytes::new(16_384),
        /// The most body data of one request that may wait to be read, in KB. It limits the rate of an upload to itself per
        /// round trip: with 2,048 and 100 ms, to 168 Mbit/s.
        stream_receive_window: Kilobytes<64, 2_097_151> = Kilobytes::new(2_048),
        /// The most response data of one client that is held until it is acknowledged, in KB. Less is held as long as
        /// the network takes less.
        send_window: Kilobytes<64, 2_097_151> = Kilobytes::new(16_384),
        /// How long a connection without packets lasts, in seconds; of both ends, the shorter time counts.
        /// `keepalive_timeout` ends connections without requests, if it is shorter.
        max_idle_timeout: Seconds<1, 3600> = Seconds::new(30),
        /// Whether clients may send GET, HEAD and OPTIONS requests without a body before the handshake is complete
        /// (0-RTT). Origins get them with `Early-Data: 1`.
        early_data: bool = true,
        /// When clients have to prove their addresses before a handshake, which costs a round trip. `"auto"`: while
        /// many handshakes are incomplete.
        retry: Retry = Retry::Auto,
        /// The congestion control.
        congestion: Congestion = Congestion::Cubic,
        /// A folder in which each connection is logged to a file of its own, in the qlog format: packets with their frames,
        /// losses and round-trip times, and no contents. At most 100 connections are logged at a time, 4 MB of each; of more
        /// than 500 files, the oldest are removed. It is for debugging.
        qlog: FilePath,
    }
}

keys! {
    /// A certificate and its private key.
    pub(crate) struct CertificatePair {
        /// The certificate with its chain, PEM.
        cert [required]: FilePath,
        /// Its private key, PEM.
        key [required]: FilePath,
    }
}

fn default_protocols() -> Vec<Setting<Protocol>> {
    vec![
        not_given(Protocol::Http3),
        not_given(Protocol::Http2),
        not_given(Protocol::Http11),
    ]
}

choices! {
    /// When a client has to prove its address.
    pub(crate) Retry: "a way to prove addresses" {
        /// While many handshakes are incomplete.
        Auto = "auto",
        /// Always.
        Always = "always",
        /// Never.
        Never = "never",
    }
}

choices! {
    /// A congestion controller.
    pub(crate) Congestion: "a congestion controller" {
        /// CUBIC (RFC 9438).
        Cubic = "cubic",
        /// BBR, version 1.
        Bbr = "bbr",
    }
}

choices! {
    /// A protocol of a TLS site.
    pub(crate) Protocol: "a protocol that is supported" {
        /// HTTP/3.
        Http3 = "h3",
        /// HTTP/2.
        Http2 = "h2",
        /// HTTP/1.1.
        Http11 = "http/1.1",
    }
}

choices! {
    /// A version of TLS.
    pub(crate) TlsVersion: "a version of TLS" {
        /// TLS 1.2.
        Tls12 = "1.2",
        /// TLS 1.3.
        Tls13 = "1.3",
    }
}

choices! {
    /// Whether the server requests client certificates.
    pub(crate) ClientAuth: "a kind of client authentication" {
        /// No certificate is requested.
        None = "none",
        /// A certificate is optional.
        Optional = "optional",
        /// A certificate is required.
        Required = "required",
    }
}
