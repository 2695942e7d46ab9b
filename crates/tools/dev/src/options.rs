//! The options of `apus dev`.

use std::ffi::OsString;

use apus_server::ListenArgument;

/// The options of `apus dev`.
#[derive(Clone, Debug, Default)]
pub struct DevOptions {
    /// The address that clients connect to; by default a free port of the loopback interface.
    pub listen: Option<ListenArgument>,
    /// The names by which clients may call it, beside `localhost`, loopback addresses and the address that it listens on.
    pub hosts: Vec<String>,
    /// Whether it is served with a certificate of the local authority.
    pub tls: bool,
    /// Whether the first address is opened in the browser.
    pub open: bool,
    /// The program that is built.
    pub selection: PackageSelection,
    /// The arguments of the application.
    pub arguments: Vec<OsString>,
}

/// The program that Cargo builds, as `cargo run` selects it.
#[derive(Clone, Debug, Default)]
pub struct PackageSelection {
    /// The package of the workspace; by default the package of the current folder.
    pub package: Option<String>,
    /// The program of the package; by default its only one.
    pub binary: Option<String>,
    /// The features, as Cargo takes them.
    pub features: Vec<String>,
    /// Whether it is built with optimisations.
    pub is_release: bool,
}
