//! `Glob` without the feature `globs`: there is no value of it.

use std::convert::Infallible;

#[derive(Clone, Debug)]
pub(crate) struct Glob(Infallible);

impl Glob {
    pub(crate) fn matches(&self, _: &[u8]) -> bool {
        match self.0 {}
    }
}
