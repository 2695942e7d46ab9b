//! Presets of PHP applications: front controller, protected paths, and the cookies of logged-in users.

use super::Preset;
use crate::rewrite::RewriteFlag;
use apus_files::Symlinks;

/// The settings that a PHP application needs.
pub(super) struct PhpApplication {
    /// The script for paths without a file, by its path below the root.
    pub(super) front_controller: &'static str,
    /// Paths at which no script is run: uploads, and code that is only included.
    pub(super) no_php: &'static [&'static str],
    /// Paths that are never served, besides [`PROTECTED`].
    pub(super) protected: &'static [&'static str],
    /// Expressions and their replacements, for paths without a file.
    pub(super) rewrites: &'static [(&'static str, &'static str, RewriteFlag)],
    /// `Cache-Control` by path.
    pub(super) cache_control: &'static [(&'static str, &'static str)],
    /// Paths of pages that are never cached: login, administration and installation, also behind
    /// the front controller.
    pub(super) uncached: &'static str,
    /// Cookies of logged-in users; `*` at the start or the end of a name matches anything.
    pub(super) cookies: &'static [&'static str],
    /// `SERVER_SOFTWARE`.
    pub(super) server_software: &'static str,
    /// Which symbolic links are followed.
    pub(super) symlinks: Symlinks,
}

/// Backups, dumps and build files that no application serves.
pub(super) const PROTECTED: &[&str] = &[
    "*.{bak,orig,save,swp,swo,old,sql,sqlite,sqlite3,db,inc,tpl,log}",
    "*.sql.{gz,bz2,xz,zst,zip}",
    "*.php.*",
    "*.php_*",
    "{composer,package,package-lock}.{json,lock}",
];

/// Session cookies of PHP itself, which every application may use.
pub(super) const SESSION: &[&str] = &["PHPSESSID", "PHPSESSID_*"];

/// The name of this server.
const SOFTWARE: &str = "Apus";

/// In place of a `Cache-Control` value: immutable if the file name has a hash.
pub(super) const IF_HASHED: &str = "hashed";
const MONTH: &str = "public, max-age=2592000";
const WEEK: &str = "public, max-age=604800";

pub(super) const WORDPRESS: PhpApplication = PhpApplication {
    front_controller: "/index.php",
    no_php: &[
        "/wp-content/uploads/**",
        "/wp-content/blogs.dir/**",
        "/wp-content/upgrade/**",
        "/wp-content/cache/**",
        "/wp-content/languages/**",
        "/wp-admin/includes/**",
        "/wp-includes/theme-compat/**",
        "/wp-includes/js/tinymce/langs/**",
    ],
    protected: &[
        "/wp-config.php",
        "/wp-config-sample.php",
        "/readme.html",
        "/license.txt",
    ],
    // A multisite network in subfolders: each site uses the same files.
    rewrites: &[
        (
            "^/([_0-9a-zA-Z-]+)/wp-admin$",
            "/$1/wp-admin/",
            RewriteFlag::Permanent,
        ),
        (
            "^/[_0-9a-zA-Z-]+/wp-((?:admin|content|includes)/.*)$",
            "/wp-$1",
            RewriteFlag::Last,
        ),
        (
            "^/[_0-9a-zA-Z-]+/(wp-[a-z-]+|xmlrpc)\\.php$",
            "/$1.php",
            RewriteFlag::Last,
        ),
    ],
    cache_control: &[
        ("/wp-content/uploads/**", MONTH),
        ("/wp-content/**", WEEK),
        ("/wp-includes/**", WEEK),
        ("/wp-admin/**", WEEK),
    ],
    uncached: "/{**/,}{wp-admin,wp-admin/**,wp-*.php,wp-*.php/**,xmlrpc.php}",
    cookies: &[
        "wordpress_logged_in_*",
        "wordpress_sec_*",
        "wordpress_no_cache",
        "wordpressuser_*",
        "wordpresspass_*",
        "wp-postpass_*",
        "comment_author_*",
        "woocommerce_*",
        "wp_woocommerce_session_*",
        "edd_*",
    ],
    // WordPress enables pretty permalinks only for servers that it knows, and writes `.htaccess` only for Apache.
    server_software: "Apus (like nginx)",
    symlinks: Symlinks::Inside,
};

pub(super) const TYPECHO: PhpApplication = PhpApplication {
    front_controller: "/index.php",
    no_php: &["/usr/uploads/**"],
    protected: &["/config.inc.php", "/var/**"],
    rewrites: &[],
    cache_control: &[("/usr/uploads/**", MONTH), ("/usr/**", WEEK)],
    uncached: "/{index.php/,}{admin,admin/**,action/**,install.php,install.php/**}",
    // The names start with a hash of the site's URL.
    cookies: &["*__typecho_*"],
    server_software: SOFTWARE,
    symlinks: Symlinks::Inside,
};

pub(super) const LARAVEL: PhpApplication = PhpApplication {
    front_controller: "/index.php",
    no_php: &["/storage/**", "/build/**", "/vendor/**"],
    protected: &["/artisan", "/hot"],
    rewrites: &[],
    cache_control: &[("/build/assets/**", IF_HASHED)],
    uncached: "/{index.php/,}{login,logout,register,user,dashboard,password,forgot-password,\
               reset-password,confirm-password,two-factor-challenge,email,verify-email,sanctum,\
               oauth,livewire,admin,filament,nova,horizon,telescope,pulse}{,/**}",
    cookies: &[
        // The names contain the application's name.
        "*_session",
        "*-session",
        "XSRF-TOKEN",
        "remember_*",
    ],
    server_software: SOFTWARE,
    // `artisan storage:link` creates a link to the storage folder, which is outside the root.
    symlinks: Symlinks::Follow,
};

impl Preset {
    pub(super) fn application(self) -> Option<&'static PhpApplication> {
        match self {
            Self::Static | Self::Spa => None,
            Self::Wordpress => Some(&WORDPRESS),
            Self::Typecho => Some(&TYPECHO),
            Self::Laravel => Some(&LARAVEL),
        }
    }
}
