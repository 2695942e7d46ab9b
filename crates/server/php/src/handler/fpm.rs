//! The constructor of the PHP service for the socket of one FastCGI server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use apus_client::{Address, Protocol};
use apus_upstream::Upstreams;
use apus_upstream::plan::{GroupPlan, NodePlan, NodeTarget};

use super::service::Php;
use super::settings::PhpSettings;

impl Php {
    /// Runs the scripts in a folder by PHP-FPM, or another FastCGI server at this Unix socket.
    ///
    /// ```
    /// # use apus_files::Files;
    /// # use apus_php::handler::Php;
    /// use std::sync::Arc;
    ///
    /// let programs = Php::fpm("/run/php/php-fpm.sock", "/srv/site");
    /// let files = Files::new("/srv/site").index(["index.php", "index.html"]);
    /// let site = files.programs(Arc::new(programs));
    /// # let _ = site;
    /// ```
    pub fn fpm(socket: impl AsRef<Path>, root: impl Into<PathBuf>) -> Self {
        let socket = socket.as_ref();
        let name = socket.to_string_lossy();
        let target = NodeTarget::Address(Address::Unix(socket.into()));
        let upstreams = Upstreams::new();
        upstreams.apply(vec![GroupPlan {
            protocol: Protocol::FastCgi,
            ..GroupPlan::new(&*name, vec![NodePlan::new(&*name, target)])
        }]);
        Self::new(&upstreams, &name, PhpSettings::new(root))
    }

    /// Changes the settings, as for an application with a front controller:
    ///
    /// ```
    /// # use apus_php::handler::Php;
    /// let programs = Php::fpm("/run/php/php-fpm.sock", "/srv/shop/public").configure(|settings| {
    ///     settings.front_controller = Some("/index.php".into());
    /// });
    /// ```
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut PhpSettings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self
    }
}
