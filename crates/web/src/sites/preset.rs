//! Presets: what a kind of site usually wants, as data that its own settings come before.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use apus_http::{HeaderName, HeaderValue, header};

use super::fields::FieldChange;
use super::location::Pattern;
use super::settings::Settings;
use super::site::{Location, Site};
use crate::files::{Files, Glob};

/// A kind of site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// Files as they are.
    #[default]
    Static,
    /// A single-page application: `index.html` answers for the paths that the page itself routes.
    Spa,
}

/// Fields that every response gets.
const GUARDS: &[(HeaderName, &str)] = &[
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "strict-origin-when-cross-origin"),
];

/// A file below these has a hash of its content in its name, so that it never changes.
const HASHED: &[&str] = &[
    "/_app/immutable/**",
    "/_astro/**",
    "/_next/static/**",
    "/_nuxt/**",
];

/// Where the build tools of applications put such files; on other sites any file may be there.
const HASHED_IN_SPA: &[&str] = &[
    "/assets/**",
    "/static/css/**",
    "/static/js/**",
    "/static/media/**",
];

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 2] = [Self::Static, Self::Spa];

    /// The name in configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Spa => "spa",
        }
    }

    /// The page for paths without a file, for [`Files::spa`].
    pub fn page(self) -> Option<&'static str> {
        match self {
            Self::Static => None,
            Self::Spa => Some("/index.html"),
        }
    }

    /// `Cache-Control` by path, to stand behind the rules that a site has of its own.
    pub fn cache_control(self) -> impl Iterator<Item = (Glob, HeaderValue)> {
        let hashed = match self {
            Self::Static => &[],
            Self::Spa => HASHED_IN_SPA,
        };
        let forever = "public, max-age=31536000, immutable";
        let hashed = HASHED
            .iter()
            .chain(hashed)
            .map(move |glob| (*glob, forever));
        // A page names the hashed files, so it has to be asked for anew.
        hashed
            .chain([("*.html", "no-cache")])
            .filter_map(|(glob, value)| {
                let glob = Glob::parse(glob).ok()?;
                Some((glob, HeaderValue::from_static(value)))
            })
    }

    /// Fields for every response, to stand before the changes that a site has of its own.
    pub fn response_fields(self) -> impl Iterator<Item = FieldChange> {
        GUARDS
            .iter()
            .map(|(name, value)| FieldChange::fixed(name.clone(), HeaderValue::from_static(value)))
    }
}

impl Site {
    /// A site of the files below `root`, as the preset has it.
    pub fn of_files(name: &str, preset: Preset, root: impl AsRef<Path>) -> Self {
        let mut files = Files::new(root.as_ref()).cache_control(preset.cache_control());
        if let Some(page) = preset.page() {
            files = files.spa(page);
        }
        let settings = Settings::new().root(&root);
        Self::new(name)
            .settings(
                preset
                    .response_fields()
                    .fold(settings, Settings::response_field),
            )
            .location(Location::files(Pattern::everywhere(), files))
    }
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
        f.write_str("a preset is `static` or `spa`")
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
        assert_eq!("wordpress".parse::<Preset>(), Err(UnknownPreset));
        assert_eq!(Preset::Static.cache_control().count(), HASHED.len() + 1);
        let spa = HASHED.len() + HASHED_IN_SPA.len() + 1;
        assert_eq!(Preset::Spa.cache_control().count(), spa);
    }
}
