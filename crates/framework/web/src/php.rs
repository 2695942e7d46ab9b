//! A service whose responses come from PHP, over FastCGI or from resident workers.

pub use apus_php::handler::{Php, PhpSettings};
