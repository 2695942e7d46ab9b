//! Resolves a path to a script that exists below the root (RFC 3875 sections 3.3 and 4.1.5).
//!
//! With `cgi.fix_pathinfo`, PHP searches the parents of a missing path for a script, and would run an image with
//! embedded code for `/image.jpg/x.php`. Here a path is split only behind a name with `.php` that is a regular file.

use std::cell::RefCell;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::time::Instant;

use apus_http::StatusCode;
use apus_transport::coarse_now;

use super::settings::PhpSettings;
use apus_compress::media_type;
use apus_files::tree::{REVALIDATE, Tree, status_of};

/// The ending of scripts. Names in other case never match, even if the file system ignores case: they are neither
/// run nor sent.
const PHP: &[u8] = b".php";

/// The maximum number of cached scripts.
const MAX_CACHED: usize = 1024;

/// The scripts of a site, for one worker of the server.
pub(super) struct Scripts {
    tree: Option<Tree>,
    cache: RefCell<ScriptCache>,
}

/// Results of file system lookups.
#[derive(Default)]
struct ScriptCache {
    since: Option<Instant>,
    /// The root for PHP.
    root: Rc<[u8]>,
    /// The paths of regular files.
    files: HashSet<Box<[u8]>>,
}

/// The script of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Script {
    /// Its path below the root; starts with a slash.
    pub(super) path: Box<[u8]>,
    /// The rest of the request's path.
    pub(super) path_info: Box<[u8]>,
    /// The root as PHP sees it, without a slash at its end.
    pub(super) root: Rc<[u8]>,
    /// The reason for the choice, for a trace.
    pub(super) why: &'static str,
}

/// Why a request has no script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScriptError {
    /// A segment of the path starts with a dot.
    Hidden,
    /// The path is protected.
    Protected,
    /// Scripts at this path do not run.
    NotRun,
    /// The path has no script, and there is no front controller.
    Missing,
    /// The root or the front controller does not exist.
    NotInstalled,
    /// The folder cannot be read: the server has no permission, or the system failed.
    Unreadable(StatusCode),
    /// The root is on another machine, and the path before the script looks like a file of another type.
    Disguised,
}

impl ScriptError {
    /// The status of the response.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Unreadable(status) => status,
            _ => StatusCode::NOT_FOUND,
        }
    }

    /// The text for logs and traces.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Hidden => "a name in the path starts with a dot",
            Self::Protected => "the path is protected",
            Self::NotRun => "PHP is not run at this path",
            Self::Missing => "there is no such script, and no front controller",
            Self::NotInstalled => "the root or the front controller does not exist",
            Self::Unreadable(StatusCode::FORBIDDEN) => {
                "the server has no permission to read the folder"
            }
            Self::Unreadable(_) => "the folder cannot be read",
            Self::Disguised => "the path before the script looks like another file",
        }
    }
}

impl Scripts {
    pub(super) fn new(settings: &PhpSettings) -> Self {
        Self {
            tree: settings
                .root
                .as_ref()
                .map(|root| Tree::new(root.clone(), settings.symlinks)),
            cache: RefCell::default(),
        }
    }

    /// Resolves a normalised path to a script.
    pub(super) fn find(&self, path: &[u8], settings: &PhpSettings) -> Result<Script, ScriptError> {
        let below = path
            .strip_prefix(settings.prefix.as_bytes())
            .filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
            .ok_or(ScriptError::Missing)?;
        let root = self.root(settings)?;
        let lookup = ScriptLookup {
            scripts: self,
            settings,
            root,
        };
        lookup.find(below)
    }

    /// The root for PHP, at most a second old.
    fn root(&self, settings: &PhpSettings) -> Result<Rc<[u8]>, ScriptError> {
        let now = coarse_now();
        let mut cache = self.cache.borrow_mut();
        let is_fresh = |since: Instant| now.saturating_duration_since(since) < REVALIDATE;
        if cache.since.is_some_and(is_fresh) {
            return Ok(Rc::clone(&cache.root));
        }
        cache.files.clear();
        cache.since = None;
        let root = match (&settings.script_root, &settings.root) {
            (Some(root), _) => root.as_bytes().to_vec(),
            (None, Some(root)) if settings.resolve_root => {
                let resolved = root.canonicalize().map_err(|_| ScriptError::NotInstalled)?;
                resolved.as_os_str().as_bytes().to_vec()
            }
            (None, Some(root)) => root.as_os_str().as_bytes().to_vec(),
            (None, None) => Vec::new(),
        };
        let root = root.strip_suffix(b"/").unwrap_or(&root);
        if *cache.root != *root {
            cache.root = root.into();
        }
        cache.since = Some(now);
        Ok(Rc::clone(&cache.root))
    }

    /// The kind of a path below the root.
    fn look_up(&self, path: &[u8]) -> PathKind {
        let Some(tree) = &self.tree else {
            return PathKind::File;
        };
        if self.cache.borrow().files.contains(path) {
            return PathKind::File;
        }
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        let metadata = tree
            .root(coarse_now())
            .and_then(|root| root.metadata(relative));
        match metadata {
            Ok(metadata) if metadata.is_file() => {
                let mut cache = self.cache.borrow_mut();
                if cache.files.len() >= MAX_CACHED {
                    cache.files.clear();
                }
                cache.files.insert(path.into());
                PathKind::File
            }
            Ok(metadata) if metadata.is_dir() => PathKind::Folder,
            Ok(_) => PathKind::Missing,
            Err(errno) => match status_of(errno) {
                StatusCode::NOT_FOUND => PathKind::Missing,
                status => PathKind::Unreadable(status),
            },
        }
    }
}

enum PathKind {
    File,
    Folder,
    Missing,
    Unreadable(StatusCode),
}

/// The lookup of one path.
struct ScriptLookup<'a> {
    scripts: &'a Scripts,
    settings: &'a PhpSettings,
    root: Rc<[u8]>,
}

impl ScriptLookup<'_> {
    fn find(&self, below: &[u8]) -> Result<Script, ScriptError> {
        for end in ends_of_segments(below) {
            let (path, rest) = below.split_at_checked(end).unwrap_or((below, &[]));
            if !path.ends_with(PHP) {
                continue;
            }
            self.check_allowed(path)?;
            if self.is_hidden(path) {
                return Err(ScriptError::Hidden);
            }
            match self.scripts.look_up(path) {
                PathKind::File if self.scripts.tree.is_none() && is_below_file(path) => {
                    return Err(ScriptError::Disguised);
                }
                PathKind::File => return Ok(self.script(path, rest, "the path names it")),
                PathKind::Folder => {}
                PathKind::Missing => break,
                PathKind::Unreadable(status) => return Err(ScriptError::Unreadable(status)),
            }
        }
        // Without a local root there are no files that could be hidden, only paths for the front controller.
        if self.scripts.tree.is_some() && self.is_hidden(below) {
            return Err(ScriptError::Hidden);
        }
        if (below.is_empty() || below.ends_with(b"/"))
            && let Some(script) = self.index(below)?
        {
            return Ok(script);
        }
        let Some(front) = &self.settings.front_controller else {
            return Err(ScriptError::Missing);
        };
        match self.scripts.look_up(front.as_bytes()) {
            PathKind::File => {
                let why = "nothing else is at the path, and it is the front controller";
                Ok(self.script(front.as_bytes(), b"", why))
            }
            PathKind::Unreadable(status) => Err(ScriptError::Unreadable(status)),
            PathKind::Folder | PathKind::Missing => Err(ScriptError::NotInstalled),
        }
    }

    /// Whether a path names a hidden file, or leads through a hidden folder. Where there is no such file, a name that
    /// starts with a dot is a name of the application.
    fn is_hidden(&self, path: &[u8]) -> bool {
        !self.settings.hidden_files
            && end_of_hidden_name(path)
                .and_then(|end| path.get(..end))
                .is_some_and(|path| !matches!(self.scripts.look_up(path), PathKind::Missing))
    }

    /// The index script of a folder.
    fn index(&self, folder: &[u8]) -> Result<Option<Script>, ScriptError> {
        // On another machine, only the root has an index: it cannot be checked whether others exist.
        if self.scripts.tree.is_none()
            && folder.len() > 1
            && self.settings.front_controller.is_some()
        {
            return Ok(None);
        }
        let folder = folder.strip_suffix(b"/").unwrap_or(folder);
        for name in &self.settings.index {
            if !name.as_bytes().ends_with(PHP) {
                continue;
            }
            let path = [folder, b"/", name.as_bytes()].concat();
            match self.scripts.look_up(&path) {
                PathKind::File => {
                    self.check_allowed(&path)?;
                    return Ok(Some(self.script(
                        &path,
                        b"",
                        "it is the index of the folder",
                    )));
                }
                PathKind::Unreadable(status) => return Err(ScriptError::Unreadable(status)),
                PathKind::Folder | PathKind::Missing => {}
            }
        }
        Ok(None)
    }

    /// Checks that the script at a path may run.
    fn check_allowed(&self, path: &[u8]) -> Result<(), ScriptError> {
        if self
            .settings
            .protected
            .iter()
            .any(|glob| glob.matches(path))
        {
            return Err(ScriptError::Protected);
        }
        if self.settings.no_php.iter().any(|glob| glob.matches(path)) {
            Err(ScriptError::NotRun)
        } else {
            Ok(())
        }
    }

    fn script(&self, path: &[u8], path_info: &[u8], why: &'static str) -> Script {
        Script {
            path: path.into(),
            path_info: path_info.into(),
            root: Rc::clone(&self.root),
            why,
        }
    }
}

/// The end of each segment of a path.
fn ends_of_segments(path: &[u8]) -> impl Iterator<Item = usize> {
    let slashes = memchr::memchr_iter(b'/', path).filter(|at| *at > 0);
    slashes.chain([path.len()])
}

/// The end of the first segment that starts with a dot, except for `/.well-known` (RFC 8615).
fn end_of_hidden_name(path: &[u8]) -> Option<usize> {
    let mut start = 0_usize;
    ends_of_segments(path).find(|end| {
        let name = path.get(start..*end).unwrap_or_default();
        let is_first = std::mem::replace(&mut start, *end) == 0;
        name.starts_with(b"/.") && !(is_first && name == b"/.well-known")
    })
}

/// Whether a parent in a path looks like a file that PHP might run as the script.
fn is_below_file(path: &[u8]) -> bool {
    let folders = memchr::memrchr(b'/', path).and_then(|at| path.get(..at));
    let mut folders = folders.unwrap_or_default().split(|byte| *byte == b'/');
    folders.any(|name| media_type::is_known(&media_type::extension(name)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use apus_files::Symlinks;
    use apus_patterns::Glob;

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        for path in [
            "index.php",
            "wp-login.php",
            "wp-admin/index.php",
            "wp-config.php",
            "uploads/evil.php",
            "uploads/evil.jpg",
            "folder.php/inner.php",
            ".git/hook.php",
            ".well-known/x.php",
            "upper.PHP",
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "<?php").unwrap();
        }
        fs::write(folder.path().join("outside.php"), "<?php").unwrap();
        symlink("../outside.php", root.join("out.php")).unwrap();
        symlink("wp-login.php", root.join("in.php")).unwrap();
        folder
    }

    fn globs(patterns: &[&str]) -> Vec<Glob> {
        let globs = patterns.iter().map(|glob| Glob::parse(glob).unwrap());
        globs.collect()
    }

    fn settings(folder: &Path) -> PhpSettings {
        PhpSettings {
            no_php: globs(&["/uploads/**"]),
            protected: globs(&["/wp-config.php"]),
            ..PhpSettings::new(folder.join("root"))
        }
    }

    fn find(settings: &PhpSettings, path: &str) -> Result<(String, String), ScriptError> {
        let script = Scripts::new(settings).find(path.as_bytes(), settings)?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Ok((text(&script.path), text(&script.path_info)))
    }

    #[test]
    fn splits_a_path_behind_a_script_that_exists() {
        let folder = tree();
        let settings = settings(folder.path());
        for (path, script, info) in [
            ("/index.php", "/index.php", ""),
            ("/index.php/a/b.php", "/index.php", "/a/b.php"),
            ("/index.php/", "/index.php", "/"),
            ("/", "/index.php", ""),
            ("/wp-admin/", "/wp-admin/index.php", ""),
            ("/folder.php/inner.php/x", "/folder.php/inner.php", "/x"),
            ("/in.php", "/in.php", ""),
            ("/.well-known/x.php", "/.well-known/x.php", ""),
            // Names behind the script are not files.
            ("/index.php/.x", "/index.php", "/.x"),
            ("/index.php/u/.git/.env", "/index.php", "/u/.git/.env"),
        ] {
            assert_eq!(
                find(&settings, path),
                Ok((script.into(), info.into())),
                "{path}"
            );
        }
    }

    #[test]
    fn never_runs_other_files_or_files_outside_of_the_root() {
        let folder = tree();
        let settings = settings(folder.path());
        for (path, why) in [
            ("/uploads/evil.jpg/x.php", ScriptError::NotRun),
            ("/uploads/evil.php", ScriptError::NotRun),
            ("/uploads/evil.php/x", ScriptError::NotRun),
            ("/wp-config.php", ScriptError::Protected),
            ("/wp-config.php/x.php", ScriptError::Protected),
            ("/index.php.jpg", ScriptError::Missing),
            ("/index.phpx", ScriptError::Missing),
            ("/index.php ", ScriptError::Missing),
            ("/index.php.", ScriptError::Missing),
            ("/INDEX.PHP", ScriptError::Missing),
            ("/upper.PHP", ScriptError::Missing),
            ("/index.pHp", ScriptError::Missing),
            ("/none.php", ScriptError::Missing),
            ("/folder.php/", ScriptError::Missing),
            ("/folder.php", ScriptError::Missing),
            ("/out.php", ScriptError::Missing),
            ("/.git/hook.php", ScriptError::Hidden),
        ] {
            assert_eq!(find(&settings, path), Err(why), "{path}");
        }
    }

    #[test]
    fn never_runs_an_image() {
        let folder = tree();
        let settings = PhpSettings {
            no_php: Vec::new(),
            ..settings(folder.path())
        };
        for path in [
            "/uploads/evil.jpg/x.php",
            "/uploads/evil.jpg/.php",
            "/uploads/evil.jpg",
        ] {
            assert!(find(&settings, path).is_err(), "{path}");
        }
    }

    #[test]
    fn the_front_controller_handles_paths_without_a_script() {
        let folder = tree();
        let settings = PhpSettings {
            front_controller: Some("/index.php".into()),
            ..settings(folder.path())
        };
        for path in [
            "/a/pretty/url/",
            "/none.php",
            "/uploads/",
            "/x.jpg",
            // There are no such files.
            "/.file",
            "/a/.b/",
            "/a/.b/c.php",
            "/wp-admin/.x",
        ] {
            assert_eq!(
                find(&settings, path),
                Ok(("/index.php".into(), "".into())),
                "{path}"
            );
        }
        for path in [
            "/uploads/evil.php",
            "/uploads/none.php",
            "/wp-config.php",
            "/.git",
            "/.git/",
            "/.git/none",
            "/.git/hook.php",
            "/.git/hook.php/x",
        ] {
            assert!(find(&settings, path).is_err(), "{path}");
        }
        let none = PhpSettings {
            front_controller: Some("/app.php".into()),
            ..settings
        };
        assert_eq!(find(&none, "/a"), Err(ScriptError::NotInstalled));
    }

    #[test]
    fn a_prefix_ends_at_a_slash() {
        let folder = tree();
        let settings = PhpSettings {
            prefix: "/blog".into(),
            ..settings(folder.path())
        };
        for path in ["/blog", "/blog/", "/blog/index.php"] {
            assert_eq!(
                find(&settings, path),
                Ok(("/index.php".into(), "".into())),
                "{path}"
            );
        }
        for path in ["/blogindex.php", "/index.php", "/blogs/index.php"] {
            assert_eq!(find(&settings, path), Err(ScriptError::Missing), "{path}");
        }
    }

    #[test]
    fn follows_symbolic_links_as_the_site_allows() {
        let folder = tree();
        let follow = PhpSettings {
            symlinks: Symlinks::Follow,
            ..settings(folder.path())
        };
        assert!(find(&follow, "/out.php").is_ok());
        let refuse = PhpSettings {
            symlinks: Symlinks::Refuse,
            ..settings(folder.path())
        };
        assert_eq!(find(&refuse, "/in.php"), Err(ScriptError::Missing));
    }

    #[test]
    fn resolves_a_root_that_is_a_symbolic_link() {
        let folder = tree();
        symlink("root", folder.path().join("current")).unwrap();
        let root = |settings: &PhpSettings| {
            let script = Scripts::new(settings).find(b"/", settings).unwrap();
            String::from_utf8(script.root.to_vec()).unwrap()
        };
        let linked = PhpSettings::new(folder.path().join("current"));
        assert!(root(&linked).ends_with("/root"));
        let unresolved = PhpSettings {
            resolve_root: false,
            ..linked.clone()
        };
        assert!(root(&unresolved).ends_with("/current"));
        let elsewhere = PhpSettings {
            script_root: Some("/srv/app/".into()),
            ..linked
        };
        assert_eq!(root(&elsewhere), "/srv/app");
    }

    #[test]
    fn without_a_local_root_names_alone_decide() {
        let elsewhere = PhpSettings {
            script_root: Some("/srv/app".into()),
            front_controller: Some("/index.php".into()),
            no_php: globs(&["/uploads/**"]),
            ..PhpSettings::default()
        };
        for (path, script, info) in [
            ("/a.php/b", "/a.php", "/b"),
            ("/v1.0/a.php", "/v1.0/a.php", ""),
            ("/", "/index.php", ""),
            ("/pretty/", "/index.php", ""),
        ] {
            assert_eq!(
                find(&elsewhere, path),
                Ok((script.into(), info.into())),
                "{path}"
            );
        }
        assert_eq!(
            find(&elsewhere, "/x.jpg/y.php"),
            Err(ScriptError::Disguised)
        );
        assert_eq!(find(&elsewhere, "/uploads/y.php"), Err(ScriptError::NotRun));
        assert_eq!(find(&elsewhere, "/.git/y.php"), Err(ScriptError::Hidden));
        assert!(find(&elsewhere, "/.git/y").is_ok() && find(&elsewhere, "/a.php/.b").is_ok());
    }

    proptest! {
        #[test]
        fn a_script_is_always_a_regular_file_with_the_ending_of_php(path in "(/(index|folder|uploads|evil|\\.git|a)?(\\.php|\\.jpg|\\.)?){1,4}") {
            static TREE: LazyLock<tempfile::TempDir> = LazyLock::new(tree);
            let folder = &*TREE;
            let settings = settings(folder.path());
            if let Ok(path) = apus_http::path::normalise(&path)
                && let Ok(script) = Scripts::new(&settings).find(&path, &settings)
            {
                let name = String::from_utf8(script.path.to_vec()).unwrap();
                prop_assert!(name.ends_with(".php"));
                let file = folder.path().join("root").join(&name[1..]);
                prop_assert!(file.metadata().unwrap().is_file());
                prop_assert!(!name.starts_with("/uploads/"));
            }
        }
    }
}
