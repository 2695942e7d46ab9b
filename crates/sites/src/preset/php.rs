//! Presets of PHP applications.
//!
//! They say who answers for pretty URLs, what nobody is to see, where no program runs, and which
//! cookies mean that somebody is logged in.

use super::Preset;
use apus_files::Symlinks;

/// What a PHP application wants of its server.
pub(super) struct Application {
    /// The program that answers where there is no file, by its path below the root.
    pub(super) front_controller: &'static str,
    /// Paths at which no program is run: what users upload, and code that is only included.
    pub(super) no_php: &'static [&'static str],
    /// Paths at which there is nothing for anybody, besides [`PROTECTED`].
    pub(super) protected: &'static [&'static str],
    /// From expressions to what stands in place of what they match, if there is no such file.
    pub(super) rewrites: &'static [(&'static str, &'static str, Then)],
    /// `Cache-Control` by path.
    pub(super) cache_control: &'static [(&'static str, &'static str)],
    /// Paths of pages that are never kept for all: those to log in, for administration and to install. A program
    /// that answers for all paths may be in front of them.
    pub(super) uncached: &'static str,
    /// Cookies of those whom the application knows; `*` at an end stands for any rest.
    pub(super) cookies: &'static [&'static str],
    /// `SERVER_SOFTWARE`.
    pub(super) server_software: &'static str,
    /// Where symbolic links may lead.
    pub(super) symlinks: Symlinks,
}

/// What a rewrite does.
#[derive(Clone, Copy)]
pub(super) enum Then {
    GoOn,
    Redirect,
}

/// What lies around in the folders of all of them.
pub(super) const PROTECTED: &[&str] = &[
    "*.{bak,orig,save,swp,swo,old,sql,sqlite,sqlite3,db,inc,tpl,log}",
    "*.sql.{gz,bz2,xz,zst,zip}",
    "*.php.*",
    "*.php_*",
    "{composer,package,package-lock}.{json,lock}",
];

/// Cookies of sessions of PHP itself, which any application may have.
pub(super) const SESSION: &[&str] = &["PHPSESSID", "PHPSESSID_*"];

/// The name of this server.
const SOFTWARE: &str = "Apus";

/// In place of `Cache-Control`: for ever, if there is a hash in the name.
pub(super) const IF_HASHED: &str = "hashed";
const MONTH: &str = "public, max-age=2592000";
const WEEK: &str = "public, max-age=604800";

pub(super) const WORDPRESS: Application = Application {
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
    // A network of sites in folders: each has the files of all.
    rewrites: &[
        (
            "^/([_0-9a-zA-Z-]+)/wp-admin$",
            "/$1/wp-admin/",
            Then::Redirect,
        ),
        (
            "^/[_0-9a-zA-Z-]+/wp-((?:admin|content|includes)/.*)$",
            "/wp-$1",
            Then::GoOn,
        ),
        (
            "^/[_0-9a-zA-Z-]+/(wp-[a-z-]+|xmlrpc)\\.php$",
            "/$1.php",
            Then::GoOn,
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
    // WordPress offers pretty permalinks to servers that it knows, and writes no `.htaccess` for this one.
    server_software: "Apus (like nginx)",
    symlinks: Symlinks::Inside,
};

pub(super) const TYPECHO: Application = Application {
    front_controller: "/index.php",
    no_php: &["/usr/uploads/**"],
    protected: &["/config.inc.php", "/var/**"],
    rewrites: &[],
    cache_control: &[("/usr/uploads/**", MONTH), ("/usr/**", WEEK)],
    uncached: "/{index.php/,}{admin,admin/**,action/**,install.php,install.php/**}",
    // The names have a hash of the site in front.
    cookies: &["*__typecho_*"],
    server_software: SOFTWARE,
    symlinks: Symlinks::Inside,
};

pub(super) const LARAVEL: Application = Application {
    front_controller: "/index.php",
    no_php: &["/storage/**", "/build/**", "/vendor/**"],
    protected: &["/artisan", "/hot"],
    rewrites: &[],
    cache_control: &[("/build/assets/**", IF_HASHED)],
    uncached: "/{index.php/,}{login,logout,register,user,dashboard,password,forgot-password,\
               reset-password,confirm-password,two-factor-challenge,email,verify-email,sanctum,\
               oauth,livewire,admin,filament,nova,horizon,telescope,pulse}{,/**}",
    cookies: &[
        // Named after the application.
        "*_session",
        "*-session",
        "XSRF-TOKEN",
        "remember_*",
    ],
    server_software: SOFTWARE,
    // `artisan storage:link` makes one to what is stored beside the root.
    symlinks: Symlinks::Follow,
};

impl Preset {
    pub(super) fn application(self) -> Option<&'static Application> {
        match self {
            Self::Static | Self::Spa => None,
            Self::Wordpress => Some(&WORDPRESS),
            Self::Typecho => Some(&TYPECHO),
            Self::Laravel => Some(&LARAVEL),
        }
    }
}
