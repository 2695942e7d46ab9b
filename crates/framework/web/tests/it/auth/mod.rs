//! CSRF protection.

mod csrf;
