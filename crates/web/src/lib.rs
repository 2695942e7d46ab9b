//! The web framework of Apus.
