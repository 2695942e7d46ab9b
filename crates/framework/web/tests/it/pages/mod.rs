//! Pages and the files that they need.

mod assets;
mod languages;
mod templates;
