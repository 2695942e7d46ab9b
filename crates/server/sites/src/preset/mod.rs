//! Presets: settings for a kind of site, which its own settings override.

mod php;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use apus_http::{HeaderName, HeaderValue, header};

use super::fields::FieldChange;
use super::location::LocationPattern;
use super::rewrite::{FileCondition, RewriteRule};
use super::settings::LocationSettings;
use super::site::{Location, Site};
use apus_files::{Files, Symlinks};
use apus_patterns::Glob;

/// A kind of site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// Files as they are.
    #[default]
    Static,
    /// A single-page application: paths without a file get `index.html`.
    Spa,
    /// WordPress, also as a multisite network.
    Wordpress,
    /// Typecho.
    Typecho,
    /// Laravel; the root is its folder `public`.
    Laravel,
}

/// Fields that every response gets.
const SECURITY_FIELDS: &[(HeaderName, &str)] = &[
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "strict-origin-when-cross-origin"),
];

/// Paths of files that never change, by the conventions of the frameworks.
const IMMUTABLE: &[&str] = &["/_app/immutable/**", "/_next/static/**"];

/// Files that never change if their name has a hash: output of build tools, wherever it is, and all
/// kinds of files in the folders of build tools.
const IMMUTABLE_IF_HASHED: &[&str] = &[
    "*.{js,mjs,css,map,wasm,woff,woff2}",
    "/_astro/**",
    "/_nuxt/**",
    "/assets/**",
    "/static/{css,js,media}/**",
];

/// Folders of build output; files without a hash there are revalidated, because they change with
/// each build.
const BUILD_OUTPUT: &[&str] = &["/_nuxt/**", "/assets/**", "/static/{css,js,media}/**"];

const FOREVER: &str = "public, max-age=31536000, immutable";
const REVALIDATED: &str = "no-cache";

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 5] = [
        Self::Static,
        Self::Spa,
        Self::Wordpress,
        Self::Typecho,
        Self::Laravel,
    ];

    /// The name in configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Spa => "spa",
            Self::Wordpress => "wordpress",
            Self::Typecho => "typecho",
            Self::Laravel => "laravel",
        }
    }

    /// The page for paths without a file, for [`Files::spa`].
    pub fn page(self) -> Option<&'static str> {
        match self {
            Self::Spa => Some("/index.html"),
            _ => None,
        }
    }

    /// Whether it is a PHP application.
    pub fn is_php(self) -> bool {
        self.application().is_some()
    }

    /// The front controller of a PHP application, by its path below the root.
    pub fn front_controller(self) -> Option<&'static str> {
        self.application()
            .map(|application| application.front_controller)
    }

    /// The `SERVER_SOFTWARE` of a PHP application.
    pub fn server_software(self) -> Option<&'static str> {
        self.application()
            .map(|application| application.server_software)
    }

    /// Which symbolic links are followed, unless the site sets it.
    pub fn symlinks(self) -> Symlinks {
        self.application()
            .map_or(Symlinks::default(), |application| application.symlinks)
    }

    /// Paths below the root at which no script is run.
    pub fn no_php(self) -> impl Iterator<Item = Glob> {
        let application = self.application();
        globs(application.map_or(&[], |application| application.no_php))
    }

    /// Paths below the root that are never served.
    pub fn protected(self) -> impl Iterator<Item = Glob> {
        let application = self.application();
        let general = application.map_or(&[][..], |_| php::PROTECTED);
        let own = application.map_or(&[][..], |application| application.protected);
        globs(general).chain(globs(own))
    }

    /// Rewrite rules, which come after the rules of the site.
    pub fn rewrites(self) -> impl Iterator<Item = RewriteRule> {
        let rules = self
            .application()
            .map_or(&[][..], |application| application.rewrites);
        rules.iter().filter_map(|(from, to, flag)| {
            let rule = RewriteRule::new(from, to, *flag).ok()?;
            let is_missing: FileCondition = "!-e $request_filename".parse().ok()?;
            Some(rule.when(is_missing))
        })
    }

    /// Paths of pages that are never cached, as login and administration, whatever lifetimes are
    /// configured.
    pub fn uncached(self) -> Option<Glob> {
        Glob::parse(self.application()?.uncached).ok()
    }

    /// Session cookies of a PHP application; `*` at an end of a name matches anything. Without a
    /// preset, the cookies of all presets.
    pub fn session_cookies(preset: Option<Self>) -> impl Iterator<Item = &'static str> {
        let applications = Self::ALL
            .into_iter()
            .filter(move |one| preset.is_none_or(|preset| preset == *one || !preset.is_php()));
        let cookies = applications
            .filter_map(Self::application)
            .flat_map(|application| application.cookies);
        php::SESSION.iter().chain(cookies).copied()
    }

    /// `Cache-Control` by path, which comes after the rules of the site.
    pub fn cache_control(self) -> impl Iterator<Item = (Glob, HeaderValue)> {
        let (immutable, hashed, built): (&[_], &[_], &[_]) = match self {
            Self::Static => (IMMUTABLE, IMMUTABLE_IF_HASHED, &[]),
            Self::Spa => (IMMUTABLE, IMMUTABLE_IF_HASHED, BUILD_OUTPUT),
            _ => (&[], &[], &[]),
        };
        let application = self
            .application()
            .map_or(&[][..], |application| application.cache_control);
        let glob = |pattern: &str| Glob::parse(pattern).ok();
        let immutable = immutable
            .iter()
            .filter_map(move |pattern| Some((glob(pattern)?, FOREVER)));
        let hashed = hashed
            .iter()
            .filter_map(move |pattern| Some((glob(pattern)?.hashed(), FOREVER)));
        let of_application = application.iter().filter_map(move |(pattern, value)| {
            let glob = glob(pattern)?;
            Some(match *value {
                php::IF_HASHED => (glob.hashed(), FOREVER),
                value => (glob, value),
            })
        });
        // Pages refer to hashed files, so they are revalidated.
        let revalidated = built
            .iter()
            .chain(&["*.html"])
            .filter_map(move |pattern| Some((glob(pattern)?, REVALIDATED)));
        immutable
            .chain(hashed)
            .chain(of_application)
            .chain(revalidated)
            .map(|(glob, value)| (glob, HeaderValue::from_static(value)))
    }

    /// Fields for every response, which come before the changes of the site.
    pub fn response_fields(self) -> impl Iterator<Item = FieldChange> {
        SECURITY_FIELDS
            .iter()
            .map(|(name, value)| FieldChange::fixed(name.clone(), HeaderValue::from_static(value)))
    }
}

impl Site {
    /// A site of the files below `root`, with the settings of a preset.
    pub fn of_files(name: &str, preset: Preset, root: impl AsRef<Path>) -> Self {
        let mut files = Files::new(root.as_ref())
            .cache_control(preset.cache_control())
            .protected(preset.protected())
            .symlinks(preset.symlinks());
        if let Some(page) = preset.page() {
            files = files.spa(page);
        }
        let settings = LocationSettings::new().root(&root);
        Self::new(name)
            .settings(
                preset
                    .response_fields()
                    .fold(settings, LocationSettings::response_field),
            )
            .location(Location::files(LocationPattern::everywhere(), files))
    }
}

fn globs(patterns: &'static [&'static str]) -> impl Iterator<Item = Glob> {
    patterns
        .iter()
        .filter_map(|pattern| Glob::parse(pattern).ok())
}

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(text: &str) -> Result<Self, UnknownPreset> {
        let mut presets = Self::ALL.into_iter();
        presets
            .find(|preset| preset.as_str() == text)
            .ok_or(UnknownPreset)
    }
}

/// There is no such preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPreset;

impl fmt::Display for UnknownPreset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a preset is `static`, `spa`, `wordpress`, `typecho` or `laravel`")
    }
}

impl std::error::Error for UnknownPreset {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_a_name_and_valid_patterns() {
        for preset in Preset::ALL {
            assert_eq!(preset.as_str().parse(), Ok(preset));
        }
        assert_eq!("drupal".parse::<Preset>(), Err(UnknownPreset));
        let of_files = IMMUTABLE.len() + IMMUTABLE_IF_HASHED.len() + 1;
        assert_eq!(Preset::Static.cache_control().count(), of_files);
        assert_eq!(
            Preset::Spa.cache_control().count(),
            of_files + BUILD_OUTPUT.len()
        );
        for preset in Preset::ALL.into_iter().filter(|preset| preset.is_php()) {
            let application = preset.application().unwrap();
            let name = preset.as_str();
            assert_eq!(preset.no_php().count(), application.no_php.len(), "{name}");
            let protected = php::PROTECTED.len() + application.protected.len();
            assert_eq!(preset.protected().count(), protected, "{name}");
            assert_eq!(
                preset.rewrites().count(),
                application.rewrites.len(),
                "{name}"
            );
            let control = application.cache_control.len() + 1;
            assert_eq!(preset.cache_control().count(), control, "{name}");
            assert!(preset.uncached().is_some(), "{name}");
        }
    }

    #[test]
    fn only_names_with_a_hash_are_immutable_and_what_was_built_without_one_is_revalidated() {
        let of = |preset: Preset, path: &str| {
            let mut rules = preset.cache_control();
            let rule = rules.find(|(glob, _)| glob.matches(path.as_bytes()));
            rule.map(|(_, value)| value.to_str().unwrap().to_owned())
        };
        let (forever, revalidated) = (Some(FOREVER), Some(REVALIDATED));
        for (path, in_static, in_spa) in [
            ("/assets/index-BqY9Z3aK.js", forever, forever),
            ("/js/main.3f9a2bd0.js", forever, forever),
            ("/assets/logo-BqY9Z3aK.png", forever, forever),
            ("/assets/logo.png", None, revalidated),
            ("/assets/config.js", None, revalidated),
            ("/static/js/main.js", None, revalidated),
            ("/static/files/main.js", None, None),
            ("/_nuxt/builds/latest.json", None, revalidated),
            ("/_next/static/x/_buildManifest.js", forever, forever),
            ("/images/photo-BqY9Z3aK.png", None, None),
            ("/assets/index.html", revalidated, revalidated),
            ("/index.html", revalidated, revalidated),
        ] {
            assert_eq!(of(Preset::Static, path).as_deref(), in_static, "{path}");
            assert_eq!(of(Preset::Spa, path).as_deref(), in_spa, "{path}");
        }
        let laravel = |path| of(Preset::Laravel, path);
        assert_eq!(laravel("/build/assets/app-BqY9Z3aK.js").as_deref(), forever);
        assert_eq!(laravel("/build/assets/app.js"), None);
    }

    #[test]
    fn log_in_and_admin_pages_are_not_cached_and_others_are() {
        let is_uncached = |preset: Preset, path: &str| {
            let glob = preset.uncached().unwrap();
            glob.matches(path.as_bytes())
        };
        for (preset, path) in [
            (Preset::Typecho, "/admin/login.php"),
            (Preset::Typecho, "/admin"),
            (Preset::Typecho, "/admin/"),
            (Preset::Typecho, "/install.php"),
            (Preset::Typecho, "/action/login"),
            (Preset::Typecho, "/index.php/action/login"),
            (Preset::Wordpress, "/wp-login.php"),
            (Preset::Wordpress, "/wp-login.php/x"),
            (Preset::Wordpress, "/wp-admin"),
            (Preset::Wordpress, "/wp-admin/options.php"),
            (Preset::Wordpress, "/blog/wp-admin/"),
            (Preset::Wordpress, "/blog/wp-signup.php"),
            (Preset::Wordpress, "/xmlrpc.php"),
            (Preset::Laravel, "/login"),
            (Preset::Laravel, "/index.php/login"),
            (Preset::Laravel, "/reset-password/token"),
            (Preset::Laravel, "/admin/users"),
        ] {
            assert!(is_uncached(preset, path), "{preset:?} {path}");
        }
        for (preset, path) in [
            (Preset::Typecho, "/"),
            (Preset::Typecho, "/index.php"),
            (Preset::Typecho, "/archives/1/"),
            (Preset::Typecho, "/administration.html"),
            (Preset::Wordpress, "/"),
            (Preset::Wordpress, "/index.php"),
            (Preset::Wordpress, "/2024/hello-wp-admins/"),
            (Preset::Wordpress, "/wp-content/themes/x/style.css"),
            (Preset::Laravel, "/"),
            (Preset::Laravel, "/posts/login-trouble"),
            (Preset::Laravel, "/loginhelp"),
        ] {
            assert!(!is_uncached(preset, path), "{preset:?} {path}");
        }
        assert!(Preset::Static.uncached().is_none());
    }

    #[test]
    fn what_lies_around_is_protected_and_what_belongs_to_a_site_is_not() {
        let is_protected = |preset: Preset, path: &str| {
            preset.protected().any(|glob| glob.matches(path.as_bytes()))
        };
        for path in [
            "/wp-config.php",
            "/wp-config.php.bak",
            "/wp-content/debug.log",
            "/backup.sql.gz",
            "/wp-content/plugins/x/composer.json",
            "/wp-login.php.save",
            "/index.php_old",
        ] {
            assert!(is_protected(Preset::Wordpress, path), "{path}");
        }
        for path in [
            "/index.php",
            "/wp-login.php",
            "/wp-admin/admin-ajax.php",
            "/wp-content/themes/x/style.css",
            "/wp-content/uploads/2024/dialog.png",
            "/wp-includes/js/jquery/jquery.min.js",
            "/wp-json/wp/v2/posts",
            "/wp-content/themes/x/theme.json",
            "/robots.txt",
        ] {
            assert!(!is_protected(Preset::Wordpress, path), "{path}");
        }
        assert!(is_protected(Preset::Typecho, "/usr/5f3a.db"));
        assert!(!is_protected(Preset::Static, "/a.sql"));
    }

    #[test]
    fn those_whom_an_application_knows_have_cookies_of_its_own() {
        let of = |preset| Preset::session_cookies(preset).collect::<Vec<_>>();
        let wordpress = of(Some(Preset::Wordpress));
        assert!(wordpress.contains(&"wordpress_logged_in_*"));
        assert!(wordpress.contains(&"PHPSESSID"));
        assert!(!wordpress.contains(&"*_session"));
        for preset in [None, Some(Preset::Static)] {
            for name in ["*_session", "wordpress_logged_in_*", "PHPSESSID"] {
                assert!(of(preset).contains(&name), "{name}");
            }
        }
    }
}
