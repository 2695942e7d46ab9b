//! Tests of the languages of requests.

#[cfg(test)]
mod languages;
#[cfg(test)]
mod templates;
