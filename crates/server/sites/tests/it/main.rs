//! Tests of sites: routing, rewrites, internal redirects, error pages.

#[cfg(test)]
mod accel;
#[cfg(test)]
mod challenge;
#[cfg(test)]
mod error_pages;
#[cfg(test)]
mod layers;
#[cfg(test)]
mod maintenance;
#[cfg(test)]
mod own_responses;
#[cfg(test)]
mod rewrite;
#[cfg(test)]
mod routing;
#[cfg(test)]
mod rules;
