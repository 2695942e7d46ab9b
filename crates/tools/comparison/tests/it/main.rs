//! Comparisons of servers of the test whose behaviour is known.

#[cfg(test)]
mod comparison;
#[cfg(test)]
mod documents;
