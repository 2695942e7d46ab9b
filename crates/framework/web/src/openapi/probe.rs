//! `TypeProbe`: calls the description of a type if it has one.
//!
//! Of two methods with one name, the compiler takes the one that needs one reference less. That one
//! exists only for types that have a description.

use std::marker::PhantomData;

use super::{DescribeArgument, DescribeResponse, Operation};

/// A type whose description is called if it has one.
#[derive(Debug)]
pub struct TypeProbe<T>(PhantomData<T>);

impl<T> TypeProbe<T> {
    /// A probe for a type.
    #[expect(
        clippy::new_without_default,
        reason = "only the code of attributes calls it"
    )]
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

/// Implemented for arguments with a description.
pub trait ProbeArgument {
    /// Adds the description.
    fn argument(&self, operation: &mut Operation<'_>);
}

impl<T: DescribeArgument> ProbeArgument for TypeProbe<T> {
    fn argument(&self, operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

/// Implemented for responses with a description.
pub trait ProbeResponse {
    /// Adds the description.
    fn response(&self, operation: &mut Operation<'_>);
}

impl<T: DescribeResponse> ProbeResponse for TypeProbe<T> {
    fn response(&self, operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

/// Implemented for all types; it is called for types without a description.
pub trait ProbeFallback {
    /// Does nothing.
    fn argument(&self, operation: &mut Operation<'_>);

    /// Does nothing.
    fn response(&self, operation: &mut Operation<'_>);
}

impl<T> ProbeFallback for &TypeProbe<T> {
    fn argument(&self, _: &mut Operation<'_>) {}

    fn response(&self, _: &mut Operation<'_>) {}
}
