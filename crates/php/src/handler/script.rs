//! Which program a path means: only one that exists below the root (RFC 3875 sections 3.3 and 4.1.5).
//!
//! PHP itself looks for a program in what stands before a path that is not there, and would so run an
//! image with code in it for `/image.jpg/x.php`. Here a path is split behind a name of PHP where that
//! is a regular file, and nowhere else.

use std::cell::RefCell;
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::time::Instant;

use apus_net::coarse_now;
use rustix::io::Errno;

use super::settings::PhpSettings;
use apus_files::tree::{REVALIDATE, Tree};
use apus_media_type as media_type;

/// How a name ends that is run. Names that differ in case are other names, whatever a file system
/// makes of them: they are neither run nor sent.
const PHP: &[u8] = b".php";

/// How many programs are known to exist at a time.
const MOST_KNOWN: usize = 1024;

/// The programs of a site, on one worker.
pub(super) struct Scripts {
    tree: Option<Tree>,
    recent: RefCell<Recent>,
}

/// What was learnt from the file system.
#[derive(Default)]
struct Recent {
    since: Option<Instant>,
    /// The root as PHP is told.
    root: Rc<[u8]>,
    /// Paths of regular files.
    files: HashSet<Box<[u8]>>,
}

/// A program that a request means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Script {
    /// Its path below the root; starts with a slash.
    pub(super) path: Box<[u8]>,
    /// What of the request's path is behind it.
    pub(super) path_info: Box<[u8]>,
    /// The root as PHP sees it, without a slash at its end.
    pub(super) root: Rc<[u8]>,
    /// Why it is this one.
    pub(super) why: &'static str,
}

/// Why a request means no program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoScript {
    /// A name in the path starts with a dot.
    Hidden,
    /// Nobody is to know what is there.
    Protected,
    /// No program is run there.
    NotRun,
    /// There is none, nor one that answers for others.
    Missing,
    /// The root, or the program that answers for others, is not there.
    NotInstalled,
    /// We may not look there.
    Unreadable,
    /// The root is elsewhere, and what stands before the program looks like a file of another kind.
    Disguised,
}

impl NoScript {
    /// For people.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Hidden => "a name in the path starts with a dot",
            Self::Protected => "the path is protected",
            Self::NotRun => "PHP is not run at this path",
            Self::Missing => "there is no such program, and no front controller",
            Self::NotInstalled => "the root or the front controller is not there",
            Self::Unreadable => "the server may not look into the folder",
            Self::Disguised => "what stands before the program looks like another file",
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
            recent: RefCell::default(),
        }
    }

    /// The program that a path in normal form means.
    pub(super) fn find(&self, path: &[u8], settings: &PhpSettings) -> Result<Script, NoScript> {
        let below = path
            .strip_prefix(settings.prefix.as_bytes())
            .filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
            .ok_or(NoScript::Missing)?;
        let root = self.root(settings)?;
        let looking = Looking {
            scripts: self,
            settings,
            root,
        };
        looking.named(below)
    }

    /// The root as PHP is told, as it was at most a second ago.
    fn root(&self, settings: &PhpSettings) -> Result<Rc<[u8]>, NoScript> {
        let now = coarse_now();
        let mut recent = self.recent.borrow_mut();
        let is_recent = |since: Instant| now.saturating_duration_since(since) < REVALIDATE;
        if recent.since.is_some_and(is_recent) {
            return Ok(Rc::clone(&recent.root));
        }
        recent.files.clear();
        recent.since = None;
        let root = match (&settings.script_root, &settings.root) {
            (Some(root), _) => root.as_bytes().to_vec(),
            (None, Some(root)) if settings.resolve_root => {
                let resolved = root.canonicalize().map_err(|_| NoScript::NotInstalled)?;
                resolved.as_os_str().as_bytes().to_vec()
            }
            (None, Some(root)) => root.as_os_str().as_bytes().to_vec(),
            (None, None) => Vec::new(),
        };
        let root = root.strip_suffix(b"/").unwrap_or(&root);
        if *recent.root != *root {
            recent.root = root.into();
        }
        recent.since = Some(now);
        Ok(Rc::clone(&recent.root))
    }

    /// What is at a path below the root.
    fn look(&self, path: &[u8]) -> There {
        let Some(tree) = &self.tree else {
            return There::File;
        };
        if self.recent.borrow().files.contains(path) {
            return There::File;
        }
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        let found = tree
            .root(coarse_now())
            .and_then(|root| root.metadata(relative));
        match found {
            Ok(metadata) if metadata.is_file() => {
                let mut recent = self.recent.borrow_mut();
                if recent.files.len() >= MOST_KNOWN {
                    recent.files.clear();
                }
                recent.files.insert(path.into());
                There::File
            }
            Ok(metadata) if metadata.is_dir() => There::Folder,
            Ok(_) => There::Nothing,
            Err(Errno::ACCESS | Errno::PERM) => There::Unreadable,
            Err(_) => There::Nothing,
        }
    }
}

enum There {
    File,
    Folder,
    Nothing,
    Unreadable,
}

/// One path being looked for.
struct Looking<'a> {
    scripts: &'a Scripts,
    settings: &'a PhpSettings,
    root: Rc<[u8]>,
}

impl Looking<'_> {
    fn named(&self, below: &[u8]) -> Result<Script, NoScript> {
        if !self.settings.hidden_files && has_hidden_name(below) {
            return Err(NoScript::Hidden);
        }
        for end in ends_of_names(below) {
            let (path, rest) = below.split_at_checked(end).unwrap_or((below, &[]));
            if !path.ends_with(PHP) {
                continue;
            }
            self.refuse(path)?;
            match self.scripts.look(path) {
                There::File if self.scripts.tree.is_none() && is_below_file(path) => {
                    return Err(NoScript::Disguised);
                }
                There::File => return Ok(self.script(path, rest, "the path names it")),
                There::Folder => {}
                There::Nothing => break,
                There::Unreadable => return Err(NoScript::Unreadable),
            }
        }
        if (below.is_empty() || below.ends_with(b"/"))
            && let Some(script) = self.index(below)?
        {
            return Ok(script);
        }
        let Some(front) = &self.settings.front_controller else {
            return Err(NoScript::Missing);
        };
        match self.scripts.look(front.as_bytes()) {
            There::File => {
                let why = "nothing else is at the path, and it is the front controller";
                Ok(self.script(front.as_bytes(), b"", why))
            }
            There::Unreadable => Err(NoScript::Unreadable),
            There::Folder | There::Nothing => Err(NoScript::NotInstalled),
        }
    }

    /// The index of a folder.
    fn index(&self, folder: &[u8]) -> Result<Option<Script>, NoScript> {
        // Where nobody can look, there is one index: that of the root.
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
            match self.scripts.look(&path) {
                There::File => {
                    self.refuse(&path)?;
                    return Ok(Some(self.script(
                        &path,
                        b"",
                        "it is the index of the folder",
                    )));
                }
                There::Unreadable => return Err(NoScript::Unreadable),
                There::Folder | There::Nothing => {}
            }
        }
        Ok(None)
    }

    /// Refuses what is not to be run.
    fn refuse(&self, path: &[u8]) -> Result<(), NoScript> {
        if self
            .settings
            .protected
            .iter()
            .any(|glob| glob.matches(path))
        {
            return Err(NoScript::Protected);
        }
        match self.settings.no_php.iter().any(|glob| glob.matches(path)) {
            true => Err(NoScript::NotRun),
            false => Ok(()),
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

/// Where each name of a path ends.
fn ends_of_names(path: &[u8]) -> impl Iterator<Item = usize> {
    let slashes = memchr::memchr_iter(b'/', path).filter(|at| *at > 0);
    slashes.chain([path.len()])
}

/// Whether a path is one of those that nobody is to know of; see RFC 8615 for the exception.
fn has_hidden_name(path: &[u8]) -> bool {
    let mut names = path.split(|byte| *byte == b'/').skip(1).enumerate();
    names.any(|(at, name)| name.starts_with(b".") && !(at == 0 && name == b".well-known"))
}

/// Whether what a path goes through looks like a file that PHP might take for the program.
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

    fn find(settings: &PhpSettings, path: &str) -> Result<(String, String), NoScript> {
        let script = Scripts::new(settings).find(path.as_bytes(), settings)?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Ok((text(&script.path), text(&script.path_info)))
    }

    #[test]
    fn splits_a_path_behind_a_program_that_exists() {
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
        ] {
            assert_eq!(
                find(&settings, path),
                Ok((script.into(), info.into())),
                "{path}"
            );
        }
    }

    #[test]
    fn never_runs_what_is_no_program_below_the_root() {
        let folder = tree();
        let settings = settings(folder.path());
        for (path, why) in [
            ("/uploads/evil.jpg/x.php", NoScript::NotRun),
            ("/uploads/evil.php", NoScript::NotRun),
            ("/uploads/evil.php/x", NoScript::NotRun),
            ("/wp-config.php", NoScript::Protected),
            ("/wp-config.php/x.php", NoScript::Protected),
            ("/index.php.jpg", NoScript::Missing),
            ("/index.phpx", NoScript::Missing),
            ("/index.php ", NoScript::Missing),
            ("/index.php.", NoScript::Missing),
            ("/INDEX.PHP", NoScript::Missing),
            ("/upper.PHP", NoScript::Missing),
            ("/index.pHp", NoScript::Missing),
            ("/none.php", NoScript::Missing),
            ("/folder.php/", NoScript::Missing),
            ("/folder.php", NoScript::Missing),
            ("/out.php", NoScript::Missing),
            ("/.git/hook.php", NoScript::Hidden),
            ("/index.php/.x", NoScript::Hidden),
        ] {
            assert_eq!(find(&settings, path), Err(why), "{path}");
        }
    }

    #[test]
    fn an_image_is_no_program_however_it_is_asked_for() {
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
    fn the_front_controller_answers_where_nothing_else_does() {
        let folder = tree();
        let settings = PhpSettings {
            front_controller: Some("/index.php".into()),
            ..settings(folder.path())
        };
        for path in ["/a/pretty/url/", "/none.php", "/uploads/", "/x.jpg"] {
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
            "/.env",
        ] {
            assert!(find(&settings, path).is_err(), "{path}");
        }
        let none = PhpSettings {
            front_controller: Some("/app.php".into()),
            ..settings
        };
        assert_eq!(find(&none, "/a"), Err(NoScript::NotInstalled));
    }

    #[test]
    fn a_prefix_counts_with_its_slash() {
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
            assert_eq!(find(&settings, path), Err(NoScript::Missing), "{path}");
        }
    }

    #[test]
    fn links_lead_where_the_site_lets_them() {
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
        assert_eq!(find(&refuse, "/in.php"), Err(NoScript::Missing));
    }

    #[test]
    fn php_is_told_where_a_root_that_is_a_link_leads() {
        let folder = tree();
        symlink("root", folder.path().join("current")).unwrap();
        let root = |settings: &PhpSettings| {
            let script = Scripts::new(settings).find(b"/", settings).unwrap();
            String::from_utf8(script.root.to_vec()).unwrap()
        };
        let linked = PhpSettings::new(folder.path().join("current"));
        assert!(root(&linked).ends_with("/root"));
        let as_it_is = PhpSettings {
            resolve_root: false,
            ..linked.clone()
        };
        assert!(root(&as_it_is).ends_with("/current"));
        let elsewhere = PhpSettings {
            script_root: Some("/srv/app/".into()),
            ..linked
        };
        assert_eq!(root(&elsewhere), "/srv/app");
    }

    #[test]
    fn without_a_root_of_ours_names_alone_decide() {
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
        assert_eq!(find(&elsewhere, "/x.jpg/y.php"), Err(NoScript::Disguised));
        assert_eq!(find(&elsewhere, "/uploads/y.php"), Err(NoScript::NotRun));
    }

    proptest! {
        #[test]
        fn what_is_run_is_always_a_regular_file_of_php(path in "(/(index|folder|uploads|evil|\\.git|a)?(\\.php|\\.jpg|\\.)?){1,4}") {
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
