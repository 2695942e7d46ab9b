//! The attributes of `apus`.
