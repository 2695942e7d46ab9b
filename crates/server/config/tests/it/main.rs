//! Tests of `apus.toml`: what is valid, what is refused and where, and what each key does to the plan.

#[cfg(test)]
mod access;
#[cfg(test)]
mod admin;
#[cfg(test)]
mod advice;
#[cfg(test)]
mod bots;
#[cfg(test)]
mod cache;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod geo;
#[cfg(test)]
mod glitches;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod maps;
#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod origins;
#[cfg(test)]
mod php;
#[cfg(test)]
mod upstream_choices;
#[cfg(test)]
mod whens;
#[cfg(test)]
mod workers;
